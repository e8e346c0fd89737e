"""`tether send`: what is typed arrives as it was meant."""

import hashlib
import os
import sys
from pathlib import Path

import pytest

from tests.cli.kept import detached, ended, error_of, logs
from tests.cli.running import tether

# Says what it reads, byte for byte, until it has read a line with "end" in it.
ECHO = """
import os, sys, termios, tty
if os.isatty(0) and len(sys.argv) > 1:
    tty.setraw(0)
    print(end=sys.argv[1].encode().decode("unicode_escape"), flush=True)
print("ready", flush=True)
data = b""
while b"end" not in data and (part := os.read(0, 65536)):
    data += part
print(repr(data), flush=True)
"""


def listening(*words: str, options: tuple[str, ...] = ()) -> str:
    """A process that waits for what it is sent."""
    process_id = detached(sys.executable, "-c", ECHO, *words, options=options)
    assert tether("wait", process_id, "--for", "text:ready").returncode == 0
    return process_id


def heard(process_id: str) -> str:
    """What it read, as Python would write it down."""
    assert tether("wait", process_id).returncode == 0
    return logs(process_id, "--view", "text").decode().splitlines()[-1]


@pytest.mark.requirement("design:cli:send")
@pytest.mark.parametrize(("options", "enter"), [((), "\\n"), (("--pty",), "\\r")], ids=["pipes", "pty"])
def test_a_text_is_followed_by_enter(home: Path, options: tuple[str, ...], enter: str) -> None:
    process_id = listening("", options=options)
    finished = tether("send", process_id, "to ü")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, b"", b"")
    assert tether("send", process_id, "--write", "end").returncode == 0
    assert heard(process_id) == f"b'to \\xc3\\xbc{enter}end'"


@pytest.mark.requirement("design:cli:send")
def test_an_empty_text_is_enter_alone(home: Path) -> None:
    process_id = listening()
    for words in (("",), ("--", "--end")):
        assert tether("send", process_id, *words).returncode == 0
    assert heard(process_id) == "b'\\n--end\\n'"


@pytest.mark.requirement("design:cli:send")
def test_keys_are_pressed_by_name(home: Path) -> None:
    process_id = listening("", options=("--pty",))
    assert tether("send", process_id, "--keys", "C-c", "Up", "M-x", "Enter", "e", "n", "d").returncode == 0
    assert heard(process_id) == "b'\\x03\\x1b[A\\x1bx\\rend'"


@pytest.mark.requirement("design:cli:send")
@pytest.mark.parametrize(
    ("mode", "expected"), [("", "b'a\\rend'"), ("\\x1b[?2004h", "b'\\x1b[200~a\\rend\\x1b[201~'")]
)
def test_a_paste_is_bracketed_only_if_the_program_asked(home: Path, mode: str, expected: str) -> None:
    process_id = listening(mode, options=("--pty",))
    assert tether("send", process_id, "--paste", "a\nend").returncode == 0
    assert heard(process_id) == expected


@pytest.mark.requirement("design:cli:send")
def test_written_bytes_are_sent_as_they_are(home: Path) -> None:
    process_id = listening()
    assert tether("send", process_id, "--write", b"\xff\n").returncode == 0
    assert tether("send", process_id, "--write", "-", stdin=b"\x00\x1b-end").returncode == 0
    assert heard(process_id) == "b'\\xff\\n\\x00\\x1b-end'"


@pytest.mark.requirement("design:cli:send")
def test_stdin_of_any_size_is_sent_as_fast_as_it_is_read(home: Path) -> None:
    process_id = detached("sh", "-c", "sleep 0.5; sha256sum")
    content = os.urandom(20_000_000)
    assert tether("send", process_id, "--write", "-", stdin=content).returncode == 0
    assert tether("send", process_id, "--eof").returncode == 0
    assert tether("wait", process_id).returncode == 0
    assert logs(process_id).split()[0].decode() == hashlib.sha256(content).hexdigest()


@pytest.mark.requirement("design:cli:send")
@pytest.mark.parametrize("options", [(), ("--pty",)], ids=["pipes", "pty"])
def test_eof_ends_the_input(home: Path, options: tuple[str, ...]) -> None:
    process_id = detached("cat", options=options)
    assert tether("send", process_id, "--eof").returncode == 0
    assert tether("wait", process_id).returncode == 0


@pytest.mark.requirement("design:cli:send-once")
def test_a_numbered_piece_is_taken_once_however_often_it_is_sent(home: Path) -> None:
    process_id = detached("cat")
    for number, word in ((1, "one "), (1, "one "), (2, "two "), (1, "one "), (2, "two "), (3, "three")):
        finished = tether("send", process_id, "--writer", "w", "--number", str(number), "--write", word)
        assert (finished.returncode, finished.stderr) == (0, b"")
    code, message = error_of(tether("send", process_id, "--writer", "w", "--number", "5", "--write", "five"))
    assert code == 1
    assert "'w'" in message
    assert tether("send", process_id, "--writer", "w", "--number", "4", "--eof").returncode == 0
    tether("wait", process_id)
    assert logs(process_id) == b"one two three"


@pytest.mark.requirement("design:cli:errors")
@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "Nothing to send"),
        (("a", "b"), "2 words"),
        (("--eof", "text"), "--eof"),
        (("--keys",), "Nothing to send"),
        (("--keys", "--paste", "x"), "--keys and --paste"),
        (("--writer", "w", "--write", "x"), "--number"),
        (("--number", "1", "--write", "x"), "--writer"),
        (("--writer", "w", "--number", "0", "--write", "x"), "0"),
        (("--writer", "w", "--number", "1", "x"), "--write"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(home: Path, words: tuple[str, ...], named: str) -> None:
    code, message = error_of(tether("send", "x", *words))
    assert code == 2
    assert named in message


@pytest.mark.requirement("design:cli:errors")
def test_a_key_nobody_knows_is_bad_usage(home: Path) -> None:
    code, message = error_of(tether("send", detached("cat", options=("--pty",)), "--keys", "Enter", "C-nosuch"))
    assert (code, "C-nosuch" in message) == (2, True)


@pytest.mark.requirement("design:cli:send")
def test_a_process_that_has_ended_takes_nothing(home: Path) -> None:
    process_id = ended("true")
    for words in (("x",), ("--keys", "a"), ("--paste", "x"), ("--write", "x"), ("--eof",)):
        code, message = error_of(tether("send", process_id, *words))
        assert code == 1
        assert "ended" in message

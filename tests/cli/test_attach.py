"""`tether attach` through a person's own terminal window: what it shows, what is typed, and how it is left."""

import hashlib
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.kept import detached, error_of, record
from tests.cli.persons_terminal import Window, attach, left_as_it_was, window
from tests.cli.running import TETHER, eventually, tether
from tests.helpers import alive, python

pytestmark = pytest.mark.requirement("design:cli:attach")

ON_TERMINAL = ("--pty", "--size", "80x24")
BASH = ("env", "PS1=ready> ", "bash", "--norc", "--noprofile", "-i")
DETACH = b"\x1d"

# Says what it reads, without the terminal's line editor between.
RAW_READER = """
import hashlib, os, sys, tty
tty.setraw(0)
os.write(1, b"raw\\r\\n")
wanted, seen = int(sys.argv[1]), b""
while len(seen) < wanted:
    seen += os.read(0, 65536)
os.write(1, f"sha {hashlib.sha256(seen).hexdigest()}\\r\\n".encode())
"""


def bash() -> str:
    return detached(*BASH, options=ON_TERMINAL)


def is_running(process_id: str) -> bool:
    return record(process_id)["status"] == "running"


def test_a_shell_is_shown_typed_into_and_left_running(home: Path) -> None:
    process_id = bash()
    assert tether("send", process_id, "echo $((40+2))").returncode == 0
    with window(*attach(process_id), cols=100, rows=30) as at:
        at.until_shown(r"(?m)^42$")
        short = process_id[:8]
        assert f"tether: attached to {short} (env), detach with Ctrl-]".encode() in at.received
        assert at.emulator.title == f"{short} (env) - detach with Ctrl-]"
        at.type(b"stty size; echo d$((1))ne\r")
        at.until_shown(r"(?m)^30 100\nd1ne$")
        at.type(DETACH)
        assert at.ended() == 0
        assert f"tether: detached from {short} (env); it runs on" in at.text
        assert at.typed_back == b""
        left_as_it_was(at)
    assert is_running(process_id)
    with window(*attach(process_id)) as again:
        again.until_shown(r"(?m)^42\n(.*\n)*30 100\nd1ne\nready>$")


def has_size(at: Window, size: str) -> bool:
    """Whether a shell has that size within a few keys: not each of them is worth a look at a long log."""
    for number in range(20):
        at.type(f"echo $(({number}+100)) $(stty size)\r".encode())
        at.until_shown(rf"(?m)^{number + 100} \d+ \d+$")
        if f"\n{number + 100} {size}\n" in at.text:
            return True
    return False


@pytest.mark.requirement("design:cli:attach-exit")
def test_the_exit_code_is_that_of_a_process_that_ends(home: Path) -> None:
    process_id = bash()
    with window(*attach(process_id)) as at:
        at.until_shown("ready>")
        at.type(b"exit 7\r")
        assert at.ended() == 7
        # Right below what the shell showed, which stays where it is.
        assert at.text.rstrip("\n").split("\n") == [
            "ready> exit 7",
            "exit",
            f"tether: {process_id[:8]} (env) ended with exit code 7 (exited)",
        ]
        left_as_it_was(at)
    process_id = detached("sleep", "100", options=ON_TERMINAL)
    with window(*attach(process_id)) as at:
        at.until_painted()
        tether("kill", process_id)
        assert at.ended() == 128 + signal.SIGKILL
        assert "was ended by SIGKILL (stopped)" in at.text


@pytest.mark.requirement("design:cli:attach-many")
def test_two_people_see_the_same_and_the_one_who_typed_last_has_the_size(home: Path) -> None:
    process_id = bash()
    with window(*attach(process_id), cols=90, rows=20) as one:
        one.until_shown("ready>")
        with window(*attach(process_id), cols=70, rows=25) as two:
            two.until_shown("ready>")
            one.type(b"echo fr$((0))m one\r")
            for at in (one, two):
                at.until_shown("(?m)^fr0m one$")
            assert has_size(one, "20 90")
            two.type(b"echo fr$((0))m two\r")
            for at in (one, two):
                at.until_shown("(?m)^fr0m two$")
            assert has_size(two, "25 70")
            two.resize(60, 15)
            assert has_size(two, "15 60")
            two.type(DETACH)
            assert two.ended() == 0
            left_as_it_was(two)
        assert has_size(one, "20 90")


@pytest.mark.requirement("design:cli:attach-many")
def test_two_people_in_one_vim(home: Path, tmp_path: Path) -> None:
    options = (*ON_TERMINAL, "--cwd", str(tmp_path))
    process_id = detached("vim", "-u", "NONE", "-N", "note.txt", options=options)
    with window(*attach(process_id)) as one, window(*attach(process_id)) as two:
        for at in (one, two):
            at.until_shown(r'"note\.txt" \[New')
            assert at.emulator.alternate_screen
        one.type("ifirst línea\r".encode())
        two.until_shown("(?m)^first línea\n")
        two.type(b"second\x1b")
        for at in (one, two):
            at.until_shown("(?m)^first línea\nsecond$")
            at.until_gone("INSERT")
        with window(*attach(process_id)) as three:
            three.until_shown("(?m)^first línea\nsecond\n~")
            three.type(b":wq\r")
            for at in (one, two, three):
                assert at.ended() == 0
                assert at.typed_back == b""
                left_as_it_was(at)
    assert (tmp_path / "note.txt").read_text() == "first línea\nsecond\n"


@pytest.mark.requirement("design:cli:attach-queries")
def test_queries_are_answered_once_however_many_watch(home: Path) -> None:
    script = r"""
        stty raw -echo; IFS= read -r -d . go
        printf '\033[6n'; IFS= read -r -d R place
        printf '\033[c'; IFS= read -r -d c device
        printf '\033]11;?\033\\\033[>q\033[?u\033[?2026$p\005\033Z'
        printf 'asked'; IFS= read -r -d . rest
        stty sane; printf '\n%q %q\n' "$place" "$device"
        test "${rest##*typed}" = '' || printf 'stray %q\n' "$rest"
        read -r last
    """
    process_id = detached("bash", "-c", script, options=ON_TERMINAL)
    with window(*attach(process_id)) as one, window(*attach(process_id)) as two:
        for at in (one, two):
            at.until_painted()
        one.type(b".")
        two.until_shown("asked")
        one.until_shown("asked")
        two.type(b"typed.")
        for at in (one, two):
            at.until_shown(r"\$'\\E\[\d+;\d+' \$'\\E\[\?")
            assert "stray" not in at.text
            assert at.typed_back == b""


@pytest.mark.requirement("design:cli:attach-input")
def test_a_paste_of_a_megabyte_arrives_whole(home: Path) -> None:
    pasted = bytes(byte for byte in os.urandom(1_100_000) if byte != DETACH[0])[:1_000_000]
    process_id = detached(*python(RAW_READER), str(len(pasted)), options=ON_TERMINAL)
    with window(*attach(process_id)) as at:
        at.until_shown("raw")
        at.type(pasted)
        at.until_shown(f"sha {hashlib.sha256(pasted).hexdigest()}"[:70])
        assert at.ended() == 0


@pytest.mark.requirement("design:cli:attach-input")
def test_what_the_process_cannot_take_is_told(home: Path) -> None:
    # A terminal's echo comes in the middle of what a program writes at that moment.
    process_id = detached("sh", "-c", "stty -echo; echo silent; exec cat", options=ON_TERMINAL)
    with window(*attach(process_id)) as at:
        at.until_shown("(?m)^silent$")
        at.type(b"short\r" + b"x" * 5000 + b"\rbehind\r")
        at.until_shown("(?m)^behind$")
        assert b"\a" in at.received
        at.type(DETACH)
        assert at.ended() == 0
        assert "tether: not all that you typed has reached it: a line of 5000 bytes is longer" in at.text


@pytest.mark.requirement("design:cli:attach-key")
def test_another_key_detaches_and_the_usual_one_goes_through(home: Path) -> None:
    process_id = detached("cat", "-v", options=ON_TERMINAL)
    with window(*attach(process_id, "--detach-key", "C-a")) as at:
        at.until(lambda: b"detach with Ctrl-A" in at.received)
        at.type(b"x\x1dy\r")
        at.until_shown(r"(?m)^x\^\]y$")
        at.type(b"\x01")
        assert at.ended() == 0
    with window(*attach(process_id, "--detach-key", "none")) as at:
        at.until(lambda: b"no key detaches" in at.received)
        at.type(b"\x1d\x01z\r")
        at.until_shown(r"(?m)^\^\]\^Az$")
        at.program.send_signal(signal.SIGTERM)
        assert at.ended() == 128 + signal.SIGTERM


@pytest.mark.requirement("design:cli:attach-key")
@pytest.mark.parametrize(
    "spelt", [b"\x1b[93;5u", b"\x1b[93;69:1u", b"\x1b[27;5;93~"], ids=["kitty", "locked", "xterm"]
)
def test_the_key_is_known_however_the_keyboard_spells_it(home: Path, spelt: bytes) -> None:
    process_id = detached("cat", options=ON_TERMINAL)
    with window(*attach(process_id)) as at:
        at.until_painted()
        at.type(spelt)
        assert at.ended() == 0
    assert is_running(process_id)


@pytest.mark.requirement("design:cli:attach-key")
def test_a_key_that_cannot_detach_is_refused(home: Path) -> None:
    for name in ("q", "Enter", "C-[", "C-m", "F5", "M-a"):
        with window(*attach("none", "--detach-key", name)) as at:
            assert at.ended() == 2
            assert re.search(r"tether: .*(C-\]|key)", at.text)


@pytest.mark.requirement("design:cli:attach-read-only")
def test_read_only_looks_and_touches_nothing(home: Path) -> None:
    process_id = bash()
    with window(*attach(process_id, "--read-only"), cols=100, rows=40) as looking, window(*attach(process_id)) as at:
        looking.until_shown("ready>")
        at.until_shown("ready>")
        looking.type(b"echo unwanted\r")
        at.type(b"stty size; echo d$((1))ne\r")
        for each in (at, looking):
            each.until_shown(r"24 80\nd1ne")
        assert "unwanted" not in at.text
        looking.type(b"\x03")
        assert looking.ended() == 0
        left_as_it_was(looking)


@pytest.mark.requirement("design:cli:attach-pipes")
def test_a_process_on_pipes_shows_its_output_and_gets_lines(home: Path) -> None:
    process_id = detached(
        sys.executable, "-u", "-c", "print('hello')\nfor line in open(0): print('got', line, end='')"
    )
    with window(*attach(process_id)) as at:
        at.until_shown(r"Ctrl-D ends its\s+input\nhello")
        at.type(b"one\rtwo\x7fO\r")
        at.until_shown("got one\n(.*\n)*got twO")
        at.type(b"\x03")
        assert at.ended() == 0
        assert at.settings() == at.settings_before
    with window(*attach(process_id)) as at:
        at.until_shown("got twO")
        at.type(DETACH)
        assert at.ended() == 0
    assert is_running(process_id)
    with window(*attach(process_id)) as at:
        at.until_shown("got twO")
        at.type(b"\x04")
        assert at.ended() == 0
        assert "ended with exit code 0" in at.text
        assert at.settings() == at.settings_before


@pytest.mark.requirement("design:cli:attach-usage")
def test_without_a_terminal_it_says_so(home: Path) -> None:
    code, message = error_of(tether("attach", "whatever"))
    assert code == 2
    assert "must be a terminal" in message


@pytest.mark.requirement("design:cli:attach-usage")
def test_a_process_that_is_none_or_has_ended_is_refused(home: Path) -> None:
    process_id = detached("sh", "-c", "exit 3", options=ON_TERMINAL)
    tether("wait", process_id)
    with window(*attach(process_id), cols=200) as at:
        assert at.ended() == 1
        assert f"tether: process {process_id} has ended with exit code 3; `tether logs" in at.text
        assert at.settings() == at.settings_before
    with window(*attach("nobody"), cols=200) as at:
        assert at.ended() == 2
        assert "tether: no process 'nobody'" in at.text


@pytest.mark.requirement("design:cli:attach-inside")
def test_a_process_cannot_be_attached_to_from_within_itself(home: Path) -> None:
    process_id = bash()
    with window(*attach(process_id), cols=200) as at:
        at.until_shown("ready>")
        for number, words in enumerate((process_id, f"--read-only {process_id[:12]}")):
            at.type(f"{TETHER} attach {words}; echo code{number} $?\r".encode())
            at.until_shown(rf"(?m)^code{number} \d+$")
            assert f"\ncode{number} 2\n" in at.text
        assert at.text.count(f"\ntether: you are inside this process; attach to {process_id} from a terminal") == 2
        # Another one may well be looked at from here, through a shell within the shell too.
        other = detached("sh", "-c", "echo other; read line", options=ON_TERMINAL)
        at.type(f"bash -c '{TETHER} attach {other}; exit 5'\r".encode())
        at.until_shown("(?m)^other$")


@pytest.mark.requirement("design:cli:attach-killed")
def test_killing_the_attached_command_leaves_the_process_alone(home: Path) -> None:
    process_id = bash()
    with window(*attach(process_id)) as at:
        at.until_shown("ready>")
        at.program.kill()
        at.ended()
    pid = record(process_id)["pid"]
    assert isinstance(pid, int)
    assert alive(pid)
    with window(*attach(process_id)) as at:
        at.until_shown("ready>")
        at.type(b"echo st$((1))ll\r")
        at.until_shown("(?m)^st1ll$")


@pytest.mark.requirement("design:cli:attach-killed")
def test_a_window_that_is_closed_leaves_the_process_alone(home: Path) -> None:
    process_id = bash()
    with window(*attach(process_id)) as at:
        at.until_shown("ready>")
        at.hang_up()
        eventually(lambda: at.program.poll() is not None)
        assert at.program.returncode == 128 + signal.SIGHUP
    assert is_running(process_id)

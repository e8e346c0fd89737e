"""`tether logs`: everything a process wrote, from anywhere in it, and what is missing is told."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kept import at_terminal, detached, ended, error_of, logs, shown
from tests.cli.running import BOUND, TETHER, in_shell, one_line, read_line, started, tether


@pytest.mark.requirement("design:cli:logs")
def test_raw_are_the_bytes_exactly_of_both_streams_together_or_of_one(home: Path) -> None:
    code = "import os; os.write(1, bytes(range(256))); os.write(2, b'err\\n'); os.write(1, b'\\x1b[c')"
    process_id = ended(sys.executable, "-c", code)
    raw = logs(process_id)  # how two pipes lie beside each other in time nobody can know
    assert (raw.replace(b"err\n", b""), raw.count(b"err\n")) == (bytes(range(256)) + b"\x1b[c", 1)
    assert logs(process_id, "--stream", "stdout") == bytes(range(256)) + b"\x1b[c"
    assert logs(process_id, "--stream", "stderr") == b"err\n"


@pytest.mark.requirement("design:cli:logs")
def test_offset_and_limit_count_bytes(home: Path) -> None:
    process_id = ended("printf", "0123456789")
    assert logs(process_id, "--offset", "3") == b"3456789"
    assert logs(process_id, "--offset", "3", "--limit", "4") == b"3456"
    assert logs(process_id, "--limit", "0") == b""
    assert logs(process_id, "--offset", "10") == logs(process_id, "--offset", "11") == b""


@pytest.mark.requirement("design:cli:logs")
@pytest.mark.parametrize("ending", ["", "\\n"])
def test_tail_begins_so_many_lines_before_the_end(home: Path, ending: str) -> None:
    process_id = ended("printf", f"one\\n\\nthree\\nfour{ending}")
    lines = [b"one\n", b"\n", b"three\n", b"four" + ending.replace("\\n", "\n").encode()]
    for count in (0, 1, 3, 4, 100):
        assert logs(process_id, "--tail", str(count)) == b"".join(lines[len(lines) - min(count, 4) :])


@pytest.mark.requirement("design:cli:logs")
def test_tail_of_one_stream_among_much_of_the_other(home: Path) -> None:
    code = """
import os
for n in range(3000):
    os.write(2, b"%05d\\n" % n)
    os.write(1, b"x" * 100 + b"\\n")
"""
    process_id = ended(sys.executable, "-c", code)
    expected = b"".join(b"%05d\n" % n for n in range(1500, 3000))
    assert logs(process_id, "--tail", "1500", "--stream", "stderr") == expected
    assert logs(process_id, "--tail", "4000", "--stream", "stderr").startswith(b"00000\n")


@pytest.mark.requirement("design:cli:logs-view")
def test_text_has_no_escapes_and_overwritten_lines_as_they_were_left(home: Path) -> None:
    process_id = ended("printf", "\\033[31mred\\033[0m\\n10%%\\r100%%\\nopen", options=("--pty",))
    assert logs(process_id, "--view", "text") == b"red\n100%\nopen"


@pytest.mark.requirement("design:cli:logs-view")
def test_screen_is_what_a_person_would_see(home: Path) -> None:
    process_id = detached(
        "sh", "-c", "printf '\\033[2J\\033[3;5Hhere'; sleep 100", options=("--pty", "--size", "20x5")
    )
    tether("wait", process_id, "--for", "text:here")
    assert logs(process_id, "--view", "screen") == b"\n\n    here\n"


@pytest.mark.requirement("design:cli:logs-view")
def test_a_process_on_pipes_has_no_screen(home: Path) -> None:
    code, message = error_of(tether("logs", ended("true"), "--view", "screen"))
    assert code == 1
    assert "no terminal" in message


@pytest.mark.requirement("design:cli:logs-view")
async def test_at_a_terminal_questions_to_terminals_are_left_out(home: Path) -> None:
    process_id = ended("printf", "a\\033[cb\\033[6n\\033[1mc\\033[0m")
    async with at_terminal("logs", process_id) as process:
        assert (await process.wait()).code == 0
        assert (await process.read(0)).data == b"ab\x1b[1mc\x1b[0m"


@pytest.mark.requirement("design:cli:logs-view")
@pytest.mark.parametrize("word", ["\\033[?1000h", "\\033[?1049h"], ids=["mouse", "screen"])
async def test_after_the_log_of_a_whole_screen_the_terminal_is_usable_again(home: Path, word: str) -> None:
    process_id = detached("sh", "-c", f"printf '{word}on'; sleep 100", options=("--pty",))
    async with at_terminal("logs", "-f", process_id) as process:
        await shown(process, "on")
        await process.send_keys(["C-c"])
        status = await process.wait()
        data = (await process.read(0)).data
        assert status.code == 130, data
    assert word.encode().replace(b"\\033", b"\x1b") + b"on" in data
    assert word.encode().replace(b"\\033", b"\x1b").replace(b"h", b"l") in data


@pytest.mark.requirement("design:cli:logs-follow")
def test_follow_shows_output_as_it_comes_and_ends_with_the_process(home: Path) -> None:
    process_id = detached("sh", "-c", "echo first; while read line; do echo got $line; done")
    with started("logs", "-f", process_id) as running:
        assert read_line(running) == b"first\n"
        tether("send", process_id, "one")
        assert read_line(running) == b"got one\n"
        tether("send", process_id, "--eof")
        assert running.wait(BOUND) == 0
        assert read_line(running) == b""


@pytest.mark.requirement("design:cli:logs-follow")
def test_follow_loses_nothing_of_a_fast_writer_whose_log_keeps_it(home: Path) -> None:
    code = "import sys; sys.stdin.readline(); [sys.stdout.buffer.write(b'%063d\\n' % n) for n in range(1_000_000)]"
    process_id = detached(sys.executable, "-c", code, options=("--cap", "200000000"))
    follower = subprocess.Popen((TETHER, "logs", "-f", process_id), stdout=subprocess.PIPE)
    tether("send", process_id, "go")
    assert follower.stdout is not None
    count = 0
    for line in follower.stdout:
        assert int(line) == count
        count += 1
    follower.stdout.close()
    assert follower.wait(BOUND) == 0
    assert count == 1_000_000


@pytest.mark.requirement("design:cli:logs-follow")
def test_what_a_full_log_dropped_is_told_where_it_is_missing(home: Path) -> None:
    code = "import sys; [sys.stdout.buffer.write(b'%063d\\n' % n) for n in range(100_000)]"
    process_id = ended(sys.executable, "-c", code, options=("--cap", "1000000"))
    finished = tether("logs", process_id)
    count, _, words = one_line(finished).partition(" ")
    assert words == "bytes dropped here"
    assert int(count) + len(finished.stdout) == 6_400_000
    assert finished.stdout.startswith(b"%063d\n" % 0)
    assert finished.stdout.endswith(b"%063d\n" % 99_999)
    assert tether("logs", "--tail", "3", process_id).stderr == b""


@pytest.mark.requirement("design:cli:logs-follow")
def test_a_reader_that_goes_away_ends_it_quietly(home: Path) -> None:
    process_id = detached("yes")
    finished = in_shell('"$0" logs -f "$1" | head -n 2', process_id)
    assert (finished.stdout, finished.stderr) == (b"y\ny\n", b"")


@pytest.mark.requirement("design:cli:logs-follow")
def test_ctrl_c_ends_the_follower_and_not_the_process(home: Path) -> None:
    process_id = detached("sh", "-c", "echo x; sleep 100")
    with started("logs", "-f", process_id) as running:
        read_line(running)
        running.send_signal(signal.SIGINT)
        assert running.wait(BOUND) == -signal.SIGINT
        assert running.stderr is not None
        assert running.stderr.read() == b""
    assert tether("wait", process_id, "--timeout", "0.01").returncode == 124


@pytest.mark.requirement("design:cli:logs")
def test_a_process_that_writes_on_does_not_keep_logs_from_ending(home: Path) -> None:
    process_id = detached("yes")
    tether("wait", process_id, "--for", "output", "--offset", "0")
    assert tether("logs", process_id, "--limit", "4").stdout == b"y\ny\n"
    assert tether("logs", process_id).returncode == 0


@pytest.mark.requirement("design:cli:errors")
@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "ID"),
        (("x", "--offset", "-1"), "-1"),
        (("x", "--tail", "some"), "'some'"),
        (("x", "--view", "colour"), "colour"),
        (("x", "--stream", "stdin"), "stdin"),
        (("x", "--offset", "1", "--tail", "1"), "--tail"),
        (("x", "--view", "screen", "-f"), "attach"),
        (("",), "''"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(home: Path, words: tuple[str, ...], named: str) -> None:
    code, message = error_of(tether("logs", *words))
    assert code == 2
    assert named in message


@pytest.mark.requirement("design:cli:logs")
def test_a_stdout_that_takes_nothing_is_told(home: Path) -> None:
    finished = in_shell('exec "$0" logs "$1" >/dev/full', ended("echo", "x"))
    assert finished.returncode == 1
    assert "No space left on device" in one_line(finished)

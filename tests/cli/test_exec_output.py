"""`tether exec`: every byte of the command passes through, live, in order, and to whoever reads how slowly."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import BOUND, eventually, in_shell, is_full, one_line, read_line, say, started, tether
from tests.helpers import alive

MUCH = 30 * 1024 * 1024
NOBODY_READS = 128 + signal.SIGPIPE


@pytest.mark.requirement("design:cli:exec-whole")
@pytest.mark.parametrize("mode", [(), ("--direct",)], ids=["shell", "direct"])
def test_30_mb_pass_through_byte_for_byte(mode: tuple[str, ...], tmp_path: Path) -> None:
    content = os.urandom(MUCH)
    (tmp_path / "content").write_bytes(content)
    finished = tether("exec", *mode, "--", "cat", str(tmp_path / "content"))
    assert finished.returncode == 0
    assert finished.stdout == content
    assert finished.stderr == b""


@pytest.mark.requirement("design:cli:exec-whole")
def test_30_mb_pass_whole_to_a_reader_who_comes_late_and_reads_slowly(tmp_path: Path) -> None:
    content = os.urandom(MUCH)
    (tmp_path / "content").write_bytes(content)
    with started("exec", "--direct", "--", "cat", str(tmp_path / "content")) as running:
        assert running.stdout is not None
        eventually(lambda: running.stdout is not None and is_full(running.stdout.fileno()))
        pieces: list[bytes] = []
        while piece := os.read(running.stdout.fileno(), 5000):
            pieces.append(piece)
        assert b"".join(pieces) == content
        assert running.wait(BOUND) == 0


@pytest.mark.requirement("design:cli:exec-whole")
def test_both_streams_pass_whole_at_the_same_time() -> None:
    code = """
import sys, threading
def fill(stream, byte):
    for _ in range(500):
        stream.write(byte * 10_007)
both = (sys.stdout.buffer, b"o"), (sys.stderr.buffer, b"e")
threads = [threading.Thread(target=fill, args=one) for one in both]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    finished = tether("exec", "--direct", "--", sys.executable, "-c", code)
    assert finished.stdout == b"o" * 500 * 10_007
    assert finished.stderr == b"e" * 500 * 10_007


@pytest.mark.requirement("design:cli:exec-whole")
def test_a_stream_that_was_made_non_blocking_loses_nothing() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with started("exec", "--direct", "--", "head", "-c", "5000000", "/dev/zero", stdout=writing) as running:
        os.close(writing)
        eventually(lambda: is_full(reading))
        with open(reading, "rb") as stream:
            assert len(stream.read()) == 5_000_000
        assert running.wait(BOUND) == 0


@pytest.mark.requirement("design:cli:exec-live")
def test_output_is_there_while_the_command_still_runs_and_in_order_across_both_streams() -> None:
    script = "echo one; read x; echo two >&2; read x; printf three; read x; exit 5"
    with started("exec", "--", "sh", "-c", script, stderr=subprocess.STDOUT) as running:
        assert read_line(running) == b"one\n"
        say(running, b"")
        assert read_line(running) == b"two\n"
        say(running, b"")
        assert running.stdout is not None
        assert running.stdout.read(5) == b"three"
        assert running.poll() is None
        say(running, b"")
        assert running.wait(BOUND) == 5


@pytest.mark.requirement("design:log:order")
def test_the_order_within_a_stream_is_exact() -> None:
    finished = tether("exec", "--direct", "--", "seq", "200000")
    assert finished.stdout.split() == [b"%d" % number for number in range(1, 200_001)]


@pytest.mark.requirement("design:cli:exec-live")
def test_a_reader_who_has_seen_enough_ends_the_command_at_once() -> None:
    with started("exec", "--direct", "--", "sh", "-c", "echo $$; exec yes") as running:
        pid = int(read_line(running))
        assert alive(pid)
        assert running.stdout is not None
        running.stdout.close()
        assert running.wait(BOUND) == NOBODY_READS
        assert not alive(pid)
        assert running.stderr is not None
        assert running.stderr.read() == b""


@pytest.mark.requirement("design:cli:exec-live")
def test_a_reader_who_leaves_when_nothing_fits_any_more_ends_the_command_too() -> None:
    with started("exec", "--direct", "--", "sh", "-c", "echo $$; exec yes") as running:
        pid = int(read_line(running))
        assert running.stdout is not None
        # The program's own buffer is full when the command can write no more.
        eventually(lambda: _written(pid) > 16 * 1024 * 1024)
        running.stdout.close()
        assert running.wait(BOUND) == NOBODY_READS
        assert not alive(pid)


@pytest.mark.requirement("design:cli:exec-live")
def test_head_gets_its_line_from_a_command_that_never_ends() -> None:
    finished = in_shell('"$0" exec -- yes | head -1')
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, b"y\n", b"")


@pytest.mark.requirement("design:cli:errors")
@pytest.mark.parametrize("option", ["--direct", "--json"])
def test_a_full_device_is_told_in_one_line_and_ends_the_command(option: str) -> None:
    finished = in_shell('exec "$0" exec "$1" -- sh -c "echo x; exec sleep 1" >/dev/full', option)
    assert finished.returncode == 1
    assert "No space left on device" in one_line(finished)


@pytest.mark.requirement("design:cli:errors")
def test_closed_streams_swallow_what_is_written_and_change_nothing_else() -> None:
    for closed in (">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
        finished = in_shell(f'"$0" exec --direct -- sh -c "echo out; echo err >&2; exit 6" {closed}')
        assert finished.returncode == 6
        assert finished.stdout == (b"" if ">&-" in closed.replace("2>&-", "") else b"out\n")
        assert finished.stderr == (b"" if "2>&-" in closed else b"err\n")


@pytest.mark.requirement("design:exit-and-eof-are-two-events")
def test_a_command_that_closes_its_output_early_is_still_waited_for() -> None:
    with started("exec", "--direct", "--", "sh", "-c", "echo x; exec >&- 2>&-; read line; exit 4") as running:
        assert read_line(running) == b"x\n"
        assert running.poll() is None
        say(running, b"go on")
        assert running.wait(BOUND) == 4
        assert running.stdout is not None
        assert running.stdout.read() == b""


@pytest.mark.requirement("design:exit:at-once-loses-nothing")
def test_a_command_that_exits_at_once_after_writing_loses_nothing() -> None:
    code = "import os; os.write(1, b'x' * 60_000); os._exit(9)"
    for _ in range(5):
        finished = tether("exec", "--direct", "--", sys.executable, "-c", code)
        assert (finished.returncode, len(finished.stdout)) == (9, 60_000)


def _written(pid: int) -> int:
    """How many bytes process `pid` has written so far."""
    counters = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    return next(int(line.removeprefix("wchar: ")) for line in counters if line.startswith("wchar: "))

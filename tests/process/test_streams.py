"""The bytes a child writes: every one of them, in order, however fast it writes and ends."""

import asyncio
import errno
import hashlib
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import wait_until
from tether.process.command import Command, OutputPolicy, Overflow, Pipes, Pty
from tether.process.exit_status import Cause
from tether.process.log_reader import STDERR, STDOUT
from tether.process.process import Process
from tether.process.table import ProcessTable, open_process
from tether.process.waiting import Text, wait_for

MEGABYTE = 1024 * 1024
WHOLE = OutputPolicy(64 * MEGABYTE, Overflow.STOP)
FLAT = OutputPolicy(8 * MEGABYTE, Overflow.WAIT)
NUMBERS = 1_450_000  # 10.4 MB of counted lines
on_both_streams = pytest.mark.parametrize("stdio", [Pipes(), Pty()], ids=["pipes", "pty"])


@pytest.fixture(scope="module")
def counted() -> bytes:
    return b"".join(b"%d\n" % number for number in range(1, NUMBERS + 1))


async def said(process: Process, pattern: str) -> None:
    waited = await wait_for(process, Text(re.compile(pattern)), timeout=10)
    assert waited.met, process.output.read(0).data


@pytest.mark.requirement("000:process:output:async")
@pytest.mark.requirement("design:log:order")
@pytest.mark.requirement("002:1.4")
async def test_the_two_streams_of_a_child_on_pipes_stay_apart_and_in_order() -> None:
    script = "for i in 1 2 3 4 5; do echo out$i; echo err$i >&2; done"
    async with open_process(Command(argv=("sh", "-c", script))) as process:
        assert (await process.wait()).code == 0
        assert process.output.read_stream(STDOUT).data == b"".join(b"out%d\n" % i for i in range(1, 6))
        assert process.output.read_stream(STDERR).data == b"".join(b"err%d\n" % i for i in range(1, 6))


@pytest.mark.requirement("002:1.4")
@pytest.mark.requirement("002:3.5")
async def test_a_terminal_keeps_the_order_across_both_streams_and_every_escape() -> None:
    script = r"printf '\033[31m1\n'; echo 2 >&2; printf '\a\b3\033[0m'"
    async with open_process(Command(argv=("sh", "-c", script), stdio=Pty())) as process:
        assert (await process.wait()).code == 0
        assert process.output.read(0).data == b"\x1b[31m1\r\n2\r\n\a\b3\x1b[0m"


@on_both_streams
@pytest.mark.requirement("000:process:output:streaming")
@pytest.mark.requirement("001:pty:output")
@pytest.mark.requirement("002:1.1")
@pytest.mark.requirement("002:1.2")
@pytest.mark.requirement("002:1.3")
async def test_output_is_there_while_the_child_still_runs(stdio: Pipes | Pty) -> None:
    script = "echo one; echo two >&2; read line; echo three"
    async with open_process(Command(argv=("sh", "-c", script), stdio=stdio)) as process:
        await said(process, "one")
        await said(process, "two")
        assert process.exit_status is None
        await process.submit()
        assert (await process.wait()).code == 0
        await said(process, "three")


@on_both_streams
@pytest.mark.requirement("design:exit:at-once-loses-nothing")
@pytest.mark.requirement("002:1.3")
@pytest.mark.parametrize("times", [10, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
async def test_what_was_written_just_before_the_exit_is_kept(stdio: Pipes | Pty, times: int, counted: bytes) -> None:
    script = f"stty -opost 2>/dev/null; exec seq {NUMBERS}"
    async with ProcessTable() as table:
        for _ in range(times):
            process = await table.start(Command(argv=("sh", "-c", script), stdio=stdio, output=WHOLE))
            assert (await process.wait()).code == 0
            assert process.output.read(0).data == counted
            await process.release()


def repeated(total: int) -> tuple[str, str]:
    """A line that `yes` repeats for `total` bytes, and the digest of the whole."""
    line = " ".join(map(str, range(300)))
    digest, block = hashlib.blake2b(), (line + "\n").encode() * 1000
    for done in range(0, total, len(block)):
        digest.update(block[: total - done])
    return line, digest.hexdigest()


def peak_memory(*, count_from_here: bool = False) -> int:
    if count_from_here:
        Path("/proc/self/clear_refs").write_text("5")
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


@on_both_streams
@pytest.mark.requirement("000:performance:memory:streaming")
@pytest.mark.requirement("000:performance:memory:bounded")
@pytest.mark.requirement("design:log:whole-or-stop")
@pytest.mark.requirement("design:scale:1gb-pty")
@pytest.mark.requirement("design:scale:1gb-pipe")
@pytest.mark.parametrize(
    "total",
    [50 * MEGABYTE, pytest.param(1024 * MEGABYTE, marks=[pytest.mark.long, pytest.mark.timeout(600)])],
    ids=["50MB", "1GB"],
)
async def test_much_output_passes_whole_in_little_memory(stdio: Pipes | Pty, total: int) -> None:
    line, expected = repeated(total)
    script = f"stty raw 2>/dev/null; yes '{line}' | head -c {total}"
    digest, offset, most = hashlib.blake2b(), 0, 0
    before = peak_memory(count_from_here=True)
    async with open_process(Command(argv=("sh", "-c", script), stdio=stdio, output=FLAT)) as process:
        while True:
            part = process.output.read(offset, MEGABYTE)
            if part.data:
                assert part.start == offset
                digest.update(part.data)
                offset = part.end
                most = max(most, disk_use(process.output.directory))
                await process.discard_before(offset)
            elif process.exit_status is not None:
                break
            else:
                await process.grown_or_ended(offset)
        assert process.exit_status.code == 0
    assert (offset, digest.hexdigest()) == (total, expected)
    assert peak_memory() - before < 16 * MEGABYTE
    assert most < 2 * FLAT.capacity


def disk_use(directory: str) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(directory))


@on_both_streams
@pytest.mark.requirement("design:log:whole-or-stop")
async def test_a_child_whose_reader_makes_no_room_waits_and_goes_on_later(stdio: Pipes | Pty) -> None:
    policy = OutputPolicy(MEGABYTE, Overflow.WAIT)
    script = f"stty raw 2>/dev/null; head -c {3 * MEGABYTE} /dev/zero"
    async with open_process(Command(argv=("sh", "-c", script), stdio=stdio, output=policy)) as process:
        await wait_until(lambda: process.output.full)
        before = process.output.end
        assert not (await wait_for(process, Text(re.compile("never")), timeout=0.5)).met
        assert process.output.end == before < 2 * MEGABYTE
        while process.exit_status is None:
            await process.discard_before(process.output.end)
            await process.grown_or_ended(process.output.end)
        assert (process.exit_status.code, process.output.end) == (0, 3 * MEGABYTE)


@on_both_streams
@pytest.mark.requirement("design:log:whole-or-stop")
@pytest.mark.requirement("design:no-leaks")
@pytest.mark.parametrize("way", ["stop", "kill", "close"])
async def test_a_child_nobody_reads_from_can_still_be_ended(stdio: Pipes | Pty, way: str) -> None:
    policy = OutputPolicy(MEGABYTE, Overflow.WAIT)
    async with asyncio.timeout(10), ProcessTable() as table:
        process = await table.start(Command(argv=("yes",), stdio=stdio, output=policy))
        await wait_until(lambda: process.output.full)
        if way == "stop":
            await process.stop()
        elif way == "kill":
            await process.kill()
            await process.wait()
    assert process.exit_status is not None
    assert process.exit_status.cause is Cause.STOPPED


@pytest.mark.requirement("000:pty:read-write")
async def test_a_terminal_that_was_closed_and_opened_again_is_read_on() -> None:
    # While nobody has the terminal open, reading it fails.
    script = "trap '' HUP; echo before; exec <&- >&- 2>&-; sleep 0.3; echo after >/dev/tty; exit 3"
    async with open_process(Command(argv=("sh", "-c", script), stdio=Pty())) as process:
        assert (await process.wait()).code == 3
        assert process.output.read(0).data == b"before\r\nafter\r\n"


@pytest.mark.requirement("design:exit-and-eof-are-two-events")
async def test_a_child_that_closes_its_output_has_not_ended() -> None:
    script = "echo last; exec >&- 2>&-; read line; exit 7"
    async with open_process(Command(argv=("sh", "-c", script))) as process:
        await said(process, "last")
        assert not (await wait_for(process, Text(re.compile("never")), timeout=0.2)).met
        assert process.exit_status is None
        await process.submit()
        assert (await process.wait()).code == 7


@on_both_streams
@pytest.mark.requirement("000:errors:read:logged")
@pytest.mark.requirement("000:errors:read:retried")
@pytest.mark.requirement("000:errors:read:kept")
@pytest.mark.requirement("design:log:read-failure")
@pytest.mark.requirement("002:7.4")
async def test_a_failing_read_is_logged_and_tried_again(
    stdio: Pipes | Pty, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real_read = os.read
    turns: Iterator[int] = itertools.count()
    failures = {3: errno.EIO, 5: errno.EINTR, 6: errno.EAGAIN, 9: errno.ENOMEM, 10: errno.EIO, 14: errno.ENOMEM}

    def failing(descriptor: int, size: int) -> bytes:
        reason = failures.get(next(turns))
        if reason is not None:
            raise OSError(reason, os.strerror(reason))
        return real_read(descriptor, size)

    monkeypatch.setattr("tether.process._child_posix.os.read", failing)
    script = "stty -opost 2>/dev/null; i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo $i; sleep 0.01; done; exit 9"
    async with open_process(Command(argv=("sh", "-c", script), stdio=stdio)) as process:
        assert (await process.wait()).code == 9
        assert process.output.read(0).data == b"".join(b"%d\n" % number for number in range(1, 61))
    logged = [record.message for record in caplog.records if "cannot read its output" in record.message]
    assert sum("Cannot allocate memory" in message for message in logged) == 2
    assert all(message.endswith("; trying again") for message in logged)

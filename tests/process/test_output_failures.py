"""The output log on a disk that fails: what was read is held and written later, and what is lost is told."""

import asyncio
import errno
import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.process.log_model import HELD, MIB, STREAMS, Clock, LogModel
from tether.process import _log_format, output
from tether.process.command import OutputPolicy, Overflow
from tether.process.log_reader import STDERR, STDOUT, Gap, LogReader, Resize
from tether.process.output import OutputLog

FAILING = ("write", "pwrite", "open", "unlink", "ftruncate", "makedirs")


class FaultyDisk:
    """The real `os`, whose calls that touch files can be made to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reason = 0
        self.short = False
        self.fail_at = self.heal_at = self.calls = 0
        for module in (output, _log_format):
            monkeypatch.setattr(module, "os", self)

    def break_down(self, reason: int) -> None:
        """From now on every call fails."""
        self.reason, self.fail_at, self.heal_at = reason, self.calls + 1, 2**60

    def heal(self) -> None:
        self.fail_at = self.heal_at = 0

    def __getattr__(self, name: str) -> object:
        real = getattr(os, name)
        if name not in FAILING:
            return real

        def call(*arguments: object, **options: object) -> object:
            self.calls += 1
            if not self.fail_at <= self.calls < self.heal_at:
                return real(*arguments, **options)
            if self.short and name in ("write", "pwrite"):
                descriptor, data, *offset = arguments
                assert isinstance(data, bytes | bytearray)
                return real(descriptor, data[: len(data) // 2], *offset)
            raise OSError(self.reason, os.strerror(self.reason))

        return call


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    return FaultyDisk(monkeypatch)


def exercise(log: OutputLog, model: LogModel, clock: Clock) -> list[Resize]:
    """Everything a log does: both streams, new segments, sizes, drops."""
    sizes: list[Resize] = []
    for number in range(15):
        stream = STREAMS[number // 3 % 2]
        data = b"%d:" % number * (1 + number * 23 % 60) + b"\n"
        log.append(stream, data)
        model.append(stream, data)
        if number % 7 == 3:
            log.resized(80 + number, 24)
            sizes.append(Resize(len(model.everything), 80 + number, 24))
        clock.advance(number % 5 * 4)
    return sizes


def check_whole(reader: LogReader, model: LogModel, sizes: list[Resize]) -> None:
    """After the disk has healed nothing is missing, and all is where it belongs."""
    hole = model.check(reader)
    for first in (0, 7, 14):
        assert reader.read_lines(first, 9) == model.lines(first, 9, hole)
    assert (reader.gaps(), reader.missing) == ([], 0)
    told = reader.resizes()
    assert [size for size in sizes if size in told] == told
    assert {size for size in sizes if size.offset > hole[1]} <= set(told)


@pytest.mark.requirement("design:log:write-failure")
@pytest.mark.parametrize("overflow", [Overflow.DROP, Overflow.STOP])
@pytest.mark.parametrize(
    ("kind", "length"), [("EIO", 1), ("ENOSPC", 3), ("EIO", 10_000), ("short", 1), ("short", 4), ("short", 10_000)]
)
def test_a_failure_of_any_call_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: FaultyDisk, overflow: Overflow, kind: str, length: int
) -> None:
    clock = Clock(monkeypatch)
    disk.short = kind == "short"
    disk.reason = errno.EIO if kind == "EIO" else errno.ENOSPC
    number = 0
    while True:
        number += 1
        log, model = OutputLog(str(tmp_path / str(number)), OutputPolicy(1024, overflow)), LogModel()
        disk.calls, disk.fail_at, disk.heal_at = 0, number, number + length
        sizes = exercise(log, model, clock)
        touched = disk.calls >= number
        disk.heal()
        part = LogReader(log.directory).read(0)
        assert part.data == model.everything[: part.end]
        log.retry()
        assert not log.blocked
        check_whole(log, model, sizes)
        log.close()
        check_whole(LogReader(log.directory), model, sizes)
        log.remove()
        if not touched:
            break
    assert number > 30
    assert os.listdir(tmp_path) == []


@pytest.mark.requirement("002:7.2")
@pytest.mark.requirement("design:log:write-failure")
def test_what_fails_is_logged_once_and_so_is_that_it_works_again(
    tmp_path: Path, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    log = OutputLog(str(tmp_path / "log"))
    for reason in (errno.ENOSPC, errno.EIO):
        error = OSError(reason, os.strerror(reason))
        caplog.clear()
        log.append(STDOUT, b"before")
        disk.break_down(reason)
        for _ in range(5):
            log.append(STDOUT, b"failing")
            log.resized(80, 24)
            log.retry()
            assert log.blocked
        disk.heal()
        log.append(STDOUT, b"after")
        assert not log.blocked
        log.append(STDOUT, b"later")
        assert [record.getMessage() for record in caplog.records] == [
            f"log={log.directory} cannot write: {error}; holding output and trying again",
            f"log={log.directory} writes work again",
        ]
        assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert log.read(0).data == (b"before" + b"failing" * 5 + b"after" + b"later") * 2
    log.remove()


@pytest.mark.requirement("design:log:gap-record")
@pytest.mark.requirement("design:log:write-failure")
@pytest.mark.parametrize("size", [1000, 65_536, 3 * MIB])
def test_beyond_the_hold_a_gap_says_how_much_is_missing_and_why(tmp_path: Path, disk: FaultyDisk, size: int) -> None:
    log, model = OutputLog(str(tmp_path / "log")), LogModel()
    written = 0
    for reason in (errno.ENOSPC, errno.EIO):
        log.append(STDOUT, b"before\n")
        model.append(STDOUT, b"before\n")
        disk.break_down(reason)
        before = log.end
        lost = 0
        for number in range(4 * MIB // size):
            stream, data = STREAMS[number % 2], (b"%d\n" % number * size)[:size]
            kept = data[: max(HELD - (len(model.everything) - before), 0)]
            log.append(stream, data)
            model.append(stream, kept)
            lost += len(data) - len(kept)
        assert (log.end, log.blocked, log.missing - written) == (before, True, lost)
        written += lost
        disk.heal()
        log.retry()
        assert (log.end, log.blocked, log.missing) == (before + HELD, False, written)
        assert log.gaps()[-1] == Gap(before + HELD, lost, os.strerror(reason))
        log.append(STDERR, b"after\n")
        model.append(STDERR, b"after\n")
    for reader in (log, LogReader(log.directory)):
        model.check(reader)
        assert (len(reader.gaps()), reader.missing) == (2, written)
        assert reader.total_lines == model.everything.count(b"\n")
    log.remove()


@pytest.mark.requirement("design:log:gap-record")
@pytest.mark.requirement("design:log:index-bounded")
def test_a_gap_is_told_however_many_sizes_follow_it(tmp_path: Path, disk: FaultyDisk) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(1024))
    disk.break_down(errno.EIO)
    log.append(STDOUT, bytes(HELD - 128))
    for number in range(4):
        log.append(STREAMS[number % 2], bytes(32))
    log.append(STDOUT, bytes(177))
    disk.heal()
    log.retry()
    for number in range(100):
        log.resized(number + 1, 24)
    for reader in (log, LogReader(log.directory)):
        assert [(gap.offset, gap.missing) for gap in reader.gaps()] == [(HELD, 177)]
        assert reader.resizes()[-1] == Resize(HELD, 100, 24)
    log.append(STDOUT, b"after")
    assert log.read(HELD).data == b"after"
    log.remove()


def write_nothing(_descriptor: int, _data: bytes) -> int:
    return 0


@pytest.mark.requirement("design:log:write-failure")
def test_a_write_that_takes_nothing_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = OutputLog(str(tmp_path / "log"))
    log.append(STDOUT, b"before")
    with monkeypatch.context() as patch:
        patch.setattr(output, "os", SimpleNamespace(**vars(os) | {"write": write_nothing}))
        log.append(STDOUT, b"held")
        assert (log.end, log.blocked) == (6, True)
    assert "No space left on device" in caplog.text
    log.retry()
    assert log.read(0).data == b"beforeheld"
    log.remove()


@pytest.mark.requirement("design:log:gap-record")
def test_more_than_a_record_can_count_is_told_in_several(tmp_path: Path, disk: FaultyDisk) -> None:
    log = OutputLog(str(tmp_path / "log"))
    log.append(STDOUT, b"x")
    disk.break_down(errno.ENOSPC)
    page = bytes(64 * MIB)
    for _ in range(65):
        log.append(STDOUT, page)
    disk.heal()
    log.retry()
    missing = 65 * len(page) - HELD
    assert [gap.missing for gap in log.gaps()] == [2**32 - 1, missing - 2**32 + 1]
    assert log.missing == missing
    log.remove()


@pytest.mark.requirement("000:performance:memory:bounded")
@pytest.mark.requirement("design:log:gap-record")
def test_the_hold_is_bounded_in_pieces_too(tmp_path: Path, disk: FaultyDisk) -> None:
    log, model = OutputLog(str(tmp_path / "log"), OutputPolicy(100 * MIB)), LogModel()
    log.append(STDOUT, b"x")
    model.append(STDOUT, b"x")
    disk.break_down(errno.ENOSPC)
    for number in range(20_000):
        log.append(STREAMS[number % 2], b"ab")
        log.resized(80, 24)
    disk.heal()
    log.retry()
    kept = log.end - 1
    assert kept + log.missing == 40_000
    assert 0 < kept <= 10_000
    for number in range(kept // 2):
        model.append(STREAMS[number % 2], b"ab")
    model.check(log)
    log.remove()


@pytest.mark.requirement("design:log:write-failure")
@pytest.mark.requirement("design:log:whole-or-stop")
@pytest.mark.parametrize("overflow", [Overflow.STOP, Overflow.WAIT])
def test_where_everything_is_kept_everything_is_held(tmp_path: Path, disk: FaultyDisk, overflow: Overflow) -> None:
    log, model = OutputLog(str(tmp_path / "log"), OutputPolicy(100 * MIB, overflow)), LogModel()
    disk.break_down(errno.ENOSPC)
    for number in range(40):
        data = bytes([number]) * 100_000
        log.append(STREAMS[number % 2], data)
        model.append(STREAMS[number % 2], data)
    assert (log.end, log.missing) == (0, 0)
    disk.heal()
    log.retry()
    model.check(log)
    log.remove()


@pytest.mark.requirement("design:log:write-failure")
def test_of_many_sizes_on_a_failing_disk_the_last_is_written_in_its_place(tmp_path: Path, disk: FaultyDisk) -> None:
    log = OutputLog(str(tmp_path / "log"))
    disk.break_down(errno.EIO)
    for data in (b"one", b"two"):
        for cols in range(80, 100):
            log.resized(cols, 24)
        log.append(STDOUT, data)
    disk.heal()
    log.retry()
    assert log.resizes() == [Resize(0, 99, 24), Resize(3, 99, 24)]
    log.remove()


@pytest.mark.requirement("design:log:write-failure")
def test_held_output_keeps_the_time_at_which_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: FaultyDisk
) -> None:
    clock = Clock(monkeypatch)
    log = OutputLog(str(tmp_path / "log"))
    disk.break_down(errno.EIO)
    came: list[int] = []
    for stream in (STDOUT, STDOUT, STDERR):
        clock.advance(1000)
        log.append(stream, b"held")
        came.append(clock.now_ns // 1000 + 1000)
        assert log.last_growth == clock.now_ns / 1e9
    clock.advance(5000)
    disk.heal()
    log.retry()
    assert [chunk.time_us for chunk in log.chunks()] == came
    log.remove()


@pytest.mark.requirement("design:log:index-bounded")
@pytest.mark.requirement("design:log:write-failure")
def test_trying_again_for_hours_does_not_fill_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: FaultyDisk
) -> None:
    clock = Clock(monkeypatch)
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(1024))
    log.resized(100, 40)
    monkeypatch.setattr(output, "os", FailingWrites())
    log.append(STDOUT, b"held")
    for _ in range(1000):
        clock.advance(200)
        log.retry()
    monkeypatch.setattr(output, "os", disk)
    log.retry()
    assert (log.read(0).data, log.resizes()) == (b"held", [Resize(0, 100, 40)])
    assert len(list(log.chunks())) == 1
    log.remove()


class FailingWrites:
    """The real `os`, in which nothing but the writing of bytes fails."""

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def write(self, *_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.requirement("design:log:write-failure")
def test_a_log_closed_on_a_failing_disk_can_be_finished_later(
    tmp_path: Path, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    log, model = OutputLog(str(tmp_path / "log"), OutputPolicy(1024)), LogModel()
    for data in (b"x" * 100, b"y" * 28):
        log.append(STDOUT, data)
        model.append(STDOUT, data)
    log.resized(100, 40)
    disk.break_down(errno.ENOSPC)
    log.append(STDOUT, b"held\n" * 100)
    log.close()
    assert log.blocked
    assert caplog.messages[-1] == f"log={log.directory} closed, 500 bytes still to be written"
    disk.heal()
    model.check(LogReader(log.directory))
    log.retry()
    model.append(STDOUT, b"held\n" * 100)
    model.check(log)
    assert not log.blocked
    assert log.resizes() == [Resize(128, 100, 40)]
    log.remove()


@pytest.mark.requirement("design:log:write-failure")
@pytest.mark.requirement("design:no-leaks")
def test_a_log_removed_on_a_failing_disk_leaves_nothing(tmp_path: Path, disk: FaultyDisk) -> None:
    log = OutputLog(str(tmp_path / "log"))
    log.append(STDOUT, b"x")
    disk.break_down(errno.EIO)
    log.append(STDOUT, b"y" * 2 * MIB)
    log.remove()
    assert (log.blocked, os.listdir(tmp_path)) == (False, [])


@pytest.mark.requirement("design:log:wait-beyond")
@pytest.mark.requirement("design:log:write-failure")
async def test_waiters_are_woken_when_held_output_is_written(tmp_path: Path, disk: FaultyDisk) -> None:
    log = OutputLog(str(tmp_path / "log"))
    disk.break_down(errno.EIO)
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(log.wait_beyond(0))
        await asyncio.sleep(0)
        log.append(STDOUT, b"held")
        await asyncio.sleep(0)
        assert not waiter.done()
        disk.heal()
        log.retry()
        assert await waiter == 4
    log.remove()


@pytest.mark.requirement("design:log:write-failure")
def test_a_consumer_is_not_disturbed_by_files_that_cannot_be_removed(tmp_path: Path, disk: FaultyDisk) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(2048, Overflow.WAIT))
    log.append(STDOUT, b"x" * 1000)
    disk.break_down(errno.EIO)
    log.discard_before(600)
    disk.heal()
    assert log.read(0).data == b"x" * 1000
    log.discard_before(600)
    assert log.read(0).start == 512
    log.remove()

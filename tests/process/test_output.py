"""Writing the output log: what is kept, what it costs, who is woken and what is left in the end."""

import os
import signal
import subprocess
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers import python
from tests.process.log_model import MIB, SMALLEST_LOG, STREAMS, Clock, LogModel, disk_bytes
from tether.errors import OutputLogError
from tether.process import _log_format, output
from tether.process._log_format import RECORD_BYTES, Kind, Record, index_name
from tether.process.command import OutputPolicy, Overflow
from tether.process.log_reader import STDERR, STDOUT, Chunk, LogReader, OutputSlice, Resize
from tether.process.output import OutputLog


class CountingOs:
    """The real `os`, with a list of the calls that were made through it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        for module in (output, _log_format):
            monkeypatch.setattr(module, "os", self)

    def __getattr__(self, name: str) -> object:
        self.calls.append(name)
        return getattr(os, name)


@pytest.mark.requirement("design:log:segments")
@pytest.mark.requirement("design:log:head-kept")
@pytest.mark.requirement("design:log:tail-kept")
@pytest.mark.requirement("design:log:cap")
@pytest.mark.requirement("002:4.2")
@pytest.mark.parametrize("capacity", [1, 64, 100, 1000, 1024, 4096, 100_000])
@pytest.mark.parametrize("size", [1, 50, 5000])
def test_head_and_tail_are_kept_within_the_capacity(tmp_path: Path, capacity: int, size: int) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(capacity))
    model = LogModel()
    most = max(capacity, SMALLEST_LOG)
    largest = 0
    for number in range(3 * most // size + 3):
        data = (b"%d\n" % number * size)[:size]
        log.append(STDOUT, data)
        model.append(STDOUT, data)
        if number % 20 == 0:
            largest = max(largest, disk_bytes(log.directory))
    hole_start, hole_end = model.check(log)
    assert hole_start == max(capacity // 16, 128)
    assert log.end - hole_end >= min(most // 4, log.end - hole_start)
    assert 0 < log.dropped == hole_end - hole_start == log.read(hole_start).dropped
    assert largest <= most
    assert disk_bytes(log.directory) <= most
    log.remove()


@pytest.mark.requirement("002:4.1")
@pytest.mark.requirement("design:log:cap")
def test_ten_megabytes_are_kept_unless_told_otherwise(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"))
    page = bytes(range(256)) * 256
    while log.end < 30 * MIB:
        log.append(STDOUT, page)
    assert 9 * MIB < disk_bytes(log.directory) <= 10 * MIB
    assert log.end - log.dropped > 8 * MIB
    assert log.read(0, 1000).data == page[:1000]
    assert log.read(log.end - 70_000).data == (page * 2)[-70_000:]
    log.remove()


@pytest.mark.requirement("design:log:index-bounded")
@pytest.mark.requirement("design:log:order")
@pytest.mark.parametrize("capacity", [1000, 100_000, MIB])
def test_two_streams_alternating_byte_by_byte_stay_within_the_capacity(tmp_path: Path, capacity: int) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(capacity))
    model = LogModel()
    most = max(capacity, SMALLEST_LOG)
    pattern = bytes(range(1, 251))
    count = MIB if capacity == MIB else 20_000
    for number in range(count):
        log.append(STREAMS[number % 2], pattern[number % 250 : number % 250 + 1])
        if number % 5000 == 0:
            assert disk_bytes(log.directory) <= most
    model.everything = bytearray((pattern * (count // 250 + 1))[:count])
    model.streams = bytearray(bytes(STREAMS) * (count // 2))
    hole_start, hole_end = model.check(log)
    assert disk_bytes(log.directory) <= most
    assert 0 < hole_start < hole_end < count
    for stream in STREAMS:
        assert log.read_stream(stream, hole_end).data == model.of(stream, hole_end, count)
    log.remove()


@pytest.mark.requirement("design:log:cap")
@pytest.mark.requirement("design:log:index-bounded")
@pytest.mark.parametrize("capacity", [1, 1024, 5000])
def test_segments_whose_bytes_and_index_are_both_full_stay_within_the_capacity(tmp_path: Path, capacity: int) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(capacity))
    size = max(capacity // 16, 128) // 4
    for number in range(200):
        log.append(STREAMS[number % 2], bytes(size))
        assert disk_bytes(log.directory) <= max(capacity, SMALLEST_LOG)
    log.remove()


@pytest.mark.requirement("design:log:index-merged")
@pytest.mark.requirement("design:log:index-carries")
def test_one_stream_within_ten_milliseconds_is_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    log = OutputLog(str(tmp_path / "log"))
    start = clock.now_ns // 1000 + 1000
    for milliseconds, stream in ((0, STDOUT), (5, STDOUT), (4.9, STDOUT), (0.1, STDOUT), (1, STDERR), (1, STDOUT)):
        clock.advance(milliseconds)
        log.append(stream, b"ab")
    assert list(log.chunks()) == [
        Chunk(0, 6, STDOUT, start),
        Chunk(6, 8, STDOUT, start + 10_000),
        Chunk(8, 10, STDERR, start + 11_000),
        Chunk(10, 12, STDOUT, start + 12_000),
    ]
    assert os.path.getsize(os.path.join(log.directory, index_name(0))) == 4 * RECORD_BYTES
    assert list(log.chunks(1, 9)) == [
        Chunk(1, 6, STDOUT, start),
        Chunk(6, 8, STDOUT, start + 10_000),
        Chunk(8, 9, STDERR, start + 11_000),
    ]
    log.remove()


@pytest.mark.requirement("design:log:index-carries")
@pytest.mark.requirement("design:process:resize")
def test_sizes_of_the_terminal_are_recorded_where_they_began(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"))
    expected: list[Resize] = []
    for cols, data in ((80, b"one"), (100, b"two"), (10_000, b"")):
        log.resized(cols, 24)
        expected.append(Resize(log.end, cols, 24))
        log.append(STDOUT, data)
    for reader in (log, LogReader(log.directory)):
        assert reader.resizes() == expected
        assert reader.resizes(3) == expected[1:]
        assert [(chunk.start, chunk.end) for chunk in reader.chunks()] == [(0, 3), (3, 6)]
    log.remove()


@pytest.mark.requirement("design:log:index-bounded")
def test_any_number_of_sizes_without_output_keeps_the_last_and_stays_bounded(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(1024))
    for round_ in range(5):
        for number in range(200):
            log.resized(number + 1, round_ + 1)
            assert log.resizes()[-1] == Resize(log.end, number + 1, round_ + 1)
        log.append(STDOUT, b"x" * 50)
        assert disk_bytes(log.directory) <= SMALLEST_LOG
    told = {size.offset: size for size in log.resizes()}
    assert told == {50 * number: Resize(50 * number, 200, number + 1) for number in range(5)}
    log.remove()


@pytest.mark.requirement("design:log:index-first")
def test_a_record_is_written_before_the_bytes_it_describes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(1024))
    writing = STDOUT
    seen = 0

    def write(descriptor: int, data: bytes) -> int:
        nonlocal seen
        index = Path(log.directory, index_name(LogReader(log.directory).starts()[-1]))
        last = [record for record in Record.unpack_all(index.read_bytes()) if record.kind in STREAMS][-1]
        assert last.kind == writing
        assert last.offset <= LogReader(log.directory).end
        seen += 1
        return os.write(descriptor, data)

    monkeypatch.setattr(output, "os", SimpleNamespace(**vars(os) | {"write": write}))
    for writing in STREAMS * 5:
        log.append(writing, b"x" * 100)
    assert seen >= 10
    log.remove()


@pytest.mark.requirement("design:log:fast")
@pytest.mark.requirement("design:log:no-fsync")
def test_an_append_costs_one_write_and_nothing_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch)
    system = CountingOs(monkeypatch)
    log = OutputLog(str(tmp_path / "log"))
    log.append(STDOUT, b"x" * 4096)
    system.calls.clear()
    for _ in range(100):
        log.append(STDOUT, b"x" * 4096)
    assert system.calls == ["write"] * 100
    log.read(log.end - 16_384)
    assert system.calls == ["write"] * 100 + ["pread"]
    while not log.dropped:
        log.append(STDERR, b"y" * 100_000)
    log.remove()
    assert not {"fsync", "fdatasync", "sync"} & set(system.calls)


@pytest.mark.requirement("000:performance:memory:bounded")
@pytest.mark.requirement("design:scale:1000")
def test_a_log_without_output_takes_less_than_a_kilobyte_and_no_file(tmp_path: Path) -> None:
    directories = [str(tmp_path / str(number)) for number in range(1000)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        logs = [OutputLog(directory) for directory in directories]
        each = (tracemalloc.get_traced_memory()[0] - before) / len(logs)
    finally:
        tracemalloc.stop()
    assert each < 1024
    assert os.listdir(tmp_path) == []


@pytest.mark.requirement("000:performance:memory:streaming")
def test_memory_stays_flat_while_a_hundred_megabytes_pass(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(MIB))
    page = b"sixty bytes of output as a build or a test run prints it...\n" * 1000
    for _ in range(100):
        log.append(STDOUT, page)
    tracemalloc.start()
    try:
        while log.end < 100 * MIB:
            log.append(STDOUT, page)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 10_000
    assert peak < MIB // 2
    log.remove()


@pytest.mark.requirement("design:log:whole-or-stop")
@pytest.mark.requirement("design:log:whole-or-stop-cap")
@pytest.mark.parametrize("capacity", [1, 100, 5000])
def test_a_log_that_stops_keeps_everything_and_says_when_it_is_full(tmp_path: Path, capacity: int) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(capacity, Overflow.STOP))
    model = LogModel()
    while not log.full:
        assert log.end < capacity
        log.append(STDOUT, b"line\n")
        model.append(STDOUT, b"line\n")
    assert log.end <= capacity + 5
    log.append(STDERR, b"what was read with it")
    model.append(STDERR, b"what was read with it")
    assert model.check(log) == model.check(LogReader(log.directory)) == (log.end, log.end)
    assert log.dropped == 0
    log.remove()


@pytest.mark.requirement("design:log:whole-or-stop-cap")
@pytest.mark.requirement("design:log:index-bounded")
def test_the_index_counts_where_everything_is_kept(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(100_000, Overflow.STOP))
    while not log.full:
        log.append(STREAMS[log.end % 2], b"x")
    assert log.end < 5000
    assert disk_bytes(log.directory) < 120_000
    log.remove()


@pytest.mark.requirement("design:log:whole-or-stop")
@pytest.mark.parametrize("capacity", [1, 300, 5000])
def test_a_log_that_waits_takes_more_once_its_consumer_has_freed_room(tmp_path: Path, capacity: int) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(capacity, Overflow.WAIT))
    whole = bytes(range(256)) * 100
    taken, written = b"", 0
    while len(taken) < len(whole):
        while not log.full and written < len(whole):
            log.append(STREAMS[written // 64 % 2], whole[written : written + 64])
            written += 64
        part = log.read(len(taken), capacity // 2 + 1)
        assert (part.start, part.dropped) == (len(taken), 0)
        taken += part.data
        log.discard_before(len(taken))
        assert disk_bytes(log.directory) <= 3 * capacity + 2000
    assert taken == whole
    assert not log.full
    assert len(log.starts()) == 1
    assert log.read(0).dropped == log.starts()[0]
    log.remove()


@pytest.mark.requirement("design:log:whole-or-stop")
def test_freeing_frees_whole_segments_behind_the_consumer_and_nothing_else(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(2048, Overflow.WAIT))
    log.append(STDOUT, b"x" * 1000)
    log.discard_before(127)
    assert log.starts()[0] == 0
    log.discard_before(300)
    assert log.starts()[0] == 256
    assert log.read(0) == OutputSlice(256, b"x" * 744, 1000, 256)
    assert log.dropped == LogReader(log.directory).dropped == 256
    log.discard_before(5)
    assert log.read(300).data == b"x" * 700
    log.discard_before(9999)
    assert log.read(999).data == b"x"
    log.remove()


@pytest.mark.requirement("design:log:whole-or-stop")
def test_freeing_everything_leaves_the_last_byte(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(2048, Overflow.WAIT))
    log.append(STDOUT, b"x" * 128)
    for number in range(10):
        log.resized(80 + number, 24)
    assert log.starts() == [0, 128]
    log.discard_before(128)
    assert log.read(127) == OutputSlice(127, b"x", 128)
    assert log.total_lines == LogReader(log.directory).total_lines == 1
    log.remove()


@pytest.mark.requirement("design:log:tail-kept")
def test_a_log_keeps_as_much_after_a_thousand_drops_as_after_a_few(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(4096))
    kept: list[int] = []
    for size in (40_960, 409_600):
        while log.end < size:
            log.append(STDOUT, b"x" * 8192)
        kept.append(log.end - log.dropped)
    assert kept[0] == kept[1] > 2500
    log.remove()


@pytest.mark.requirement("design:log:head-kept")
def test_where_the_oldest_is_dropped_a_consumer_frees_nothing(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(2048))
    log.append(STDOUT, b"x" * 1000)
    log.discard_before(1000)
    assert log.read(0).data == b"x" * 1000
    log.remove()


@pytest.mark.requirement("design:wait:idle")
def test_the_time_of_the_last_output_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    log = OutputLog(str(tmp_path / "log"))
    assert log.last_growth == clock.now_ns / 1e9
    clock.advance(1500)
    log.append(STDOUT, b"x")
    grown = clock.now_ns / 1e9
    clock.advance(1500)
    log.resized(80, 24)
    assert log.last_growth == grown
    log.remove()


@pytest.mark.requirement("002:4.4")
@pytest.mark.requirement("design:no-leaks")
def test_a_closed_log_holds_no_descriptor_and_stays_readable(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(1024))
    model = LogModel()
    for number in range(100):
        log.append(STREAMS[number % 2], b"%d\n" % number * 10)
        model.append(STREAMS[number % 2], b"%d\n" % number * 10)
    log.close()
    log.close()
    hole = model.check(log)
    assert model.check(LogReader(log.directory)) == hole
    assert log.read_lines(3, 5) == model.lines(3, 5, hole)
    for stream in STREAMS:
        with pytest.raises(ValueError, match=r"log '.*/log' is closed and takes no more output"):
            log.append(stream, b"more")
    log.resized(80, 24)
    assert model.check(log) == hole


@pytest.mark.requirement("design:no-leaks")
def test_a_removed_log_leaves_nothing_and_reads_as_gone(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(1024))
    log.remove()
    used = OutputLog(str(tmp_path / "used"), OutputPolicy(1024))
    used.append(STDOUT, b"line\n" * 1000)
    used.remove()
    used.remove()
    assert os.listdir(tmp_path) == []
    assert (used.end, used.dropped) == (5000, 5000)
    assert used.read(7) == OutputSlice(5000, b"", 5000, 4993)
    assert (list(used.chunks()), used.gaps(), used.resizes()) == ([], [], [])


@pytest.mark.requirement("design:log:format-version")
def test_a_directory_has_one_writer_ever(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"))
    log.append(STDOUT, b"x")
    log.close()
    with pytest.raises(
        OutputLogError, match=r"'.*/log' holds a log already; give each process a directory of its own"
    ):
        OutputLog(str(tmp_path / "log"))
    log.remove()


@pytest.mark.requirement("design:log:durable")
@pytest.mark.requirement("000:performance:memory:written")
def test_what_was_logged_survives_the_death_of_its_writer(tmp_path: Path) -> None:
    code = """
        import os, signal, sys
        from tether.process.output import OutputLog
        log = OutputLog(sys.argv[1])
        for number in range(2000):
            log.append(1 + number % 2, b"%d\\n" % number)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    directory = str(tmp_path / "log")
    ended = subprocess.run([*python(code), directory], timeout=30, check=False)
    assert ended.returncode == -signal.SIGKILL
    reader = LogReader(directory)
    assert reader.read(0).data == b"".join(b"%d\n" % number for number in range(2000))
    assert reader.read_stream(STDERR).data == b"".join(b"%d\n" % number for number in range(1, 2000, 2))
    assert reader.read_lines(1234, 1).lines == [b"1234"]
    assert {chunk.stream for chunk in reader.chunks()} == {Kind.STDOUT, Kind.STDERR}

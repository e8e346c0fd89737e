"""The output log's writer hands over to another one, which goes on as if it had been the same."""

import errno
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.helpers import python
from tests.process.log_model import MIB, STREAMS, Clock, LogModel
from tests.process.test_output_failures import FaultyDisk
from tests.process.test_output_full_disk import small_disk
from tether.process import output
from tether.process._log_format import data_name, index_name
from tether.process.command import OutputPolicy, Overflow
from tether.process.log_reader import STDERR, STDOUT, Chunk, Gap, LogReader, Resize
from tether.process.output import OutputLog

HOLD = 2000


def dumped(log: OutputLog) -> dict[str, object]:
    """The log's state as it comes out of a file."""
    return json.loads(json.dumps(log.state()))


def reopened(log: OutputLog) -> OutputLog:
    """Another writer of the same log; the old one's descriptors are closed, as an exec does."""
    state = dumped(log)
    after = OutputLog.reopen(log.directory, state)
    abandon(log)
    assert after.state() == state
    return after


def abandon(log: OutputLog) -> None:
    """Close the descriptors of a writer that has handed over, and write nothing."""
    with pytest.MonkeyPatch.context() as patch:
        FaultyDisk(patch).break_down(errno.EIO)
        log.close()


def contents(directory: str) -> dict[str, bytes]:
    """The files of a log, none when it has no directory."""
    return {path.name: path.read_bytes() for path in Path(directory).glob("*")}


def answers(log: OutputLog) -> dict[str, object]:
    """Everything a log says about itself."""
    head = log.read(0)
    return {
        "places": (log.end, log.starts(), log.dropped, log.missing, log.held, log.total_lines),
        "flags": (log.full, log.blocked, log.closed, log.policy, log.last_growth, log.clock_us()),
        "bytes": (head, log.read(head.end)),
        "chunks": list(log.chunks()),
        "marks": (log.gaps(), log.resizes()),
        "lines": (log.read_lines(0, 5), log.read_lines(log.total_lines // 2, 5), log.read_lines(log.total_lines, 5)),
    }


class TwinMachine(RuleBasedStateMachine):
    """Two logs with one history; one of them changes its writer all the time, and nobody can tell which."""

    directory = ""
    clock: Clock
    disk: FaultyDisk

    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp(dir=self.directory)
        self.disk.heal()

    @initialize(capacity=st.sampled_from((1, 1024, 3000, 20_000)), overflow=st.sampled_from(Overflow))
    def create(self, capacity: int, overflow: Overflow) -> None:
        self.steady, self.moving = (
            OutputLog(os.path.join(self.path, name), OutputPolicy(capacity, overflow))
            for name in ("steady", "moving")
        )

    def both(self, act: Callable[[OutputLog], object]) -> None:
        assert act(self.steady) == act(self.moving)

    @precondition(lambda self: not self.steady.closed and self.steady.end < 20_000)
    @rule(stream=st.sampled_from(STREAMS), line=st.binary(max_size=60), times=st.sampled_from((1, 1, 5, 40)))
    def append(self, stream: int, line: bytes, times: int) -> None:
        self.both(lambda log: log.append(stream, (line + b"\n") * times))

    @precondition(lambda self: not self.steady.closed and self.steady.end < 20_000)
    @rule(data=st.sampled_from((b"", b"x", b"\n")), count=st.integers(1, 60))
    def alternate(self, data: bytes, count: int) -> None:
        for number in range(count):
            self.both(lambda log, stream=STREAMS[number % 2]: log.append(stream, data))

    @rule(cols=st.integers(1, 10_000), count=st.sampled_from((1, 1, 30)))
    def resize(self, cols: int, count: int) -> None:
        for rows in range(count):
            self.both(lambda log, rows=rows: log.resized(cols, rows + 1))

    @rule(part=st.floats(0, 1))
    def discard(self, part: float) -> None:
        self.both(lambda log: log.discard_before(int(log.end * part)))

    @rule(milliseconds=st.sampled_from((1, 9.9999, 10, 500)))
    def wait(self, milliseconds: float) -> None:
        self.clock.advance(milliseconds)

    @rule(reason=st.sampled_from((errno.ENOSPC, errno.EIO)))
    def break_disk(self, reason: int) -> None:
        self.disk.break_down(reason)

    @rule()
    def heal_disk(self) -> None:
        self.disk.heal()

    @rule()
    def retry(self) -> None:
        self.both(OutputLog.retry)

    @rule()
    def reopen(self) -> None:
        self.moving = reopened(self.moving)

    @precondition(lambda self: self.steady.end > 2000)
    @rule()
    def close(self) -> None:
        self.both(OutputLog.close)

    @invariant()
    def both_say_the_same(self) -> None:
        before = self.disk.fail_at, self.disk.heal_at
        self.disk.heal()
        assert answers(self.moving) == answers(self.steady)
        assert contents(self.moving.directory) == contents(self.steady.directory)
        self.disk.fail_at, self.disk.heal_at = before

    def teardown(self) -> None:
        self.disk.heal()
        self.both(OutputLog.retry)
        self.both_say_the_same()
        self.both(OutputLog.close)
        self.reopen()
        self.both_say_the_same()
        self.both(OutputLog.remove)
        os.rmdir(self.path)


@pytest.mark.requirement("design:log:reopen")
@pytest.mark.requirement("design:log:reopen-held")
def test_any_history_is_the_same_however_often_the_writer_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_HOLD_BYTES", HOLD)
    TwinMachine.directory = str(tmp_path)
    TwinMachine.clock, TwinMachine.disk = Clock(monkeypatch), FaultyDisk(monkeypatch)
    run_state_machine_as_test(
        TwinMachine,
        settings=settings(
            max_examples=60, stateful_step_count=30, deadline=None, phases=(Phase.generate, Phase.shrink)
        ),
    )


FIRST_WRITER = """
    import json, os, sys
    from tether.process.command import OutputPolicy
    from tether.process.output import OutputLog
    log = OutputLog(sys.argv[1], OutputPolicy(4096))
    for number in range(1500):
        log.append(1 + number % 2, b"%d\\n" % number)
    state = json.dumps([log.state(), log.clock_us(), log.last_growth])
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[2], sys.argv[1], state])
"""
SECOND_WRITER = """
import json, os, sys
from tether.process.output import OutputLog
state, clock, growth = json.loads(sys.argv[2])
for descriptor in range(3, 64):
    try:
        os.fstat(descriptor)
    except OSError:
        continue
    raise AssertionError(f"descriptor {descriptor} has come along")
log = OutputLog.reopen(sys.argv[1], state)
assert clock <= log.clock_us() < clock + 30_000_000 and log.last_growth == growth
for number in range(1500, 3000):
    log.append(1 + number % 2, b"%d\\n" % number)
assert log.total_lines == 3000
"""


@pytest.mark.requirement("design:log:reopen")
def test_a_program_that_becomes_another_goes_on_with_its_log(tmp_path: Path) -> None:
    directory, model = str(tmp_path / "log"), LogModel()
    ended = subprocess.run(
        [*python(FIRST_WRITER), directory, SECOND_WRITER], capture_output=True, text=True, timeout=30, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    for number in range(3000):
        model.append(STREAMS[number % 2], b"%d\n" % number)
    reader = LogReader(directory)
    hole = model.check(reader)
    assert reader.read_lines(2900, 100) == model.lines(2900, 100, hole)


@pytest.mark.requirement("design:log:reopen")
def test_the_last_segment_and_its_index_are_written_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    log = OutputLog(str(tmp_path / "log"))
    log.append(STDOUT, b"one\n")
    log = reopened(log)
    clock.advance(5)
    log.append(STDOUT, b"two\n")
    log = reopened(log)
    log.append(STDERR, b"three\n")
    start = 5_000_000 + 1000
    assert list(log.chunks()) == [Chunk(0, 8, STDOUT, start), Chunk(8, 14, STDERR, start + 5000)]
    assert sorted(contents(log.directory)) == [index_name(0), data_name(0), "format"]
    log.remove()


@pytest.mark.requirement("design:log:reopen")
def test_a_log_without_output_reopens_without_files(tmp_path: Path) -> None:
    log = reopened(OutputLog(str(tmp_path / "log"), OutputPolicy(5000, Overflow.WAIT)))
    assert (os.listdir(tmp_path), log.end, log.policy) == ([], 0, OutputPolicy(5000, Overflow.WAIT))
    log.append(STDOUT, b"first\n")
    assert log.read_lines(0, 5).lines == [b"first"]
    log.remove()


@pytest.mark.requirement("design:log:reopen")
async def test_a_closed_log_reopens_closed(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"))
    log.append(STDOUT, b"all\n")
    log.close()
    after = reopened(log)
    assert (after.closed, after.read(0).data, await after.wait_beyond(99)) == (True, b"all\n", 4)
    with pytest.raises(ValueError, match="is closed and takes no more output"):
        after.append(STDOUT, b"more")
    after.remove()


def full_disk(directory: Path, *, grow: Callable[[], object]) -> None:
    """Fill the file system under `directory`, hand the log over while output waits, then let it `grow`."""
    log, model = OutputLog(str(directory / "log"), OutputPolicy(50 * MIB)), LogModel()
    try:  # a file system with an open file could not be unmounted
        chunk = b"a line of output on a disk that is full\n" * 50
        while not log.blocked or log.held < 100_000:
            log.append(STDOUT, chunk)
            model.append(STDOUT, chunk)
        log.resized(100, 40)
        resized = Resize(len(model.everything), 100, 40)
        for _ in range(3):
            held, end = log.held, log.end
            log = reopened(log)
            assert (log.blocked, log.held, log.end, log.missing) == (True, held, end, 0)
            log.append(STDERR, b"still full\n")
            model.append(STDERR, b"still full\n")
            assert (log.blocked, log.held) == (True, held + 11)
        while not log.missing:
            log.append(STDOUT, chunk)
        missing, end, held = log.missing, log.end, log.held
        log = reopened(log)
        assert (log.missing, log.gaps()) == (missing, [])
        grow()
        log = reopened(log)
        log.retry()
        assert (log.end, log.held, log.blocked) == (end + held, 0, False)
        assert log.gaps() == [Gap(end + held, missing, os.strerror(errno.ENOSPC))]
        assert log.resizes() == [resized]
        known = len(model.everything)
        assert log.read(0, known).data == model.everything
        assert log.read_stream(STDERR).data == b"still full\n" * 3
    finally:
        log.remove()


@pytest.mark.requirement("design:log:reopen-held")
def test_what_a_full_disk_refuses_is_handed_over_and_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", MIB) as disk:
        if disk is None:
            faulty = FaultyDisk(monkeypatch)
            faulty.break_down(errno.ENOSPC)
            full_disk(tmp_path, grow=faulty.heal)
        else:
            larger = ["mount", "-o", f"remount,size={8 * MIB}", str(disk)]
            full_disk(disk, grow=lambda: subprocess.run(larger, timeout=30, check=True))


@pytest.mark.requirement("design:log:reopen-held")
@pytest.mark.requirement("design:log:write-failure")
def test_a_closed_log_is_finished_by_another_writer_after_many_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = OutputLog(str(tmp_path / "log"))
    log.append(STDOUT, b"written\n")
    real = os.write

    def refuse(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", refuse)
    log.append(STDERR, b"held\n")
    log.close()
    for _ in range(3):
        log.retry()
        after = OutputLog.reopen(log.directory, dumped(log))
        assert (after.closed, after.blocked, after.held) == (True, True, 5)
        after.retry()
        assert after.state()["failure"] == errno.ENOSPC
        log = after
    monkeypatch.setattr(os, "write", real)
    log.retry()
    assert (log.blocked, log.read(0).data, log.read_stream(STDERR).data) == (False, b"written\nheld\n", b"held\n")
    log.remove()


@pytest.mark.requirement("design:log:reopen")
def test_offsets_and_lines_go_on_where_the_files_were_deleted(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"))
    log.append(STDOUT, b"gone\n" * 10)
    state = dumped(log)
    log.remove()
    log = OutputLog.reopen(log.directory, state)
    assert (log.end, log.dropped) == (50, 50)
    log.append(STDOUT, b"here\n")
    for reader in (log, LogReader(log.directory)):
        assert (reader.read(0).data, reader.read(0).start, reader.total_lines) == (b"here\n", 50, 11)
    log.remove()

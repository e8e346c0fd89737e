"""The output log's writer hands over in trouble: tried out, killed, with torn files or a damaged state."""

import errno
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.helpers import python
from tests.process.log_model import STREAMS, Clock, LogModel
from tests.process.test_output_failures import FaultyDisk
from tests.process.test_output_reopen import dumped
from tether.errors import OutputLogError
from tether.process import output
from tether.process._log_format import RECORD_BYTES, Kind, Record, data_name, index_name
from tether.process.command import OutputPolicy, Overflow
from tether.process.log_reader import STDERR, STDOUT, Gap, LogReader, Resize
from tether.process.output import OutputLog


def snapshot(directory: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Everything below a directory by which a change can be seen."""
    return {
        str(path): (stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, path.read_bytes() if path.is_file() else b"")
        for path in (directory, *directory.rglob("*"))
        for stat in (path.stat(),)
    }


def cut(directory: str, name: str, size: int) -> None:
    os.truncate(os.path.join(directory, name), size)


@pytest.mark.requirement("design:log:reopen-touches-nothing")
@pytest.mark.parametrize("overflow", Overflow)
@pytest.mark.parametrize("situation", ["in order", "torn record", "no record", "blocked", "closed", "went on"])
def test_a_trial_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overflow: Overflow, situation: str
) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(2048, overflow))
    for number in range(100):
        log.append(STREAMS[number % 2], b"%d\n" % number * 5)
    log.discard_before(700)
    if situation == "blocked":
        with monkeypatch.context() as patch:
            FaultyDisk(patch).break_down(errno.ENOSPC)
            log.append(STDOUT, b"held\n")
    if situation == "closed":
        log.close()
    state = dumped(log)
    last = log.starts()[-1]
    if situation == "torn record":
        cut(log.directory, index_name(last), os.path.getsize(tmp_path / "log" / index_name(last)) - 5)
    if situation == "no record":
        cut(log.directory, index_name(last), 0)
    if situation == "went on":
        log.append(STDOUT, b"more\n")
    before = snapshot(tmp_path)
    trial = OutputLog.reopen(log.directory, state)
    assert (trial.end, trial.starts(), trial.closed) == (log.end, log.starts(), log.closed)
    assert (trial.held, trial.total_lines, trial.full) == (log.held, log.total_lines, log.full)
    assert snapshot(tmp_path) == before
    log.remove()


KILLED_WRITER = """
    import json, os, signal, sys
    from tether.process.command import OutputPolicy
    from tether.process.output import OutputLog
    log, state_at, count = OutputLog(sys.argv[1], OutputPolicy(4096)), int(sys.argv[2]), int(sys.argv[3])
    for number in range(count):
        if number == state_at:
            print(json.dumps(log.state()), flush=True)
        log.append(1 + number % 2, b"%d\\n" % number)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(directory: str, state_at: int, count: int) -> tuple[dict[str, object], LogModel]:
    """The state of a writer after `state_at` lines, which went on to `count` and was killed, and what it wrote."""
    writer = [*python(KILLED_WRITER), directory, str(state_at), str(count)]
    ended = subprocess.run(writer, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, "")
    model = LogModel()
    for number in range(count):
        model.append(STREAMS[number % 2], b"%d\n" % number)
    return json.loads(ended.stdout), model


def check_going_on(log: OutputLog, model: LogModel) -> None:
    """What comes now is added as to any log, and told to any reader."""
    for number in range(300):
        log.append(STREAMS[number % 2], b"after %d\n" % number)
        model.append(STREAMS[number % 2], b"after %d\n" % number)
        if number % 50 == 0:
            hole = model.check(log)
            assert model.check(LogReader(log.directory)) == hole
            for first in (0, log.total_lines - 3):
                assert log.read_lines(first, 9) == model.lines(first, 9, hole)


@pytest.mark.requirement("design:log:reopen-torn")
@pytest.mark.parametrize(("state_at", "count"), [(0, 1), (0, 60), (30, 31), (30, 60), (30, 1500), (700, 1500)])
def test_what_a_killed_writer_wrote_after_its_state_is_kept(tmp_path: Path, state_at: int, count: int) -> None:
    directory = str(tmp_path / "log")
    state, model = killed(directory, state_at, count)
    log = OutputLog.reopen(directory, state)
    model.check(log)
    assert log.total_lines == count
    check_going_on(log, model)
    log.remove()


@pytest.mark.requirement("design:log:reopen-torn")
@pytest.mark.parametrize("later", [b"later\n", b""])
def test_a_state_older_than_the_files_mixes_up_no_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: bytes
) -> None:
    Clock(monkeypatch)
    log, model = OutputLog(str(tmp_path / "log")), LogModel()
    log.append(STDOUT, b"first\n")
    model.append(STDOUT, b"first\n")
    state = dumped(log)
    log.append(STDERR, b"later\n")
    model.append(STDERR, later)
    cut(
        log.directory, data_name(0), len(model.everything)
    )  # a record comes before its bytes, and they may never come
    after = OutputLog.reopen(log.directory, state)
    after.append(STDOUT, b"on\n")
    model.append(STDOUT, b"on\n")
    model.check(after)
    model.check(LogReader(after.directory))
    log.close()
    after.remove()


@pytest.mark.requirement("design:log:reopen-torn")
def test_a_record_torn_anywhere_is_overwritten(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    state, model = killed(directory, 10, 20)
    for size in range(1, RECORD_BYTES):
        reader = LogReader(directory)
        with open(os.path.join(directory, index_name(reader.starts()[-1])), "ab") as index:
            index.write(Record(reader.end, 1, Kind.STDERR, lines=20).pack()[:size])
        log = OutputLog.reopen(directory, state)
        assert size == 1 or log.state() == state
        log.append(STDOUT, b"on\n")
        log.resized(80, size)
        model.append(STDOUT, b"on\n")
        model.check(log)
        model.check(reader)
        assert reader.resizes()[-1] == Resize(log.end, 80, size)
        state = dumped(log)
        log.close()
    log = OutputLog.reopen(directory, state)
    check_going_on(log, model)
    log.remove()


@pytest.mark.requirement("design:log:reopen-torn")
@pytest.mark.parametrize("left", [0, 1, 2, 3.5])
def test_bytes_that_lost_their_records_stay_and_get_one(tmp_path: Path, left: float) -> None:
    directory = str(tmp_path / "log")
    state, model = killed(directory, 0, 40)
    last = LogReader(directory).starts()[-1]
    cut(directory, index_name(last), int(left * RECORD_BYTES))
    log = OutputLog.reopen(directory, state)
    assert (log.read(0).data, log.total_lines) == (model.everything, 40)
    log.append(STDERR, b"on\n")
    assert log.read(0).data == model.everything + b"on\n"
    for reader in (log, LogReader(directory)):
        chunks = list(reader.chunks())
        assert [chunk.start for chunk in chunks[1:]] == [chunk.end for chunk in chunks[:-1]]
        assert (chunks[0].start, chunks[-1].end, chunks[-1].stream) == (0, log.end, STDERR)
        assert reader.read_stream(STDERR, log.end - 3).data == b"on\n"
        assert (reader.total_lines, reader.read_lines(38, 5).lines) == (41, [b"38", b"39", b"on"])
        assert reader.read_lines(3, 2).lines == [b"3", b"4"]
    log.remove()


@pytest.mark.requirement("design:log:reopen-torn")
def test_records_of_bytes_that_never_came_are_forgotten(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    state, model = killed(directory, 30, 31)
    written = state["end"]
    assert isinstance(written, int)
    last = LogReader(directory).starts()[-1]
    with open(os.path.join(directory, index_name(last)), "ab") as index:
        index.writelines(Record(written + 100 * far, 1, Kind.STDERR, lines=99).pack() for far in (1, 2, 3))
    log = OutputLog.reopen(directory, state)
    model.check(log)
    check_going_on(log, model)
    log.remove()


@pytest.mark.requirement("design:log:reopen-torn")
@pytest.mark.requirement("design:log:reopen-held")
@pytest.mark.parametrize("later", [b"", b"later\n"])
@pytest.mark.parametrize("room", [0, 3, 9, 12, 1000])
def test_what_was_held_and_then_written_is_not_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, later: bytes
) -> None:
    log, model = OutputLog(str(tmp_path / "log")), LogModel()
    real, allowed = os.write, 0

    def write(descriptor: int, data: bytes) -> int:
        nonlocal allowed
        if not allowed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        size = real(descriptor, data[:allowed])
        allowed -= size
        return size

    monkeypatch.setattr(os, "write", write)
    for stream in (STDOUT, STDERR):
        log.append(stream, b"held %d\n" % stream)
        model.append(stream, b"held %d\n" % stream)
    state = dumped(log)
    allowed = room
    log.retry()
    if room == 1000 and later:
        log.append(STDOUT, later)
        model.append(STDOUT, later)
    after = OutputLog.reopen(log.directory, state)
    assert (after.end, after.held) == (log.end, log.held)
    allowed = 2**60
    after.append(STDERR, b"on\n")
    model.append(STDERR, b"on\n")
    assert not after.blocked
    model.check(after)
    model.check(LogReader(after.directory))
    log.close()
    after.remove()


@pytest.mark.requirement("design:log:reopen-torn")
@pytest.mark.requirement("design:log:gap-record")
def test_a_gap_that_was_recorded_after_the_state_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_HOLD_BYTES", 100)
    log = OutputLog(str(tmp_path / "log"))
    with monkeypatch.context() as patch:
        FaultyDisk(patch).break_down(errno.ENOSPC)
        log.append(STDOUT, b"x" * 130)
    state = dumped(log)
    log.append(STDOUT, b"behind the gap")
    after = OutputLog.reopen(log.directory, state)
    assert (after.end, after.held, after.missing, after.blocked) == (log.end, 0, 30, False)
    after.append(STDOUT, b", on")
    assert after.gaps() == [Gap(100, 30, os.strerror(errno.ENOSPC))]
    assert after.read(100).data == b"behind the gap, on"
    log.close()
    after.remove()


@pytest.mark.requirement("design:log:reopen-damaged")
def test_files_that_the_state_is_not_about_are_refused(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"))
    log.append(STDOUT, b"0123456789")
    state = dumped(log)
    cut(log.directory, data_name(0), 7)
    with pytest.raises(
        OutputLogError, match=r"log '.*/log' ends at 7 but was written up to 10: its files were cut, so"
    ):
        OutputLog.reopen(log.directory, state)
    Path(log.directory, "other.out").write_bytes(b"")
    with pytest.raises(OutputLogError, match=r"log '.*/log' cannot be continued: .*'other'; see what is in it$"):
        OutputLog.reopen(log.directory, state)
    Path(log.directory, "format").write_bytes(b"tether-log 9\n")
    with pytest.raises(OutputLogError, match=r"has format 'tether-log 9'"):
        OutputLog.reopen(log.directory, state)
    log.remove()


HELD_ITEM = {"now": 1, "kind": 1, "data": "aGVsZA==", "cols": 0, "rows": 0}


@pytest.mark.requirement("design:log:reopen-damaged")
@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("capacity", 0, "capacity is 0"),
        ("capacity", True, "capacity is True"),
        ("overflow", "burst", "overflow is 'burst'"),
        ("overflow", [], r"overflow is \[\]"),
        ("closed", 1, "closed is 1"),
        ("epoch_ns", 1.5, "epoch_ns is 1.5"),
        ("end", -1, "end is -1"),
        ("gone", 11, "gone is 11"),
        ("lines", 11, "lines is 11"),
        ("stream", 3, "stream is 3"),
        ("missing", 2**63, f"missing is {2**63}"),
        ("missing", 1, "failure is 0"),
        ("held", [HELD_ITEM], "failure is 0"),
        ("held", {}, "held is {}"),
        ("held", ["x"], r"held\[0\]\. is 'x'"),
        ("held", [HELD_ITEM, HELD_ITEM | {"kind": 4}], r"held\[1\]\.kind is 4"),
        ("held", [HELD_ITEM | {"data": "a" * 99}], rf"held\[0\]\.data is '{'a' * 56}\.\.\."),
        ("held", [HELD_ITEM | {"data": "*"}], r"held\[0\]\.data is '\*'"),
        ("held", [HELD_ITEM | {"data": "é"}], r"held\[0\]\.data is 'é'"),
        ("held", [HELD_ITEM | {"data": ""}], r"held\[0\]\.data is ''"),
        ("held", [HELD_ITEM | {"kind": 3}], r"held\[0\]\.data is 'aGVsZA=='"),
        ("held", [HELD_ITEM | {"kind": 3, "data": "", "cols": 2**16}], r"held\[0\]\.cols is 65536"),
    ],
)
def test_a_damaged_state_is_refused_in_one_sentence(tmp_path: Path, field: str, value: object, told: str) -> None:
    log = OutputLog(str(tmp_path / "log"))
    log.append(STDOUT, b"0123456789")
    before = snapshot(tmp_path)
    with pytest.raises(
        OutputLogError, match=rf"^damaged state of log '.*/log': {told}; its output so far can be read"
    ):
        OutputLog.reopen(log.directory, dumped(log) | {field: value})
    assert snapshot(tmp_path) == before
    log.remove()


@pytest.mark.requirement("design:log:reopen-damaged")
def test_a_state_without_a_field_is_refused(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"))
    state = dumped(log)
    for field in state:
        rest = {name: value for name, value in state.items() if name != field}
        with pytest.raises(OutputLogError, match=rf"^damaged state of log '.*/log': {field} is None; "):
            OutputLog.reopen(log.directory, rest)

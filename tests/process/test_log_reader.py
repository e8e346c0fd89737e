"""Reading the output log: by offset, by stream and by line, from here and from elsewhere, while it is written."""

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import python
from tests.process.log_model import STREAMS, Clock, LogModel, text_of
from tether.errors import OutputLogError
from tether.process._log_format import FORMAT, RECORD_BYTES, Kind, Record, data_name, index_name
from tether.process.command import OutputPolicy, Overflow
from tether.process.log_reader import STDERR, STDOUT, Layout, Lines, LogReader, OutputSlice
from tether.process.output import OutputLog


@pytest.mark.requirement("design:log:boundary")
def test_reader_on_an_exact_segment_boundary_neither_loses_nor_repeats_a_byte(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(16 * 128, Overflow.STOP))
    whole = text_of(1, 128 * 5)
    for at in range(0, len(whole), 128):
        log.append(STDOUT, whole[at : at + 128])
        boundary = at + 128
        for reader in (log, LogReader(log.directory)):
            assert reader.read(boundary) == OutputSlice(boundary, b"", boundary)
            assert reader.read(boundary - 1) == OutputSlice(boundary - 1, whole[boundary - 1 : boundary], boundary)
    assert log.starts() == list(range(0, len(whole), 128))
    assert [log.read(at, 128).data for at in log.starts()] == [whole[at : at + 128] for at in log.starts()]
    assert log.read(100, 500).data == whole[100:600]
    log.remove()


@pytest.mark.requirement("design:log:read-never-waits")
@pytest.mark.requirement("design:log:read-slice")
def test_reads_of_what_is_not_there_are_empty(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"))
    for reader in (log, LogReader(log.directory)):
        assert reader.read(0) == reader.read(7) == OutputSlice(0, b"", 0)
        assert (reader.end, reader.dropped, reader.missing, reader.total_lines) == (0, 0, 0, 0)
        assert (list(reader.chunks()), reader.gaps(), reader.resizes(), reader.starts()) == ([], [], [], [])
        assert reader.read_lines(0, 10) == Lines(0, [], 0, 0)
        assert reader.read_stream(STDOUT) == OutputSlice(0, b"", 0)
    log.append(STDOUT, b"abc")
    for reader in (log, LogReader(log.directory)):
        assert reader.read(3) == reader.read(99) == OutputSlice(3, b"", 3)
        assert reader.read(1, 0) == OutputSlice(1, b"", 1)
        assert reader.read(-5, 2) == OutputSlice(0, b"ab", 2)
    log.remove()


@pytest.mark.requirement("design:lines-never-shift")
@pytest.mark.parametrize("tail", [b"", b"\n", b"rest", b"\n\n", b"a\n\nb"])
def test_line_numbers_stay_while_more_and_more_is_dropped(tmp_path: Path, tail: bytes) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(1024))
    model, foreign = LogModel(), LogReader(log.directory)
    for data in (text_of(2, 900), b"x" * 300, b"\n" * 200, b"y" * 3000, text_of(3, 2500) + tail):
        log.append(STDOUT, data)
        model.append(STDOUT, data)
        hole = model.check(log)
        for reader in (log, foreign, LogReader(log.directory)):
            for first in range(reader.total_lines + 2):
                assert reader.read_lines(first, 3) == model.lines(first, 3, hole)
    assert log.dropped > 0
    log.remove()


@pytest.mark.requirement("design:lines-never-shift")
def test_a_line_that_lost_its_middle_gives_its_beginning_then_the_next_line(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(1024))
    log.append(STDOUT, b"first\nbegin" + b"-" * 5000 + b"end\nlast\n")
    head_end = log.read(0).end
    expected = log.read(6, head_end).data
    assert log.read_lines(1, 5) == Lines(1, [expected], 3, 0)
    assert log.read_lines(2, 5) == Lines(2, [b"last"], 3, 0)
    log.remove()


@pytest.mark.requirement("design:lines-never-shift")
def test_lines_in_the_hole_are_counted_as_dropped(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(1024))
    log.append(STDOUT, b"".join(b"%07d\n" % number for number in range(1000)))
    page = log.read_lines(100, 2)
    assert page.lines == [b"%07d" % page.first, b"%07d" % (page.first + 1)]
    assert (page.dropped, page.total) == (page.first - 100, 1000)
    assert log.read_lines(999, 5) == Lines(999, [b"0000999"], 1000, 0)
    assert log.read_lines(1000, 5) == Lines(1000, [], 1000, 0)
    log.remove()


@pytest.mark.requirement("design:lines-never-shift")
def test_lines_of_a_log_whose_beginning_was_freed_keep_their_numbers(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(1024, Overflow.WAIT))
    log.append(STDOUT, b"".join(b"%03d\n" % number for number in range(200)))
    log.discard_before(500)
    first_kept = log.starts()[0] // 4
    for reader in (log, LogReader(log.directory)):
        assert reader.read_lines(0, 2) == Lines(
            first_kept, [b"%03d" % first_kept, b"%03d" % (first_kept + 1)], 200, first_kept
        )
        assert reader.read_lines(150, 1) == Lines(150, [b"150"], 200, 0)
    log.remove()


@pytest.mark.requirement("design:text:chunking-invariant")
def test_ten_thousand_chunkings_give_the_same_bytes_offsets_and_lines(tmp_path: Path) -> None:
    text = "héllo 日本語 \x1b[1;31m👩‍👩‍👧‍👦\x1b[0m\r\n\n\x1b]0;title\x07żółw\tend\n no newline ".encode()
    chooser = random.Random(7)
    for capacity in (1024, 4096, 65536, 1024 * 1024, 10 * 1024 * 1024):
        chunked = OutputLog(str(tmp_path / "chunked"), OutputPolicy(capacity))
        whole = OutputLog(str(tmp_path / "whole"), OutputPolicy(capacity))
        for _ in range(2000):
            cuts = sorted(chooser.sample(range(1, len(text)), chooser.randrange(12)))
            for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
                chunked.append(STDOUT, text[start:end])
            whole.append(STDOUT, text)
        assert chunked.end == whole.end == 2000 * len(text)
        hole_end = whole.read(whole.read(0).end).start
        assert [chunked.read(start) for start in (0, hole_end)] == [whole.read(start) for start in (0, hole_end)]
        assert chunked.read_lines(0, 9999) == whole.read_lines(0, 9999)
        assert chunked.read_lines(3000, 9999) == whole.read_lines(3000, 9999)
        chunked.remove()
        whole.remove()


FOLLOW = """
    import random, sys, time
    from tether.process.log_reader import STDERR, STDOUT, LogReader

    reader, offset, holes = LogReader(sys.argv[1]), 0, 0
    with open(sys.argv[2], "rb") as file:
        whole = file.read()
    chooser, deadline = random.Random(1), time.monotonic() + 40
    while offset < len(whole):
        assert time.monotonic() < deadline, offset
        part = reader.read(offset, chooser.choice((1, 100, 5000, None)))
        assert part.data == whole[part.start : part.end], (part.start, part.end)
        assert part.start == offset + part.dropped
        offset, holes = part.end, holes + (part.dropped > 0)
        start = chooser.randrange(len(whole))
        for stream in (STDOUT, STDERR):
            own = reader.read_stream(stream, start)
            area = range(own.start, own.end)
            assert own.data == bytes(whole[at] for at in area if (STDOUT, STDERR)[at // 7 % 2] == stream)
        page = reader.read_lines(chooser.randrange(reader.total_lines + 1), 20)
        lines = whole.split(b"\\n")
        for number, line in enumerate(page.lines[1:-1], page.first + 1):
            assert line == lines[number], (number, line)
    print(offset, holes)
"""


@pytest.mark.requirement("design:log:many-readers")
def test_a_reader_in_another_process_sees_the_same_while_segments_are_written_and_dropped(tmp_path: Path) -> None:
    whole = text_of(5, 60_000)
    (tmp_path / "whole").write_bytes(whole)
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(4096))
    follower = subprocess.Popen(
        [*python(FOLLOW), log.directory, tmp_path / "whole"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with follower:
        for at in range(0, len(whole), 7):
            log.append(STREAMS[at // 7 % 2], whole[at : at + 7])
            if at % 700 == 0 and follower.poll() is None:
                LogReader(log.directory).read_lines(at // 60, 5)
        out, errors = follower.communicate(timeout=50)
    assert (follower.returncode, errors) == (0, "")
    assert out.split()[0] == str(len(whole))
    log.remove()


class LateReader(LogReader):
    """A reader to whom something happens after every look at the directory."""

    def __init__(self, directory: str, between: Callable[[], object]) -> None:
        super().__init__(directory)
        self._between = between

    def _layout(self) -> Layout:
        layout = super()._layout()
        self._between()
        return layout


@pytest.mark.requirement("design:log:many-readers")
@pytest.mark.parametrize("times", [1, 2, 3])
def test_segments_dropped_between_listing_and_opening_are_looked_for_again(tmp_path: Path, times: int) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(1024))
    model = LogModel()
    left = 0

    def write_more() -> None:
        nonlocal left
        if left:
            left -= 1
            for number in range(100):
                data = b"%05d more\n" % number
                log.append(STREAMS[number % 2], data)
                model.append(STREAMS[number % 2], data)

    left = 1
    write_more()
    late = LateReader(log.directory, write_more)
    for start in range(0, 3000, 50):
        left = times
        part = late.read(start)
        assert part.data == model.everything[part.start : part.end]
        left = times
        own = late.read_stream(STDERR, start)
        assert own.data == model.of(STDERR, own.start, own.end)
        left = times
        page = late.read_lines(start // 11, 4)
        text = bytes(model.everything).split(b"\n")
        first, *others = page.lines
        assert text[page.first].endswith(first) or text[page.first].startswith(first)
        for number, line in enumerate(others, page.first + 1):
            assert text[number].startswith(line)
        left = times
        assert all(set(model.streams[c.start : c.end]) == {c.stream} for c in late.chunks(start))
        assert len(model.everything) - 3300 <= late.end <= len(model.everything)
    log.remove()


@pytest.mark.requirement("design:log:many-readers")
@pytest.mark.parametrize("capacity", [1024, 100_000])
def test_a_writer_that_never_rests_starves_no_reader(tmp_path: Path, capacity: int) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(capacity))

    def write_more() -> None:
        for _ in range(4):
            log.append(STREAMS[log.end // 10 % 2], b"%09d\n" % (log.end // 10))

    for _ in range(50):
        write_more()
    late = LateReader(log.directory, write_more)
    for number in range(0, 200, 3):
        page = late.read_lines(number, 2)
        assert page.lines[0] == b"%09d" % page.first
        assert page.first == number + page.dropped
        before = log.end
        assert before <= late.total_lines * 10 < log.end
        own = late.read_stream(STDERR, number * 10)
        assert all(int(line) % 2 for line in own.data.split())
    log.remove()


@pytest.mark.requirement("design:log:many-readers")
def test_a_log_whose_files_always_vanish_says_so(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(1024))
    log.append(STDOUT, b"x" * 500)

    def lose() -> None:
        for start in LogReader(log.directory).starts():
            source, target = (os.path.join(log.directory, data_name(at)) for at in (start, start + 10_000))
            os.rename(source, target)

    late = LateReader(log.directory, lose)
    with pytest.raises(OutputLogError, match=r"log '.*/log' cannot be read: its files vanish .* read it again"):
        late.read(0)
    shutil.rmtree(log.directory)
    with pytest.raises(OutputLogError, match="files vanish"):
        log.read(0, 300)
    log.remove()


@pytest.mark.requirement("design:log:torn-tail")
def test_an_index_cut_anywhere_loses_only_the_torn_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    log = OutputLog(str(tmp_path / "log"))
    for number in range(6):
        log.append(STREAMS[number % 2], b"chunk %d\n" % number)
        log.resized(80 + number, 24)
        clock.advance(20)
    log.close()
    index = os.path.join(log.directory, index_name(0))
    records = Path(index).read_bytes()
    chunks, sizes = list(log.chunks()), log.resizes()
    assert (len(chunks), len(sizes), len(records)) == (6, 6, 12 * RECORD_BYTES)
    for length in range(len(records), -1, -1):
        os.truncate(index, length)
        reader = LogReader(log.directory)
        whole = length // RECORD_BYTES
        assert reader.read(0).data == b"".join(b"chunk %d\n" % number for number in range(6))
        assert reader.resizes() == sizes[: whole // 2]
        known = list(reader.chunks())
        kept = (whole + 1) // 2
        assert [chunk.start for chunk in known] == [chunk.start for chunk in chunks[:kept]]
        assert known[: kept - 1] == chunks[: kept - 1] if kept else known == []
        assert reader.total_lines == 6
    with pytest.raises(OutputLogError):
        LogReader(log.directory).read_stream(STDOUT)
    log.remove()


@pytest.mark.requirement("design:log:torn-tail")
@pytest.mark.requirement("design:lines-never-shift")
def test_lines_are_counted_where_a_segment_has_lost_its_index(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(2048, Overflow.STOP))
    log.append(STDOUT, b"".join(b"%03d\n" % number for number in range(100)))
    log.close()
    *_, before_last, last = log.starts()
    for segment in (last, before_last):
        os.truncate(os.path.join(log.directory, index_name(segment)), RECORD_BYTES - 1)
        for number in range(100):
            for reader in (log, LogReader(log.directory)):
                assert reader.read_lines(number, 1) == Lines(number, [b"%03d" % number], 100, 0)
    log.remove()


@pytest.mark.requirement("design:log:torn-tail")
def test_bytes_that_a_file_has_lost_are_never_replaced_by_others(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"), OutputPolicy(2048, Overflow.STOP))
    whole = text_of(4, 128 * 4)
    log.append(STDOUT, whole)
    log.close()
    os.truncate(os.path.join(log.directory, data_name(128)), 100)
    reader = LogReader(log.directory)
    assert reader.read(0) == OutputSlice(0, whole[:228], 228)
    assert reader.read(228) == OutputSlice(228, b"", 228)
    assert reader.read(256).data == whole[256:]
    model = LogModel()
    model.append(STDOUT, whole)
    assert reader.read_lines(0, 1000) == model.lines(0, 1000, (128, 256))
    log.remove()


@pytest.mark.requirement("design:log:torn-tail")
def test_a_damaged_index_is_told_and_the_bytes_stay_readable(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"))
    log.append(STDOUT, b"bytes")
    log.close()
    Path(log.directory, index_name(0)).write_bytes(bytes(RECORD_BYTES))
    reader = LogReader(log.directory)
    assert reader.read(0).data == b"bytes"
    with pytest.raises(OutputLogError, match=r"damaged log index: 0 is not a valid Kind; .* by offset"):
        list(reader.chunks())
    log.remove()


@pytest.mark.requirement("design:log:format-version")
@pytest.mark.parametrize("found", [b"tether-log 2\n", b"tether-log 10\n", b"\x00\xff", FORMAT + b"more"])
def test_an_unknown_format_is_refused_with_both_versions_named(tmp_path: Path, found: bytes) -> None:
    (tmp_path / "format").write_bytes(found)
    shown = found.decode("ascii", "backslashreplace").strip()
    with pytest.raises(OutputLogError) as refused:
        LogReader(str(tmp_path))
    assert str(refused.value) == (
        f"log {str(tmp_path)!r} has format {shown!r}, this version reads 'tether-log 1': "
        "use the version of Tether that wrote it"
    )


@pytest.mark.requirement("design:log:format-version")
def test_every_log_carries_its_format_and_one_just_being_written_is_not_refused(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"))
    log.append(STDOUT, b"x")
    assert (tmp_path / "log" / "format").read_bytes() == FORMAT
    for length in range(len(FORMAT)):
        (tmp_path / "log" / "format").write_bytes(FORMAT[:length])
        assert LogReader(log.directory).read(0).data == b"x"
    log.remove()


@pytest.mark.requirement("design:log:index-carries")
def test_records_keep_every_field(tmp_path: Path) -> None:
    records = [
        Record(0, 1, Kind.STDOUT),
        Record(2**63, 2**62, Kind.GAP, 28, 0, 2**32 - 1, 2**61),
        Record(7, 8, Kind.RESIZE, 0, 10_000, 9_999),
    ]
    packed = b"".join(record.pack() for record in records)
    assert Record.unpack_all(packed) == records
    assert Record.unpack_all(packed[:-1]) == records[:-1]

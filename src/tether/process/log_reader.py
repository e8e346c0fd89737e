"""Reading a process's output: one axis of bytes from 0, kept in files, read by offset."""

import bisect
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from tether.errors import OutputLogError
from tether.process import _log_format as fmt
from tether.process._log_format import Kind, Record

STDOUT = int(Kind.STDOUT)
STDERR = int(Kind.STDERR)
_STREAMS = (Kind.STDOUT, Kind.STDERR)
_PAGE_BYTES = 64 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OutputSlice:
    """Bytes `start` to `end` of a log; `dropped` lie between what was asked for and `start`."""

    start: int
    data: bytes
    end: int
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of bytes of one stream that arrived at one time."""

    start: int
    end: int
    stream: int
    time_us: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that could not be kept at `offset`, and the system's reason."""

    offset: int
    missing: int
    reason: str


@dataclass(frozen=True, slots=True)
class Resize:
    """The terminal's size from `offset` on."""

    offset: int
    cols: int
    rows: int


@dataclass(frozen=True, slots=True)
class Lines:
    """Raw lines numbered from `first`, without their newlines; numbers never shift."""

    first: int
    lines: list[bytes]
    total: int
    dropped: int


class Layout(NamedTuple):
    """The segments' first offsets, where the hole is (at the end when nothing is gone) and where the log ends."""

    starts: list[int]
    hole_start: int
    hole_end: int
    end: int

    @classmethod
    def of(cls, starts: list[int], first_end: int, end: int) -> "Layout":
        """The layout of these segments, of which the first ends at `first_end`."""
        if not starts or starts[0] > 0:
            return cls(starts, 0, starts[0] if starts else end, end)
        if len(starts) > 1 and first_end < starts[1]:
            return cls(starts, first_end, starts[1], end)
        return cls(starts, end, end, end)

    def stop(self, offset: int) -> int:
        """Where a read that begins at `offset` has to end."""
        return self.hole_start if offset < self.hole_start else self.end

    def segment_end(self, position: int) -> int:
        """Offset behind the last byte of a segment."""
        following = self.starts[position + 1] if position + 1 < len(self.starts) else self.end
        return min(following, self.stop(self.starts[position]))


class LogReader:
    """Reads a log directory by offset, from any process, while it is being written."""

    __slots__ = ("_given_up", "directory")

    def __init__(self, directory: str) -> None:
        if not os.path.isdir(os.path.dirname(os.path.abspath(directory))):
            raise OutputLogError(f"no log {directory!r}: there is no such place; look at `process.output.directory`")
        fmt.check_format(directory)
        self.directory = directory
        self._given_up = 0

    @property
    def end(self) -> int:
        """Offset behind the last byte kept."""
        return self._steady(self._layout).end

    @property
    def dropped(self) -> int:
        """How many bytes are gone because the log was full or its consumer done with them."""
        layout = self._steady(self._layout)
        return layout.hole_end - layout.hole_start

    @property
    def missing(self) -> int:
        """How many bytes could never be kept (full or failing disk)."""
        return sum(gap.missing for gap in self.gaps())

    def starts(self) -> list[int]:
        """First offsets of the segments that exist."""
        return fmt.segment_starts(self.directory)

    def read(self, start: int, limit: int | None = None) -> OutputSlice:
        """What is there from `start` on, at most `limit` bytes; never waits, never spans a hole."""
        return self._steady(lambda: self._read(self._layout(), max(start, 0), limit))

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[Chunk]:
        """The stretches of [start, end) by stream and time, as they were read from the child."""
        layout = self._steady(self._layout)
        yield from self._chunks(layout, start, layout.end if end is None else min(end, layout.end))

    def read_stream(self, stream: int, start: int = 0, limit: int | None = None) -> OutputSlice:
        """One stream's bytes among the next `limit` of the axis; offsets stay those of the axis."""
        return self._steady(lambda: self._read_stream(stream, max(start, 0), limit))

    def gaps(self) -> list[Gap]:
        """Where a failing disk did not take bytes, how many and why; what a full log dropped is `dropped`."""
        return [
            Gap(record.offset, record.amount, os.strerror(record.reason))
            for segment in self.starts()
            for record in self._marks(segment)
            if record.kind is Kind.GAP
        ]

    def resizes(self, start: int = 0) -> list[Resize]:
        """Changes of the terminal's size at or after offset `start`."""
        return [
            Resize(record.offset, record.cols, record.amount)
            for segment in self.starts()
            for record in self._marks(segment)
            if record.kind is Kind.RESIZE and record.offset >= start
        ]

    @property
    def total_lines(self) -> int:
        """How many lines there were, an unfinished last one included."""
        return self._steady(lambda: self._total_lines(self._layout()))

    def read_lines(self, first: int, limit: int) -> Lines:
        """Up to `limit` raw lines from number `first` (0-based), never across the hole.

        Lines wholly in the hole are counted as dropped; of one that lost its middle the beginning is given.
        """
        return self._steady(lambda: self._read_lines(max(first, 0), limit))

    def _layout(self) -> Layout:
        """What is there now; FileNotFoundError when it was dropped meanwhile."""
        starts = fmt.segment_starts(self.directory)
        if not starts:
            return Layout.of(starts, 0, 0)
        behind_hole = 0 if starts[0] else 1
        del starts[behind_hole : min(behind_hole + self._given_up, len(starts) - 2)]
        return Layout.of(starts, self._size(starts[0]), starts[-1] + self._size(starts[-1]))

    def _size(self, segment: int) -> int:
        return os.stat(os.path.join(self.directory, fmt.data_name(segment))).st_size

    def _steady(self, look: Callable[[], T]) -> T:
        """What `look` finds, once more where a segment was dropped between listing and opening.

        Each time the oldest segments behind the hole are given up as well, so that no writer is too fast.
        """
        for self._given_up in (0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256):
            try:
                return look()
            except FileNotFoundError:
                continue
        raise OutputLogError(
            f"log {self.directory!r} cannot be read: its files vanish before they can be opened; "
            "if its directory was deleted, its output is gone, else read it again"
        )

    def _read(self, layout: Layout, start: int, limit: int | None) -> OutputSlice:
        starts, hole_start, hole_end, end = layout
        if start >= end:
            return OutputSlice(end, b"", end)
        asked = start
        if hole_start <= start < hole_end:
            start = hole_end
        stop = layout.stop(start)
        if limit is not None:
            stop = min(stop, start + max(limit, 0))
        at = start
        pieces: list[bytes] = []
        position = bisect.bisect_right(starts, start) - 1
        while at < stop:
            upto = min(stop, starts[position + 1]) if position + 1 < len(starts) else stop
            piece = self._read_segment(starts[position], at - starts[position], upto - at)
            pieces.append(piece)
            at += len(piece)
            if at < upto:
                break
            position += 1
        return OutputSlice(start, pieces[0] if len(pieces) == 1 else b"".join(pieces), at, start - asked)

    def _read_segment(self, segment: int, offset: int, size: int) -> bytes:
        descriptor = fmt.open_file(os.path.join(self.directory, fmt.data_name(segment)), os.O_RDONLY)
        try:
            return fmt.read_at(descriptor, size, offset)
        finally:
            os.close(descriptor)

    def _read_stream(self, stream: int, start: int, limit: int | None) -> OutputSlice:
        layout = self._layout()
        part = self._read(layout, start, limit)
        chunks = list(self._chunks(layout, part.start, part.end))
        if sum(chunk.end - chunk.start for chunk in chunks) < part.end - part.start:
            raise FileNotFoundError(f"index of bytes {part.start} to {part.end} in {self.directory!r}")
        wanted = [part.data[c.start - part.start : c.end - part.start] for c in chunks if c.stream == stream]
        return OutputSlice(part.start, b"".join(wanted), part.end, part.dropped)

    def _chunks(self, layout: Layout, start: int, stop: int) -> Iterator[Chunk]:
        first = max(bisect.bisect_right(layout.starts, start) - 1, 0)
        spans = [(at, layout.segment_end(first + n)) for n, at in enumerate(layout.starts[first:]) if at < stop]
        for segment, segment_end in spans:
            records = [record for record in self._marks(segment) if record.kind in _STREAMS]
            ends = [*(record.offset for record in records[1:]), segment_end]
            for record, upto in zip(records, ends, strict=False):
                begin, finish = max(record.offset, start), min(upto, stop)
                if begin < finish:
                    yield Chunk(begin, finish, int(record.kind), record.time_us)

    def _records(self, segment: int, size: int = -1) -> list[Record]:
        with open(os.path.join(self.directory, fmt.index_name(segment)), "rb") as file:
            return Record.unpack_all(file.read(size))

    def _marks(self, segment: int) -> list[Record]:
        """The records of a segment; none when it was dropped meanwhile."""
        try:
            return self._records(segment)
        except FileNotFoundError:
            return []

    def _read_lines(self, first: int, limit: int) -> Lines:
        layout = self._layout()
        total = self._total_lines(layout)
        if first >= total or limit < 1:
            return Lines(first, [], total, 0)
        offset, number = self._find_line(layout, first)
        return Lines(number, self._lines_from(layout, offset, limit), total, number - first)

    def _total_lines(self, layout: Layout) -> int:
        if not layout.end or not layout.starts:
            return 0
        unfinished = self._bytes(layout, layout.end - 1, layout.end) != b"\n"
        return self._newlines_before(layout, layout.end, len(layout.starts) - 1) + unfinished

    def _newlines_before(self, layout: Layout, offset: int, position: int) -> int:
        """The newlines of everything before `offset`, which lies in the segment at `position` or at its end."""
        for segment in reversed(layout.starts[: position + 1]):
            known = [record for record in self._records(segment) if record.offset <= offset]
            if known:
                return known[-1].lines + fmt.count_newlines(self._bytes(layout, known[-1].offset, offset))
        return fmt.count_newlines(self._bytes(layout, 0, offset))

    def _lines_before(self, layout: Layout, position: int) -> int:
        """The newlines of everything before a segment."""
        records = self._records(layout.starts[position], fmt.RECORD_BYTES)
        return records[0].lines if records else self._newlines_before(layout, layout.starts[position], position)

    def _find_line(self, layout: Layout, number: int) -> tuple[int, int]:
        """Where an existing line begins, or the first one kept behind it, and that one's number."""
        starts = layout.starts
        position = bisect.bisect_left(range(len(starts)), number, key=lambda at: self._lines_before(layout, at)) - 1
        if position < 0:
            return starts[0], self._lines_before(layout, 0)
        data = self._bytes(layout, starts[position], layout.segment_end(position))
        found = _behind_newline(data, number - self._lines_before(layout, position))
        if found is not None and starts[position] + found != layout.hole_start:
            return starts[position] + found, number
        return layout.hole_end, self._lines_before(layout, starts.index(layout.hole_end))

    def _lines_from(self, layout: Layout, offset: int, limit: int) -> list[bytes]:
        stop = layout.stop(offset)
        lines: list[bytes] = []
        parts: list[bytes] = []
        while offset < stop and len(lines) < limit:
            page = self._bytes(layout, offset, min(stop, offset + _PAGE_BYTES))
            *whole, rest = page.split(b"\n")
            for piece in whole:
                lines.append(b"".join([*parts, piece]) if parts else piece)
                parts.clear()
            if rest:
                parts.append(rest)
            offset += len(page)
        if parts:
            lines.append(b"".join(parts))
        return lines[:limit]

    def _bytes(self, layout: Layout, start: int, end: int) -> bytes:
        """Exactly these bytes; FileNotFoundError when they were dropped meanwhile."""
        part = self._read(layout, start, end - start)
        if part.start != start or part.end != end:
            raise FileNotFoundError(f"bytes {start} to {end} of {self.directory!r}")
        return part.data


def _behind_newline(data: bytes, number: int) -> int | None:
    """The position behind the `number`-th newline."""
    low, high = 0, len(data)
    if data.count(b"\n") < number:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        newlines = data.count(b"\n", low, middle)
        if newlines < number:
            low, number = middle, number - newlines
        else:
            high = middle
    return high

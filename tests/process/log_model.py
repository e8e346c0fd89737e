"""What an output log must answer, worked out from all bytes ever appended to it."""

import itertools
import os
import random
from types import SimpleNamespace

import pytest

from tether.process import output
from tether.process.log_reader import STDERR, STDOUT, Lines, LogReader

MIB = 1024 * 1024
HELD = MIB
STREAMS = (STDOUT, STDERR)
SMALLEST_LOG = 1024


class LogModel:
    """Everything the process wrote, byte by byte with the stream it came from."""

    def __init__(self) -> None:
        self.everything = bytearray()
        self.streams = bytearray()

    def append(self, stream: int, data: bytes) -> None:
        self.everything += data
        self.streams += bytes([stream]) * len(data)

    def check(self, reader: LogReader) -> tuple[int, int]:
        """Hold all that `reader` tells against the model; returns where its hole begins and ends."""
        end = len(self.everything)
        assert reader.end == end
        head = reader.read(0)
        tail = reader.read(head.end)
        assert (head.start, head.dropped) == (0, 0)
        assert (tail.start - head.end, tail.end) == (reader.dropped, end)
        assert tail.dropped == reader.dropped
        assert head.data + tail.data == self.everything[: head.end] + self.everything[tail.start :]
        self._check_streams(reader, head.end, tail.start)
        return head.end, tail.start

    def check_read(self, reader: LogReader, start: int, limit: int | None) -> None:
        part = reader.read(start, limit)
        assert part.data == self.everything[part.start : part.end]
        assert part.start == min(max(start, 0), len(self.everything)) + part.dropped
        assert limit is None or len(part.data) <= max(limit, 0)
        for stream in STREAMS:
            own = reader.read_stream(stream, start, limit)
            assert (own.start, own.end, own.dropped) == (part.start, part.end, part.dropped)
            assert own.data == self.of(stream, part.start, part.end)

    def of(self, stream: int, start: int, end: int) -> bytes:
        """The bytes of one stream between two offsets."""
        return bytes(itertools.compress(self.everything[start:end], map(stream.__eq__, self.streams[start:end])))

    def lines(self, first: int, limit: int, hole: tuple[int, int]) -> Lines:
        """The lines that a log with this hole must give."""
        text = bytes(self.everything)
        starts = [0, *(at + 1 for at, byte in enumerate(text) if byte == 0x0A)]
        if not text or text.endswith(b"\n"):
            starts.pop()
        total, wanted = len(starts), max(first, 0)
        if wanted >= total or limit < 1:
            return Lines(wanted, [], total, 0)
        offset, number, stop = starts[wanted], wanted, len(text)
        if offset < hole[0]:
            stop = hole[0]
        elif offset < hole[1]:
            offset, number = hole[1], text.count(b"\n", 0, hole[1])
        pieces = text[offset:stop].split(b"\n")
        if not pieces[-1]:
            pieces.pop()
        return Lines(number, pieces[:limit], total, number - wanted)

    def _check_streams(self, reader: LogReader, hole_start: int, hole_end: int) -> None:
        at = 0
        for chunk in reader.chunks():
            at = hole_end if at == hole_start else at
            assert chunk.start == at
            assert set(self.streams[chunk.start : chunk.end]) == {chunk.stream}
            at = chunk.end
        assert at == len(self.everything)


def text_of(seed: int, size: int) -> bytes:
    """Lines of many lengths, empty ones among them."""
    chooser = random.Random(seed)
    lines: list[bytes] = []
    while sum(map(len, lines)) < size:
        lines.append(chooser.randbytes(chooser.choice((0, 1, 7, 60, 300))).replace(b"\n", b" ") + b"\n")
    return b"".join(lines)[:size]


class Clock:
    """A clock for the log that stands still unless it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 5_000_000_000
        clock = SimpleNamespace(monotonic_ns=lambda: self.now_ns, time_ns=lambda: self.now_ns + 1_000_000)
        monkeypatch.setattr(output, "time", clock)

    def advance(self, milliseconds: float) -> None:
        self.now_ns += int(milliseconds * 1_000_000)


def disk_bytes(directory: str) -> int:
    """How many bytes the files of a log take."""
    return sum(os.path.getsize(os.path.join(directory, name)) for name in os.listdir(directory))

"""A process's log played into an emulator, from its beginning or from its newest checkpoint."""

import contextlib
import json
import os
from collections import deque
from dataclasses import dataclass

from tether.process import _log_format as fmt
from tether.process._emulator import ENGINE, Emulator, EmulatorError
from tether.process._log_format import Kind, Record
from tether.process.log_reader import LogReader

_SLICE_BYTES = 64 * 1024
_LOOK_EVERY = 256 * 1024
_CANCEL = b"\x18"
_PREFIX, _SUFFIX = "screen-", ".state"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the terminal replies to the queries up to `offset`."""

    offset: int
    data: bytes


class Playback:
    """Feeds a log to its emulator slice by slice, with the sizes the terminal had at each offset.

    Up to `answered` it is silent: those queries were answered when they were live.
    """

    def __init__(self, directory: str, cols: int, rows: int, answered: int) -> None:
        self.reader = LogReader(directory)
        self.offset = 0
        self.exact = True
        self.target = 0
        self._answered = answered
        self._checkpoint_wanted = False
        self._looked = 0
        self._checkpoint = -1
        self.emulator = self._newest_checkpoint() or Emulator(cols, rows)
        self._marks = _Marks(directory, self.offset)

    def grow(self, end: int) -> None:
        """The log reaches to `end` now."""
        self.target = max(self.target, end)

    @property
    def behind(self) -> bool:
        """There is more to feed."""
        return self.offset < self.target

    def step(self) -> Answer | None:
        """Feed the next slice; returns what the terminal replies to it, unless that was answered before."""
        replies = self._apply_marks()
        if self.behind:
            replies += self._feed_slice()
        if not self.behind:
            replies += self._apply_marks()
        self._maybe_checkpoint()
        return Answer(self.offset, replies) if replies else None

    def checkpoint(self) -> None:
        """Write the state down as soon as no escape sequence or character is unfinished."""
        self._checkpoint_wanted = True
        self._maybe_checkpoint()

    def _apply_marks(self) -> bytes:
        replies = b""
        for mark in self._marks.upto(self.offset):
            if mark.kind is Kind.GAP:
                self.exact = False
            elif (mark.cols, mark.amount) != self.emulator.size:
                reply = self.emulator.resize(mark.cols, mark.amount)
                replies += reply if self.offset >= self._answered else b""
        return replies

    def _feed_slice(self) -> bytes:
        stop = min(self.target, self.offset + _SLICE_BYTES, self._marks.next_offset(self.target))
        if self.offset < self._answered:
            stop = min(stop, self._answered)
        part = self.reader.read(self.offset, stop - self.offset)
        if not part.data:
            self.target = self.offset
            return b""
        if part.start != self.offset:
            self.exact = False
            self.offset = part.start
            self.target = max(self.target, part.start)
            self.emulator.feed(_CANCEL)
            return b""
        replies = self.emulator.feed(part.data)
        self.offset = part.end
        return replies if self.offset > self._answered else b""

    def _maybe_checkpoint(self) -> None:
        """A full log drops what a replay would need: keep a checkpoint in the newer half of what stays."""
        if self.offset - self._looked >= _LOOK_EVERY:
            self._looked = self.offset
            resumes = _resumes(self.reader)
            if resumes is not None and self._checkpoint < (resumes + self.offset) // 2:
                self._checkpoint_wanted = True
        if self._checkpoint_wanted and self.emulator.at_ground:
            with contextlib.suppress(OSError, EmulatorError):
                self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        directory = self.reader.directory
        header = json.dumps({"engine": ENGINE, "exact": self.exact}).encode()
        state = self.emulator.save()
        name = f"{_PREFIX}{self.offset:020d}{_SUFFIX}"
        unfinished = os.path.join(directory, name + ".new")
        try:
            with open(unfinished, "wb") as file:
                file.write(header + b"\n" + state)
            os.replace(unfinished, os.path.join(directory, name))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise
        self._checkpoint, self._checkpoint_wanted = self.offset, False
        for _, path in _checkpoints(directory):
            if os.path.basename(path) != name:
                os.unlink(path)

    def _newest_checkpoint(self) -> Emulator | None:
        """The state to go on from when the log has dropped what lies before; none while a replay is whole."""
        resumes = _resumes(self.reader)
        if resumes is None:
            return None
        for offset, path in _checkpoints(self.reader.directory):
            if offset < resumes:
                break
            with contextlib.suppress(OSError, ValueError, EmulatorError), open(path, "rb") as file:
                header = json.loads(file.readline())
                if header["engine"] == ENGINE:
                    emulator = Emulator(0, 0, state=file.read())
                    self.offset = self._checkpoint = self._looked = offset
                    self.exact = bool(header["exact"])
                    return emulator
        return None


class _Marks:
    """The resizes and gaps of a log, each told once and in order, read on from where the last look ended."""

    def __init__(self, directory: str, start: int) -> None:
        self._directory = directory
        self._start = start
        self._segment = max((s for s in fmt.segment_starts(directory) if s <= start), default=0)
        self._position = 0
        self._pending: deque[Record] = deque()

    def upto(self, offset: int) -> list[Record]:
        """What happened at or before `offset` and was not told yet."""
        self._look()
        found: list[Record] = []
        while self._pending and self._pending[0].offset <= offset:
            found.append(self._pending.popleft())
        return found

    def next_offset(self, otherwise: int) -> int:
        """Where the next one is."""
        return self._pending[0].offset if self._pending else otherwise

    def _look(self) -> None:
        for start in fmt.segment_starts(self._directory):
            if start < self._segment:
                continue
            if start > self._segment:
                self._segment, self._position = start, 0
            with contextlib.suppress(FileNotFoundError):
                self._read_index(os.path.join(self._directory, fmt.index_name(start)))

    def _read_index(self, path: str) -> None:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < self._position:
                self._position = 0  # the segment was begun anew at the same offset
            file.seek(self._position)
            records = Record.unpack_all(file.read())
        self._position += len(records) * fmt.RECORD_BYTES
        self._pending += [
            record for record in records if record.kind in (Kind.RESIZE, Kind.GAP) and record.offset >= self._start
        ]


def _resumes(reader: LogReader) -> int | None:
    """Where a log that has dropped bytes goes on; None when it is whole."""
    if not reader.dropped:
        return None
    starts = reader.starts()
    return starts[0] if starts[0] or len(starts) == 1 else starts[1]


def _checkpoints(directory: str) -> list[tuple[int, str]]:
    """The checkpoints of a log, the newest first."""
    found = [
        (int(name[len(_PREFIX) : -len(_SUFFIX)]), os.path.join(directory, name))
        for name in os.listdir(directory)
        if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
    ]
    return sorted(found, reverse=True)

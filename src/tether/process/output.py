"""Writing a process's output: every byte the policy allows is kept, and what could not be is told."""

import asyncio
import contextlib
import errno
import logging
import os
import time
from collections.abc import Mapping
from typing import Self

from tether.errors import OutputLogError
from tether.process import _log_format as fmt
from tether.process._log_format import RECORD_BYTES, Kind, Record
from tether.process._log_state import Held, LogFiles, LogState, cover_bytes
from tether.process._removal import remove_directory
from tether.process._waiters import Waiters
from tether.process.command import OutputPolicy, Overflow
from tether.process.log_reader import Layout, LogReader

logger = logging.getLogger(__name__)

_MERGE_NS = 10_000_000
_LARGEST_SEGMENT = 4 * 1024 * 1024
_SMALLEST_SEGMENT = 128
_SMALLEST_INDEX = 4 * RECORD_BYTES
_SMALLEST_LOG = 1024
_HOLD_BYTES = 1024 * 1024
_HOLD_ITEMS = 8192
_LARGEST_GAP = 0xFFFFFFFF


class OutputLog(LogReader):
    """The log's one writer: keeps every byte the policy allows, and says what it could not keep.

    Where the oldest output is dropped, the files together take no more than the capacity or 1 KiB, whichever
    is more. Where everything is kept, the log is `full` once bytes and finished indexes reach the capacity.
    """

    __slots__ = (
        "_closed_index",
        "_data",
        "_end",
        "_epoch_ns",
        "_failure",
        "_first_end",
        "_gone",
        "_grown_ns",
        "_held",
        "_held_bytes",
        "_index",
        "_index_bytes",
        "_index_size",
        "_index_sizes",
        "_keeps_all",
        "_lines",
        "_merge_until",
        "_missing",
        "_recorded",
        "_room",
        "_segment_bytes",
        "_starts",
        "_stream",
        "_waiters",
        "closed",
        "policy",
    )

    def __init__(
        self, directory: str, policy: OutputPolicy = OutputPolicy(), *, told: LogState | None = None
    ) -> None:
        if told is None and os.path.exists(os.path.join(directory, "format")):
            raise OutputLogError(f"{directory!r} holds a log already; give each process a directory of its own")
        self.directory = directory
        self._given_up = 0
        self.policy = policy
        self.closed = False
        self._keeps_all = policy.overflow is not Overflow.DROP
        self._segment_bytes = min(max(policy.capacity // 16, _SMALLEST_SEGMENT), _LARGEST_SEGMENT)
        self._index_bytes = max(self._segment_bytes // 4, _SMALLEST_INDEX)
        self._grown_ns = time.monotonic_ns()
        self._epoch_ns = time.time_ns() - self._grown_ns
        self._starts: list[int] = []
        self._index_sizes: dict[int, int] = {}
        self._data = self._index = -1
        self._end = self._first_end = self._gone = self._lines = 0
        self._index_size = self._closed_index = 0
        self._room = -1  # below any size while no file is open, so that no append is quick
        self._stream = self._merge_until = 0
        self._held: list[Held] = []
        self._held_bytes = self._missing = self._recorded = self._failure = 0
        self._waiters = Waiters()
        if told is not None:
            self._steady(lambda: self._go_on(told))

    @classmethod
    def reopen(cls, directory: str, state: Mapping[str, object]) -> Self:
        """Go on where a writer stopped that gave `state()` and writes no more, in this process or another.

        Nothing is written, cut or opened to stay before the first append, size or retry, so that a state can be
        tried out beside its writer. What that one still wrote after it gave its state is taken from the files.

        Raises:
            OutputLogError: the state is damaged, or the files are not those it was given for.
        """
        told = LogState.from_json(directory, state)
        fmt.check_format(directory)
        try:
            return cls(directory, told.policy, told=told)
        except (OSError, ValueError) as error:
            raise OutputLogError(f"log {directory!r} cannot be continued: {error}; see what is in it") from error

    @property
    def end(self) -> int:
        """Offset behind the last byte kept."""
        return self._end

    @property
    def last_growth(self) -> float:
        """When output last came, on the monotonic clock; before any, when the log was made."""
        return self._grown_ns / 1e9

    @property
    def blocked(self) -> bool:
        """Output waits in memory or is being lost because the last write failed; `retry` may end that."""
        return self._failure != 0

    @property
    def full(self) -> bool:
        """The policy keeps everything and there is no room for more."""
        return self._keeps_all and self._end - self._gone + self._closed_index >= self.policy.capacity

    @property
    def missing(self) -> int:
        """How many bytes could never be kept, those not yet recorded included."""
        return super().missing + self._missing

    @property
    def refused(self) -> int:
        """How many bytes the system has refused to this log so far, known without looking at a file."""
        return self._recorded + self._missing + self._held_bytes

    @property
    def held(self) -> int:
        """How many bytes the system has refused so far and that wait in memory."""
        return self._held_bytes

    def clock_us(self) -> int:
        """Now, by the clock that dates the log's records: wall time when it was made, then steady."""
        return (time.monotonic_ns() + self._epoch_ns) // 1000

    def starts(self) -> list[int]:
        """First offsets of the segments that exist."""
        return self._starts.copy()

    def append(self, stream: int, data: bytes) -> bool:
        """Keep `data`; what cannot be written now is held, and beyond a bound counted as missing.

        Returns whether whoever reads the child should look at `blocked` and `full` before it goes on.

        Raises:
            ValueError: the log is closed.
        """
        now = self._grown_ns = time.monotonic_ns()
        before = self._end
        try:
            if stream != self._stream or now >= self._merge_until or len(data) > self._room or self._failure:
                self._append_slowly(now, Kind(stream), data)
            else:
                self._write(data)
        except OSError as error:
            self._failed(error)
            self._hold(now, Kind(stream), data[self._end - before :])
        if self._waiters:
            self._wake()
        return self._keeps_all or self._failure != 0

    def resized(self, cols: int, rows: int) -> None:
        """Record the terminal's new size at this point of the output."""
        if self.closed:
            return
        now = time.monotonic_ns()
        self.retry()
        if not self._failure:
            try:
                self._put_mark(now, Kind.RESIZE, 0, cols, rows)
            except OSError as error:
                self._failed(error)
        if self._failure:
            if self._held and self._held[-1].kind is Kind.RESIZE:
                self._held.pop()
            self._held.append(Held(now, Kind.RESIZE, bytearray(), cols, rows))

    def retry(self) -> None:
        """Write what an earlier failure left in memory, then the gap it left, if the system lets us."""
        if not self._failure:
            return
        done = 0
        before = first = self._end
        try:
            for held in self._held:
                before = self._end
                self._write_held(held)
                done += 1
            while self._missing:
                amount = min(self._missing, _LARGEST_GAP)
                self._put_mark(time.monotonic_ns(), Kind.GAP, self._failure, 0, amount)
                self._missing -= amount
                self._recorded += amount
        except OSError as error:
            self._failed(error)
            if done < len(self._held):
                del self._held[done].data[: self._end - before]
        else:
            logger.warning("log=%s writes work again", self.directory)
            self._failure = 0
        del self._held[:done]
        self._held_bytes -= self._end - first
        if self.closed:
            self._close_files()
        self._wake()

    def discard_before(self, offset: int) -> None:
        """Where everything is kept: its consumer has taken what is before `offset`, free what lies wholly there."""
        if not self._keeps_all:
            return
        self._gone = max(self._gone, min(offset, self._end))
        # The last byte stays, so that the end can be looked at; what cannot be removed now goes next time.
        with contextlib.suppress(OSError):
            while len(self._starts) > 1 and self._starts[1] <= self._gone and self._starts[1] < self._end:
                self._remove_segment(0)

    def drop_oldest(self) -> None:
        """From now on drop the oldest output when there is no room, whatever the policy was."""
        self.policy, self._keeps_all = OutputPolicy(self.policy.capacity), False

    def state(self) -> dict[str, object]:
        """All that is not in the files, for `reopen`; plain values, as JSON has them."""
        return LogState(
            policy=self.policy,
            closed=self.closed,
            epoch_ns=self._epoch_ns,
            grown_ns=self._grown_ns,
            end=self._end,
            lines=self._lines,
            index_size=self._index_size,
            gone=self._gone,
            stream=self._stream,
            merge_until=self._merge_until,
            failure=self._failure,
            missing=self._missing,
            recorded=self._recorded,
            held=self._held,
        ).to_json()

    async def wait_beyond(self, offset: int) -> int:
        """Wait until the log has bytes past `offset` or takes no more; returns its end."""
        if self._end > offset or self.closed:
            return self._end
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.tell(offset, future)
        return await future

    def tell(self, offset: int, future: "asyncio.Future[int]") -> None:
        """Give `future` the log's end once that is past `offset` or no more bytes come."""
        self._waiters.add(offset, future)
        if self.closed:
            self._wake()

    def close(self) -> None:
        """No more bytes will come: write what can be, wake everybody, keep the files for readers.

        What the system still refuses stays in memory, and `retry` may be called until it is written.
        """
        if self.closed:
            return
        self.closed = True
        self._stream = 0  # no append is quick any more
        self.retry()
        self._close_files()
        if self._held:
            logger.warning("log=%s closed, %d bytes still to be written", self.directory, self._held_bytes)
        self._wake()

    def remove(self) -> None:
        """Close and delete the files."""
        self.close()
        self._held.clear()
        self._held_bytes = self._missing = self._failure = 0
        self._starts.clear()
        with contextlib.suppress(OSError):  # it may never have been made
            remove_directory(self.directory)

    def _go_on(self, told: LogState) -> None:
        """Be the writer that `told` and the files tell of; FileNotFoundError when some was dropped meanwhile."""
        starts, self._first_end, end, index_sizes = LogFiles.of(self.directory, told.end)
        self._starts, self._end, self._lines = starts, end, told.lines
        self._stream, self._merge_until = told.stream, told.merge_until
        self._index_sizes = dict(zip(starts[:-1], index_sizes, strict=False))
        self._closed_index = sum(self._index_sizes.values())
        self._index_size = index_sizes[-1] if starts else 0
        if starts and (self._end, self._index_size) != (told.end, told.index_size):
            self._recover()
            told.forget_written(self._end - told.end)
        layout = self._layout()
        self._gone = max(told.gone, layout.hole_end - layout.hole_start)
        self.closed, self._epoch_ns, self._grown_ns = told.closed, told.epoch_ns, told.grown_ns
        self._held, self._missing, self._failure = told.held, told.missing, told.failure
        self._recorded = told.recorded
        self._held_bytes = sum(len(held.data) for held in self._held)

    def _recover(self) -> None:
        """The writer went on after it gave its state, and died: only the files say how far it came."""
        last = len(self._starts) - 1
        known = [record for record in self._records(self._starts[last]) if record.offset <= self._end]
        self._index_size = len(known) * RECORD_BYTES
        self._lines = self._newlines_before(self._layout(), self._end, last)
        self._stream = self._merge_until = 0

    def _resume_segment(self) -> None:
        """Open the last segment again, its index without what a dying writer left unfinished."""
        start = self._starts[-1]
        self._open_files(start)
        try:
            os.ftruncate(self._index, self._index_size)
            if not self._stream and self._end > start:
                lines = self._newlines_before(self._layout(), start, len(self._starts) - 1)
                cover = Record(start, self.clock_us(), Kind.STDOUT, lines=lines)
                self._index_size = cover_bytes(self._index, self._index_size, cover)
        except OSError:
            self._close_files()
            raise
        self._room = self._segment_bytes - (self._end - start)

    def _layout(self) -> Layout:
        return Layout.of(self._starts, self._first_end, self._end)

    def _read_segment(self, segment: int, offset: int, size: int) -> bytes:
        if self._data >= 0 and segment == self._starts[-1]:
            return fmt.read_at(self._data, size, offset)
        return super()._read_segment(segment, offset, size)

    def _append_slowly(self, now: int, stream: Kind, data: bytes) -> None:
        """Keep `data` where more is to do than to write it."""
        if self.closed:
            raise ValueError(f"log {self.directory!r} is closed and takes no more output")
        self.retry()
        if self._failure:
            self._hold(now, stream, data)
        else:
            self._append_with_record(now, stream, data)

    def _append_with_record(self, now: int, stream: Kind, data: bytes | bytearray) -> None:
        at = 0
        while at < len(data):
            if self._room <= 0 or self._index_is_full:
                self._open_segment()
            if stream != self._stream or now >= self._merge_until:
                self._put_record(now, stream)
                self._stream, self._merge_until = stream, now + _MERGE_NS
            piece = data[at : at + self._room]
            self._write(piece)
            at += len(piece)

    def _write(self, data: bytes | bytearray) -> None:
        while True:
            size = os.write(self._data, data)
            self._end += size
            self._room -= size
            if size == len(data):
                self._lines += fmt.count_newlines(data)
                return
            if size == 0:
                raise fmt.disk_full()
            self._lines += fmt.count_newlines(data[:size])
            data = data[size:]

    def _put_mark(self, now: int, kind: Kind, reason: int, cols: int, amount: int) -> None:
        """Record what is no output; what follows it gets a record of its own."""
        self._put_record(now, kind, reason, cols, amount)
        self._merge_until = 0

    def _put_record(self, now: int, kind: Kind, reason: int = 0, cols: int = 0, amount: int = 0) -> None:
        if self._index < 0 or self._index_is_full:
            self._open_segment()
        time_us = (now + self._epoch_ns) // 1000
        record = Record(self._end, time_us, kind, reason, cols, amount, self._lines)
        fmt.write_at(self._index, record.pack(), self._index_size)
        self._index_size += RECORD_BYTES

    @property
    def _index_is_full(self) -> bool:
        return self._index_size + RECORD_BYTES > self._index_bytes

    def _write_held(self, held: Held) -> None:
        if held.kind is Kind.RESIZE:
            self._put_mark(held.now, Kind.RESIZE, 0, held.cols, held.rows)
        else:
            self._append_with_record(held.now, held.kind, held.data)

    def _open_segment(self) -> None:
        """Make room for more: on with the last segment, or begin the next, dropping the oldest but the first."""
        if self._data < 0 and self._starts:
            self._resume_segment()
            if self._room > 0 and not self._index_is_full:
                return
        if self._starts and self._starts[-1] == self._end:
            self._forget_sizes()
            return
        if not self._starts:
            fmt.write_format(self.directory)
        elif not self._keeps_all:
            self._make_room()
        self._open_files(self._end, os.O_CREAT)
        self._room, self._merge_until = self._segment_bytes, 0
        self._begin_accounts()

    def _open_files(self, start: int, flags: int = 0) -> None:
        """Write to the segment at `start` from now on."""
        index = self._open(fmt.index_name(start), os.O_RDWR | flags)
        try:
            data = self._open(fmt.data_name(start), os.O_RDWR | os.O_APPEND | flags)
        except OSError:
            os.close(index)
            raise
        self._close_files()
        self._data, self._index = data, index

    def _begin_accounts(self) -> None:
        """The last segment is finished, one begins here."""
        if self._starts:
            self._index_sizes[self._starts[-1]] = self._index_size
            self._closed_index += self._index_size
            self._index_size = 0
        if len(self._starts) == 1:
            self._first_end = self._end
        self._starts.append(self._end)

    def _forget_sizes(self) -> None:
        """Free the index of a segment that has no byte yet: of many sizes at one offset only the last counts."""
        records = Record.unpack_all(fmt.read_at(self._index, self._index_size, 0))
        sizes = [record for record in records if record.kind is Kind.RESIZE]
        kept = [record for record in records if record.kind is Kind.GAP] + sizes[-1:]
        fmt.write_at(self._index, b"".join(record.pack() for record in kept), 0)
        os.ftruncate(self._index, len(kept) * RECORD_BYTES)
        self._index_size = len(kept) * RECORD_BYTES
        self._merge_until = 0

    def _open(self, name: str, flags: int) -> int:
        return fmt.open_file(os.path.join(self.directory, name), flags)

    def _close_files(self) -> None:
        if self._data >= 0:
            os.close(self._data)
            os.close(self._index)
            self._data = self._index = self._room = -1

    def _make_room(self) -> None:
        most = max(self.policy.capacity, _SMALLEST_LOG) - len(fmt.FORMAT) - self._segment_bytes - self._index_bytes
        while len(self._starts) > 2 and self._end - self._gone + self._closed_index + self._index_size > most:
            # The beginning stays, unless a consumer was done with it already.
            position = 0 if self._starts[0] else 1
            dropped, kept = self._starts[position : position + 2]
            self._remove_segment(position)
            self._gone += kept - dropped

    def _remove_segment(self, position: int) -> None:
        start = self._starts[position]
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.directory, fmt.data_name(start)))
        del self._starts[position]
        self._closed_index -= self._index_sizes.pop(start)
        # Without its bytes an index is invisible; one that cannot be removed goes with the directory.
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.directory, fmt.index_name(start)))

    def _failed(self, error: OSError) -> None:
        if not self._failure:
            logger.warning("log=%s cannot write: %s; holding output and trying again", self.directory, error)
        self._failure = error.errno or errno.EIO

    def _hold(self, now: int, stream: Kind, data: bytes) -> None:
        room = 0 if self._missing or len(self._held) >= _HOLD_ITEMS else _HOLD_BYTES - self._held_bytes
        if self._keeps_all:
            room = len(data)  # reading is paused meanwhile, so this is at most what was read at once
        kept = data[:room]
        self._missing += len(data) - len(kept)
        if not kept:
            return
        self._held_bytes += len(kept)
        last = self._held[-1] if self._held else None
        if last and last.kind is stream and now < last.now + _MERGE_NS:
            last.data += kept
        else:
            self._held.append(Held(now, stream, bytearray(kept)))

    def _wake(self) -> None:
        self._waiters.wake(self._end, closed=self.closed)

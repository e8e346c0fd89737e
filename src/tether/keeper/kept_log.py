"""The log of something a keeper keeps, and its life, as clients see them."""

import asyncio
import time
from dataclasses import replace
from typing import Protocol

from tether.errors import KeeperError
from tether.keeper.frames import Frame
from tether.keeper.protocol import lines_from_frame, marks_from_json, slice_from_frame
from tether.keeper.records import ProcessRecord, record_from_json
from tether.process.exit_status import ExitStatus, Status
from tether.process.log_reader import Chunk, Gap, Lines, LogReader, OutputSlice, Resize


class Asking(Protocol):
    """How a kept process reaches its keeper."""

    async def ask(self, word: str, process_id: str, body: bytes = b"", **fields: object) -> Frame:
        """Have the keeper do something with a process."""
        ...


class KeptLog:
    """What the keeper last told of something it keeps, and every way to read its log."""

    def __init__(self, record: ProcessRecord, keeper: Asking, directory: str | None) -> None:
        self.id = record.id
        self.record = record
        self.directory = directory or ""
        self._keeper = keeper
        self._reader: LogReader | None = None
        self._grown_at = time.monotonic() - record.idle_seconds
        self._lost: KeeperError | None = None
        self._waiters: list[tuple[int | None, asyncio.Future[None]]] = []

    @property
    def started_at(self) -> float:
        """When it started, in seconds of the wall clock."""
        return self.record.started_at

    @property
    def ended_at(self) -> float | None:
        """When it ended."""
        return self.record.ended_at

    @property
    def exit_status(self) -> ExitStatus | None:
        """How it ended; None while it runs."""
        return self.record.exit_status

    @property
    def status(self) -> Status:
        """Where it is in its life, in the doors' word."""
        return self.record.status

    @property
    def end(self) -> int:
        """How far its output is known to reach."""
        return self.record.end

    @property
    def idle_seconds(self) -> float:
        """How long it has been silent, as far as we were told."""
        return time.monotonic() - self._grown_at

    def told(self, record: ProcessRecord) -> None:
        """The keeper says how it is doing."""
        self._lost = None
        if record.end > self.record.end:
            self._grown_at = time.monotonic()
        elif record.end < self.record.end:
            record = replace(record, end=self.record.end)
        if record.exit_status is None and self.exit_status is not None:
            return  # an answer that was begun before the end and overtaken by it
        self.record = record
        self._wake()

    def grown(self, end: int) -> None:
        """The keeper says that there is more output."""
        if end > self.record.end:
            self.told(replace(self.record, end=end))

    def lost(self, error: KeeperError) -> None:
        """There is no keeper any more to hear from: whoever waits is told so."""
        self._lost = error
        for _, future in self._waiters:
            if not future.done():
                future.set_exception(error)

    async def wait(self) -> ExitStatus:
        """Wait for its end; its own output is in the log by then.

        Raises:
            KeeperLostError: there is no keeper any more that could tell.
        """
        while self.exit_status is None:
            await self._news(None)
        return self.exit_status

    async def grown_or_ended(self, offset: int) -> None:
        """Wait until there is output past `offset` or the process has its exit status; raises like `wait`."""
        while self.end <= offset and self.exit_status is None:
            await self._news(offset)

    async def read(self, start: int = 0, limit: int | None = None, *, stream: int | None = None) -> OutputSlice:
        """What is there from `start` on, of one stream if given; never waits, never spans a hole.

        From another machine it may be less than asked for at once.
        """
        if self._log is None:
            answer = await self._ask("read", what="bytes", start=start, limit=limit, stream=stream)
            return slice_from_frame(answer)
        return self._log.read(start, limit) if stream is None else self._log.read_stream(stream, start, limit)

    async def read_lines(self, first: int, limit: int) -> Lines:
        """Up to `limit` raw lines from number `first` on."""
        if self._log is None:
            return lines_from_frame(await self._ask("read", what="lines", start=first, limit=limit))
        return self._log.read_lines(first, limit)

    async def chunks(self, start: int = 0, end: int | None = None) -> list[Chunk]:
        """The stretches of [start, end) by stream and time."""
        if self._log is None:
            return marks_from_json(Chunk, await self._ask("read", what="chunks", start=start, end=end))
        return list(self._log.chunks(start, end))

    async def gaps(self) -> list[Gap]:
        """Where bytes could not be kept, how many and why."""
        if self._log is None:
            return marks_from_json(Gap, await self._ask("read", what="gaps", start=0))
        return self._log.gaps()

    async def resizes(self, start: int = 0) -> list[Resize]:
        """Changes of its terminal's size at or after `start`."""
        if self._log is None:
            return marks_from_json(Resize, await self._ask("read", what="resizes", start=start))
        return self._log.resizes(start)

    async def discard_before(self, offset: int) -> None:
        """Where everything is kept for one consumer: it has taken what is before `offset`, so reading may go on."""
        await self._ask("discard", offset=offset)

    async def release(self) -> None:
        """Forget it: a running one is ended first, its log is removed."""
        await self._ask("release")

    @property
    def _log(self) -> LogReader | None:
        """Its log as files; None where those are on another machine."""
        if self._reader is None and self.directory:
            self._reader = LogReader(self.directory)
        return self._reader

    async def _ask(self, word: str, body: bytes = b"", **fields: object) -> Frame:
        return await self._keeper.ask(word, self.id, body, **fields)

    def _told_by(self, answer: Frame) -> None:
        self.told(record_from_json(answer.header.get("record")))

    async def _news(self, offset: int | None) -> None:
        if self._lost is not None:
            raise self._lost
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((offset, future))
        try:
            await future
        finally:
            self._waiters = [waiter for waiter in self._waiters if waiter[1] is not future]

    def _wake(self) -> None:
        for offset, future in self._waiters:
            grown = offset is not None and self.end > offset
            if (grown or self.exit_status is not None) and not future.done():
                future.set_result(None)

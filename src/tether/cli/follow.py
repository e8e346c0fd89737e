"""Reading a process's output to its end, whole and in constant memory."""

from collections import deque
from collections.abc import Awaitable, Callable

from tether.process.place import PlacedProcess

LEAST_CAPACITY = 64 * 1024
_AT_ONCE = 1024 * 1024
_MARK_BYTES = 64  # no less than a log's index needs for each change of stream

Take = Callable[[int, bytes], Awaitable[bool]]


async def follow(process: PlacedProcess, take: Take, dropped: Callable[[int], Awaitable[None]]) -> None:
    """Hand everything to `take` by stream, in order, until the end or until `take` says no more.

    Where a full log makes the process wait, it is freed of all but the last half of what it may hold; `dropped`
    hears of bytes that are gone nevertheless.
    """
    history = _History(process.command.output.capacity)
    at_once = min(_AT_ONCE, max(process.command.output.capacity // 8, 1))
    offset = 0
    while True:
        ended = process.exit_status is not None
        part = await process.read(offset, at_once)
        if part.dropped:
            await dropped(part.dropped)
        chunks = await process.chunks(part.start, part.end) if part.data else []
        for chunk in chunks:
            if not await take(chunk.stream, part.data[chunk.start - part.start : chunk.end - part.start]):
                return
        if part.end > offset:
            offset = part.end
            if not ended and history.outgrown(offset, len(part.data) + _MARK_BYTES * len(chunks)):
                await process.discard_before(history.start)
        elif ended:
            return
        else:
            await process.grown_or_ended(offset)


class _History:
    """What was taken and may stay in the log: the newest stretches that fill half of it, bytes and index."""

    def __init__(self, capacity: int) -> None:
        self.start = 0
        self._most = capacity // 2
        self._kept = 0
        self._stretches: deque[tuple[int, int]] = deque()

    def outgrown(self, end: int, cost: int) -> bool:
        """Add a stretch that ends there; whether something before `start` must go."""
        self._kept += cost
        if self._stretches and self._stretches[-1][1] + cost <= self._most // 16:
            cost += self._stretches.pop()[1]
        self._stretches.append((end, cost))
        before = self.start
        while self._kept > self._most:
            self.start, gone = self._stretches.popleft()
            self._kept -= gone
        return self.start > before

"""Those who wait for a log to grow."""

import asyncio


class Waiters:
    """Futures that get a log's end once that is past an offset of theirs."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[int]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, offset: int, future: "asyncio.Future[int]") -> None:
        """Remember one more, and forget those who gave up."""
        if self._waiting:
            self._waiting = [waiter for waiter in self._waiting if not waiter[1].done()]
        self._waiting.append((offset, future))

    def wake(self, end: int, *, closed: bool) -> None:
        """Tell whoever waited for this much, or everybody when there will be no more."""
        waiting, self._waiting = self._waiting, []
        for offset, future in waiting:
            if future.done():
                continue
            if end > offset or closed:
                future.set_result(end)
            else:
                self._waiting.append((offset, future))

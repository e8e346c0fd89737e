"""Signals that `tether run` gets: an interrupt is for the command, a hangup for us alone, all others end it."""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tether.errors import InputRefusedError, ProcessEndedError
from tether.process.place import PlacedProcess

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
_AGAIN_SECONDS = 2.0
_LAST_WORDS_SECONDS = 5.0


class FaceSignals:
    """Catches those signals while its block runs; `caught` is the one that ended the command.

    `interrupted` says that the command was interrupted and had its own say about that.
    """

    def __init__(self, let_go: Callable[[], None]) -> None:
        self.caught: int | None = None
        self.interrupted = False
        self._let_go = let_go
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[int] = asyncio.Queue()
        self._numbers: list[signal.Signals] = []
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        for number in (signal.Signals[name] for name in _NAMES if name in signal.Signals.__members__):
            # Ignored means that somebody said so on purpose: nohup, or a shell of its background jobs.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._loop.add_signal_handler(number, self._arrived.put_nowait, number)
                self._numbers.append(number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The command is over: a signal that comes now ends us at once."""
        if self._timer is not None:
            self._timer.cancel()
        for number in self._numbers:
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    async def heed(
        self, process: PlacedProcess, stop_soon: Callable[[], None], leave_soon: Callable[[], None]
    ) -> None:
        """Do what they ask for, until cancelled; who hangs up only leaves."""
        interrupted_at = -_AGAIN_SECONDS
        while True:
            number = await self._arrived.get()
            now = self._loop.time()
            if self.caught is not None:
                self._let_go()
                await process.kill()
            elif number == signal.SIGHUP:
                self.caught = number
                self._let_go()
                leave_soon()
            elif number == signal.SIGINT and now - interrupted_at >= _AGAIN_SECONDS:
                interrupted_at, self.interrupted = now, True
                # Its input may be closed, or nobody of its group ours to signal: the next one stops it.
                with contextlib.suppress(ProcessEndedError, InputRefusedError, OSError):
                    await process.interrupt()
            else:
                self.caught = number
                # Whoever does not read our output cannot keep us from ending.
                self._timer = self._loop.call_later(_LAST_WORDS_SECONDS, self._let_go)
                stop_soon()

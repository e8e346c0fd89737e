"""Signals that ask `tether exec` to end: its command hears of them first, and its tree ends with it."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

from tether.cli.exec_input import InBackground
from tether.errors import TetherError
from tether.process.process import Process

_NAMES = [
    "SIGINT",
    "SIGTERM",
    "SIGHUP",
    "SIGQUIT",
    "SIGBREAK",
    "SIGUSR1",
    "SIGUSR2",
    "SIGALRM",
    "SIGVTALRM",
    "SIGPROF",
    "SIGXCPU",
]
_INTERRUPT_SECONDS = 2.0
_LAST_WORDS_SECONDS = 5.0


class EndingSignals:
    """Catches those signals while its block runs; `caught` is the one that ended the command.

    Ctrl+C at a terminal is passed on and the command decides what it means, as if we were not there; a second
    one ends it. Everywhere else an interrupt is an order: who has not ended after a moment is stopped.
    """

    def __init__(self, let_go: Callable[[], None], *, at_terminal: bool) -> None:
        self.caught: int | None = None
        self.passed_on = False
        self._let_go = let_go
        self._at_terminal = at_terminal
        self._loop = asyncio.get_running_loop()
        self._process: Process | None = None
        self._in_background: InBackground | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._numbers: list[signal.Signals] = []

    def __enter__(self) -> Self:
        for number in _numbers():
            # Ignored means that somebody said so on purpose: nohup, or a shell of its background jobs.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._catch(number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The command is over: a signal that comes now ends us at once."""
        self._process = None
        for timer in self._timers:
            timer.cancel()
        for number in self._numbers:
            if sys.platform != "win32":
                self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    def hand_to(self, process: Process, in_background: InBackground) -> None:
        """The command has started: from now on it is told."""
        self._process, self._in_background = process, in_background
        if self.caught is not None:
            self._end(process, self.caught)

    def _catch(self, number: signal.Signals) -> None:
        self._numbers.append(number)
        if sys.platform == "win32":
            signal.signal(number, self._arrived)
        else:
            # Unlike a plain handler this one wakes a loop that was just about to fall asleep.
            self._loop.add_signal_handler(number, self._handle, number)

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        self._loop.call_soon_threadsafe(self._handle, number)

    def _handle(self, number: int) -> None:
        process = self._process
        if process is None:
            self.caught = self.caught or number
        elif self.caught is not None:
            self._let_go()
            process.kill_now()
        elif number == signal.SIGINT and self._at_terminal and not self.passed_on:
            self.passed_on = True
            self._interrupt(process)
        else:
            self.caught = number
            self._end(process, number)

    def _interrupt(self, process: Process) -> None:
        assert self._in_background is not None
        self._in_background(_interrupt(process))

    def _end(self, process: Process, number: int) -> None:
        self._timers.append(self._loop.call_later(_LAST_WORDS_SECONDS, self._let_go))
        if number == signal.SIGINT and not self.passed_on:
            self._interrupt(process)
            self._timers.append(self._loop.call_later(_INTERRUPT_SECONDS, process.stop_soon))
        else:
            process.stop_soon()


def _numbers() -> list[signal.Signals]:
    return [number for number in signal.Signals if number.name in _NAMES]


async def _interrupt(process: Process) -> None:
    # It has ended, or nobody of its group may be ours to signal, as under sudo: the stop that follows says so.
    with contextlib.suppress(OSError, TetherError):
        await process.interrupt()

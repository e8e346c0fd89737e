"""What the command of `tether exec` reads: our own stdin, or what is typed at our terminal."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Self

from tether.errors import TetherError
from tether.process.place import PlacedProcess

InBackground = Callable[[Coroutine[object, object, object]], None]

_STDIN = 0
_AT_ONCE = 65536
_LOOK_SECONDS = 0.25


def at_terminal() -> bool:
    """Whether stdin is our controlling terminal: the command, in a session of its own, may not read that."""
    if sys.platform == "win32":
        return False
    try:
        os.tcgetpgrp(_STDIN)
    except OSError:
        return False
    return True


class TypedInput:
    """Hands what is typed to the command, as long as the terminal is ours to read."""

    def __init__(self, process: PlacedProcess, in_background: InBackground) -> None:
        self._process = process
        self._in_background = in_background
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        if sys.platform != "win32":
            # A background job that reads is suspended, unless it would rather be refused.
            signal.signal(signal.SIGTTIN, signal.SIG_IGN)
        self._look()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rest()

    def _look(self) -> None:
        if at_terminal():
            self._loop.add_reader(_STDIN, self._typed)
        else:
            self._end()

    def _typed(self) -> None:
        try:
            data = os.read(_STDIN, _AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            # What is typed is not for us now, or the terminal is gone.
            self._rest()
            self._timer = self._loop.call_later(_LOOK_SECONDS, self._look)
            return
        if not data:
            self._end()
            return
        self._in_background(self._pass_on(data))

    async def _pass_on(self, data: bytes) -> None:
        try:
            await self._process.write(data)
        except TetherError:
            self._rest()

    def _end(self) -> None:
        self._rest()
        self._in_background(self._pass_end_on())

    async def _pass_end_on(self) -> None:
        with contextlib.suppress(TetherError):  # who has ended or reads no more needs no end of input
            await self._process.end_input()

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loop.remove_reader(_STDIN)

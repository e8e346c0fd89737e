"""Our stdin, handed to a process as fast as that reads: a pipe, a file, or what is typed at a terminal."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from queue import SimpleQueue

from tether.errors import InputRefusedError, LineTooLongError, ProcessEndedError, TooManyProcessesError
from tether.process.place import PlacedProcess

_STDIN = 0
_AT_ONCE = 256 * 1024
_MOST_WAITING = 4 * 1024 * 1024
_LOOK_SECONDS = 0.25
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1


async def copy_stdin(process: PlacedProcess) -> None:
    """Send everything up to our own end of input.

    Raises:
        ProcessEndedError: it ended before.
        InputRefusedError: it takes no more.
    """
    stdin = _Stdin()
    waiting = 0
    while data := await stdin.read():
        waiting = 0 if await process.write(data) else waiting + len(data)
        pause = _FIRST_PAUSE
        while waiting > _MOST_WAITING:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            if await process.write(b""):
                waiting = 0


async def pass_stdin_on(process: PlacedProcess) -> str | None:
    """Send everything and the end of input behind it; returns why some of it could not be delivered."""
    # Who has ended or closed its input needs no more of it.
    with contextlib.suppress(ProcessEndedError, InputRefusedError):
        try:
            await copy_stdin(process)
        except LineTooLongError as error:
            await process.end_input()
            return f"the rest of the input was not sent: {error}"
        await process.end_input()
    return None


class _Stdin:
    """Reads in a thread, since a file is always ready and a terminal may be somebody else's for now."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wanted: SimpleQueue[asyncio.Future[bytes]] = SimpleQueue()
        if sys.platform != "win32":
            # A background job that reads is suspended, unless it would rather be refused.
            signal.signal(signal.SIGTTIN, signal.SIG_IGN)
        try:
            threading.Thread(target=self._read_on, name="own-stdin", daemon=True).start()
        except RuntimeError as error:
            raise TooManyProcessesError("cannot start a thread; end other processes or raise `ulimit -u`") from error

    async def read(self) -> bytes:
        """The next bytes; none at the end."""
        wanted: asyncio.Future[bytes] = self._loop.create_future()
        self._wanted.put(wanted)
        return await wanted

    def _read_on(self) -> None:
        data = b"-"
        while data:
            wanted = self._wanted.get()
            data = _read()
            # The process may have ended long before somebody typed again.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_answer, wanted, data)


def _answer(wanted: "asyncio.Future[bytes]", data: bytes) -> None:
    if not wanted.done():
        wanted.set_result(data)


def _read() -> bytes:
    while True:
        try:
            return os.read(_STDIN, _AT_ONCE)
        except BlockingIOError:
            time.sleep(_FIRST_PAUSE)
        except OSError:
            if not os.isatty(_STDIN) or not _terminal_is_there():
                return b""
            time.sleep(_LOOK_SECONDS)  # what is typed is for another program now


def _terminal_is_there() -> bool:
    if sys.platform == "win32":
        return True
    try:
        os.tcgetpgrp(_STDIN)
    except OSError:
        return False
    return True

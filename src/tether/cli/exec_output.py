"""Where `tether exec` puts a command's output: through to ours, or into one JSON object."""

import asyncio
import contextlib
import os
import select
import threading
from collections.abc import Awaitable, Callable
from queue import SimpleQueue

from tether.errors import TooManyProcessesError
from tether.process.log_reader import STDERR, STDOUT
from tether.process.process import Process

_AT_ONCE = 1024 * 1024


async def take_all(process: Process, take: Callable[[int, bytes], Awaitable[None]]) -> None:
    """Hand everything a process writes to `take`, in order, until its end; what was taken is freed."""
    offset = 0
    while True:
        part = process.output.read(offset, _AT_ONCE)
        if part.data:
            for chunk in process.output.chunks(part.start, part.end):
                await take(chunk.stream, part.data[chunk.start - part.start : chunk.end - part.start])
            offset = part.end
            await process.discard_before(offset)
        elif process.exit_status is not None:
            return
        else:
            await process.grown_or_ended(offset)


class OwnStreams:
    """Writes to our stdout and stderr, however slowly they are read; what fails is kept in `failure`."""

    def __init__(self) -> None:
        self.failure: OSError | None = None
        self._loop = asyncio.get_running_loop()
        self._let_go: asyncio.Future[None] = self._loop.create_future()
        self._work: SimpleQueue[tuple[int, bytes, asyncio.Future[OSError | None]]] = SimpleQueue()
        # A reader who has stopped reading blocks this thread, never the loop, which has signals to hear.
        try:
            threading.Thread(target=self._write_on, name="own-streams", daemon=True).start()
        except RuntimeError as error:
            raise TooManyProcessesError("cannot start a thread; end other processes or raise `ulimit -u`") from error

    async def write(self, stream: int, data: bytes) -> None:
        """Return once all of `data` is written, or nobody will take it any more."""
        if self._let_go.done():
            return
        written: asyncio.Future[OSError | None] = self._loop.create_future()
        self._work.put((stream, data, written))
        await asyncio.wait((written, self._let_go), return_when=asyncio.FIRST_COMPLETED)
        if written.done() and (failure := written.result()) is not None:
            self.failure = failure
            self.let_go()

    def let_go(self) -> None:
        """From now on nothing is written, and whoever waits for a write goes on."""
        if not self._let_go.done():
            self._let_go.set_result(None)

    def _write_on(self) -> None:
        while True:
            stream, data, written = self._work.get()
            failure = write_all(stream, data)
            # Somebody may have read again at last, when we have long been let go and the loop is closed.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(written.set_result, failure)


def write_all(descriptor: int, data: bytes) -> OSError | None:
    """Write all of `data`, waiting for room where needed; returns why it could not be."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            # Whoever gave us the stream has made it non-blocking, for everybody who shares it.
            select.select((), (descriptor,), ())
        except OSError as error:
            return error
    return None


class Collected:
    """Keeps the first characters of each stream."""

    def __init__(self, most_chars: int) -> None:
        from tether.process.text import Utf8Decoder  # only --json pays for it

        self._most = most_chars
        self._decoders = {STDOUT: Utf8Decoder(), STDERR: Utf8Decoder()}
        self._texts: dict[int, list[str]] = {STDOUT: [], STDERR: []}
        self._sizes = {STDOUT: 0, STDERR: 0}

    async def take(self, stream: int, data: bytes) -> None:
        """Keep what still fits, and know that there was more."""
        if self._sizes[stream] <= self._most:
            self._add(stream, self._decoders[stream].feed(data))

    def clipped(self, stream: int) -> tuple[str, bool]:
        """The beginning of a stream that has ended, and whether there was more."""
        self._add(stream, self._decoders[stream].feed(b"", final=True))
        text = "".join(self._texts[stream])
        return text[: self._most], len(text) > self._most

    def _add(self, stream: int, text: str) -> None:
        self._texts[stream].append(text)
        self._sizes[stream] += len(text)

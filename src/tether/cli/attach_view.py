"""What a person's terminal shows of a process: its present state first, then everything as it comes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from tether.cli.exec_output import OwnStreams
from tether.cli.terminal import CLEAR, PLAIN, STDOUT, ColourWatch, closing, closing_lines, opening, own_size
from tether.errors import InvalidCommandError, ProcessEndedError, ScreenUnavailableError, TetherError
from tether.process.command import Pty
from tether.process.exit_status import ExitStatus
from tether.process.place import PlacedProcess
from tether.process.queries import QueryFilter

_SHOWN_AT_ONCE = 256 * 1024
_TAIL_BYTES = 64 * 1024
_LAST_WORDS_SECONDS = 2.0


class View:
    """The output of one process on our own terminal, which never answers a query of it.

    `gone` is called when our terminal takes nothing any more. With `sized` the process's terminal gets our size.
    """

    def __init__(self, process: PlacedProcess, gone: Callable[[], None], *, sized: bool) -> None:
        self._process = process
        self._gone = gone
        self._sized = sized
        self._on_terminal = isinstance(process.stdio, Pty)
        self._streams = OwnStreams()
        self._colours = ColourWatch()
        self._filter = QueryFilter()
        self._offset = 0
        self._showing = asyncio.Lock()

    async def open(self, first_line: str, title: str) -> None:
        """Say where we are, then show the process as it is now."""
        async with self._showing:
            await self.show(f"tether: {first_line}\r\n".encode())
            if self._on_terminal:
                await self.take_size()
                size = own_size()
                await self.show(opening(title, rows=size[1] if size else 0))
            self._offset = 0
            await self._paint()

    async def follow(self) -> ExitStatus:
        """Show what is written until the process has ended and all of it is shown."""
        process = self._process
        while True:
            async with self._showing:
                status = process.exit_status
                part = await process.read(self._offset, _SHOWN_AT_ONCE)
                if part.dropped:
                    # What is missing may have been half of a picture.
                    await self._paint()
                elif part.data:
                    self._offset = part.end
                    await self.show(self._filter.feed(part.data))
            if part.data or part.dropped:
                continue
            if status is not None:
                return status
            await process.grown_or_ended(self._offset)

    async def claim(self) -> None:
        """Whoever types has the say: give the process our size if somebody else's is set, and draw it anew."""
        if await self.take_size():
            async with self._showing:
                await self._paint()

    async def take_size(self) -> bool:
        """Give the process's terminal the size of ours; whether it had another one."""
        size, stdio = own_size(), self._process.stdio
        if not self._sized or not isinstance(stdio, Pty) or size is None or size == (stdio.cols, stdio.rows):
            return False
        try:
            await self._process.resize(*size)
        except (ProcessEndedError, InvalidCommandError):
            return False
        return True

    @contextlib.asynccontextmanager
    async def put_aside(self) -> AsyncGenerator[None, None]:
        """Nothing is shown while the block runs, and our terminal is as programs expect it."""
        async with self._showing:
            await self.close()
            yield

    async def close(self) -> None:
        """Undo what the process may have done to our terminal."""
        changed = self._colours.changed
        if self._on_terminal:
            await self.say(closing(await self._free_row(), colours_changed=changed))
        else:
            await self.say(closing_lines(colours_changed=changed))

    async def _free_row(self) -> int | None:
        """The row below what we show, from 1; None when there is none, or nobody can say."""
        try:
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                screen = await self._process.screen()
        except (TetherError, TimeoutError):
            return None
        used = max(screen.cursor.y + (screen.cursor.x > 0), len(screen.text.rstrip().split("\n")))
        fits = (screen.cols, screen.rows) == own_size() and used < screen.rows
        return used + 1 if fits and not screen.alternate_screen else None

    async def say(self, data: bytes) -> None:
        """Write to our terminal, but wait for nobody who does not take it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await self._streams.write(STDOUT, data)

    async def show(self, data: bytes) -> None:
        """Write to our terminal, however slow it is."""
        if data:
            await self._streams.write(STDOUT, self._colours.saw(data))
        if self._streams.failure is not None:
            self._gone()

    async def _paint(self) -> None:
        """Bring our terminal to the process's present state, from where its output continues."""
        if not self._on_terminal:
            await self._show_tail()
            return
        try:
            snapshot = await self._process.vt_snapshot()
        except ScreenUnavailableError:
            await self._show_tail()
            return
        self._filter = QueryFilter()
        self._offset = snapshot.offset
        await self.show(PLAIN + CLEAR + self._filter.feed(snapshot.data))

    async def _show_tail(self) -> None:
        """Where nobody knows a screen: the last lines that were written and not shown yet."""
        part = await self._process.read(max(self._process.end - _TAIL_BYTES, self._offset), _TAIL_BYTES)
        data = part.data
        if part.start > self._offset:
            # Of a line that has lost its beginning nothing is shown.
            self._filter = QueryFilter()
            _, _, data = data.partition(b"\n")
        self._offset = part.end
        await self.show(self._filter.feed(data))

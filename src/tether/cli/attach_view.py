"""What a person's terminal shows of a process: its present state first, then everything as it comes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from tether.cli.attach_drawing import Drawing
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
_SIZES_SECONDS = 0.25
_BETWEEN_DRAWINGS_SECONDS = 0.05
_BLIND_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Layout:
    """What decides how a process is shown: both sizes, how often our window has changed, whether we can draw."""

    own: tuple[int, int] | None
    its: tuple[int, int] | None
    windows: int
    blind: bool

    @property
    def needs_drawing(self) -> bool:
        """Its bytes were meant for another size than ours."""
        return None not in (self.own, self.its) and self.own != self.its and not self.blind


class View:
    """The output of one process on our own terminal, which never answers a query of it.

    `gone` is called when our terminal takes nothing any more. With `sized` the process's terminal gets our size.
    While it has another one all the same, what fits of its screen is drawn instead of passing on its bytes.
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
        self._drawing: Drawing | None = None
        self._drawn: _Layout | None = None
        self._windows = 0
        self._blind_until = 0.0

    async def open(self, first_line: str, title: str) -> None:
        """Say where we are, then show the process as it is now."""
        async with self._showing:
            await self.show(f"tether: {first_line}\r\n".encode())
            if self._on_terminal:
                await self.take_size()
                size = own_size()
                await self.show(opening(title, rows=size[1] if size else 0))
            self._offset = 0
            self._drawing = None
            if not await self._draw():
                await self._paint()

    async def follow(self) -> ExitStatus:
        """Show what is written until the process has ended and all of it is shown."""
        process = self._process
        while True:
            layout, seen = self._layout(), process.end
            async with self._showing:
                status = process.exit_status
                drawn = await self._draw()
                passed_on = not drawn and await self._pass_on()
            if passed_on:
                continue
            if status is not None:
                return status
            if drawn:
                await asyncio.sleep(_BETWEEN_DRAWINGS_SECONDS)
            await self._changed(seen if drawn else self._offset, layout)

    async def _pass_on(self) -> bool:
        """Show the next bytes as they are; whether there were any."""
        part = await self._process.read(self._offset, _SHOWN_AT_ONCE)
        if part.dropped:
            # What is missing may have been half of a picture.
            await self._paint()
        elif part.data:
            self._offset = part.end
            await self.show(self._filter.feed(part.data))
        return bool(part.data or part.dropped)

    async def _changed(self, offset: int, layout: _Layout) -> None:
        """Wait for output past `offset`, the end, or another layout, which nobody tells of a silent program."""
        if not self._on_terminal:
            await self._process.grown_or_ended(offset)
            return
        while self._layout() == layout:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SIZES_SECONDS):
                    await self._process.grown_or_ended(offset)
                    return

    def _layout(self) -> _Layout:
        stdio = self._process.stdio
        its = (stdio.cols, stdio.rows) if isinstance(stdio, Pty) else None
        blind = asyncio.get_running_loop().time() < self._blind_until
        return _Layout(own_size(), its, self._windows, blind)

    async def claim(self) -> None:
        """Whoever types has the say: give the process our size if somebody else's is set, and draw it anew."""
        if await self.take_size():
            async with self._showing:
                await self._paint()

    async def window_changed(self) -> None:
        """Our terminal may have another size, and what is on it may have moved."""
        self._windows += 1
        await self.take_size()

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
        own = own_size()
        if self._drawing is not None:
            return used + 1 if own is not None and screen.rows <= own[1] and used < own[1] else None
        fits = (screen.cols, screen.rows) == own and used < screen.rows
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

    async def _draw(self) -> bool:
        """Where our size is not the process's, draw what fits of its screen; False where its bytes can follow."""
        layout = self._layout()
        if layout.needs_drawing:
            try:
                rows, screen = await self._process.styled_screen(), await self._process.screen()
            except ScreenUnavailableError:
                if self._drawing is not None and self._process.exit_status is not None:
                    return True  # the last picture stays
                self._blind_until = asyncio.get_running_loop().time() + _BLIND_SECONDS
            else:
                await self.show(self._drawing_for(layout).update(rows, screen))
                return True
        if self._drawing is not None:
            await self._paint()
        return False

    def _drawing_for(self, layout: _Layout) -> Drawing:
        """The picture that is there already, or another where it would not fit any more."""
        if self._drawing is None or self._drawn != layout:
            assert layout.own is not None
            assert layout.its is not None
            remark = "its terminal has {}x{}, yours {}x{}".format(*layout.its, *layout.own)
            remark += "; type to give it your size" if self._sized else ""
            self._drawing, self._drawn = Drawing(*layout.own, keys=self._sized, remark=remark), layout
        return self._drawing

    async def _paint(self) -> None:
        """Bring our terminal to the process's present state, from where its output continues."""
        self._drawing = None
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

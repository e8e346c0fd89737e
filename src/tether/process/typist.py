"""Typing like a person: keys by name, pastes and whole lines, whatever process they go to."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from tether.errors import ProcessEndedError, UnknownKeyError
from tether.process.command import Pipes, Pty
from tether.process.exit_status import Status
from tether.process.keys import KeyModes, encode_keys, encode_paste, encode_text
from tether.process.place import Stamp
from tether.process.probe import Look

_SETTLE_SECONDS = 0.03
_SETTLE_MOST = 0.3


class TypedInto(ABC):
    """A process one can type into."""

    id: str
    stdio: Pipes | Pty

    @property
    @abstractmethod
    def status(self) -> Status:
        """Where it is in its life, in the doors' word."""

    @property
    @abstractmethod
    def idle_seconds(self) -> float:
        """How long it has been silent."""

    @abstractmethod
    async def write(self, data: bytes, stamp: Stamp | None = None) -> bool:
        """Send bytes as they are; True when all were taken at once, False while some still wait."""

    @abstractmethod
    async def look(self) -> Look:
        """One look at what it is doing with its input."""

    @abstractmethod
    async def key_modes(self) -> KeyModes:
        """How the program on its terminal wants its keys."""

    async def send_keys(self, keys: Sequence[str]) -> None:
        """Press keys by name, encoded as the program on the terminal wants them.

        Raises:
            UnknownKeyError: a key nobody knows; none was pressed then.
        """
        if isinstance(keys, str):
            raise UnknownKeyError(f"keys come as a list: [{keys!r}], not {keys!r}")
        modes = await self.key_modes()
        strokes = [encode_keys([key], modes) for key in keys]
        for position, stroke in enumerate(strokes):
            await self.write(stroke)
            if stroke.endswith(b"\x1b") and position + 1 < len(strokes):
                await self._settle()  # in one read with what follows, Escape would be a modifier

    async def paste(self, text: str) -> None:
        """Paste text, bracketed only if the program asked for that."""
        if isinstance(self.stdio, Pty):
            await self.write(encode_paste(text, await self.key_modes()))
        else:
            await self.write(encode_text(text))

    async def submit(self, text: str = "") -> None:
        """Type a line and press Enter: CR on a terminal, LF on a pipe."""
        if not isinstance(self.stdio, Pty):
            await self.write(encode_text(text) + b"\n")
            return
        probe = (await self.look()).probe
        if probe is None:
            raise ProcessEndedError(f"process {self.id} has ended ({self.status}); start another")
        if probe.line_mode:
            await self.write(encode_text(text) + b"\r")
            return
        if text:
            # A program that reads key by key takes text and Enter in one read for a paste.
            await self.write(encode_text(text))
            await self._settle()
        await self.write(b"\r")

    async def _settle(self) -> None:
        """Wait until the program has echoed what was typed and is quiet again, or a moment has passed."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _SETTLE_MOST
        while loop.time() < until:
            await asyncio.sleep(_SETTLE_SECONDS)
            if self.idle_seconds >= _SETTLE_SECONDS:
                return

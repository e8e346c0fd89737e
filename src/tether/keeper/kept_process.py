"""A process that a keeper keeps, as its clients see it."""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from tether.errors import ProcessEndedError, TetherError
from tether.keeper.frames import Frame
from tether.keeper.kept_log import Asking, KeptLog
from tether.keeper.lease import Lease
from tether.keeper.protocol import field, look_from_json, stamp_to_json
from tether.keeper.records import ProcessRecord, lease_to_json
from tether.process._stopping import Stopped, Survivor
from tether.process.command import Command, Pty
from tether.process.keys import KeyModes
from tether.process.place import Stamp
from tether.process.probe import Look
from tether.process.screen import (
    Screen,
    StyledRun,
    VtSnapshot,
    screen_from,
    styled_screen_from,
    vt_snapshot_from,
)
from tether.process.typist import TypedInto


class KeptProcess(KeptLog, TypedInto):
    """What the keeper last told of a process, and everything that can be done with it."""

    def __init__(self, record: ProcessRecord, keeper: Asking, directory: str | None) -> None:
        super().__init__(record, keeper, directory)
        self.stdio = record.stdio
        self._typing = asyncio.Lock()
        self._writer, self._number = str(uuid.uuid4()), 0

    @property
    def name(self) -> str:
        """What a person called it; may be empty."""
        return self.record.name

    @property
    def command(self) -> Command:
        """What it was told to run, without its environment and given input."""
        assert self.record.command is not None, "a channel is no process"
        return self.record.command

    @property
    def pid(self) -> int:
        """The system's number of the child."""
        return self.record.pid

    @property
    def lease(self) -> Lease:
        """How long it may live without anybody who cares for it."""
        return self.record.lease

    @property
    def warnings(self) -> Sequence[str]:
        """What was not as asked for."""
        return self.record.warnings

    @property
    def survivors(self) -> tuple[Survivor, ...]:
        """Who of its tree could not be ended."""
        return self.record.survivors

    def __repr__(self) -> str:
        return f"<KeptProcess {self.id} pid={self.pid} {self.status}>"

    def told(self, record: ProcessRecord) -> None:
        """The keeper says how it is doing."""
        self.stdio = record.stdio
        super().told(record)

    def resized(self, cols: int, rows: int) -> None:
        """The keeper says which size its terminal has."""
        if isinstance(self.stdio, Pty) and (self.stdio.cols, self.stdio.rows) != (cols, rows):
            self.told(replace(self.record, stdio=replace(self.stdio, cols=cols, rows=rows)))

    async def write(self, data: bytes, stamp: Stamp | None = None) -> bool:
        """Send bytes as they are; True when all were taken at once, False while some still wait.

        Raises:
            ProcessEndedError: it or its input has ended.
            InputRefusedError: it has closed its input, cannot hold the line, or too much waits already.
        """
        return field((await self._numbered("write", stamp, data)).header, "at_once", bool)

    async def end_input(self, stamp: Stamp | None = None) -> None:
        """No more input: closes a pipe; on a terminal types its end-of-file key."""
        await self._numbered("end_input", stamp)

    async def interrupt(self, stamp: Stamp | None = None) -> None:
        """What Ctrl+C does."""
        await self._numbered("interrupt", stamp)

    async def last_number(self, writer: str) -> int:
        """The number of the last piece of input that was taken from `writer`; 0 before any."""
        return field((await self._ask("last_number", writer=writer)).header, "number", int)

    async def key_modes(self) -> KeyModes:
        """How the program on its terminal wants its keys."""
        answer = await self._ask("key_modes")
        return KeyModes(**cast("dict[str, Any]", answer.header["modes"]))

    async def resize(self, cols: int, rows: int) -> None:
        """Give its terminal another size."""
        self._told_by(await self._ask("resize", cols=cols, rows=rows))

    async def look(self) -> Look:
        """One look at what it is doing with its input."""
        if self.exit_status is not None:
            return Look(probe=None, quiet=False, idle_seconds=self.idle_seconds, end=self.end)
        try:
            look = look_from_json((await self._ask("look")).header)
        except ProcessEndedError:
            return Look(probe=None, quiet=False, idle_seconds=self.idle_seconds, end=self.end)
        self.grown(look.end)
        return look

    async def screen(self) -> Screen:
        """What a person would see on its terminal now, or saw when it ended.

        Raises:
            ScreenUnavailableError: there is no terminal, or nothing to render it with.
        """
        return screen_from((await self._ask("view", what="screen")).header)

    async def styled_screen(self) -> list[list[StyledRun]]:
        """The rows of its screen as runs of one style each; raises like `screen`."""
        return styled_screen_from((await self._ask("view", what="cells")).header)

    async def vt_snapshot(self) -> VtSnapshot:
        """Bytes that bring a fresh terminal of the same size to its present state; raises like `screen`."""
        return vt_snapshot_from((await self._ask("view", what="vt")).header)

    async def stop(self, *, grace: float = 2.0) -> Stopped:
        """End it and everything it started: politely, after `grace` seconds by force; says who survived."""
        self._told_by(await self._ask("stop", grace=float(grace)))
        return Stopped(self.exit_status, self.survivors)

    async def kill(self) -> None:
        """SIGKILL to everybody of its tree, now."""
        await self._ask("kill")

    async def keep(self, lease: Lease, *, drop_oldest: bool = False) -> None:
        """Give it another lease; with `drop_oldest` its log no longer waits for whoever took its output."""
        self._told_by(await self._ask("keep", lease=lease_to_json(lease), drop_oldest=drop_oldest))

    async def _numbered(self, word: str, stamp: Stamp | None, body: bytes = b"") -> Frame:
        """Send a piece of input so that it arrives once, whatever happens to the connection."""
        if stamp is not None:
            return await self._ask(word, body, **stamp_to_json(stamp))
        async with self._typing:  # one after the other: a number is only used up by a piece that was taken
            stamp = Stamp(self._writer, self._number + 1)
            try:
                answer = await self._ask(word, body, **stamp_to_json(stamp))
            except TetherError:
                raise
            except BaseException:
                # Whether it was taken will never be known: the next piece must not pass for this one.
                self._writer, self._number = str(uuid.uuid4()), 0
                raise
            self._number += 1
            return answer

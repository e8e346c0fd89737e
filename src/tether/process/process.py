"""One process: what it was told to run, its bytes, its input and its end."""

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from tether.errors import InputRefusedError, ProcessEndedError
from tether.process._child import Child
from tether.process._input import Input
from tether.process._owner import Owner
from tether.process._saved_state import saved, saved_part
from tether.process._stopping import Stopped, Survivor, end_trees
from tether.process.command import Command, Overflow, Pipes, Pty
from tether.process.exit_status import Cause, ExitStatus, Status, core_file, signal_name
from tether.process.keys import KeyModes
from tether.process.log_reader import Chunk, Gap, Lines, OutputSlice, Resize
from tether.process.output import OutputLog
from tether.process.place import Stamp, TakenInput
from tether.process.probe import Look
from tether.process.screen import Screen, StyledRun, VtSnapshot
from tether.process.typist import TypedInto

logger = logging.getLogger(__name__)

QUIET_SECONDS = 0.3
_DRAIN_QUIET = 0.05
_DRAIN_MOST = 2.0
_RETRY_SECONDS = 0.2
_GIVE_UP_SECONDS = 10.0


class Process(TypedInto):
    """A child, its log and its end; stays in its table until it is released."""

    def __init__(
        self, process_id: str, name: str, command: Command, child: Child, log: OutputLog, owner: Owner
    ) -> None:
        self.id = process_id
        self.name = name
        self.command = command
        self.pid = child.pid
        self.stdio: Pipes | Pty = command.stdio if child.pty or isinstance(command.stdio, Pipes) else Pipes()
        self.warnings: list[str] = []
        self.survivors: tuple[Survivor, ...] = ()
        self.output = log
        self.started_at = time.time()
        self.ended_at: float | None = None
        self.exit_status: ExitStatus | None = None
        self.tree = child.tree
        self._child = child
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.on_terminal = child.pty
        self._open_streams = 1 if child.pty else 2
        self._cause: Cause | None = None
        self._raw_end: tuple[int | None, int | None, bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._drain_until = 0.0
        self._waiters: list[asyncio.Future[ExitStatus]] = []
        self._waiting_for_output: list[asyncio.Future[int]] = []
        self._input = Input(child, on_terminal=child.pty)
        self.taken = TakenInput()
        self._typed_at = self._blocked_since = 0.0
        self._retrying = self._held_back = self._stopping = False
        self._deadline: float | None = None

    def begin(self) -> None:
        """Read, watch, feed the given input and start the clock."""
        self._child.attach(self._loop, self)
        command = self.command
        if command.stdin is not None:
            self._input.give(command.stdin)
            self._input.end()
        if command.timeout is not None:
            self._timer = self._loop.call_later(command.timeout, self._owner.stop_soon, self, Cause.TIMED_OUT)

    def state(self) -> dict[str, object]:
        """What only this object knows, as JSON values: for the program that this one becomes."""
        return {
            "cause": None if self._cause is None else self._cause.value,
            "raw_end": None if self._raw_end is None else list(self._raw_end),
            "open_streams": self._open_streams,
            "deadline": None if self._timer is None else self._timer.when(),
            "drain_until": self._drain_until,
            "typed_at": self._typed_at,
            "blocked_since": self._blocked_since,
            "stopping": self._stopping,
            "held_back": self._held_back,
            "taken": dict(self.taken.last),
            "input": self._input.state(),
        }

    def restore(self, state: Mapping[str, object]) -> None:
        """Be what `state` said; touches nothing before `go_on`.

        Raises:
            ValueError: something in the state is missing or of another kind.
        """
        cause, raw_end, deadline = (state.get(name) for name in ("cause", "raw_end", "deadline"))
        self._cause = None if cause is None else Cause(cause)
        if raw_end is not None:
            code, number, core_dumped = cast("list[Any]", raw_end)
            self._raw_end = (code, number, core_dumped)
        self._deadline = None if deadline is None else saved(state, "deadline", float)
        self._open_streams = saved(state, "open_streams", int)
        self._drain_until = saved(state, "drain_until", float)
        self._typed_at = saved(state, "typed_at", float)
        self._blocked_since = saved(state, "blocked_since", float)
        self._stopping, self._held_back = saved(state, "stopping", bool), saved(state, "held_back", bool)
        self.taken = TakenInput(dict(cast("Mapping[str, int]", saved_part(state, "taken"))))
        self._input.restore(saved_part(state, "input"))

    def go_on(self) -> None:
        """Read, watch and feed again after `restore`."""
        self._child.attach(self._loop, self)
        if self._deadline is not None:
            self._timer = self._loop.call_at(self._deadline, self._owner.stop_soon, self, Cause.TIMED_OUT)
        self._input.resume()
        if self._raw_end is not None and self.exit_status is None:
            self._loop.call_soon(self._drained)
        if self._stopping and self._raw_end is None:
            self._owner.stop_soon(self, self._cause or Cause.STOPPED)  # whoever began that is gone
        if self._held_back or self.output.blocked:
            self._retrying = True
            self._loop.call_soon(self._try_log_again)

    def descriptors(self) -> list[int]:
        """What must stay open when this program becomes another."""
        return self._child.descriptors()

    def child_state(self) -> dict[str, object]:
        """What its child must be restored from."""
        return self._child.state()

    @property
    def status(self) -> Status:
        """Where the process is in its life, in the doors' word."""
        return Status.RUNNING if self.exit_status is None else self.exit_status.status

    @property
    def idle_seconds(self) -> float:
        """How long it has been silent."""
        return time.monotonic() - self.output.last_growth

    @property
    def output_is_held(self) -> bool:
        """Whether it has ended, but somebody it started still holds its output open."""
        return self._raw_end is not None and self._open_streams > 0

    def __repr__(self) -> str:
        return f"<Process {self.id} pid={self.pid} {self.status} {self.command.argv[0]!r}>"

    @property
    def collected(self) -> bool:
        """Whether its child is gone and its pid may become somebody else's."""
        return self._raw_end is not None

    @property
    def end(self) -> int:
        """Offset behind the last byte of its output."""
        return self.output.end

    async def read(self, start: int = 0, limit: int | None = None, *, stream: int | None = None) -> OutputSlice:
        """What is there from `start` on, of one stream if given; never waits, never spans a hole."""
        return self.output.read(start, limit) if stream is None else self.output.read_stream(stream, start, limit)

    async def read_lines(self, first: int, limit: int) -> Lines:
        """Up to `limit` raw lines from number `first` on."""
        return self.output.read_lines(first, limit)

    async def chunks(self, start: int = 0, end: int | None = None) -> list[Chunk]:
        """The stretches of [start, end) by stream and time."""
        return list(self.output.chunks(start, end))

    async def gaps(self) -> list[Gap]:
        """Where bytes could not be kept, how many and why."""
        return self.output.gaps()

    async def resizes(self, start: int = 0) -> list[Resize]:
        """Changes of its terminal's size at or after `start`."""
        return self.output.resizes(start)

    async def discard_before(self, offset: int) -> None:
        """Where everything is kept for one consumer: it has taken what is before `offset`, so reading may go on."""
        self.output.discard_before(offset)
        self._read_on()

    def drop_oldest(self) -> None:
        """Nobody takes its output any more: from now on the oldest is dropped instead of holding it back."""
        self.output.drop_oldest()
        self._read_on()

    async def wait(self) -> ExitStatus:
        """Wait for its end; its own output is in the log by then, whoever else still holds its pipes."""
        if self.exit_status is not None:
            return self.exit_status
        future: asyncio.Future[ExitStatus] = self._loop.create_future()
        self._waiters.append(future)
        try:
            return await future
        finally:
            if future in self._waiters:
                self._waiters.remove(future)

    async def grown_or_ended(self, offset: int) -> None:
        """Wait until there is output past `offset` or the process has its exit status."""
        if self.output.end > offset or self.exit_status is not None:
            return
        future: asyncio.Future[int] = self._loop.create_future()
        self.output.tell(offset, future)
        self._waiting_for_output.append(future)
        try:
            await future
        finally:
            self._waiting_for_output.remove(future)

    async def write(self, data: bytes, stamp: Stamp | None = None) -> bool:
        """Send bytes as they are; True when all were taken at once, False while some still wait.

        Raises:
            ProcessEndedError: it or its input has ended.
            LineTooLongError: its terminal's line editor would cut the line.
            InputRefusedError: it has closed its input, too much waits already, or a piece before this one is missing.
        """
        if self.taken.has(stamp):
            return self._input.pending == 0
        self._require_running()
        self._typed_at = time.monotonic()
        at_once = self._input.write(data)
        self.taken.take(stamp)
        return at_once

    async def end_input(self, stamp: Stamp | None = None) -> None:
        """No more input: closes a pipe; on a terminal types its end-of-file key."""
        if self.taken.has(stamp):
            return
        self._require_running()
        self._input.end()
        self.taken.take(stamp)

    async def last_number(self, writer: str) -> int:
        """The number of the last piece of input that was taken from `writer`; 0 before any."""
        return self.taken.last.get(writer, 0)

    async def resize(self, cols: int, rows: int) -> None:
        """Give its terminal another size.

        Raises:
            InputRefusedError: it has no terminal.
            InvalidCommandError: no terminal can have that size.
        """
        self._require_running()
        if not isinstance(self.stdio, Pty):
            raise InputRefusedError(f"process {self.id} runs on pipes and has no size; start it with a Pty")
        self.stdio = replace(self.stdio, cols=cols, rows=rows)
        self._child.resize(cols, rows)
        self.output.resized(cols, rows)
        self._owner.grew(self, b"")

    async def interrupt(self, stamp: Stamp | None = None) -> None:
        """What Ctrl+C does."""
        if self.taken.has(stamp):
            return
        self._require_running()
        self._child.interrupt()
        self.taken.take(stamp)

    async def look(self) -> Look:
        """One look at what it is doing with its input."""
        probe = None if self._raw_end is not None else self._child.probe()
        idle = self.idle_seconds
        quiet = idle >= QUIET_SECONDS and time.monotonic() - self._typed_at >= QUIET_SECONDS
        if probe is not None:
            self._child.drain()  # what it said before it began to wait belongs to the look
        return Look(probe=probe, quiet=quiet, idle_seconds=idle, end=self.output.end)

    async def key_modes(self) -> KeyModes:
        """How the program on its terminal wants its keys."""
        self._require_running()
        return await self._owner.key_modes(self)

    async def screen(self) -> Screen:
        """What a person would see on its terminal now.

        Raises:
            ScreenUnavailableError: there is no terminal, or nothing to render it with.
        """
        return await self._owner.screen(self)

    async def styled_screen(self) -> list[list[StyledRun]]:
        """The rows of its screen as runs of one style each; raises like `screen`."""
        return await self._owner.styled_screen(self)

    async def vt_snapshot(self) -> VtSnapshot:
        """Bytes that bring a fresh terminal of the same size to its present state; raises like `screen`."""
        return await self._owner.vt_snapshot(self)

    async def stop(self, *, grace: float = 2.0, cause: Cause = Cause.STOPPED) -> Stopped:
        """End it and everything it started: politely, after `grace` seconds by force; says who survived."""
        self.mark_cause(cause)
        left = (await end_trees([self.tree], grace=grace))[0]
        self.survivors = (
            *(Survivor(member.pid, self.tree.describe(member)) for member in left.members),
            *(Survivor(member.pid, self.tree.describe(member), certain=False) for member in left.strays),
        )
        if all(survivor.pid != self.pid for survivor in self.survivors):
            await self.wait()
        return Stopped(self.exit_status, self.survivors)

    def stop_soon(self) -> None:
        """The same without waiting for it."""
        self._owner.stop_soon(self, Cause.STOPPED)

    async def kill(self) -> None:
        """SIGKILL to everybody of its tree, now."""
        self.kill_now()

    def kill_now(self) -> None:
        """The same, for whoever cannot wait at all."""
        if self._raw_end is None or self.output_is_held:
            self.mark_cause(Cause.STOPPED)
            if not self.tree.kill_at_once():
                self._owner.stop_soon(self, Cause.STOPPED)  # who left the group is only found by looking around

    async def release(self) -> None:
        """Forget it: a running one is ended first, its log is removed."""
        await self._owner.forget(self)

    def destroy(self) -> None:
        """Undo a start that failed half-way: the child is killed and collected."""
        self._child.destroy()
        self.abandon()

    def abandon(self) -> None:
        """Close every descriptor and the log's writer; what is still running is no longer watched."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._child.close()
        self.output.close()
        self.tree.close()

    def mark_cause(self, cause: Cause) -> None:
        """Say why it is about to be ended, unless it already has a reason; nobody waits for room any more."""
        self._stopping = True
        if self._raw_end is None and self._cause is None:
            self._cause = cause

    def answer(self, data: bytes) -> None:
        """Type a terminal's own answer to a query of the program."""
        if self._raw_end is None:
            self._input.answer(data)

    def received(self, stream: int, data: bytes) -> None:
        """The child wrote: keep it, tell the owner, and read no further than the log may take."""
        log = self.output
        look = log.append(stream, data)
        self._owner.grew(self, data)
        if look and (log.blocked or log.full):
            self._hold_back()

    def stream_ended(self, stream: int) -> None:  # noqa: ARG002 - the interface names it
        """One of its streams is over."""
        self._open_streams -= 1
        if self._open_streams == 0 and self._raw_end is not None:
            self._finish()
            self.output.close()

    def exited(self, code: int | None, signal_number: int | None, *, core_dumped: bool) -> None:
        """The child is gone: read what it left behind, but let nobody who holds its pipes delay the result."""
        self._raw_end = (code, signal_number, core_dumped)
        self._drain_until = self._loop.time() + _DRAIN_MOST
        self._child.drain()
        if self._open_streams:
            self._loop.call_later(_DRAIN_QUIET, self._drained)
        else:
            self._finish()
            self.output.close()

    def _drained(self) -> None:
        if self.exit_status is not None:
            return
        before = self.output.end
        self._child.drain()
        quiet = self.output.end == before and self.idle_seconds >= _DRAIN_QUIET
        waits_for_room = self._held_back and not self._stopping
        if waits_for_room or (not quiet and self._loop.time() < self._drain_until):
            self._loop.call_later(_DRAIN_QUIET, self._drained)
            return
        self._finish()

    def _finish(self) -> None:
        if self.exit_status is not None or self._raw_end is None:
            return
        code, number, core_dumped = self._raw_end
        natural = Cause.SIGNALLED if number is not None else Cause.LOST if code is None else Cause.EXITED
        core = None
        if core_dumped and number is not None:
            directory = os.path.join(self.command.root, self.command.cwd)
            core = core_file(self.pid, self.command.argv[0], directory, number)
        self.exit_status = ExitStatus(
            code, None if number is None else signal_name(number), self._cause or natural, core
        )
        self.ended_at = time.time()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._input.drop()
        if self._open_streams == 0:
            self.output.close()
        logger.info("process=%s pid=%s ended: %s", self.id, self.pid, self.exit_status)
        self._owner.ended(self)
        for future in self._waiters:
            if not future.done():
                future.set_result(self.exit_status)
        self._waiters.clear()
        for pending in self._waiting_for_output:
            if not pending.done():
                pending.set_result(self.output.end)

    def _hold_back(self) -> None:
        """The log cannot take more now: what may not be lost waits in the child's pipe."""
        log = self.output
        if log.policy.overflow is not Overflow.DROP:
            self._child.pause()
            if (log.full and log.policy.overflow is Overflow.STOP) or self._cannot_keep_output():
                if not self._stopping:
                    self._owner.stop_soon(self, Cause.OUTPUT_LIMIT)
                return
            self._held_back = True
        if not self._retrying:
            self._retrying = True
            self._loop.call_later(_RETRY_SECONDS, self._try_log_again)

    def _cannot_keep_output(self) -> bool:
        """Whether the disk has refused output that must not be lost for so long that waiting is pointless."""
        if not self.output.blocked:
            self._blocked_since = 0.0
            return False
        now = self._loop.time()
        self._blocked_since = self._blocked_since or now
        if now - self._blocked_since < _GIVE_UP_SECONDS:
            return False
        self.warnings.append(
            f"its output could not be kept in {self.output.directory!r} for {_GIVE_UP_SECONDS:g} s, so it was "
            "stopped; make room there, or choose another place with TETHER_HOME (tether run) or TMPDIR"
        )
        return True

    def _try_log_again(self) -> None:
        self._retrying = False
        if self.output.closed and not self.output.blocked:
            return
        before = self.output.end
        self.output.retry()
        if self.output.end > before:
            self._owner.grew(self, b"")
        self._read_on()

    def _read_on(self) -> None:
        """Go on reading as soon as the log takes more."""
        if self.output.full or self.output.blocked:
            self._hold_back()
        elif self._held_back:
            self._held_back = False
            self._child.resume()

    def _require_running(self) -> None:
        if self._raw_end is not None:
            raise ProcessEndedError(f"process {self.id} has ended ({self.status}); start another")

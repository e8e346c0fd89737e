"""One process: what it was told to run, its bytes, its input and its end."""

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from tether.errors import InputRefusedError, ProcessEndedError, UnknownKeyError
from tether.process._child import Child
from tether.process._input import Input
from tether.process._stopping import Stopped, Survivor, end_trees
from tether.process.command import Command, Overflow, Pipes, Pty
from tether.process.exit_status import Cause, ExitStatus, Status, core_file, signal_name
from tether.process.keys import KeyModes, encode_keys, encode_paste, encode_text
from tether.process.output import OutputLog
from tether.process.probe import Probe, WaitingForInput
from tether.process.screen import Screen, StyledRun, VtSnapshot

logger = logging.getLogger(__name__)

QUIET_SECONDS = 0.3
_DRAIN_QUIET = 0.05
_DRAIN_MOST = 2.0
_RETRY_SECONDS = 0.2
_GIVE_UP_SECONDS = 10.0
_SETTLE_SECONDS = 0.03
_SETTLE_MOST = 0.3


class Owner(Protocol):
    """The table a process lives in."""

    def grew(self, process: "Process", data: bytes) -> None:
        """The process wrote `data`."""
        ...

    def stop_soon(self, process: "Process", cause: Cause) -> None:
        """Stop the process without making anybody wait."""
        ...

    async def screen(self, process: "Process") -> Screen:
        """What a person would see on the process's terminal now."""
        ...

    async def styled_screen(self, process: "Process") -> list[list[StyledRun]]:
        """The same as runs of one style each."""
        ...

    async def vt_snapshot(self, process: "Process") -> VtSnapshot:
        """Bytes that re-create the process's terminal elsewhere."""
        ...

    async def key_modes(self, process: "Process") -> KeyModes:
        """How the program on the terminal wants its keys."""
        ...

    async def forget(self, process: "Process") -> None:
        """Release everything the process still has."""
        ...


class Process:
    """A child, its log and its end; stays in its table until it is released."""

    def __init__(self, process_id: str, command: Command, child: Child, log: OutputLog, owner: Owner) -> None:
        self.id = process_id
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
        self._on_terminal = child.pty
        self._open_streams = 1 if child.pty else 2
        self._cause: Cause | None = None
        self._raw_end: tuple[int | None, int | None, bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._drain_until = 0.0
        self._waiters: list[asyncio.Future[ExitStatus]] = []
        self._waiting_for_output: list[asyncio.Future[int]] = []
        self._input = Input(child, on_terminal=child.pty)
        self._typed_at = self._blocked_since = 0.0
        self._retrying = self._held_back = self._stopping = False

    def begin(self) -> None:
        """Read, watch, feed the given input and start the clock."""
        self._child.attach(self._loop, self)
        command = self.command
        if command.stdin is not None:
            self._input.give(command.stdin)
            self._input.end()
        if command.timeout is not None:
            self._timer = self._loop.call_later(command.timeout, self._owner.stop_soon, self, Cause.TIMED_OUT)

    @property
    def status(self) -> Status:
        """Where the process is in its life, in the doors' word."""
        return Status.RUNNING if self.exit_status is None else self.exit_status.status

    @property
    def idle_seconds(self) -> float:
        """How long it has been silent."""
        return time.monotonic() - self.output.last_growth

    @property
    def quiet(self) -> bool:
        """Whether for a while neither it has written nor anybody has typed."""
        return self.idle_seconds >= QUIET_SECONDS and time.monotonic() - self._typed_at >= QUIET_SECONDS

    @property
    def output_is_held(self) -> bool:
        """Whether it has ended, but somebody it started still holds its output open."""
        return self._raw_end is not None and self._open_streams > 0

    def __repr__(self) -> str:
        return f"<Process {self.id} pid={self.pid} {self.status} {self.command.argv[0]!r}>"

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

    @property
    def probing(self) -> bool:
        """Whether there is still a child to look at."""
        return self._raw_end is None

    def write(self, data: bytes) -> bool:
        """Send bytes as they are; True when all were taken at once, False while some still wait.

        Raises:
            ProcessEndedError: it or its input has ended.
            LineTooLongError: its terminal's line editor would cut the line.
            InputRefusedError: it has closed its input, or too much waits already.
        """
        self._require_running()
        self._typed_at = time.monotonic()
        return self._input.write(data)

    def end_input(self) -> None:
        """No more input: closes a pipe; on a terminal types its end-of-file key."""
        self._require_running()
        self._input.end()

    async def send_keys(self, keys: Sequence[str]) -> None:
        """Press keys by name, encoded as the program on the terminal wants them.

        Raises:
            UnknownKeyError: a key nobody knows.
        """
        self._require_running()
        if isinstance(keys, str):
            raise UnknownKeyError(f"keys come as a list: [{keys!r}], not {keys!r}")
        modes = await self._owner.key_modes(self)
        for stroke, following in zip(keys, [*keys[1:], None], strict=True):
            encoded = encode_keys([stroke], modes)
            self.write(encoded)
            if encoded.endswith(b"\x1b") and following is not None:
                await self._settle()  # in one read with what follows, Escape would be a modifier

    async def paste(self, text: str) -> None:
        """Paste text, bracketed only if the program asked for that."""
        self._require_running()
        if isinstance(self.stdio, Pty):
            self.write(encode_paste(text, await self._owner.key_modes(self)))
        else:
            self.write(encode_text(text))

    async def submit(self, text: str = "") -> None:
        """Type a line and press Enter: CR on a terminal, LF on a pipe."""
        if not isinstance(self.stdio, Pty):
            self.write(encode_text(text) + b"\n")
            return
        self._require_running()
        if self._child.probe().line_mode:
            self.write(encode_text(text) + b"\r")
            return
        if text:
            # A program that reads key by key takes text and Enter in one read for a paste.
            self.write(encode_text(text))
            await self._settle()
        self.write(b"\r")

    def resize(self, cols: int, rows: int) -> None:
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

    def interrupt(self) -> None:
        """What Ctrl+C does."""
        self._require_running()
        self._child.interrupt()

    def read_now(self) -> None:
        """Take into the log what it has written up to this moment."""
        self._child.drain()

    def probe(self) -> Probe:
        """One look at what it is doing with its input."""
        self._require_running()
        return self._child.probe()

    @property
    def waiting_for_input(self) -> WaitingForInput:
        """Whether it waits for somebody to type; `yes` only when that is certain."""
        if self._raw_end is not None:
            return WaitingForInput.NO
        return self._child.probe().waiting(quiet=self.quiet)

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

    def kill(self) -> None:
        """SIGKILL to everybody of its tree, now."""
        if self._raw_end is None:
            self.mark_cause(Cause.STOPPED)
            self.tree.kill_at_once()

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
        if self._on_terminal:
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
            "stopped; make room there or set TMPDIR to a place that has some"
        )
        return True

    def _try_log_again(self) -> None:
        self._retrying = False
        if self.output.closed and not self.output.blocked:
            return
        self.output.retry()
        self.read_on()

    def read_on(self) -> None:
        """Go on reading as soon as the log takes more; for a consumer that made room in it."""
        if self.output.full or self.output.blocked:
            self._hold_back()
        elif self._held_back:
            self._held_back = False
            self._child.resume()

    async def _settle(self) -> None:
        """Wait until the program has echoed what was typed and is quiet again, or a moment has passed."""
        until = self._loop.time() + _SETTLE_MOST
        while self._loop.time() < until:
            await asyncio.sleep(_SETTLE_SECONDS)
            if self.idle_seconds >= _SETTLE_SECONDS:
                return

    def _require_running(self) -> None:
        if self._raw_end is not None:
            raise ProcessEndedError(f"process {self.id} has ended ({self.status}); start another")

"""All processes of one owner: started here, found here, ended here."""

import asyncio
import contextlib
import itertools
import logging
import os
import sys
import uuid
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from tether.errors import ScreenUnavailableError, StartError, UnknownProcessError
from tether.process._child import Containment
from tether.process._cleanup import to_the_end
from tether.process._saved_state import saved, saved_part
from tether.process._stopping import end_trees
from tether.process.command import Command, Pty, child_environment
from tether.process.exit_status import Cause
from tether.process.keys import KeyModes
from tether.process.output import OutputLog
from tether.process.process import Process
from tether.process.screen import (
    Message,
    Screen,
    ScreenHelper,
    StyledRun,
    VtSnapshot,
    screen_from,
    styled_screen_from,
    vt_snapshot_from,
)

if TYPE_CHECKING:
    from tether.process._scratch import Scratch

if sys.platform == "win32":
    from tether.process._child_windows import restore_child, start_child
else:
    from tether.process._child_posix import restore_child, start_child

logger = logging.getLogger(__name__)

_GRACE_SECONDS = 2.0
_STALE_SECONDS = 5.0
_REAP_SECONDS = 0.2


class Observer(Protocol):
    """Told of what happens to the processes of a table, before anybody else is."""

    def grew(self, process: Process) -> None:
        """The process wrote something."""
        ...

    def ended(self, process: Process) -> None:
        """The process has its exit status."""
        ...


class ProcessTable:
    """Starts processes, finds them by id, and leaves nothing behind when its block ends.

    Use it as an async context manager. `directory` is where logs live (by default a private temporary one,
    removed at the end); `contain` puts each process into a control group where the system gives us one;
    `adopt_orphans` is for a program of our own that runs one command: whoever that leaves behind is handed
    to us and counts to its tree. `observer` is for the keeper, which is a reaper of many trees at once.
    """

    def __init__(
        self,
        directory: str | None = None,
        *,
        contain: bool = True,
        adopt_orphans: bool = False,
        observer: Observer | None = None,
    ) -> None:
        self._given_directory = directory
        self._observer = observer
        self._adopt_orphans = adopt_orphans
        self._working: set[asyncio.Task[None]] = set()
        self._directory = ""
        self._reaper: asyncio.TimerHandle | None = None
        self._scratch: Scratch | None = None
        self._contain = contain
        self._processes: dict[str, Process] = {}
        self._screens = ScreenHelper(self._answered)
        self._on_screen: dict[str, int] = {}
        self._replays = itertools.count()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        if self._given_directory is None:
            from tether.process import _scratch  # a keeper, which has a directory, saves a megabyte

            self._scratch = _scratch.Scratch()
            self._directory = self._scratch.path
        else:
            self._directory = self._given_directory
            os.makedirs(self._directory, 0o700, exist_ok=True)
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await to_the_end(self._close())
        finally:
            # Without the error of the block: it goes on as it is, not inside a group.
            await self._tasks.__aexit__(None, None, None)

    def __iter__(self) -> Iterator[Process]:
        return iter(list(self._processes.values()))

    def __len__(self) -> int:
        return len(self._processes)

    def __getitem__(self, process_id: str) -> Process:
        """The process with that id.

        Raises:
            UnknownProcessError: there is none; the message names those that exist.
        """
        try:
            return self._processes[process_id]
        except KeyError:
            raise UnknownProcessError(process_id, list(self._processes)) from None

    async def find(self, process_id: str) -> Process:
        """The process with that id; raises like `table[process_id]`."""
        return self[process_id]

    async def processes(self) -> list[Process]:
        """All of them."""
        return list(self)

    async def start(self, command: Command, *, process_id: str | None = None, name: str = "") -> Process:
        """Start a child; where no terminal can be had it gets pipes and a warning.

        With the id of a process that was started before, that one is meant and nothing is started.

        Raises:
            StartError: of the kind that says why; nothing is left behind.
        """
        if process_id is None:
            process_id = str(uuid.uuid4())
        elif process_id in self._processes:
            return self._processes[process_id]
        env = child_environment(command, process_id, os.environ)
        containment = Containment(
            process_id,
            command.root,
            control_group=self._contain,
            adopt_orphans=self._adopt_orphans,
            shared_reaper=self._observer is not None,
        )
        log = OutputLog(os.path.join(self._directory, process_id), command.output)
        child, warnings = start_child(command, env, containment)
        process = Process(process_id, name, command, child, log, self)
        process.warnings += warnings
        try:
            process.begin()
        except OSError as error:
            process.destroy()
            raise StartError(f"cannot watch {command.argv[0]!r}: {error.strerror}; it was ended again") from error
        except BaseException:
            process.destroy()
            raise
        self._processes[process_id] = process
        if self._adopt_orphans and self._reaper is None:
            self._reap()
        logger.info("process=%s pid=%s started: %s", process_id, process.pid, command.argv[0])
        return process

    def state(self, process: Process) -> dict[str, object]:
        """Everything about a process that must survive when this program becomes another one, as JSON values."""
        return {
            "child": process.child_state(),
            "log": process.output.state(),
            "process": process.state(),
            "answered": self._on_screen.get(process.id),
        }

    def restore(self, process_id: str, name: str, command: Command, state: Mapping[str, object]) -> Process:
        """The process that gave this state; touches nothing before `go_on`.

        Raises:
            ValueError, TetherError: this is no such state.
        """
        child = restore_child(saved_part(state, "child"))
        log = OutputLog.reopen(os.path.join(self._directory, process_id), saved_part(state, "log"))
        process = Process(process_id, name, command, child, log, self)
        process.restore(saved_part(state, "process"))
        self._processes[process_id] = process
        if state.get("answered") is not None:
            self._on_screen[process_id] = saved(state, "answered", int)
        return process

    def go_on(self, process: Process) -> None:
        """Read and watch a restored process; what its terminal was answered before is not answered again."""
        process.go_on()
        if process.id in self._on_screen:
            self._open_screen(process, answered=self._on_screen[process.id])

    def _reap(self) -> None:
        """Collect orphans that were handed to us and have ended."""
        for process in self:
            process.tree.reap()
        self._reaper = asyncio.get_running_loop().call_later(_REAP_SECONDS, self._reap)

    async def settled(self) -> None:
        """Wait until nothing is being stopped in the background any more."""
        if self._working:
            await asyncio.wait(self._working)

    def grew(self, process: Process, data: bytes) -> None:
        """Tell the emulator about a terminal's output; it is needed from the first escape sequence on."""
        if process.on_terminal:
            if process.id in self._on_screen:
                self._screens.grown(process.id, process.output.end)
            elif b"\x1b" in data:
                self._open_screen(process)
        if self._observer is not None:
            self._observer.grew(process)

    def ended(self, process: Process) -> None:
        """Pass the end on to whoever must know first."""
        if self._observer is not None:
            try:
                self._observer.ended(process)
            except Exception:
                # Whoever waits for the end must hear of it, whatever is wrong with the record of it.
                logger.exception("process=%s its end could not be passed on", process.id)

    def stop_soon(self, process: Process, cause: Cause) -> None:
        """Stop a process without making anybody wait."""
        process.mark_cause(cause)
        self.in_background(process.stop(grace=_GRACE_SECONDS, cause=cause))

    async def screen(self, process: Process) -> Screen:
        """What a person would see on the process's terminal now."""
        return screen_from(await self.view(process, "screen"))

    async def styled_screen(self, process: Process) -> list[list[StyledRun]]:
        """The same as runs of one style each."""
        return styled_screen_from(await self.view(process, "cells"))

    async def vt_snapshot(self, process: Process) -> VtSnapshot:
        """Bytes that re-create the process's terminal elsewhere."""
        return vt_snapshot_from(await self.view(process, "vt"))

    async def view(self, process: Process, what: str) -> Message:
        """A view of the process's terminal now, as the screen helper words it."""
        self._follow_on_screen(process)
        return await self._screens.view(process.id, process.output.end, what)

    async def view_of_log(self, process_id: str, directory: str, size: Pty, end: int, what: str) -> Message:
        """The same for a process that has ended and is no longer in the table; none of its queries is answered."""
        asked = f"{process_id} {next(self._replays)}"  # others may ask for the same one meanwhile
        self._screens.open(asked, directory, size.cols, size.rows, end)
        try:
            return await self._screens.view(asked, end, what)
        finally:
            self._screens.close(asked)

    async def key_modes(self, process: Process) -> KeyModes:
        """How the program on the terminal wants its keys; usual modes when nobody can tell."""
        if process.id not in self._on_screen:
            return KeyModes()
        try:
            return screen_from(await self._screens.view(process.id, process.output.end, "screen")).modes
        except ScreenUnavailableError as error:
            logger.warning("process=%s key modes unknown, using the usual ones: %s", process.id, error)
            return KeyModes()

    async def forget(self, process: Process) -> None:
        """Release everything a process still has; a running one is ended first."""
        if process.exit_status is None:
            await process.stop(grace=0)
        elif process.output_is_held:
            await process.stop(grace=_GRACE_SECONDS)
        self._drop(process)

    def retire(self, process: Process) -> None:
        """Let go of an ended process and leave its log to whoever wants to read it."""
        if self._processes.pop(process.id, None) is None:
            return
        if self._on_screen.pop(process.id, None) is not None:
            self._screens.close(process.id)
        process.abandon()

    def _drop(self, process: Process) -> None:
        self.retire(process)
        process.output.remove()

    def helper_pids(self) -> list[int]:
        """Our children that are no processes of the table."""
        return [] if self._screens.pid is None else [self._screens.pid]

    def _open_screen(self, process: Process, answered: int = 0) -> None:
        size = process.command.stdio
        assert isinstance(size, Pty)
        self._on_screen[process.id] = answered
        self._screens.open(process.id, process.output.directory, size.cols, size.rows, answered)
        self._screens.grown(process.id, process.output.end)

    def _answered(self, process_id: str, offset: int, data: bytes) -> None:
        """The emulator answers a query of the program: once, and not when the moment has passed."""
        process = self._processes.get(process_id)
        if process is None or offset <= self._on_screen.get(process_id, offset):
            return
        self._on_screen[process_id] = offset
        asked = [chunk.time_us for chunk in process.output.chunks(offset - 1, offset)]
        if not asked or process.output.clock_us() - asked[0] < _STALE_SECONDS * 1_000_000:
            process.answer(data)

    def _follow_on_screen(self, process: Process) -> None:
        if process.id in self._on_screen:
            return
        if not isinstance(process.stdio, Pty):
            raise ScreenUnavailableError(
                f"process {process.id} has no terminal, so it has no screen; start it with a Pty to get one"
            )
        self._open_screen(process)

    def in_background(self, work: Coroutine[object, object, object]) -> None:
        """Do something without making anybody wait; the block ends when it is done."""

        async def guarded() -> None:
            try:
                await work
            except Exception:
                logger.exception("work in the background of a process table failed")

        task = self._tasks.create_task(guarded())
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    def stop_together_soon(self, processes: Sequence[Process]) -> None:
        """Stop many at once, which costs little more than to stop one."""
        if processes:
            self.in_background(self._end(processes))

    async def end_all(self) -> None:
        """End every process and wait until it has its exit status."""
        # Whoever still holds an ended command's output would be cut off with it: it belongs to the command.
        await self._end([process for process in self if process.exit_status is None or process.output_is_held])

    async def _end(self, running: Sequence[Process]) -> None:
        for process in running:
            process.mark_cause(Cause.STOPPED)
        left = await end_trees([process.tree for process in running], grace=_GRACE_SECONDS) if running else []
        for process, one in zip(running, left, strict=True):
            if any(member.pid == process.pid for member in one.members):
                logger.warning("process=%s pid=%s could not be ended and is left behind", process.id, process.pid)
            else:
                await process.wait()

    async def _close(self) -> None:
        await self.end_all()
        if self._reaper is not None:
            self._reaper.cancel()
        for process in self:
            if self._observer is None:
                self._drop(process)
            else:
                self.retire(process)
        await self._screens.aclose()
        if self._scratch is not None:
            self._scratch.remove()


@contextlib.asynccontextmanager
async def open_process(command: Command) -> AsyncGenerator[Process, None]:
    """A process that lives as long as the block: behind it no child, descriptor or task is left."""
    async with ProcessTable() as table:
        yield await table.start(command)

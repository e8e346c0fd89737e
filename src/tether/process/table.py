"""All processes of one owner: started here, found here, ended here."""

import asyncio
import contextlib
import logging
import os
import sys
import uuid
from collections.abc import AsyncGenerator, Coroutine, Iterator
from types import TracebackType
from typing import Self

from tether.errors import ScreenUnavailableError, StartError, UnknownProcessError
from tether.process._child import Containment
from tether.process._cleanup import to_the_end
from tether.process._scratch import Scratch
from tether.process._stopping import end_trees
from tether.process.command import Command, Pty, child_environment
from tether.process.exit_status import Cause
from tether.process.keys import KeyModes
from tether.process.output import OutputLog
from tether.process.process import Process
from tether.process.screen import Screen, ScreenHelper, StyledRun, VtSnapshot

if sys.platform == "win32":
    from tether.process._child_windows import start_child
else:
    from tether.process._child_posix import start_child

logger = logging.getLogger(__name__)

_GRACE_SECONDS = 2.0
_STALE_SECONDS = 5.0
_REAP_SECONDS = 0.2


class ProcessTable:
    """Starts processes, finds them by id, and leaves nothing behind when its block ends.

    Use it as an async context manager. `directory` is where logs live (by default a private temporary one,
    removed at the end); `contain` puts each process into a control group where the system gives us one;
    `adopt_orphans` is for a program of our own that runs one command: whoever that leaves behind is handed
    to us and counts to its tree.
    """

    def __init__(self, directory: str | None = None, *, contain: bool = True, adopt_orphans: bool = False) -> None:
        self._given_directory = directory
        self._adopt_orphans = adopt_orphans
        self._working: set[asyncio.Task[None]] = set()
        self._directory = ""
        self._reaper: asyncio.TimerHandle | None = None
        self._scratch: Scratch | None = None
        self._contain = contain
        self._processes: dict[str, Process] = {}
        self._screens = ScreenHelper(self._answered)
        self._on_screen: dict[str, int] = {}
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        if self._given_directory is None:
            self._scratch = Scratch()
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

    async def start(self, command: Command) -> Process:
        """Start a child; where no terminal can be had it gets pipes and a warning.

        Raises:
            StartError: of the kind that says why; nothing is left behind.
        """
        process_id = str(uuid.uuid4())
        env = child_environment(command, process_id, os.environ)
        containment = Containment(
            process_id, command.root, control_group=self._contain, adopt_orphans=self._adopt_orphans
        )
        log = OutputLog(os.path.join(self._directory, process_id), command.output)
        child, warnings = start_child(command, env, containment)
        process = Process(process_id, command, child, log, self)
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
        """Tell the emulator about output; it is needed from the first escape sequence on."""
        if process.id in self._on_screen:
            self._screens.grown(process.id, process.output.end)
        elif b"\x1b" in data:
            self._open_screen(process)

    def stop_soon(self, process: Process, cause: Cause) -> None:
        """Stop a process without making anybody wait."""
        process.mark_cause(cause)
        self._in_background(process.stop(grace=_GRACE_SECONDS, cause=cause))

    async def screen(self, process: Process) -> Screen:
        """What a person would see on the process's terminal now."""
        self._follow_on_screen(process)
        return await self._screens.screen(process.id, process.output.end)

    async def styled_screen(self, process: Process) -> list[list[StyledRun]]:
        """The same as runs of one style each."""
        self._follow_on_screen(process)
        return await self._screens.cells(process.id, process.output.end)

    async def vt_snapshot(self, process: Process) -> VtSnapshot:
        """Bytes that re-create the process's terminal elsewhere."""
        self._follow_on_screen(process)
        return await self._screens.vt_snapshot(process.id, process.output.end)

    async def key_modes(self, process: Process) -> KeyModes:
        """How the program on the terminal wants its keys; usual modes when nobody can tell."""
        if process.id not in self._on_screen:
            return KeyModes()
        try:
            return await self._screens.modes(process.id, process.output.end)
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

    def _drop(self, process: Process) -> None:
        if self._processes.pop(process.id, None) is None:
            return
        if self._on_screen.pop(process.id, None) is not None:
            self._screens.close(process.id)
        process.abandon()
        process.output.remove()

    def _open_screen(self, process: Process) -> None:
        size = process.command.stdio
        assert isinstance(size, Pty)
        self._on_screen[process.id] = 0
        self._screens.open(process.id, process.output.directory, size.cols, size.rows, 0)
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

    def _in_background(self, work: Coroutine[object, object, object]) -> None:
        async def guarded() -> None:
            try:
                await work
            except Exception:
                logger.exception("work in the background of a process table failed")

        task = self._tasks.create_task(guarded())
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _close(self) -> None:
        # Whoever still holds an ended command's output would be cut off with it: it belongs to the command.
        running = [process for process in self if process.exit_status is None or process.output_is_held]
        for process in running:
            process.mark_cause(Cause.STOPPED)
        left = await end_trees([process.tree for process in running], grace=_GRACE_SECONDS) if running else []
        for process, one in zip(running, left, strict=True):
            if any(member.pid == process.pid for member in one.members):
                logger.warning("process=%s pid=%s could not be ended and is left behind", process.id, process.pid)
            else:
                await process.wait()
        if self._reaper is not None:
            self._reaper.cancel()
        for process in self:
            self._drop(process)
        await self._screens.aclose()
        if self._scratch is not None:
            self._scratch.remove()


@contextlib.asynccontextmanager
async def open_process(command: Command) -> AsyncGenerator[Process, None]:
    """A process that lives as long as the block: behind it no child, descriptor or task is left."""
    async with ProcessTable() as table:
        yield await table.start(command)

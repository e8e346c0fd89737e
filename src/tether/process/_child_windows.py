"""A child on Windows, with its tree in a job object.

Unlike on POSIX the tree is ended, never asked to end, and closing a child ends what is left of its tree.
"""

import asyncio
import errno
import logging
import ntpath
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from tether.errors import InputRefusedError, PtyUnavailableError, StartError, WorkingDirectoryError
from tether.process._child import Containment, Receiver, Tree
from tether.process._command_line_windows import (
    CommandLine,
    command_line,
    environment_block,
    windows_environment,
)
from tether.process._ends_windows import Ends, PipeEnds, Terminal, TerminalEnds
from tether.process._job_windows import Job, ProcessHandle
from tether.process._pump_windows import STOP_SECONDS, Feeder, Pump
from tether.process._refusal_windows import spawn_error, start_error
from tether.process.command import Command, Pipes, Pty
from tether.process.probe import Certainty, Probe
from tether.process.program import find_program

logger = logging.getLogger(__name__)

_CREATE_SUSPENDED: Final = 0x0000_0004
_CREATE_NEW_PROCESS_GROUP: Final = 0x0000_0200
_CTRL_C: Final = b"\x03"
_CTRL_Z_ENTER: Final = b"\x1a\r"


class WindowsChild:
    """One started child, its tree and our ends of its streams; everything here is called on one thread."""

    def __init__(self, process: ProcessHandle, tree: Tree, ends: Ends, *, on_terminal: bool) -> None:
        self.pid: Final = process.pid
        self.tree: Final = tree
        self.line_limit: Final = None  # the console host grows its line as it is typed
        self._process = process
        self._ends = ends
        self.pty: Final = on_terminal
        self._pumps: list[Pump] = []
        self._feeder: Feeder | None = None
        self._waiter: threading.Thread | None = None
        self._closed = False

    def attach(self, loop: asyncio.AbstractEventLoop, receiver: Receiver) -> None:
        """Begin to read its output and to watch for its end."""
        for stream, read in self._ends.readers().items():
            received, ended = partial(receiver.received, stream), partial(receiver.stream_ended, stream)
            self._pumps.append(Pump(loop, read, received, ended))
        if self._ends.takes_input():
            self._feeder = Feeder(loop, self._ends.write, self._ends.finish_input)
        self._waiter = threading.Thread(target=self._wait, args=(loop, receiver), name="tether-wait", daemon=True)
        self._waiter.start()

    def _wait(self, loop: asyncio.AbstractEventLoop, receiver: Receiver) -> None:
        code: int | None = None
        with suppress(OSError):
            code = self._process.wait()
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            loop.call_soon_threadsafe(self._tell_exit, receiver, code)

    def _tell_exit(self, receiver: Receiver, code: int | None) -> None:
        if not self._closed:
            receiver.exited(code, None, core_dumped=False)

    def pause(self) -> None:
        """Stop reading its output; the child blocks once its pipe is full."""
        for pump in self._pumps:
            pump.pause()

    def resume(self) -> None:
        """Go on reading its output."""
        for pump in self._pumps:
            pump.resume()

    def drain(self) -> None:
        """Hand over what has been read by now."""
        for pump in self._pumps:
            pump.drain()

    def write(self, data: memoryview) -> int:
        """Give it what it takes at once; a child that closed its input takes everything, into nowhere."""
        return len(data) if self._feeder is None else self._feeder.offer(data)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Call back when it takes more input; None ends that."""
        if self._feeder is not None:
            self._feeder.on_writable(callback)

    def end_input(self, *, line_open: bool) -> bytes:
        """Tell it that no more input comes; Ctrl+Z means that to a console only at the start of a line."""
        if self._feeder is None:
            return b""
        if self.pty:
            self._feeder.append(b"\r" + _CTRL_Z_ENTER if line_open else _CTRL_Z_ENTER)
        else:
            self._feeder.end()
        return b""

    def resize(self, cols: int, rows: int) -> None:
        """Set its terminal's size."""
        self._ends.resize(cols, rows)

    def interrupt(self) -> None:
        """What Ctrl+C does: typed on a terminal, on pipes Ctrl+Break to its process group.

        Raises:
            InputRefusedError: it shares no console with us.
        """
        if self.pty and self._feeder is not None:
            self._feeder.append(_CTRL_C)
        elif sys.platform == "win32":
            try:
                os.kill(self.pid, signal.CTRL_BREAK_EVENT)
            except OSError as error:
                raise InputRefusedError(f"process {self.pid} cannot be interrupted ({error}); stop it") from error

    def probe(self) -> Probe:
        """Windows tells nobody what another process does with its input."""
        return Probe(line_mode=False, echo=True, signals=self.pty, foreground=(), reading=Certainty.UNKNOWN)

    def state(self) -> dict[str, object]:
        """Nothing: a program on Windows cannot become another and keep its children.

        Raises:
            OSError: always.
        """
        raise _no_successor()

    def descriptors(self) -> list[int]:
        """None: see `state`."""
        return []

    def destroy(self) -> None:
        """Kill the child itself and collect it, now: for a start that failed half-way."""
        self.tree.kill_at_once()

    def close(self) -> None:
        """End what is left of the tree and release everything; may be called again."""
        if self._closed:
            return
        self._closed = True
        self.tree.close()
        for pump in self._pumps:
            pump.stop(self._ends.unblock)
        if self._feeder is not None:
            self._feeder.stop(self._ends.unblock)
        if self._waiter is not None:
            self._waiter.join(STOP_SECONDS)
        self._ends.close()
        self._process.close()


def restore_child(state: Mapping[str, object]) -> WindowsChild:  # noqa: ARG001 - there is none
    """The counterpart of `WindowsChild.state`.

    Raises:
        OSError: always.
    """
    raise _no_successor()


def _no_successor() -> OSError:
    return OSError(errno.ENOTSUP, "a program on Windows cannot hand its children over; end them and start again")


def start_child(command: Command, env: Mapping[str, str], containment: Containment) -> tuple[WindowsChild, list[str]]:
    """Start `command`, contained by a job; where no terminal can be had, on pipes, with a warning that says so.

    Raises:
        StartError: of the kind that says why; nothing is left behind.
        InvalidCommandError: what Windows, or cmd.exe for a batch file, cannot be given.
    """
    directory = directory_beneath(command.root, command.cwd)
    program = find_program(command.argv[0], env=env, cwd=directory)
    if isinstance(command.stdio, Pipes):
        return _start_on_pipes(program, command.argv, env, directory, command.stdio), []
    try:
        return _start_on_terminal(program, command.argv, env, directory, command.stdio), []
    except PtyUnavailableError as error:
        if command.stdio.required:
            raise
        logger.warning("process=%s %s", containment.process_id, error)
        child = _start_on_pipes(program, command.argv, env, directory, Pipes())
        return child, [f"no terminal, running on pipes instead: {error}"]


def directory_beneath(root: str, relative: str) -> str:
    """The real path of directory `relative` beneath `root`; CreateProcess takes a path and nothing held open.

    Raises:
        WorkingDirectoryError: it is missing, no directory, closed to us, or leads outside.
    """
    path = os.path.join(root, relative)
    try:
        real_root, real = os.path.realpath(root, strict=True), os.path.realpath(path, strict=True)
    except OSError as error:
        raise WorkingDirectoryError(
            f"cannot enter the working directory {path!r}: {error.strerror}; create it or choose another"
        ) from error
    if not os.path.isdir(real):
        raise WorkingDirectoryError(f"the working directory {path!r} is not a directory; choose another")
    top, place = os.path.normcase(real_root), os.path.normcase(real)
    same_drive = os.path.splitdrive(top)[0] == os.path.splitdrive(place)[0]
    if not same_drive or os.path.commonpath((top, place)) != top:
        raise WorkingDirectoryError(f"the working directory {path!r} leads outside {root!r}, to {real!r}")
    return real


def _start_on_pipes(
    program: str, argv: Sequence[str], env: Mapping[str, str], directory: str, stdio: Pipes
) -> WindowsChild:
    line = _line(program, argv)
    with _new_job(program) as job:
        try:
            popen = subprocess.Popen(
                line.text,
                stdin=None if stdio.inherit_stdin else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=directory,
                env=windows_environment(env),
                # Suspended until it is in the job, so that nothing it starts can be outside.
                creationflags=_CREATE_NEW_PROCESS_GROUP | _CREATE_SUSPENDED,
            )
        except OSError as error:
            raise start_error(getattr(error, "winerror", None) or 0, program, directory) from error
        try:
            process = _added(popen.pid, job)
            try:
                process.resume()
            except OSError:
                process.close()
                raise
        except OSError:
            popen.kill()
            with popen:
                raise
        return WindowsChild(process, job, PipeEnds(popen), on_terminal=False)


def _start_on_terminal(
    program: str, argv: Sequence[str], env: Mapping[str, str], directory: str, stdio: Pty
) -> WindowsChild:
    line = _line(program, argv)
    with _new_job(program) as job:
        terminal = Terminal(stdio.cols, stdio.rows)
        try:
            pid = terminal.spawn(line.program, line.arguments, directory, environment_block(env))
        except OSError as error:
            raise spawn_error(str(error), program, directory) from error
        # pywinpty cannot start suspended: what the child starts before this line is outside its tree.
        process = _added(pid, job)
        return WindowsChild(process, job, TerminalEnds(terminal, process), on_terminal=True)


def _line(program: str, argv: Sequence[str]) -> CommandLine:
    system = os.environ.get("SYSTEMROOT", "C:\\Windows")
    return command_line((program, *argv[1:]), ntpath.join(system, "System32", "cmd.exe"))


@contextmanager
def _new_job(program: str) -> Generator[Job]:
    """A job that outlives the block only if nothing fails in it."""
    job: Job | None = None
    try:
        job = Job()
        yield job
    except BaseException as error:
        if job is not None:
            job.close()
        if isinstance(error, OSError):
            raise StartError(f"cannot start {program!r}: {error}") from error
        raise


def _added(pid: int, job: Job) -> ProcessHandle:
    process = ProcessHandle(pid)
    try:
        job.add(process)
    except OSError:
        # A process that is over already cannot be added, and need not be.
        if not process.ended_within(0):
            process.kill()
            process.close()
            raise
    return process

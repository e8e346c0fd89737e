"""A child on POSIX pipes or a POSIX pseudo-terminal."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

from tether.errors import LineTooLongError, PtyUnavailableError
from tether.process._cgroup import Cgroup
from tether.process._child import Containment, Receiver
from tether.process._directory import open_directory
from tether.process._ends_posix import close_all, open_terminal, pipe_clear_of_streams, set_window_size
from tether.process._saved_state import saved, saved_part
from tether.process._spawn_posix import Streams, spawn, start_error
from tether.process._tree import PosixTree, become_reaper
from tether.process._tty import probe_pipe, probe_terminal
from tether.process.command import Command, Pipes, Pty
from tether.process.probe import Probe
from tether.process.program import find_program

logger = logging.getLogger(__name__)

_READ_BYTES = 65536  # from 256 KiB on, every read costs a mapping of its own
_TERMINAL_BYTES = 8192  # a terminal gives half of that at once; room for more costs time
_READS_PER_TURN = 16
_SHORT_READ = 2048  # less than this at once means that there is no more for now
_RETRY_SECONDS = 0.05
_STDOUT, _STDERR = 1, 2
_LINE_LIMIT = 4095 if sys.platform == "linux" else 1023


class PosixChild:
    """One child, our ends of its streams, and the watch on its end."""

    __slots__ = (
        "_callback",
        "_input",
        "_loop",
        "_outputs",
        "_paused",
        "_receiver",
        "_restored",
        "_retry",
        "_watch",
        "line_limit",
        "pid",
        "pty",
        "terminal_name",
        "tree",
    )

    def __init__(self, pid: int, input_end: int, outputs: dict[int, int], terminal_name: str | None) -> None:
        self.pid = pid
        self.pty = terminal_name is not None
        self.terminal_name = terminal_name
        self.line_limit = _LINE_LIMIT if self.pty else None
        self.tree: PosixTree
        self._input = input_end
        self._outputs = outputs
        self._watch = -1
        self._paused = False
        self._restored = False
        self._retry: asyncio.TimerHandle | None = None
        self._callback: Callable[[], None] | None = None

    def attach(self, loop: asyncio.AbstractEventLoop, receiver: Receiver) -> None:
        """Begin to read its output and to watch for its end."""
        self._loop, self._receiver = loop, receiver
        if self._restored:
            for descriptor in self.descriptors():
                os.set_inheritable(descriptor, False)  # noqa: FBT003 - it takes no keyword
        if not self.tree.leader_collected:
            self._watch_end()
        if not self._paused:
            self._read_on()

    def pause(self) -> None:
        """Stop reading its output; the child blocks once its pipe or terminal is full."""
        if not self._paused:
            self._paused = True
            for descriptor in self._outputs.values():
                self._loop.remove_reader(descriptor)

    def resume(self) -> None:
        """Go on reading its output."""
        if self._paused:
            self._paused = False
            self._read_on()

    def drain(self) -> None:
        """Read what is there right now, at most what the pipes and the terminal can hold."""
        for stream, descriptor in list(self._outputs.items()):
            if not self._paused:
                self._readable(stream, descriptor, 1)

    def write(self, data: memoryview) -> int:
        """Give it what it takes at once; BrokenPipeError when it has closed its input."""
        if self._input < 0:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        try:
            return os.write(self._input, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno == errno.EIO:  # a terminal that nobody has open at the moment
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from error
            if error.errno == errno.EPIPE:
                self._close_input()
            raise

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Call back when it takes more input; None ends that."""
        if self._input < 0 or callback is self._callback:
            return
        self._callback = callback
        if callback is None:
            self._loop.remove_writer(self._input)
        else:
            self._loop.add_writer(self._input, callback)

    def end_input(self, *, line_open: bool) -> bytes:
        """Close its pipe; on a terminal type the end-of-file key, twice behind an open line."""
        if not self.pty or self._input < 0:
            self._close_input()
            return b""
        keys = self._control_character(termios.VEOF, b"\x04") * (2 if line_open else 1)
        return keys[self._type(keys) :]

    def resize(self, cols: int, rows: int) -> None:
        """Set its terminal's size."""
        if self.pty and self._input >= 0:
            set_window_size(self._input, cols, rows)

    def interrupt(self) -> None:
        """Ctrl+C: typed on a terminal, SIGINT to the group on pipes."""
        if self.pty:
            if not self._type(self._control_character(termios.VINTR, b"\x03")):
                self._interrupt_foreground()
            return
        with contextlib.suppress(ProcessLookupError):  # it ended just now
            os.killpg(self.pid, signal.SIGINT)

    def probe(self) -> Probe:
        """One look at what it is doing with its input."""
        if self.terminal_name is not None and self._input >= 0:
            return probe_terminal(self._input, self.terminal_name, self.pid)
        return probe_pipe(-1 if self.pty else self._input, self.pid)

    def mark_restored(self, *, paused: bool) -> None:
        """It was started by the program that this process was before."""
        self._restored, self._paused = True, paused

    def state(self) -> dict[str, object]:
        """What `restore_child` needs after this process has become another program: JSON values only."""
        return {
            "pid": self.pid,
            "terminal": self.terminal_name or "",
            "input": self._input,
            "outputs": {str(stream): descriptor for stream, descriptor in self._outputs.items()},
            "paused": self._paused,
            "tree": self.tree.state(),
        }

    def descriptors(self) -> list[int]:
        """What must stay open when this process becomes another program."""
        return sorted({self._input, *self._outputs.values()} - {-1})

    def destroy(self) -> None:
        """Kill the child itself and collect it, now: for a start that failed half-way."""
        self.tree.kill_at_once()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def close(self) -> None:
        """Release every descriptor; may be called again."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for stream in list(self._outputs):
            self._close_output(stream)
        self._close_input()
        self._close_watch()

    def _watch_end(self) -> None:
        if not hasattr(os, "pidfd_open"):
            threading.Thread(target=self._wait_in_thread, name=f"wait-{self.pid}", daemon=True).start()
            return
        self._watch = self._open_watch()
        if self._watch >= 0:
            self._loop.add_reader(self._watch, self._reap)

    def _open_watch(self) -> int:
        try:
            return os.pidfd_open(self.pid)
        except ProcessLookupError:
            # This process ignores SIGCHLD, so the system has collected the child already.
            logger.warning("pid=%s ended unseen: SIGCHLD is ignored here, so its exit code is lost", self.pid)
            self._loop.call_soon(self._gone, None, None)
            return -1
        except OSError as error:
            raise start_error(error.errno or errno.EMFILE, f"pid {self.pid}") from error

    def _read_on(self) -> None:
        for stream, descriptor in self._outputs.items():
            self._loop.add_reader(descriptor, self._readable, stream, descriptor)

    def _readable(self, stream: int, descriptor: int, short: int = _SHORT_READ) -> None:
        """Read a few times until there is no more for now; a terminal's small pieces are handed on together."""
        pieces: list[bytes] = []
        size = 0
        most = _TERMINAL_BYTES if self.pty else _READ_BYTES
        try:
            for _ in range(_READS_PER_TURN):
                data = os.read(descriptor, most)
                if not pieces and 0 < len(data) < short:
                    self._receiver.received(stream, data)
                    return
                pieces.append(data)
                if len(data) < short:
                    break
                size += len(data)
                if size >= _READ_BYTES:
                    whole, pieces, size = pieces, [], 0
                    self._hand_on(stream, whole)
                    if self._paused or stream not in self._outputs:
                        return
        except BlockingIOError:
            self._hand_on(stream, pieces)
        except OSError as error:
            self._hand_on(stream, pieces)
            self._read_failed(stream, descriptor, error)
        else:
            self._hand_on(stream, pieces)

    def _hand_on(self, stream: int, pieces: list[bytes]) -> None:
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if data:
            self._receiver.received(stream, data)
        if pieces and not pieces[-1]:
            self._ended(stream)

    def _read_failed(self, stream: int, descriptor: int, error: OSError) -> None:
        """A terminal nobody has open reads as EIO, for good only once the child is gone."""
        if self.pty and error.errno == errno.EIO and self._watch < 0:
            self._ended(stream)
            return
        if not (self.pty and error.errno == errno.EIO):
            logger.warning("pid=%s cannot read its output: %s; trying again", self.pid, error)
        self._loop.remove_reader(descriptor)
        if self._retry is None:
            self._retry = self._loop.call_later(_RETRY_SECONDS, self._read_again)

    def _read_again(self) -> None:
        self._retry = None
        if not self._paused:
            self._read_on()

    def _ended(self, stream: int) -> None:
        self._close_output(stream)
        self._receiver.stream_ended(stream)

    def _reap(self) -> None:
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            # Somebody else in this process collected our child: its end is a fact, its code is lost.
            self._close_watch()
            self._gone(None, None)
            return
        if pid:
            self._close_watch()
            self._tell_end(status)

    def _wait_in_thread(self) -> None:
        try:
            _, status = os.waitpid(self.pid, 0)
            self._loop.call_soon_threadsafe(self._tell_end, status)
        except ChildProcessError:
            self._loop.call_soon_threadsafe(self._gone, None, None)

    def _tell_end(self, status: int) -> None:
        if os.WIFSIGNALED(status):
            self._gone(None, os.WTERMSIG(status), core_dumped=os.WCOREDUMP(status))
        else:
            self._gone(os.WEXITSTATUS(status), None)

    def _gone(self, code: int | None, signal_number: int | None, *, core_dumped: bool = False) -> None:
        self.tree.leader_collected = True
        if not self.pty:
            self._close_input()  # nobody sends to an ended process
        self._receiver.exited(code, signal_number, core_dumped=core_dumped)

    def _type(self, keys: bytes) -> int:
        try:
            return self.write(memoryview(keys))
        except BrokenPipeError:  # nobody is there to read it
            return len(keys)

    def _interrupt_foreground(self) -> None:
        """What the key would do on a terminal too full to take it."""
        with contextlib.suppress(OSError, termios.error):
            if termios.tcgetattr(self._input)[3] & termios.ISIG:
                os.killpg(os.tcgetpgrp(self._input), signal.SIGINT)

    def _control_character(self, which: int, usual: bytes) -> bytes:
        try:
            found = termios.tcgetattr(self._input)[6][which]
        except termios.error:
            return usual
        return found if isinstance(found, bytes) and found != b"\0" else usual

    def _close_output(self, stream: int) -> None:
        descriptor = self._outputs.pop(stream, -1)
        if descriptor >= 0:
            self._loop.remove_reader(descriptor)
            if self.pty:
                self._close_input()
            os.close(descriptor)

    def _close_input(self) -> None:
        descriptor, self._input = self._input, -1
        if descriptor < 0:
            return
        if self._callback is not None:
            self._loop.remove_writer(descriptor)
            self._callback = None
        if not self.pty:  # a terminal is one descriptor both ways, closed with its output
            os.close(descriptor)

    def _close_watch(self) -> None:
        if self._watch >= 0:
            self._loop.remove_reader(self._watch)
            os.close(self._watch)
            self._watch = -1


def start_child(command: Command, env: Mapping[str, str], containment: Containment) -> tuple[PosixChild, list[str]]:
    """Start `command`; where no terminal can be had, on pipes, with a warning that says so.

    Raises:
        StartError: of the kind that says why; nothing is left behind.
        LineTooLongError: the given input has a line that a terminal would cut.
    """
    if containment.adopt_orphans:
        become_reaper()
    # Whoever shares its reaper has one thread: only then nobody else is born in the group meanwhile.
    born_in = containment.shared_reaper and containment.control_group
    with Cgroup.around_us(containment.process_id) if born_in else nullcontext() as group:
        child, warnings = _start(command, env, containment.process_id)
    child.tree = PosixTree(child.pid, containment, on_terminal=child.pty, born_in=group)
    return child, warnings


def restore_child(state: Mapping[str, object]) -> PosixChild:
    """The child that gave this state, in the same process as another program; touches nothing before `attach`.

    Raises:
        ValueError: something in the state is missing or of another kind.
    """
    streams = saved_part(state, "outputs")
    outputs = {int(stream): saved(streams, stream, int) for stream in streams}
    terminal = saved(state, "terminal", str)
    child = PosixChild(saved(state, "pid", int), saved(state, "input", int), outputs, terminal or None)
    child.tree = PosixTree.restored(saved_part(state, "tree"))
    child.mark_restored(paused=saved(state, "paused", bool))
    return child


def _start(command: Command, env: Mapping[str, str], process_id: str) -> tuple[PosixChild, list[str]]:
    warnings: list[str] = []
    path = command.root if command.cwd == "." else os.path.join(command.root, command.cwd)
    directory = open_directory(command.root, command.cwd)
    try:
        program = find_program(command.argv[0], env=env, cwd=path)
        if isinstance(command.stdio, Pty):
            _check_lines(command.stdin or b"")
            try:
                child = _start_on_terminal(program, command.argv, env, directory, command.stdio)
            except PtyUnavailableError as error:
                if command.stdio.required:
                    raise
                logger.warning("process=%s %s", process_id, error)
                warnings.append(f"no terminal, running on pipes instead: {error}")
                child = _start_on_pipes(program, command.argv, env, directory, Pipes())
        else:
            child = _start_on_pipes(program, command.argv, env, directory, command.stdio)
    finally:
        os.close(directory)
    return child, warnings


def _start_on_pipes(
    program: str, argv: Sequence[str], env: Mapping[str, str], directory: int, stdio: Pipes
) -> PosixChild:
    opened: list[int] = []
    try:
        theirs_in = ours_in = -1
        if not stdio.inherit_stdin:
            theirs_in, ours_in = pipe_clear_of_streams(opened)
        out, theirs_out = pipe_clear_of_streams(opened)
        err, theirs_err = pipe_clear_of_streams(opened)
        streams = Streams(None, None if theirs_in < 0 else theirs_in, theirs_out, theirs_err)
        pid = spawn(program, argv, env, directory, streams)
    except OSError as error:
        close_all(opened)
        raise start_error(error.errno or errno.EMFILE, program) from error
    except BaseException:
        close_all(opened)
        raise
    for descriptor in (theirs_in, theirs_out, theirs_err):
        if descriptor >= 0:
            os.close(descriptor)
    for descriptor in (ours_in, out, err):
        if descriptor >= 0:
            os.set_blocking(descriptor, False)
    return PosixChild(pid, ours_in, {_STDOUT: out, _STDERR: err}, None)


def _start_on_terminal(
    program: str, argv: Sequence[str], env: Mapping[str, str], directory: int, stdio: Pty
) -> PosixChild:
    """The child opens the terminal itself, so that it becomes its controlling one."""
    master, name = open_terminal()
    try:
        set_window_size(master, stdio.cols, stdio.rows)
        pid = spawn(program, argv, env, directory, Streams(terminal=name))
    except BaseException:
        os.close(master)
        raise
    return PosixChild(pid, master, {_STDOUT: master}, name)


def _check_lines(data: bytes) -> None:
    """Refuse input that a new terminal's line editor would silently cut."""
    longest = max(map(len, data.replace(b"\r", b"\n").split(b"\n")))
    if longest > _LINE_LIMIT:
        raise LineTooLongError(longest, _LINE_LIMIT)

"""Our ends of a Windows child's streams: pipes, or a ConPTY through pywinpty; their reads and writes block.

A terminal's bytes pass through pywinpty as text: bytes that are no UTF-8 arrive as U+FFFD. It reads on into
memory of its own while we pause, and gives up what the console host has not yet written when the child ends.
"""

import codecs
import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from tether.errors import PtyUnavailableError
from tether.process._job_windows import ProcessHandle, cancel_blocking_call
from tether.process._pump_windows import STOP_SECONDS

if TYPE_CHECKING:
    import winpty  # pyright: ignore[reportMissingModuleSource] - a Windows wheel, elsewhere only its stub

_PIECE_BYTES: Final = 65_536
_EMPTY_READ_SECONDS: Final = 0.05


def startup_answer(output: bytes) -> bytes:
    """What the console host waits for, up to seconds, before it starts a terminal's first program."""
    answer = b"\x1b[1;1R" if b"\x1b[6n" in output else b""
    return answer + (b"\x1b[?62;22c" if b"\x1b[c" in output else b"")


class Ends(Protocol):
    """Our ends of a child's streams, whose reads and writes block."""

    def readers(self) -> dict[int, Callable[[], bytes]]:
        """A blocking read for each stream of output; it returns nothing at the end."""
        ...

    def takes_input(self) -> bool:
        """Whether input goes through us."""
        ...

    def write(self, data: memoryview) -> int:
        """Block until some of `data` is written; returns how much."""
        ...

    def finish_input(self) -> None:
        """End the input."""
        ...

    def resize(self, cols: int, rows: int) -> None:
        """Set the terminal's size."""
        ...

    def unblock(self, thread_id: int) -> None:
        """Make the blocking call of that thread fail now."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


class PipeEnds:
    """A child on three pipes, or on two with its starter's stdin."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen

    def readers(self) -> dict[int, Callable[[], bytes]]:
        """Stdout and stderr."""
        pipes = ((1, self._popen.stdout), (2, self._popen.stderr))
        return {stream: partial(os.read, pipe.fileno(), _PIECE_BYTES) for stream, pipe in pipes if pipe}

    def takes_input(self) -> bool:
        """Unless it has its starter's stdin."""
        return self._popen.stdin is not None

    def write(self, data: memoryview) -> int:
        """Block until some of `data` is in the pipe."""
        assert self._popen.stdin is not None
        return os.write(self._popen.stdin.fileno(), data[:_PIECE_BYTES])

    def finish_input(self) -> None:
        """Close stdin."""
        if self._popen.stdin is not None:
            self._popen.stdin.close()

    def resize(self, cols: int, rows: int) -> None:
        """Pipes have no size."""

    def unblock(self, thread_id: int) -> None:
        """Make a blocking call on a pipe fail now."""
        cancel_blocking_call(thread_id)

    def close(self) -> None:
        """Close the pipes of a child that is over."""
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(STOP_SECONDS)


class Terminal:
    """A ConPTY of pywinpty, whose one error becomes ours."""

    def __init__(self, cols: int, rows: int) -> None:
        try:
            import winpty  # pyright: ignore[reportMissingModuleSource] - a Windows wheel, elsewhere only its stub
        except ImportError as error:
            raise PtyUnavailableError(f"no terminal: pywinpty is missing ({error}); install pywinpty>=3") from error
        self._error: type[Exception] = winpty.WinptyError
        try:
            self._pty: winpty.PTY | None = winpty.PTY(cols, rows, backend=winpty.Backend.ConPTY)
        except winpty.WinptyError as error:
            raise PtyUnavailableError(f"no terminal of {cols}x{rows}: {error}; use pipes") from error

    def spawn(self, program: str, arguments: str, directory: str, environment: str) -> int:
        """Start a program on it; returns its pid.

        Raises:
            OSError: with the sentence in which Windows refused.
        """
        with self._as_os_error():
            self._open().spawn(program, arguments or None, directory, environment)
        pid = self._open().pid
        if not pid:
            raise OSError("pywinpty does not tell the pid")
        return pid

    def read(self) -> str:
        """Block for output; empty at the end, and where it was only NUL characters, which pywinpty drops."""
        with self._as_os_error():
            return self._open().read(blocking=True)

    def write(self, text: str) -> None:
        """Type `text`."""
        with self._as_os_error():
            self._open().write(text)

    def resize(self, cols: int, rows: int) -> None:
        """Set its size."""
        with self._as_os_error():
            self._open().set_size(cols, rows)

    def unblock(self) -> None:
        """Make a read or write that blocks fail now."""
        with self._as_os_error():
            self._open().cancel_io()

    def close(self) -> None:
        """Let go; pywinpty closes a terminal when its last reference goes."""
        self._pty = None

    def _open(self) -> "winpty.PTY":
        if self._pty is None:
            raise BrokenPipeError("the terminal is closed")
        return self._pty

    @contextmanager
    def _as_os_error(self) -> Generator[None]:
        try:
            yield
        except self._error as error:
            raise OSError(str(error)) from error


class TerminalEnds:
    """A child on a terminal: one stream out, keys in."""

    def __init__(self, terminal: Terminal, process: ProcessHandle) -> None:
        self._terminal = terminal
        self._process = process
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._fresh = True

    def readers(self) -> dict[int, Callable[[], bytes]]:
        """Its one stream."""
        return {1: self._read}

    def _read(self) -> bytes:
        while True:
            try:
                output = self._terminal.read().encode("utf-8", "replace")
            except OSError:  # pywinpty's word for the end
                return b""
            if output and self._fresh:
                self._fresh = False
                self._answer(startup_answer(output))
            if output or self._process.ended_within(_EMPTY_READ_SECONDS):
                return output

    def _answer(self, answer: bytes) -> None:
        if answer:
            with suppress(OSError):
                self._terminal.write(answer.decode("ascii"))

    def takes_input(self) -> bool:
        """Always."""
        return True

    def write(self, data: memoryview) -> int:
        """Type `data`; a character that is not yet whole waits for its rest."""
        self._terminal.write(self._decoder.decode(data))
        return len(data)

    def finish_input(self) -> None:
        """A terminal's input ends with the terminal."""

    def resize(self, cols: int, rows: int) -> None:
        """Set the terminal's size; one whose program is just ending keeps its own."""
        with suppress(OSError):
            self._terminal.resize(cols, rows)

    def unblock(self, thread_id: int) -> None:  # noqa: ARG002 - pywinpty blocks on a thread of its own
        """Make a blocking call on the terminal fail now."""
        with suppress(OSError):
            self._terminal.unblock()

    def close(self) -> None:
        """Close the terminal."""
        self._terminal.close()

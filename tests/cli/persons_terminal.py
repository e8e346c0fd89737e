"""A terminal window as a person has it: runs a program, shows what it writes, answers its queries."""

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

from tests.cli.running import BOUND, TETHER
from tether.process._emulator import Emulator

_POLL_SECONDS = 0.02
# With the window as its controlling terminal, and no signal ignored by inheritance.
_AT_THIS_WINDOW = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
    signal.signal(number, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Window:
    """One window with one program on it; `typed_back` is what the window itself answered to queries."""

    def __init__(self, argv: tuple[str, ...], cols: int, rows: int, env: Mapping[str, str]) -> None:
        self.master, self.slave = os.openpty()
        self.emulator = Emulator(cols, rows)
        self.typed_back = b""
        self.received = b""
        self._set_size(cols, rows)
        self.settings_before = termios.tcgetattr(self.slave)
        self.program = subprocess.Popen(
            (sys.executable, "-c", _AT_THIS_WINDOW, *argv),
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", **env},
        )

    @property
    def text(self) -> str:
        return self.emulator.text()

    @property
    def modes(self) -> list[str]:
        return self.emulator.mode_names

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self.slave)

    def type(self, data: bytes) -> None:
        """Type, while showing what is written meanwhile, as a window does."""
        view = memoryview(data)
        os.set_blocking(self.master, False)
        deadline = time.monotonic() + BOUND
        while view:
            assert time.monotonic() < deadline, f"{len(view)} bytes could not be typed:\n{self.text}"
            self.look()
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(self.master, view[:4096]) :]

    def resize(self, cols: int, rows: int) -> None:
        self.emulator.resize(cols, rows)
        self._set_size(cols, rows)

    def look(self) -> None:
        """Show what was written so far."""
        while self.master >= 0 and select.select((self.master,), (), (), 0)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            self.received += data
            answer = self.emulator.feed(data)
            if answer:
                self.typed_back += answer
                os.write(self.master, answer)

    def until(self, fact: Callable[[], object]) -> None:
        """Show what comes until `fact()` is true; fail with the picture when it never is."""
        deadline = time.monotonic() + BOUND
        while True:
            self.look()
            if fact():
                return
            assert time.monotonic() < deadline, f"never true; the window shows:\n{self.text}"
            select.select((self.master,) if self.program.poll() is None else (), (), (), _POLL_SECONDS)

    def until_shown(self, pattern: str) -> None:
        wanted = re.compile(pattern)
        self.until(lambda: wanted.search(self.text))

    def until_gone(self, words: str) -> None:
        self.until(lambda: words not in self.text)

    def until_painted(self) -> None:
        """Until an attached program has drawn its first picture, which may be empty."""
        self.until(lambda: b"\x1b[2J" in self.received)

    def ended(self) -> int:
        """The exit code of its program, once that has ended."""
        self.until(lambda: self.program.poll() is not None)
        self.look()
        assert self.program.returncode is not None
        return self.program.returncode

    def hang_up(self) -> None:
        """The window is closed, its connection lost."""
        os.close(self.slave)
        os.close(self.master)
        self.master = self.slave = -1

    def close(self) -> None:
        if self.program.poll() is None:
            self.program.kill()
        self.program.wait()
        if self.master >= 0:
            self.hang_up()

    def _set_size(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        if hasattr(self, "program"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.program.pid, signal.SIGWINCH)


def attach(process_id: str, *options: str) -> tuple[str, ...]:
    """What a person types to sit at a process."""
    return (TETHER, "attach", *options, process_id)


def left_as_it_was(at: Window) -> None:
    """The window's settings and modes are those of a new one."""
    assert at.settings() == at.settings_before
    assert at.modes == ["autowrap"]
    assert not at.emulator.alternate_screen
    assert at.emulator.cursor[2]
    assert at.emulator.key_modes.kitty_flags == 0
    assert at.received.count(b"\x1b[22;0t") == at.received.count(b"\x1b[23;0t")


@contextlib.contextmanager
def window(
    *argv: str, cols: int = 80, rows: int = 24, env: Mapping[str, str] | None = None
) -> Generator[Window, None, None]:
    """A window with `argv` on it, closed with the block."""
    opened = Window(argv, cols, rows, env or {})
    try:
        yield opened
    finally:
        opened.close()

"""The Windows child on this system: its threads, order and end, with a group in the place of a job object."""

import asyncio
import fcntl
import os
import signal
import struct
import subprocess
import termios
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.helpers import alive, python, wait_until
from tether.process._child import Child
from tether.process._child_windows import WindowsChild
from tether.process._ends_windows import PipeEnds, Terminal, TerminalEnds
from tether.process._job_windows import Job, ProcessHandle

same_interface = pytest.mark.requirement("design:windows:same-interface")


class PosixHandle(ProcessHandle):
    """What kernel32 tells of a process, told by this system."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.pid = popen.pid
        self._popen = popen

    def wait(self) -> int:
        return self._popen.wait() & 0xFF

    def ended_within(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(seconds)
        return self._popen.returncode is not None

    def close(self) -> None:
        assert self._popen.returncode is not None


class GroupJob(Job):
    """A tree that ends as one, by a process group."""

    def __init__(self, group: int) -> None:
        self._group = group

    def kill_at_once(self) -> bool:
        with suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGKILL)
        return True

    def close(self) -> None:
        self.kill_at_once()


class PosixTerminal(Terminal):
    """What pywinpty gives of a terminal, given by one of this system."""

    def __init__(self, master: int) -> None:
        self._master = master
        self.typed: list[str] = []

    def read(self) -> str:
        return os.read(self._master, 65536).decode("utf-8", "replace")

    def write(self, text: str) -> None:
        self.typed.append(text)
        os.write(self._master, text.encode())

    def resize(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def unblock(self) -> None:
        """Nothing blocks once the group is gone."""

    def close(self) -> None:
        os.close(self._master)


class GroupPipeEnds(PipeEnds):
    """Pipes whose blocking calls end with the group that held the other ends."""

    def unblock(self, thread_id: int) -> None:
        """Nothing blocks once the group is gone."""


class Heard:
    """Writes down what a child does."""

    def __init__(self) -> None:
        self.output = {1: bytearray(), 2: bytearray()}
        self.events: list[object] = []

    def received(self, stream: int, data: bytes) -> None:
        self.output[stream] += data

    def stream_ended(self, stream: int) -> None:
        self.events.append(stream)

    def exited(self, code: int | None, signal_number: int | None, *, core_dumped: bool) -> None:
        self.events.append((code, signal_number, core_dumped))


def start(code: str) -> WindowsChild:
    popen = subprocess.Popen(
        python(code),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
    return WindowsChild(PosixHandle(popen), GroupJob(popen.pid), GroupPipeEnds(popen), on_terminal=False)


def start_on_terminal(code: str) -> tuple[WindowsChild, PosixTerminal]:
    master, slave = os.openpty()
    claim = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
    popen = subprocess.Popen(
        python(f"{claim}\n{textwrap.dedent(code)}"),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    terminal, process = PosixTerminal(master), PosixHandle(popen)
    ends = TerminalEnds(terminal, process)
    return WindowsChild(process, GroupJob(popen.pid), ends, on_terminal=True), terminal


@pytest.fixture
def started() -> Iterator[Callable[[str], WindowsChild]]:
    """Starts children and closes them."""
    children: list[WindowsChild] = []

    def remember(code: str) -> WindowsChild:
        children.append(start(code))
        return children[-1]

    yield remember
    for child in children:
        child.close()
        child.close()


@same_interface
async def test_a_child_is_fed_heard_and_its_end_is_told(started: Callable[[str], WindowsChild]) -> None:
    child: Child = started("""
        import sys
        data = sys.stdin.buffer.read()
        sys.stdout.buffer.write(data[::-1])
        print(len(data), file=sys.stderr)
        sys.exit(7)
    """)
    heard = Heard()
    child.attach(asyncio.get_running_loop(), heard)
    assert child.write(memoryview(b"hello")) == 5
    child.end_input(line_open=False)
    assert child.write(memoryview(b"late")) == 4
    await wait_until(lambda: len(heard.events) == 3)
    assert (bytes(heard.output[1]), bytes(heard.output[2])) == (b"olleh", b"5\n")
    assert set(heard.events) == {1, 2, (7, None, False)}
    child.resize(10, 10)
    assert child.probe().reading == "unknown"
    assert child.line_limit is None


@same_interface
async def test_a_paused_child_is_held_back_by_its_own_pipe(started: Callable[[str], WindowsChild]) -> None:
    child = started("""
        import os
        piece = bytes(65536)
        for number in range(64):
            os.write(1, piece)
            os.write(2, b"w")
    """)
    heard = Heard()
    child.attach(asyncio.get_running_loop(), heard)
    child.pause()
    # In order after all that was handed over before: nothing more comes while paused.
    before = bytes(heard.output[1])
    child.drain()
    assert bytes(heard.output[1]) == before
    assert not heard.events
    child.resume()
    await wait_until(lambda: len(heard.events) == 3)
    assert len(heard.output[1]) == 64 * 65536
    assert bytes(heard.output[2]) == b"w" * 64


@same_interface
async def test_a_child_on_a_terminal_is_typed_to_sized_and_interrupted() -> None:
    child, terminal = start_on_terminal("""
        import os, sys, time
        print("\\x1b[c ready", flush=True)
        sys.stdin.readline()
        print("size", *os.get_terminal_size(), sys.stdin.readline().strip(), flush=True)
        try:
            sys.stdin.readline()
        except KeyboardInterrupt:
            sys.exit(9)
    """)
    heard = Heard()
    try:
        child.attach(asyncio.get_running_loop(), heard)
        await wait_until(lambda: b"ready" in heard.output[1])
        child.resize(77, 11)
        for piece in (b"\r", b"\xc3", b"\xa9\r"):
            assert child.write(memoryview(piece)) == len(piece)
        await wait_until(lambda: "size 77 11 \N{LATIN SMALL LETTER E WITH ACUTE}".encode() in heard.output[1])
        child.interrupt()
        await wait_until(lambda: len(heard.events) == 2)
    finally:
        child.close()
    assert set(heard.events) == {1, (9, None, False)}
    # The console host's question first, then the keys, and no half of a character by itself.
    assert [text for text in terminal.typed if text] == [
        "\x1b[?62;22c",
        "\r",
        "\N{LATIN SMALL LETTER E WITH ACUTE}\r",
        "\x03",
    ]


@pytest.mark.parametrize(("line_open", "keys"), [(False, "\x1a\r"), (True, "\r\x1a\r")])
@same_interface
async def test_the_end_of_input_on_a_terminal_is_ctrl_z_on_a_line_of_its_own(*, line_open: bool, keys: str) -> None:
    child, terminal = start_on_terminal("import sys, tty; tty.setraw(0); print('raw', flush=True); sys.stdin.read(2)")
    heard = Heard()
    try:
        child.attach(asyncio.get_running_loop(), heard)
        await wait_until(lambda: b"raw" in heard.output[1])
        child.end_input(line_open=line_open)
        await wait_until(lambda: terminal.typed == [keys])
    finally:
        child.close()


@pytest.mark.requirement("design:windows:job-object")
async def test_ending_the_tree_goes_through_its_job_and_takes_the_grandchildren(
    started: Callable[[str], WindowsChild],
) -> None:
    child = started("""
        import subprocess, sys
        grandchild = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        print(grandchild.pid, flush=True)
        grandchild.wait()
    """)
    heard = Heard()
    child.attach(asyncio.get_running_loop(), heard)
    await wait_until(lambda: b"\n" in heard.output[1])
    grandchild = int(heard.output[1])
    child.tree.ask_to_end(())
    await wait_until(lambda: len(heard.events) == 3)
    await wait_until(lambda: not alive(grandchild))


@same_interface
async def test_closing_a_child_in_the_middle_leaves_nothing_and_tells_nothing(
    started: Callable[[str], WindowsChild],
) -> None:
    child = started("import sys; print('here', flush=True); sys.stdin.read()")
    heard = Heard()
    child.attach(asyncio.get_running_loop(), heard)
    await wait_until(lambda: bytes(heard.output[1]) == b"here\n")
    child.close()
    await asyncio.sleep(0)
    assert heard.events == []
    assert not alive(child.pid)

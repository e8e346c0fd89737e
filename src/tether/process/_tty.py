"""Looking at a child on POSIX: its terminal's mode, and what its threads are blocked in."""

import os
import platform
import select
import sys
import termios

from tether.process._census import offspring
from tether.process.probe import Certainty, Probe

# read, select/poll and epoll_wait have different numbers on different machines.
_CALLS: dict[str, tuple[int, frozenset[int]]] = {
    "x86_64": (0, frozenset({7, 23, 232, 270, 271, 281, 441})),
    "aarch64": (63, frozenset({22, 72, 73, 441})),
}
_MOST_THREADS = 64
_READ, _POLLS = _CALLS.get(platform.machine(), (-1, frozenset[int]()))


def probe_terminal(terminal: int, name: str, leader: int) -> Probe:
    """Look at the children behind our side of terminal `name`, whose session `leader` leads."""
    local: int = termios.tcgetattr(terminal)[3]
    try:
        group = os.tcgetpgrp(terminal)
    except OSError:
        group = 0
    foreground = tuple(pid for pid in (leader, *offspring(leader)) if group > 0 and _group(pid) == group)
    return Probe(
        line_mode=bool(local & termios.ICANON),
        echo=bool(local & termios.ECHO),
        signals=bool(local & termios.ISIG),
        foreground=foreground,
        reading=Certainty.NO if _has_unread_input(name) else _reading(foreground, (name, "/dev/tty")),
    )


def probe_pipe(input_end: int, leader: int) -> Probe:
    """Look at a child on pipes; `input_end` is our end of its input, -1 once closed."""
    pids = (leader, *offspring(leader))
    reading = Certainty.NO
    if input_end >= 0:
        reading = _reading(pids, (f"pipe:[{os.fstat(input_end).st_ino}]",))
    return Probe(line_mode=True, echo=True, signals=False, foreground=pids, reading=reading)


def _has_unread_input(name: str) -> bool:
    """Whether something typed still waits in the terminal: then nobody is waiting for more yet."""
    try:
        terminal = os.open(name, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        watch = select.poll()
        watch.register(terminal, select.POLLIN)
        return any(event & select.POLLIN for _, event in watch.poll(0))
    finally:
        os.close(terminal)


def _reading(pids: tuple[int, ...], inputs: tuple[str, ...]) -> Certainty:
    if sys.platform != "linux" or _READ < 0:
        return Certainty.UNKNOWN
    found = Certainty.NO
    for pid in pids:
        for thread in _threads(pid):
            certainty = _blocked_in_read(pid, thread, inputs)
            if certainty is Certainty.YES:
                return certainty
            if certainty is Certainty.UNKNOWN:
                found = certainty
    return found


def _blocked_in_read(pid: int, thread: str, inputs: tuple[str, ...]) -> Certainty:
    try:
        with open(f"/proc/{pid}/task/{thread}/syscall", encoding="ascii") as file:
            words = file.read().split()
    except FileNotFoundError:
        return Certainty.NO
    except OSError:
        return Certainty.UNKNOWN  # the kernel does not show us this process
    if not words or not words[0].lstrip("-").isdecimal():
        return Certainty.NO  # running
    call = int(words[0])
    if call in _POLLS:
        return Certainty.UNKNOWN  # waits for several things; its input may be among them
    if call != _READ or len(words) < 2:
        return Certainty.NO
    try:
        target = os.readlink(f"/proc/{pid}/fd/{int(words[1], 16)}")
    except OSError:
        return Certainty.UNKNOWN
    return Certainty.YES if target in inputs else Certainty.NO


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")[:_MOST_THREADS]
    except OSError:
        return []


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return -1

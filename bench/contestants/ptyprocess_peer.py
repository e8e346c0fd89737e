"""ptyprocess, as it comes and with its waiting after a close switched off."""

import functools
import importlib
import os
import signal
import tempfile
from collections.abc import Callable
from typing import Protocol, cast

from bench.work import (
    IDLE_ARGV,
    READ_SIZE,
    TRUE_ARGV,
    WARM_UP,
    Figures,
    ScaleClock,
    Task,
    ThroughputClock,
    Work,
    allow_many_descriptors,
    contest,
    time_echoes,
    time_spawns,
)


class Terminal(Protocol):
    """The part of ptyprocess.PtyProcess that is used here."""

    delayafterclose: float

    def read(self, size: int) -> bytes: ...
    def write(self, s: bytes) -> int: ...
    def wait(self) -> int: ...
    def kill(self, sig: int) -> None: ...
    def close(self) -> None: ...


class TerminalClass(Protocol):
    def spawn(self, argv: list[str]) -> Terminal: ...


PtyProcess = cast("TerminalClass", importlib.import_module("ptyprocess").PtyProcess)


def _read_to_end(terminal: Terminal, keep: Callable[[bytes], int]) -> int:
    received = 0
    try:
        while True:
            received += keep(terminal.read(READ_SIZE))
    except EOFError:
        return received


def _once(*, as_it_comes: bool) -> None:
    terminal = PtyProcess.spawn(TRUE_ARGV)
    if not as_it_comes:
        terminal.delayafterclose = 0
    _read_to_end(terminal, len)
    terminal.wait()
    terminal.close()


def spawn_pty(work: Work, *, as_it_comes: bool) -> Figures:
    return time_spawns(functools.partial(_once, as_it_comes=as_it_comes), work.reps)


def _throughput(work: Work, keep: Callable[[bytes], int]) -> Figures:
    clock = ThroughputClock(work)
    terminal = PtyProcess.spawn([work.child, "write", str(work.bytes)])
    received = _read_to_end(terminal, keep)
    terminal.wait()
    return clock.figures(received)


def throughput_pty(work: Work) -> Figures:
    return _throughput(work, len)


def throughput_pty_kept(work: Work) -> Figures:
    with tempfile.TemporaryFile(buffering=0) as file:
        return _throughput(work, functools.partial(os.write, file.fileno()))


def _echo(work: Work, keep: Callable[[bytes], int]) -> Figures:
    terminal = PtyProcess.spawn([work.child, "echo"])
    terminal.read(1)

    def once() -> None:
        terminal.write(b"x")
        keep(terminal.read(1))

    figures = time_echoes(once, work.reps)
    terminal.kill(signal.SIGKILL)
    return figures


def echo(work: Work) -> Figures:
    return _echo(work, len)


def echo_kept(work: Work) -> Figures:
    with tempfile.TemporaryFile(buffering=0) as file:
        return _echo(work, functools.partial(os.write, file.fileno()))


def _kill_all(terminals: list[Terminal]) -> None:
    for terminal in terminals:
        terminal.kill(signal.SIGKILL)
    for terminal in terminals:
        terminal.delayafterclose = 0
        terminal.wait()
        terminal.close()


def scale(work: Work) -> Figures:
    allow_many_descriptors()
    _kill_all([PtyProcess.spawn(IDLE_ARGV) for _ in range(WARM_UP)])
    clock = ScaleClock(work.count)
    terminals = [PtyProcess.spawn(IDLE_ARGV) for _ in range(work.count)]
    clock.all_started()
    _kill_all(terminals)
    return clock.all_gone()


if __name__ == "__main__":
    tasks: dict[str, Task] = {
        "spawn-pty": functools.partial(spawn_pty, as_it_comes=True),
        "spawn-pty-no-delay": functools.partial(spawn_pty, as_it_comes=False),
        "throughput-pty": throughput_pty,
        "throughput-pty-kept": throughput_pty_kept,
        "echo": echo,
        "echo-kept": echo_kept,
        "scale": scale,
    }
    contest(tasks)

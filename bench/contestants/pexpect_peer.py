"""pexpect, as it comes and with its delays switched off."""

import functools
import importlib
import signal
import tempfile
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


class Inner(Protocol):
    """The ptyprocess inside a pexpect child; closing sleeps as it says."""

    delayafterclose: float


class Child(Protocol):
    """The part of pexpect.spawn that is used here."""

    ptyproc: Inner
    delaybeforesend: float | None
    logfile_read: object

    def expect_exact(self, pattern_list: object) -> int: ...
    def read_nonblocking(self, size: int, timeout: float | None) -> bytes: ...
    def send(self, s: bytes) -> int: ...
    def kill(self, sig: int) -> None: ...
    def wait(self) -> int: ...
    def close(self) -> None: ...


class Pexpect(Protocol):
    EOF: type[Exception]

    def spawn(self, command: str, args: list[str], timeout: float | None) -> Child: ...


pexpect = cast("Pexpect", importlib.import_module("pexpect"))


def _start(argv: list[str], *, as_it_comes: bool) -> Child:
    child = pexpect.spawn(argv[0], argv[1:], None)
    if not as_it_comes:
        child.delaybeforesend = None
        child.ptyproc.delayafterclose = 0
    return child


def _once(*, as_it_comes: bool) -> None:
    child = _start(TRUE_ARGV, as_it_comes=as_it_comes)
    child.expect_exact(pexpect.EOF)
    child.wait()
    child.close()


def spawn_pty(work: Work, *, as_it_comes: bool) -> Figures:
    return time_spawns(functools.partial(_once, as_it_comes=as_it_comes), work.reps)


def throughput_pty(work: Work, log: object = None) -> Figures:
    received = 0
    clock = ThroughputClock(work)
    child = _start([work.child, "write", str(work.bytes)], as_it_comes=False)
    child.logfile_read = log
    try:
        while True:
            received += len(child.read_nonblocking(READ_SIZE, None))
    except pexpect.EOF:
        child.wait()
    child.close()
    return clock.figures(received)


def throughput_pty_kept(work: Work) -> Figures:
    with tempfile.TemporaryFile() as log:
        return throughput_pty(work, log)


def echo(work: Work, *, as_it_comes: bool, log: object = None) -> Figures:
    child = _start([work.child, "echo"], as_it_comes=as_it_comes)
    child.logfile_read = log
    child.expect_exact(b"r")

    def once() -> None:
        child.send(b"x")
        child.read_nonblocking(1, None)

    figures = time_echoes(once, work.reps)
    child.kill(signal.SIGKILL)
    return figures


def echo_kept(work: Work) -> Figures:
    with tempfile.TemporaryFile() as log:
        return echo(work, as_it_comes=False, log=log)


def _kill_all(children: list[Child]) -> None:
    for child in children:
        child.kill(signal.SIGKILL)
    for child in children:
        child.wait()
        child.close()


def scale(work: Work) -> Figures:
    allow_many_descriptors()
    _kill_all([_start(IDLE_ARGV, as_it_comes=False) for _ in range(WARM_UP)])
    clock = ScaleClock(work.count)
    children = [_start(IDLE_ARGV, as_it_comes=False) for _ in range(work.count)]
    clock.all_started()
    _kill_all(children)
    return clock.all_gone()


if __name__ == "__main__":
    tasks: dict[str, Task] = {
        "spawn-pty": functools.partial(spawn_pty, as_it_comes=True),
        "spawn-pty-no-delay": functools.partial(spawn_pty, as_it_comes=False),
        "throughput-pty": throughput_pty,
        "throughput-pty-kept": throughput_pty_kept,
        "echo": functools.partial(echo, as_it_comes=True),
        "echo-no-delay": functools.partial(echo, as_it_comes=False),
        "echo-kept": echo_kept,
        "scale": scale,
    }
    contest(tasks)

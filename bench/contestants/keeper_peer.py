"""The keeper and, as what it is measured against, our own table of processes: the same work through one interface."""

import asyncio
import contextlib
import functools
import os
import select
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from bench.work import (
    IDLE_ARGV,
    TRUE_ARGV,
    WARM_UP,
    Figures,
    Work,
    allow_many_descriptors,
    contest,
    cpu_seconds_of,
    echo_figures,
    resident_kb_of,
    spawn_figures,
)
from tether.errors import KeeperError
from tether.keeper.client import open_keeper
from tether.keeper.frames import Header
from tether.keeper.home import Home
from tether.keeper.launch import connect
from tether.keeper.lease import Owned
from tether.keeper.link import Link
from tether.keeper.protocol import PROTOCOL
from tether.process.command import Command, Pipes, Pty
from tether.process.place import PlacedProcess
from tether.process.table import ProcessTable
from tether.version import VERSION

# What a contestant starts ends with it, even where it is killed half-way: nothing is kept for ever.
LEASE = Owned("bench", 5.0)
GONE_SECONDS = 20.0
# Longer than a keeper waits to tell several things at once: what a person types is alone.
BETWEEN_KEYS = 0.02
# Long enough for the kernel to forget that the last start has moved a process between control groups.
BETWEEN_STARTS = 0.1


@dataclass(frozen=True, slots=True)
class Ground:
    """Where processes are started, and the system's number of whoever owns them there."""

    start: Callable[[Command], Awaitable[PlacedProcess]]
    owner_pid: int
    home: Home | None = None


Open = Callable[[], AbstractAsyncContextManager[Ground]]


@contextlib.asynccontextmanager
async def _table() -> AsyncGenerator[Ground, None]:
    async with ProcessTable() as table:
        yield Ground(table.start, os.getpid())


@contextlib.asynccontextmanager
async def _keeper() -> AsyncGenerator[Ground, None]:
    with tempfile.TemporaryDirectory() as directory:
        home = Home.of(directory)
        try:
            async with open_keeper(home, owners=(LEASE.owner,)) as keeper:
                pid = (await keeper.status()).pid
                yield Ground(functools.partial(keeper.start, lease=LEASE), pid, home)
        finally:
            await _shut_down(home)


async def _shut_down(home: Home) -> None:
    # Through a client that starts no other keeper when this one hangs up.
    async with open_keeper(home, start=False) as keeper:
        pid = (await keeper.status()).pid
        gone = os.pidfd_open(pid)
        await keeper.shut_down()
    ended, _, _ = select.select([gone], [], [], GONE_SECONDS)
    os.close(gone)
    if not ended:
        raise TimeoutError(f"keeper {pid} still lives {GONE_SECONDS} s after it was told to shut down")


class Watcher:
    """A client that counts what it is told about growth, and does nothing else."""

    def __init__(self) -> None:
        self.growths = 0

    def hello(self) -> Header:
        return {"do": "hello", "protocol": PROTOCOL, "version": VERSION, "owners": []}

    def greeted(self, answer: Header) -> None:
        pass

    def heard(self, news: Header) -> None:
        self.growths += news.get("news") == "grown"

    def lost(self, error: KeeperError) -> None:
        raise error


@contextlib.asynccontextmanager
async def _watching(home: Home | None, process: PlacedProcess) -> AsyncGenerator[Watcher, None]:
    """Watch a process through a connection of its own; one without a home is watched by nobody."""
    watcher = Watcher()
    if home is None:
        yield watcher
        return
    link = Link(lambda: connect(home, start=False), watcher)
    await link.open()
    try:
        await link.ask({"do": "describe", "process": process.id})
        yield watcher
    finally:
        await link.close()


async def _start_one_by_one(ground: Ground, stdio: Pipes | Pty, reps: int, pause: float) -> tuple[Figures, Figures]:
    """Time starts until they are answered, and until their exit is known."""
    answered: list[float] = []
    exited: list[float] = []
    for _ in range(reps):
        await asyncio.sleep(pause)
        began = time.perf_counter()
        process = await ground.start(Command(argv=tuple(TRUE_ARGV), stdio=stdio))
        answered.append(time.perf_counter() - began)
        await process.wait()
        exited.append(time.perf_counter() - began)
        await process.release()
    return spawn_figures(answered), spawn_figures(exited)


async def _start(work: Work, stdio: Pipes | Pty, opened: Open) -> Figures:
    async with opened() as ground:
        await _start_one_by_one(ground, stdio, WARM_UP, 0)
        answered, exited = await _start_one_by_one(ground, stdio, work.reps, 0)
        alone, _ = await _start_one_by_one(ground, stdio, WARM_UP, BETWEEN_STARTS)
    return {
        **answered,
        "exit_us": exited["us"],
        "typical_exit_us": exited["typical_us"],
        "alone_us": alone["typical_us"],
    }


async def _idle(work: Work, opened: Open) -> Figures:
    allow_many_descriptors()
    command = Command(argv=tuple(IDLE_ARGV), stdio=Pty())
    async with opened() as ground:
        for process in [await ground.start(command) for _ in range(WARM_UP)]:
            await process.kill()
            await process.wait()
            await process.release()
        before = resident_kb_of(ground.owner_pid)
        processes = [await ground.start(command) for _ in range(work.count)]
        after = resident_kb_of(ground.owner_pid)
        del processes
    return {"rss_mb": after * 1024 / 1e6, "rss_kb_each": (after - before) / work.count}


async def _pty(work: Work, opened: Open) -> Figures:
    async with opened() as ground:
        cpu, began = cpu_seconds_of(ground.owner_pid), time.perf_counter()
        process = await ground.start(Command(argv=(work.child, "write", str(work.bytes)), stdio=Pty()))
        async with _watching(ground.home, process) as watcher:
            await process.wait()
            wall = time.perf_counter() - began
        used = cpu_seconds_of(ground.owner_pid) - cpu
    return {
        "mb_per_cpu_s": process.end / 1e6 / used,
        "mb_s": process.end / 1e6 / wall,
        "lost": work.bytes - process.end,
        "news_per_s": watcher.growths / wall,
    }


async def _echo(work: Work, opened: Open) -> Figures:
    async with opened() as ground:
        process = await ground.start(Command(argv=(work.child, "echo"), stdio=Pty()))
        await process.grown_or_ended(0)
        end = process.end
        rounds: dict[float, list[float]] = {BETWEEN_KEYS: [], 0.0: []}
        for pause, samples in rounds.items():
            for _ in range(work.reps):
                await asyncio.sleep(pause)
                began = time.perf_counter()
                await process.write(b"x")
                await process.grown_or_ended(end)
                end = (await process.read(end)).end
                samples.append(time.perf_counter() - began)
        await process.kill()
        await process.wait()
    return {
        **echo_figures(rounds[BETWEEN_KEYS]),
        "burst_us": statistics.median(rounds[0.0]) * 1e6,
    }


def start_on_pipes(work: Work, *, opened: Open) -> Figures:
    return asyncio.run(_start(work, Pipes(), opened))


def start_on_pty(work: Work, *, opened: Open) -> Figures:
    return asyncio.run(_start(work, Pty(), opened))


def idle(work: Work, *, opened: Open) -> Figures:
    return asyncio.run(_idle(work, opened))


def pty(work: Work, *, opened: Open) -> Figures:
    return asyncio.run(_pty(work, opened))


def echo(work: Work, *, opened: Open) -> Figures:
    return asyncio.run(_echo(work, opened))


TASKS = {"start-pipes": start_on_pipes, "start-pty": start_on_pty, "idle": idle, "pty": pty, "echo": echo}
GROUNDS: dict[str, Open] = {"table": _table, "keeper": _keeper}

if __name__ == "__main__":
    contest(
        {
            f"{name}-{ground}": functools.partial(task, opened=opened)
            for name, task in TASKS.items()
            for ground, opened in GROUNDS.items()
        }
    )

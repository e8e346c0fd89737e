"""terminado: its terminal manager on the running loop, with one client that counts."""

import asyncio
import importlib
import signal
import time
from typing import Protocol, cast

from bench.work import (
    IDLE_ARGV,
    TRUE_ARGV,
    WARM_UP,
    Figures,
    ScaleClock,
    ThroughputClock,
    Work,
    allow_many_descriptors,
    contest,
    echo_figures,
    time_async_spawns,
)


class Inner(Protocol):
    pid: int

    def write(self, s: str) -> int: ...


class Terminal(Protocol):
    """The part of terminado's PtyWithClients that is used here."""

    clients: list["Client"]
    ptyproc: Inner

    def kill(self, sig: int) -> None: ...


class TerminalManager(Protocol):
    def new_terminal(self, *, shell_command: list[str]) -> Terminal: ...
    def start_reading(self, ptywclients: Terminal) -> None: ...


class ManagerClass(Protocol):
    def __call__(self, *, shell_command: list[str]) -> TerminalManager: ...


UniqueTermManager = cast("ManagerClass", importlib.import_module("terminado").UniqueTermManager)


class Client:
    """What a browser's socket is to terminado: told of every text and of the end."""

    def __init__(self) -> None:
        self.received = 0
        self.ended = asyncio.Event()
        self.grown = asyncio.Event()

    def on_pty_read(self, text: str) -> None:
        self.received += len(text)
        self.grown.set()

    def on_pty_died(self) -> None:
        self.ended.set()


class Server:
    """Starts terminals with one client each."""

    def __init__(self) -> None:
        self._manager = UniqueTermManager(shell_command=TRUE_ARGV)

    def start(self, argv: list[str]) -> tuple[Terminal, Client]:
        terminal = self._manager.new_terminal(shell_command=argv)
        client = Client()
        terminal.clients.append(client)
        self._manager.start_reading(terminal)
        return terminal, client


async def _spawn(work: Work) -> Figures:
    server = Server()

    async def once() -> None:
        _, client = server.start(TRUE_ARGV)
        await client.ended.wait()

    return await time_async_spawns(once, work.reps)


def spawn_pty(work: Work) -> Figures:
    return asyncio.run(_spawn(work))


async def _read_all(work: Work) -> Figures:
    server = Server()
    clock = ThroughputClock(work)
    _, client = server.start([work.child, "write", str(work.bytes)])
    await client.ended.wait()
    return clock.figures(client.received)


def throughput_pty(work: Work) -> Figures:
    return asyncio.run(_read_all(work))


async def _echo(work: Work) -> Figures:
    terminal, client = Server().start([work.child, "echo"])
    await client.grown.wait()
    samples: list[float] = []
    for _ in range(work.reps):
        client.grown.clear()
        started = time.perf_counter()
        terminal.ptyproc.write("x")
        await client.grown.wait()
        samples.append(time.perf_counter() - started)
    terminal.kill(signal.SIGKILL)
    await client.ended.wait()
    return echo_figures(samples)


def echo(work: Work) -> Figures:
    return asyncio.run(_echo(work))


async def _kill_all(started: list[tuple[Terminal, Client]]) -> None:
    for terminal, _ in started:
        terminal.kill(signal.SIGKILL)
    for _, client in started:
        await client.ended.wait()


async def _scale(work: Work) -> Figures:
    server = Server()
    await _kill_all([server.start(IDLE_ARGV) for _ in range(WARM_UP)])
    clock = ScaleClock(work.count)
    started = [server.start(IDLE_ARGV) for _ in range(work.count)]
    clock.all_started()
    await _kill_all(started)
    return clock.all_gone()


def scale(work: Work) -> Figures:
    allow_many_descriptors()
    return asyncio.run(_scale(work))


if __name__ == "__main__":
    contest({"spawn-pty": spawn_pty, "throughput-pty": throughput_pty, "echo": echo, "scale": scale})

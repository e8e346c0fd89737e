"""pty.fork with asyncio's add_reader: what a program writes that uses the standard library alone."""

import asyncio
import os
import pty
import signal
import time

from bench.work import (
    IDLE_ARGV,
    READ_SIZE,
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


class Terminal:
    """A forked child and its PTY, read by the running loop; keeps counts, not bytes."""

    def __init__(self, argv: list[str]) -> None:
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.execv(argv[0], argv)
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.received = 0
        self._more: asyncio.Future[None] | None = None
        os.set_blocking(self._master, False)
        self._loop.add_reader(self._master, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._master, READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._master)
            self.ended.set_result(None)
            return
        self.received += len(data)
        if self._more is not None:
            self._more.set_result(None)
            self._more = None

    async def wait_more(self) -> None:
        self._more = self._loop.create_future()
        await self._more

    def write(self, data: bytes) -> None:
        os.write(self._master, data)

    async def finish(self) -> None:
        await self.ended
        self._reap()

    def _reap(self) -> None:
        os.waitpid(self.pid, 0)
        os.close(self._master)

    async def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        await self.finish()


async def _once() -> None:
    await Terminal(TRUE_ARGV).finish()


def spawn_pty(work: Work) -> Figures:
    return asyncio.run(time_async_spawns(_once, work.reps))


async def _read_all(work: Work) -> Figures:
    clock = ThroughputClock(work)
    terminal = Terminal([work.child, "write", str(work.bytes)])
    await terminal.finish()
    return clock.figures(terminal.received)


def throughput_pty(work: Work) -> Figures:
    return asyncio.run(_read_all(work))


async def _echo(work: Work) -> Figures:
    terminal = Terminal([work.child, "echo"])
    await terminal.wait_more()
    samples: list[float] = []
    for _ in range(work.reps):
        started = time.perf_counter()
        terminal.write(b"x")
        await terminal.wait_more()
        samples.append(time.perf_counter() - started)
    await terminal.kill()
    return echo_figures(samples)


def echo(work: Work) -> Figures:
    return asyncio.run(_echo(work))


async def _kill_all(terminals: list[Terminal]) -> None:
    for terminal in terminals:
        os.kill(terminal.pid, signal.SIGKILL)
    for terminal in terminals:
        await terminal.finish()


async def _scale(work: Work) -> Figures:
    await _kill_all([Terminal(IDLE_ARGV) for _ in range(WARM_UP)])
    clock = ScaleClock(work.count)
    terminals = [Terminal(IDLE_ARGV) for _ in range(work.count)]
    clock.all_started()
    await _kill_all(terminals)
    return clock.all_gone()


def scale(work: Work) -> Figures:
    allow_many_descriptors()
    return asyncio.run(_scale(work))


if __name__ == "__main__":
    contest({"spawn-pty": spawn_pty, "throughput-pty": throughput_pty, "echo": echo, "scale": scale})

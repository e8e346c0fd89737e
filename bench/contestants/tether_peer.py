"""Tether's own process table, through the door its users have."""

import asyncio
import time

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
from tether.process.command import Command, Pipes, Pty
from tether.process.process import Process
from tether.process.table import ProcessTable


def _command(argv: list[str], stdio: Pipes | Pty) -> Command:
    return Command(argv=tuple(argv), stdio=stdio)


async def _spawn(work: Work, stdio: Pipes | Pty) -> Figures:
    async with ProcessTable() as table:

        async def once() -> None:
            process = await table.start(_command(TRUE_ARGV, stdio))
            await process.wait()
            await process.release()

        return await time_async_spawns(once, work.reps)


def spawn_pipes(work: Work) -> Figures:
    return asyncio.run(_spawn(work, Pipes()))


def spawn_pty(work: Work) -> Figures:
    return asyncio.run(_spawn(work, Pty()))


async def _read_all(work: Work, stdio: Pipes | Pty) -> Figures:
    async with ProcessTable() as table:
        clock = ThroughputClock(work)
        process = await table.start(_command([work.child, "write", str(work.bytes)], stdio))
        await process.wait()
        return clock.figures(process.output.end)


def throughput_pipe(work: Work) -> Figures:
    return asyncio.run(_read_all(work, Pipes()))


def throughput_pty(work: Work) -> Figures:
    return asyncio.run(_read_all(work, Pty()))


async def _echo(work: Work) -> Figures:
    async with ProcessTable() as table:
        process = await table.start(_command([work.child, "echo"], Pty()))
        end = await process.output.wait_beyond(0)
        samples: list[float] = []
        for _ in range(work.reps):
            started = time.perf_counter()
            await process.write(b"x")
            end = await process.output.wait_beyond(end)
            samples.append(time.perf_counter() - started)
        await process.kill()
        await process.wait()
        return echo_figures(samples)


def echo(work: Work) -> Figures:
    return asyncio.run(_echo(work))


async def _start_all(table: ProcessTable, count: int) -> list[Process]:
    return [await table.start(_command(IDLE_ARGV, Pty())) for _ in range(count)]


async def _kill_all(processes: list[Process]) -> None:
    for process in processes:
        await process.kill()
    for process in processes:
        await process.wait()
        await process.release()


async def _scale(work: Work) -> Figures:
    async with ProcessTable() as table:
        await _kill_all(await _start_all(table, WARM_UP))
        clock = ScaleClock(work.count)
        processes = await _start_all(table, work.count)
        clock.all_started()
        await _kill_all(processes)
        return clock.all_gone()


def scale(work: Work) -> Figures:
    allow_many_descriptors()
    return asyncio.run(_scale(work))


if __name__ == "__main__":
    contest(
        {
            "spawn-pipes": spawn_pipes,
            "spawn-pty": spawn_pty,
            "throughput-pipe": throughput_pipe,
            "throughput-pty": throughput_pty,
            "echo": echo,
            "scale": scale,
        }
    )

"""asyncio.create_subprocess_exec with pipes."""

import asyncio
from asyncio.subprocess import PIPE

from bench.work import READ_SIZE, TRUE_ARGV, Figures, ThroughputClock, Work, contest, time_async_spawns


async def _once() -> None:
    child = await asyncio.create_subprocess_exec(*TRUE_ARGV, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    await child.communicate()


def spawn_pipes(work: Work) -> Figures:
    return asyncio.run(time_async_spawns(_once, work.reps))


async def _read_all(work: Work) -> Figures:
    received = 0
    clock = ThroughputClock(work)
    child = await asyncio.create_subprocess_exec(work.child, "write", str(work.bytes), stdout=PIPE)
    assert child.stdout is not None
    while data := await child.stdout.read(READ_SIZE):
        received += len(data)
    await child.wait()
    return clock.figures(received)


def throughput_pipe(work: Work) -> Figures:
    return asyncio.run(_read_all(work))


if __name__ == "__main__":
    contest({"spawn-pipes": spawn_pipes, "throughput-pipe": throughput_pipe})

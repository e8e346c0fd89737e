"""Ending many processes at once, and saying who is left."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tether.cli.keeper_session import with_named
from tether.cli.remarks import left_over, tell
from tether.keeper.client import KeeperClient
from tether.keeper.kept_process import KeptProcess

End = Callable[[KeptProcess], Awaitable[None]]


def end_all(words: Sequence[str], end: End) -> int:
    """End every process named, or none when one is unknown; 1 when somebody could not be ended for certain."""

    async def work(keeper: KeeperClient) -> int:
        found = [await keeper.find(word) for word in words]
        async with asyncio.TaskGroup() as tasks:
            for process in {process.id: process for process in found}.values():
                tasks.create_task(_end_one(process, end))
        return max(_told(process) for process in found)

    return with_named(words[0], work)


async def _end_one(process: KeptProcess, end: End) -> None:
    if process.exit_status is not None and not process.survivors and not process.record.output_held:
        tell(f"process {process.id} has already ended ({process.status})")
        return
    await end(process)


def _told(process: KeptProcess) -> int:
    for message in left_over(process):
        tell(message)
    if process.exit_status is None and not process.survivors:
        tell(f"process {process.id} (pid {process.pid}) was told to end and still runs; look again with `tether ps`")
    return int(process.exit_status is None or any(left.certain for left in process.survivors))

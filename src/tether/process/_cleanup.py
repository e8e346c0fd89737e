"""Cleanup that is finished however often its task is cancelled meanwhile."""

import asyncio
from collections.abc import Coroutine


async def to_the_end(work: Coroutine[object, object, None]) -> None:
    """Await `work` through any number of cancellations, then pass the last one on."""
    failure: Exception | None = None
    cancelled: asyncio.CancelledError | None = None

    async def keeping_failure() -> None:
        nonlocal failure
        try:
            await work
        except Exception as error:  # noqa: BLE001 - raised again below, outside the group
            failure = error

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(keeping_failure())
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                cancelled = error
    if failure is not None:
        raise failure
    if cancelled is not None:
        raise cancelled

"""`tether kill`: the end at once."""

import asyncio
import contextlib

import click

from tether.cli.ending import end_all
from tether.cli.options import processes_argument, some
from tether.keeper.kept_process import KeptProcess

_DEAD_SECONDS = 5.0


@click.command(name="kill", short_help="End processes at once.")
@processes_argument
def command(*, process_ids: tuple[str, ...]) -> int:
    """End processes and everything they started at once, with KILL.

    `tether stop` lets them tidy up first.

    \b
    Examples:
      tether kill 3f2a
      tether kill 3f2a 81c0
    """
    return end_all(some(process_ids), _kill)


async def _kill(process: KeptProcess) -> None:
    await process.kill()
    # Who still runs then waits for a device, and is named.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DEAD_SECONDS):
            await process.wait()

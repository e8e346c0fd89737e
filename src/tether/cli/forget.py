"""`tether forget`: no trace of a process."""

from collections.abc import Sequence

import click

from tether.cli.keeper_session import with_kept, with_named
from tether.cli.options import processes_argument, some
from tether.keeper.client import KeeperClient
from tether.keeper.kept_process import KeptProcess


@click.command(name="forget", short_help="Remove ended processes and their output.")
@click.option("--force", is_flag=True, help="Also those that still run: they are ended first.")
@click.option("--all", "all_ended", is_flag=True, help="Every process that has ended.")
@processes_argument
def command(*, process_ids: tuple[str, ...], force: bool, all_ended: bool) -> int:
    """Remove processes from the list, and what they wrote from the disk.

    Ended processes go by themselves after a day; this is for those that should go now.

    \b
    Examples:
      tether forget 3f2a
      tether forget --force 3f2a      even if it runs
      tether forget --all             everything that has ended
    """
    if all_ended and (process_ids or force):
        raise click.UsageError("--all means every ended process and goes with nothing else.")

    async def forget_all(keeper: KeeperClient) -> int:
        await _forget([process for process in await keeper.processes() if process.exit_status is not None])
        return 0

    async def forget_named(keeper: KeeperClient) -> int:
        found = [await keeper.find(word) for word in some(process_ids)]
        running = [process.id for process in found if process.exit_status is None]
        if running and not force:
            raise click.UsageError(f"still running: {', '.join(running)}; stop it first, or give --force.")
        await _forget(found)
        return 0

    if all_ended:
        return with_kept(forget_all, 0)
    return with_named(some(process_ids)[0], forget_named)


async def _forget(processes: Sequence[KeptProcess]) -> None:
    for process in {process.id: process for process in processes}.values():
        await process.release()

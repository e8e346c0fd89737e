"""`tether stop`: the polite end."""

import click

from tether.cli.ending import end_all
from tether.cli.options import processes_argument, seconds, some
from tether.keeper.kept_process import KeptProcess


@click.command(name="stop", short_help="End processes politely, then by force.")
@click.option(
    "--grace", callback=seconds, default="2", metavar="SECONDS", show_default=True, help="Time between TERM and KILL."
)
@processes_argument
def command(*, process_ids: tuple[str, ...], grace: float) -> int:
    """End processes and everything they started.

    Each whole tree gets TERM, after the grace KILL. Whoever still could not be ended is named on stderr, and
    the exit code is 1. What they wrote stays: see `tether logs`.

    \b
    Examples:
      tether stop 3f2a
      tether stop --grace 30 database web
    """

    async def stop(process: KeptProcess) -> None:
        await process.stop(grace=grace)

    return end_all(some(process_ids), stop)

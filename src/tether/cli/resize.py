"""`tether resize`: another size for a terminal."""

import click

from tether.cli.keeper_session import with_named
from tether.cli.options import Size, process_argument, size
from tether.keeper.client import KeeperClient


@click.command(name="resize", short_help="Give a terminal another size.")
@process_argument
@click.argument("new_size", metavar="COLSxROWS", callback=size)
def command(*, process_id: str, new_size: Size) -> int:
    """Give the terminal of a process another size; the program on it is told, as after a window's change.

    \b
    Example:
      tether resize 3f2a 160x50
    """

    async def resize(keeper: KeeperClient) -> int:
        await (await keeper.find(process_id)).resize(new_size.cols, new_size.rows)
        return 0

    return with_named(process_id, resize)

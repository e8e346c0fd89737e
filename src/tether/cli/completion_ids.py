"""The processes whose id or name may stand where a shell asks how a word could go on."""

import asyncio
import re

from tether.cli.keeper_session import with_running_keeper
from tether.cli.ps import label, shortest_ids, status_cell
from tether.cli.table import cut
from tether.errors import TetherError
from tether.keeper.client import KeeperClient
from tether.keeper.kept_process import KeptProcess

_SECONDS = 1.0
_DESCRIPTION = 60
# What a shell inserts as it stands; other names would have to be quoted.
_PLAIN = re.compile(r"[\w.@+][\w.@+-]*")


def matching_processes(beginning: str, *, ended: bool) -> list[tuple[str, str]]:
    """Ids and names that begin so, each with what it is; none rather than late, and never starts a keeper."""
    try:
        processes = with_running_keeper(_processes, [])
    except (TetherError, OSError, TimeoutError):
        return []
    shortened = shortest_ids([process.id for process in processes])
    words: list[tuple[str, str]] = []
    for process in processes:
        if ended or process.exit_status is None:
            described = cut(f"{status_cell(process).text}: {label(process)}", _DESCRIPTION)
            identity = process.id if len(beginning) > len(shortened[process.id]) else shortened[process.id]
            offered = (identity, process.name) if _PLAIN.fullmatch(process.name) else (identity,)
            words += [(word, described) for word in offered if word.startswith(beginning)]
    return words


async def _processes(keeper: KeeperClient) -> list[KeptProcess]:
    async with asyncio.timeout(_SECONDS):
        return await keeper.processes()

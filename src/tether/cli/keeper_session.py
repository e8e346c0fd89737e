"""How a command talks to the keeper: once, in a loop of its own, with errors as plain as without one."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar, cast

from tether.errors import TetherError, UnknownProcessError
from tether.keeper.client import KeeperClient, open_keeper
from tether.keeper.home import Home, KeeperLock

T = TypeVar("T")


def with_keeper(work: Callable[[KeeperClient], Awaitable[T]], owners: Sequence[str] = ()) -> T:
    """Do `work` with the keeper of this home, started when none runs; until that is done we hold `owners`."""
    return asyncio.run(_talk(Home.of(), work, start=True, owners=owners))


def with_running_keeper(work: Callable[[KeeperClient], Awaitable[T]], otherwise: T) -> T:
    """Do `work` with the keeper that runs; `otherwise` when there is none. Never starts one."""
    home = Home.of()
    if KeeperLock.holder(home) is None:
        return otherwise
    return asyncio.run(_talk(home, work, start=False))


def with_kept(work: Callable[[KeeperClient], Awaitable[T]], otherwise: T) -> T:
    """Do `work` with what is kept; `otherwise` when that is nothing, for which no keeper is started."""
    home = Home.of()
    if holds_processes(home):
        # Whoever kept them may be gone: the next keeper knows what became of them.
        return asyncio.run(_talk(home, work, start=True))
    return with_running_keeper(work, otherwise)


def with_named(words: str, work: Callable[[KeeperClient], Awaitable[int]]) -> int:
    """Do `work` with the process that `words` name."""
    code = with_kept(work, None)
    if code is None:
        raise UnknownProcessError(words, ())
    return code


def holds_processes(home: Home) -> bool:
    """Whether there is a process, running or ended, in that home."""
    try:
        return bool(os.listdir(home.processes))
    except OSError:
        return False


async def _talk(
    home: Home, work: Callable[[KeeperClient], Awaitable[T]], *, start: bool, owners: Sequence[str] = ()
) -> T:
    try:
        async with open_keeper(home, start=start, owners=owners) as keeper:
            return await work(keeper)
    except BaseExceptionGroup as group:
        raise first_of_ours(group) from None


def first_of_ours(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What is worth telling of things that failed together, usually for one reason."""
    leaves = list(_leaves(group))
    return next((error for error in leaves if isinstance(error, (TetherError, OSError))), leaves[0])


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            yield error

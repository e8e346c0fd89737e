"""Ending whole trees of processes: politely, then by force, then saying who is left."""

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tether.process._child import Member, Tree
from tether.process.exit_status import ExitStatus

if sys.platform == "win32":
    from tether.process._job_windows import Census
else:
    from tether.process._census import Census

logger = logging.getLogger(__name__)

_FORCE_SECONDS = 2.0
_FIRST_LOOK = 0.002
_LONGEST_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class Survivor:
    """A process that could not be ended; not `certain` when it may as well be somebody else's, and was spared."""

    pid: int
    command: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Stopped:
    """How a stopped process ended (None: it could not be), and who of its tree is left."""

    status: ExitStatus | None
    survivors: tuple[Survivor, ...] = ()


@dataclass(frozen=True, slots=True)
class Left:
    """Who is still there of one tree, and who may belong to it."""

    members: list[Member]
    strays: list[Member]


async def end_trees(trees: Sequence[Tree], *, grace: float) -> list[Left]:
    """End every member of every tree; returns who of each is still there."""
    try:
        return await _end_trees(trees, grace)
    except OSError as error:
        # Not a descriptor is left to look around with: end whom we know for certain.
        logger.warning("cannot look for the members of %d trees: %s; killing their leaders", len(trees), error)
        for tree in trees:
            tree.kill_at_once()
        return [Left([], []) for _ in trees]


async def _end_trees(trees: Sequence[Tree], grace: float) -> list[Left]:
    loop = asyncio.get_running_loop()
    members = [tree.nearest() for tree in trees]
    if grace > 0:
        _each(trees, members, lambda tree, group: tree.ask_to_end(group))
        await _until_gone(trees, members, grace)
    else:
        _each(trees, members, lambda tree, group: tree.kill(group))
        await _until_gone(trees, members, _LONGEST_PAUSE)
    left = _look_around(trees)
    deadline = loop.time() + _FORCE_SECONDS
    while any(one.members for one in left) and loop.time() < deadline:
        members = [one.members for one in left]
        _each(trees, members, lambda tree, group: tree.kill(group))
        await _until_gone(trees, members, _LONGEST_PAUSE)
        left = _look_around(trees)
        if not any(one.members for one in left):
            # Who forks as fast as we look may have slipped through between two lines of the table.
            await asyncio.sleep(_FIRST_LOOK)
            left = _look_around(trees)
    return left


def _look_around(trees: Sequence[Tree]) -> list[Left]:
    census = Census(min((tree.since for tree in trees), default=0.0))
    return [Left(tree.members_in(census), tree.strays_in(census)) for tree in trees]


def _each(trees: Sequence[Tree], members: list[list[Member]], act: Callable[[Tree, list[Member]], None]) -> None:
    for tree, group in zip(trees, members, strict=True):
        if group:
            act(tree, group)


async def _until_gone(trees: Sequence[Tree], members: list[list[Member]], seconds: float) -> None:
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + seconds, _FIRST_LOOK
    left = members
    while any(left) and loop.time() < deadline:
        await asyncio.sleep(pause)
        left = [tree.alive(group) for tree, group in zip(trees, left, strict=True)]
        pause = min(pause * 2, _LONGEST_PAUSE, max(deadline - loop.time(), _FIRST_LOOK))

"""Ending what a keeper that died has left running, and noting that its processes are lost."""

import errno
import logging
import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from tether.errors import KeeperError, OutputLogError
from tether.keeper.record_file import read_record, write_end
from tether.keeper.records import ProcessRecord
from tether.process._census import Census, Entry
from tether.process._child import Member
from tether.process._stopping import Left, Survivor, end_trees
from tether.process._tree import ask_to_end, command_line, living, send
from tether.process.command import Pty
from tether.process.exit_status import Cause, ExitStatus
from tether.process.log_reader import LogReader

logger = logging.getLogger(__name__)

_GROUP = re.compile(rb"^0::.*/tether-([0-9a-f-]{36})(?:/|$)", re.MULTILINE)
_LOST = ExitStatus(None, None, Cause.LOST)


async def end_runaways(directory: str, process_ids: Sequence[str], *, grace: float = 2.0) -> dict[str, ProcessRecord]:
    """End whoever is left of these processes of a dead keeper; returns their records, now with an end.

    A process is left out, and a line logged, when its record cannot be read or its end not be written.
    """
    records = _endless(directory, process_ids)
    surroundings = _Surroundings()
    trees = [_Runaway(record, surroundings) for record in records.values() if record.command is not None]
    left = dict(zip((tree.id for tree in trees), await _end(trees, grace), strict=True))
    ended: dict[str, ProcessRecord] = {}
    for process_id, record in records.items():
        survivors = _survivors(left[process_id]) if process_id in left else ()
        lost = _lost(os.path.join(directory, process_id), record, survivors)
        if lost is not None:
            ended[process_id] = lost
    return ended


def _endless(directory: str, process_ids: Sequence[str]) -> dict[str, ProcessRecord]:
    found: dict[str, ProcessRecord] = {}
    for process_id in process_ids:
        try:
            record = read_record(os.path.join(directory, process_id))
        except (KeeperError, OSError) as error:
            logger.warning("process=%s cannot be swept: %s", process_id, error)
        else:
            if record.exit_status is None:
                found[process_id] = record
    return found


async def _end(trees: Sequence["_Runaway"], grace: float) -> list[Left]:
    if not trees:
        return []
    try:
        census = Census()
        for tree in trees:
            tree.members_in(census)
    except OSError as error:
        # Nobody is ended whom we cannot tell from a stranger.
        logger.warning("cannot look for what is left of %d lost processes: %s", len(trees), error)
        return [Left([], []) for _ in trees]
    return await end_trees(trees, grace=grace)


def _survivors(left: Left) -> tuple[Survivor, ...]:
    return (
        *(Survivor(member.pid, command_line(member.pid)) for member in left.members),
        *(Survivor(member.pid, command_line(member.pid), certain=False) for member in left.strays),
    )


def _lost(directory: str, record: ProcessRecord, survivors: tuple[Survivor, ...]) -> ProcessRecord | None:
    """The record with its end, which is on disk too; None when that could not be written."""
    end, missing = _log_facts(directory, record)
    lost = replace(record, exit_status=_LOST, ended_at=time.time(), survivors=survivors, end=end, missing=missing)
    try:
        write_end(directory, lost)
    except (KeeperError, OSError) as error:
        logger.warning("process=%s was lost, but its end cannot be written: %s", record.id, error)
        return None
    logger.info("process=%s pid=%s lost with its keeper; survivors: %d", record.id, record.pid, len(survivors))
    return lost


def _log_facts(directory: str, record: ProcessRecord) -> tuple[int, int]:
    """Where the log really ends and how much it misses; as far as the record knows where the log is damaged."""
    end, missing = record.end, record.missing
    try:
        log = LogReader(directory)
        end = log.end
        missing = log.missing
    except (OutputLogError, OSError) as error:
        logger.warning("process=%s has a log that cannot be read: %s", record.id, error)
    return end, missing


class _Surroundings:
    """What all trees need to know of a census, worked out once for each."""

    def __init__(self) -> None:
        self.own: set[int] = set()
        self.grouped: defaultdict[str, list[Entry]] = defaultdict(list)
        self._census: Census | None = None

    def look_at(self, census: Census) -> None:
        """From now on, tell what this census says."""
        if census is not self._census:
            self.own, self.grouped = _own(census), _grouped(census)
            self._census = census


class _Runaway:
    """What is left of a process whose keeper died: known by pid and start, cookie and control group."""

    def __init__(self, record: ProcessRecord, surroundings: _Surroundings) -> None:
        self.id = record.id
        self.since = 0.0  # it may be as old as the system
        self._pid = record.pid
        self._mark = record.started_mark
        self._on_terminal = isinstance(record.stdio, Pty)
        self._surroundings = surroundings
        self._known: list[Member] = []

    def nearest(self) -> list[Member]:
        """Everybody whom the last look has shown."""
        return self._known

    def members_in(self, census: object) -> list[Member]:
        """Everybody of it that is alive, except for ourselves and whom we have started."""
        assert isinstance(census, Census)
        found = self._found_in(census)
        self._known = [one for one in found.values() if one.alive]
        return self._known

    def strays_in(self, census: object) -> list[Member]:
        """Who is in the session of a leader that is gone: the number may have been somebody else's since."""
        assert isinstance(census, Census)
        if not self._pid or self._pid in census.by_pid:
            return []
        spared = self._found_in(census).keys() | self._surroundings.own
        in_session = (one for one in census.by_pid.values() if self._pid in (one.session, one.group))
        return [one for one in in_session if one.alive and one.pid not in spared]

    def ask_to_end(self, members: Sequence[Member]) -> None:
        """SIGTERM; whoever had a terminal is told that it is gone."""
        ask_to_end(members, on_terminal=self._on_terminal)

    def kill(self, members: Sequence[Member]) -> None:
        """SIGKILL to these members."""
        send(members, signal.SIGKILL)

    def kill_at_once(self) -> bool:
        """SIGKILL to everybody whom the last look has shown."""
        send(self._known, signal.SIGKILL)
        return False

    def alive(self, members: Sequence[Member]) -> list[Member]:
        """Those of `members` that still live."""
        return living(members)

    def describe(self, member: Member) -> str:
        """The command by which a person recognises a member."""
        return command_line(member.pid)

    def reap(self) -> None:
        """Nothing: its orphans are not ours to collect."""

    def close(self) -> None:
        """Nothing: it is found without holding anything."""

    def _found_in(self, census: Census) -> dict[int, Entry]:
        self._surroundings.look_at(census)
        leader = census.by_pid.get(self._pid)
        ours = leader is not None and leader.started == self._mark
        found = {one.pid: one for one in census.belonging_to(self._pid if ours else None, self.id)}
        in_group = self._surroundings.grouped.get(self.id, ())
        found |= {one.pid: one for one in in_group if not census.kept(one.pid, None)}
        return {pid: one for pid, one in found.items() if pid not in self._surroundings.own}


def _own(census: Census) -> set[int]:
    """We, and everybody whom we have started."""
    found = {os.getpid()}
    to_visit = [os.getpid()]
    while to_visit:
        children = [one.pid for one in census.children(to_visit.pop())]
        found.update(children)
        to_visit += children
    return found


def _grouped(census: Census) -> defaultdict[str, list[Entry]]:
    """Whoever has no cookie any more but is still in the control group of a process, by its id."""
    found: defaultdict[str, list[Entry]] = defaultdict(list)
    for one in census.uncookied():
        try:
            with open(f"/proc/{one.pid}/cgroup", "rb") as file:
                group = _GROUP.search(file.read())
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # not to be able to look is not to see that nobody is there
            continue
        if group is not None:
            found[group[1].decode()].append(one)
    return found

"""A POSIX process and everything it has started: found by session, parent, cookie and control group."""

import contextlib
import ctypes
import logging
import os
import signal
import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import Self

from tether.process._census import (
    Census,
    Entry,
    children_of,
    children_of_thread,
    entry,
    group_members,
    is_keeper,
    kept_among,
    now,
    offspring,
)
from tether.process._cgroup import Cgroup
from tether.process._child import Containment, Member
from tether.process._saved_state import saved

logger = logging.getLogger(__name__)

_PR_SET_CHILD_SUBREAPER = 36


class PosixTree:
    """Everything a process has started and that has not been ended; never a keeper nor what that keeps.

    `born_in` is the control group its leader was started in, if it was.
    """

    __slots__ = (
        "__weakref__",
        "_adopts",
        "_cgroup",
        "_on_terminal",
        "_pid",
        "_process_id",
        "_root",
        "_shares",
        "leader_collected",
        "since",
    )

    def __init__(
        self, pid: int, containment: Containment, *, on_terminal: bool, born_in: Cgroup | None = None
    ) -> None:
        self.since = now() - 1  # the start of processes is dated in coarse ticks
        self.leader_collected = False  # from then on its pid may become somebody else's
        self._pid = pid
        self._process_id = containment.process_id
        self._on_terminal = on_terminal
        self._root = containment.root
        self._shares = containment.shared_reaper
        self._adopts = containment.adopt_orphans and not self._shares
        self._cgroup = born_in
        if born_in is None and containment.control_group:
            self._enter_group()
        _trees[self._process_id] = self

    @classmethod
    def restored(cls, state: Mapping[str, object]) -> Self:
        """The tree that gave this state, in the same process as another program; touches nothing.

        Raises:
            ValueError: something in the state is missing or of another kind.
        """
        containment = Containment(
            saved(state, "process_id", str),
            saved(state, "root", str),
            control_group=False,
            adopt_orphans=saved(state, "adopts", bool),
            shared_reaper=saved(state, "shares", bool),
        )
        path = saved(state, "control_group", str)
        group = Cgroup(path) if path else None
        tree = cls(
            saved(state, "pid", int), containment, on_terminal=saved(state, "on_terminal", bool), born_in=group
        )
        tree.since = saved(state, "since", float)
        tree.leader_collected = saved(state, "leader_collected", bool)
        return tree

    def state(self) -> dict[str, object]:
        """What `restored` needs, in JSON values."""
        return {
            "pid": self._pid,
            "process_id": self._process_id,
            "root": self._root,
            "since": self.since,
            "leader_collected": self.leader_collected,
            "on_terminal": self._on_terminal,
            "adopts": self._adopts,
            "shares": self._shares,
            "control_group": "" if self._cgroup is None else self._cgroup.path,
        }

    def nearest(self) -> list[Member]:
        """Those members that can be told without a census: the control group, or the leader's offspring."""
        if self._cgroup is not None:
            pids = self._cgroup.pids()
        else:
            pids = [] if self.leader_collected else [self._pid, *offspring(self._pid)]
        return [one for one in self._unspared(pids) if one.alive]

    def members_in(self, census: object) -> list[Member]:
        """Everybody of this tree that is alive, according to one look at all processes."""
        assert isinstance(census, Census)
        leader = None if self.leader_collected and self._pid in census.by_pid else self._pid
        found = {one.pid: one for one in census.belonging_to(leader, self._process_id, _trees)}
        doubtful = [pid for pid in self._cgroup.pids() if pid not in found] if self._cgroup is not None else []
        if self._adopts:
            doubtful += [one.pid for one in census.children(os.getpid())]
        for pid in doubtful:
            one = entry(pid)
            if one is not None and not census.kept(pid, leader):
                found[pid] = one
        return [one for one in found.values() if one.alive and one.pid != os.getpid()]

    def strays_in(self, census: object) -> list[Member]:
        """Orphans without our cookie that were started since and run in our directory: perhaps ours, so only told.

        A control group and adoption leave no such doubt.
        """
        assert isinstance(census, Census)
        if self._cgroup is not None or self._adopts:
            return []
        return [
            one
            for one in census.uncookied()
            if self._may_be_lost(one) and runs_beneath(one.pid, self._root) and not census.kept(one.pid, None)
        ]

    def leads(self, pid: int) -> bool:
        """Whether `pid` is the leader's number, still."""
        return pid == self._pid and not self.leader_collected

    def _may_be_lost(self, one: Entry) -> bool:
        if self._shares and one.parent == os.getpid():
            return one.alive and not any(tree.leads(one.pid) for tree in _trees.values())
        return is_orphan(one)

    def ask_to_end(self, members: Sequence[Member]) -> None:
        """SIGTERM; an interactive shell ignores that, but not the loss of its terminal."""
        ask_to_end(members, on_terminal=self._on_terminal)

    def kill(self, members: Sequence[Member]) -> None:
        """SIGKILL to these members and to everybody in the control group."""
        self._kill_control_group()
        send(members, signal.SIGKILL)

    def kill_at_once(self) -> bool:
        """SIGKILL to the leader's group and to everybody in the control group, without a census."""
        # Once the number is somebody else's, nobody of our group is left.
        group = None if self.leader_collected and entry(self._pid) is not None else self._pid
        try:
            self._kill_control_group()
            members = [] if group is None else group_members(group)
            spares = any(map(is_keeper, members))
        except OSError as error:
            logger.warning("process=%s cannot look for keepers in its tree: %s", self._process_id, error)
            members, spares = [], False
        if spares:
            send(self._unspared(members), signal.SIGKILL)
        elif group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left whom we may touch
                os.killpg(group, signal.SIGKILL)
        return self._cgroup is not None

    def _kill_control_group(self) -> None:
        """Everybody in it at once, or one by one where somebody in it is spared."""
        if self._cgroup is None:
            return
        pids = self._cgroup.pids()
        if os.getpid() in pids or kept_among(pids, self._leader):
            send(self._unspared(pids), signal.SIGKILL)
        else:
            self._cgroup.kill()

    @property
    def _leader(self) -> int | None:
        return None if self.leader_collected else self._pid

    def _unspared(self, pids: list[int]) -> list[Entry]:
        """Those of `pids` that are neither ourselves nor a keeper nor kept by one, wherever they are found."""
        spared = {os.getpid(), *kept_among(pids, self._leader)}
        return [one for pid in pids if pid not in spared and (one := entry(pid)) is not None]

    def _enter_group(self) -> None:
        self._cgroup = Cgroup.holding(self._pid, self._process_id)
        if self._cgroup is not None:
            # Whoever it started before it was in the group; a program that has just begun has one thread.
            for child in children_of_thread(self._pid, self._pid):
                for early in (child, *offspring(child)):
                    with contextlib.suppress(OSError):  # it is found by its parent all the same
                        self._cgroup.add(early)

    def alive(self, members: Sequence[Member]) -> list[Member]:
        """Those of `members` that still live."""
        return living(members)

    def describe(self, member: Member) -> str:
        """The command by which a person recognises a member."""
        return command_line(member.pid)

    def reap(self) -> None:
        """Collect orphans that were handed to us and have ended, unless a `Reaper` does that for all trees."""
        if not self._adopts:
            return
        with contextlib.suppress(OSError):  # the next time will do
            for pid in children_of(os.getpid()):
                if pid != self._pid and (one := entry(pid)) is not None and not one.alive:
                    os.waitpid(pid, os.WNOHANG)

    def close(self) -> None:
        """Release the control group and collect adopted orphans that have ended."""
        self.reap()
        if self._cgroup is not None:
            self._cgroup.remove()
            self._cgroup = None


# Every tree of this process, by process id: the leader of one, or whoever carries its cookie, is not another's.
_trees: weakref.WeakValueDictionary[str, PosixTree] = weakref.WeakValueDictionary()


def become_reaper() -> None:
    """Have the orphans of our descendants handed to us instead of to the system's first process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def is_orphan(one: Entry) -> bool:
    """Alive, and handed to the system's first process or to the one that stands in for it."""
    return one.alive and (
        one.parent == 1 or command_line(one.parent).startswith(("/lib/systemd/", "/usr/lib/systemd/"))
    )


def runs_beneath(pid: int, root: str) -> bool:
    """Whether process `pid` has its working directory in `root`; False where the system does not tell."""
    try:
        directory = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return False
    return os.path.commonpath((directory, os.path.realpath(root))) == os.path.realpath(root)


def living(members: Sequence[Member]) -> list[Member]:
    """Those of `members` that still live, and are not somebody else who got their pid."""
    looked = [(member, entry(member.pid)) for member in members]
    return [member for member, one in looked if one and one.alive and one.started == member.started]


def ask_to_end(members: Sequence[Member], *, on_terminal: bool) -> None:
    """SIGTERM; an interactive shell ignores that, but not the loss of its terminal."""
    send(members, signal.SIGTERM)
    if on_terminal:
        send(members, signal.SIGHUP)
    send(members, signal.SIGCONT)  # a suspended process must wake to die


def send(members: Sequence[Member], number: int) -> None:
    """Signal each of `members` unless its pid has meanwhile become somebody else's."""
    for member in members:
        try:
            handle = os.pidfd_open(member.pid) if hasattr(os, "pidfd_open") else -1
        except ProcessLookupError:
            continue
        except OSError:
            handle = -1  # no descriptor is left; the number was right a moment ago
        try:
            if handle < 0:
                os.kill(member.pid, number)
            elif (one := entry(member.pid)) is not None and one.started == member.started:
                signal.pidfd_send_signal(handle, number)
        except (ProcessLookupError, PermissionError):
            continue
        finally:
            if handle >= 0:
                os.close(handle)


def command_line(pid: int) -> str:
    """The words process `pid` was started with; empty when nobody can tell."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4096).split(b"\0")
    except OSError:
        return ""
    return " ".join(os.fsdecode(word) for word in words if word)

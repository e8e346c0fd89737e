"""A POSIX process and everything it has started: found by session, parent, cookie and control group."""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Sequence

from tether.process._census import Census, Entry, children_of, children_of_thread, entry, now, offspring
from tether.process._cgroup import Cgroup
from tether.process._child import Containment, Member

_PR_SET_CHILD_SUBREAPER = 36


class PosixTree:
    """Everything a process has started and that has not been ended."""

    __slots__ = ("_adopts", "_cgroup", "_on_terminal", "_pid", "_process_id", "_root", "leader_collected", "since")

    def __init__(self, pid: int, containment: Containment, *, on_terminal: bool) -> None:
        self.since = now() - 1  # the start of processes is dated in coarse ticks
        self.leader_collected = False  # from then on its pid may become somebody else's
        self._pid = pid
        self._process_id = containment.process_id
        self._on_terminal = on_terminal
        self._root = containment.root
        self._adopts = containment.adopt_orphans
        self._cgroup = Cgroup.holding(pid, self._process_id) if containment.control_group else None
        if self._cgroup is not None:
            # Whoever it started before it was in the group; a program that has just begun has one thread.
            for child in children_of_thread(pid, pid):
                for early in (child, *offspring(child)):
                    with contextlib.suppress(OSError):  # it is found by its parent all the same
                        self._cgroup.add(early)

    def nearest(self) -> list[Member]:
        """Those members that can be told without a census: the control group, or the leader's offspring."""
        if self._cgroup is not None:
            pids = self._cgroup.pids()
        else:
            pids = [] if self.leader_collected else [self._pid, *offspring(self._pid)]
        return [one for pid in pids if (one := entry(pid)) is not None and one.alive]

    def members_in(self, census: object) -> list[Member]:
        """Everybody of this tree that is alive, according to one look at all processes."""
        assert isinstance(census, Census)
        reused = self.leader_collected and self._pid in census.by_pid
        found = {one.pid: one for one in census.belonging_to(None if reused else self._pid, self._process_id)}
        if self._adopts:
            found |= {one.pid: one for one in census.children(os.getpid())}
        if self._cgroup is not None:
            found |= {pid: one for pid in self._cgroup.pids() if (one := entry(pid)) is not None}
        return [one for one in found.values() if one.alive and one.pid != os.getpid()]

    def strays_in(self, census: object) -> list[Member]:
        """Orphans without our cookie that were started since and run in our directory: perhaps ours, so only told.

        A control group and adoption leave no such doubt.
        """
        assert isinstance(census, Census)
        if self._cgroup is not None or self._adopts:
            return []
        return [one for one in census.uncookied() if is_orphan(one) and runs_beneath(one.pid, self._root)]

    def ask_to_end(self, members: Sequence[Member]) -> None:
        """SIGTERM; an interactive shell ignores that, but not the loss of its terminal."""
        send(members, signal.SIGTERM)
        if self._on_terminal:
            send(members, signal.SIGHUP)
        send(members, signal.SIGCONT)  # a suspended process must wake to die

    def kill(self, members: Sequence[Member]) -> None:
        """SIGKILL to these members and to everybody in the control group."""
        if self._cgroup is not None:
            self._cgroup.kill()
        send(members, signal.SIGKILL)

    def kill_at_once(self) -> None:
        """SIGKILL to the leader's group and to everybody in the control group, without looking around."""
        if self._cgroup is not None:
            self._cgroup.kill()
        if self.leader_collected and entry(self._pid) is not None:
            return  # the number is somebody else's by now, so nobody of our group is left
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return  # nobody of the group is left, or only what we may not touch

    def alive(self, members: Sequence[Member]) -> list[Member]:
        """Those of `members` that still live."""
        looked = [(member, entry(member.pid)) for member in members]
        return [member for member, one in looked if one and one.alive and one.started == member.started]

    def describe(self, member: Member) -> str:
        """The command by which a person recognises a member."""
        return command_line(member.pid)

    def reap(self) -> None:
        """Collect orphans that were handed to us and have ended."""
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

"""One look at every process of the system, from which any number of trees can be picked."""

import errno
import os
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass

from tether.process._child import Member
from tether.process.command import COOKIE

_READ_BYTES = 1 << 16
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Entry(Member):
    """One line of the system's table of processes."""

    parent: int
    group: int
    session: int
    state: str

    @property
    def alive(self) -> bool:
        """Not merely waiting to be collected by its parent."""
        return self.state not in "ZX"


class Census:
    """Who is there, by parent, by session and by the cookie in its environment.

    Processes started before `since` (a moment of `now`) are left out: nothing of ours is among them.
    """

    def __init__(self, since: float = 0.0) -> None:
        self.by_pid = _processes(int(since * _TICKS))
        self._by_parent: defaultdict[int, list[int]] = defaultdict(list)
        self._by_session: defaultdict[int, list[int]] = defaultdict(list)
        self._by_cookie: defaultdict[str, list[int]] = defaultdict(list)
        self._uncookied: list[Entry] = []
        for entry in self.by_pid.values():
            self._by_parent[entry.parent].append(entry.pid)
            for leader in {entry.session, entry.group}:
                self._by_session[leader].append(entry.pid)
            cookies = _cookies(entry.pid)
            if not cookies:
                self._uncookied.append(entry)
            for process_id in cookies:
                self._by_cookie[process_id].append(entry.pid)

    def belonging_to(self, leader: int | None, process_id: str) -> list[Entry]:
        """The leader's session and group, whoever carries the cookie, and everybody who descends from those."""
        found = set(self._by_cookie[process_id])
        if leader is not None:
            found |= {leader, *self._by_session[leader]} & self.by_pid.keys()
        to_visit = list(found)
        while to_visit:
            children = [pid for pid in self._by_parent[to_visit.pop()] if pid not in found]
            found.update(children)
            to_visit += children
        return [self.by_pid[pid] for pid in found]

    def uncookied(self) -> list[Entry]:
        """Whoever has no cookie of ours, or does not let us look."""
        return self._uncookied

    def children(self, pid: int) -> list[Entry]:
        """The direct children of `pid`."""
        return [self.by_pid[child] for child in self._by_parent[pid]]


def now() -> float:
    """The clock by which the system dates the start of processes, in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else 0.0


def entry(pid: int) -> Entry | None:
    """What the system says of process `pid` now; None when there is none."""
    if sys.platform != "linux":
        return _processes_by_ps().get(pid)
    stat = _contents(f"/proc/{pid}/stat", 1024)
    if not stat:
        return None
    # The name in parentheses may itself hold spaces and parentheses.
    fields = stat[stat.rindex(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    state, parent, group, session = fields[:4]
    return Entry(pid, fields[19].decode(), int(parent), int(group), int(session), state.decode())


def offspring(pid: int) -> list[int]:
    """Everybody who descends from `pid` right now, by parentage alone and without a census."""
    found: list[int] = []
    to_visit = [pid]
    while to_visit:
        children = children_of(to_visit.pop())
        found += children
        to_visit += children
    return found


def children_of_thread(pid: int, thread: int) -> list[int]:
    """The children that one thread of `pid` has started and that still live."""
    return [int(word) for word in _contents(f"/proc/{pid}/task/{thread}/children", 1 << 16).split()]


def _processes(since: int) -> dict[int, Entry]:
    if sys.platform != "linux":
        return _processes_by_ps()
    found = (entry(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return {one.pid: one for one in found if one is not None and int(one.started) >= since}


def _contents(path: str, most: int) -> bytes:
    """What a file of the kernel says now; empty when it is gone or closed to us."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # not to be able to look is not to see that nobody is there
        return b""
    pieces: list[bytes] = []
    try:
        while most > 0 and (piece := os.read(descriptor, min(most, _READ_BYTES))):
            pieces.append(piece)
            most -= len(piece)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return b"".join(pieces)


def _processes_by_ps() -> dict[int, Entry]:
    listed = subprocess.run(
        ("/bin/ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,lstart="), capture_output=True, check=False
    )
    table: dict[int, Entry] = {}
    for line in listed.stdout.decode(errors="replace").splitlines():
        pid, parent, group, state, started = line.split(None, 4)
        # macOS does not tell a session's number; a leader's group stands for it.
        table[int(pid)] = Entry(int(pid), started, int(parent), int(group), int(group), state[0])
    return table


def _cookies(pid: int) -> list[str]:
    """The ids of our processes that `pid` descends from, as its environment tells."""
    environment = _contents(f"/proc/{pid}/environ", 1 << 20)
    begin = (b"\0" + environment).find(b"\0" + COOKIE.encode() + b"=")
    if begin < 0:
        return []
    return environment[begin:].split(b"\0", 1)[0].partition(b"=")[2].decode("ascii", "replace").split()


def children_of(pid: int) -> list[int]:
    """The children of `pid` that were not collected yet, without a census."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        found += children_of_thread(pid, int(thread))
    return found

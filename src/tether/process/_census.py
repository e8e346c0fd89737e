"""One look at every process of the system, from which any number of trees can be picked."""

import errno
import functools
import os
import stat
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from tether.process._child import Member
from tether.process.command import COOKIE

KEEPER = "TETHER_KEEPER"
KEEPER_LOCK = "keeper.lock"

_READ_BYTES = 1 << 16
_LOCK_BYTES = 256
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
        self._cookies: dict[int, list[str]] = {}
        self._uncookied: list[Entry] = []
        self._keepers: dict[int, bool] = {}
        for entry in self.by_pid.values():
            self._by_parent[entry.parent].append(entry.pid)
            for leader in {entry.session, entry.group}:
                self._by_session[leader].append(entry.pid)
            environment = _environment(entry.pid)
            home = _variable(environment, KEEPER)
            self._keepers[entry.pid] = bool(home) and _is_locked_by(home, entry.pid)
            cookies = _variable(environment, COOKIE).decode("ascii", "replace").split()
            # A keeper's own helpers inherit its environment: they are nobody's lost orphans.
            if not cookies and not home:
                self._uncookied.append(entry)
            self._cookies[entry.pid] = cookies
            for process_id in cookies:
                self._by_cookie[process_id].append(entry.pid)

    def belonging_to(self, leader: int | None, process_id: str, others: Container[str] = ()) -> list[Entry]:
        """The leader's session and group, whoever carries the cookie, and everybody who descends from those.

        Left out are keepers, whom they keep, and whoever one of `others` was started for within this tree.
        """
        found = {pid for pid in self._by_cookie[process_id] if not self._started_for(pid, process_id, others)}
        if leader is not None:
            found |= {leader, *self._by_session[leader]} & self.by_pid.keys()
        found = {pid for pid in found if not self.kept(pid, leader)}
        to_visit = list(found)
        while to_visit:
            beneath = self._by_parent[to_visit.pop()]
            children = [pid for pid in beneath if pid not in found and not self._keepers[pid]]
            found.update(children)
            to_visit += children
        return [self.by_pid[pid] for pid in found]

    def kept(self, pid: int, leader: int | None) -> bool:
        """Whether `pid` is a keeper or kept by one, other than by `leader` and by keepers that keep us."""
        return _kept(pid, leader, self._entry, self._is_keeper)

    def _started_for(self, pid: int, process_id: str, others: Container[str]) -> bool:
        cookies = self._cookies[pid]
        return any(inner in others for inner in cookies[cookies.index(process_id) + 1 :])

    def _entry(self, pid: int) -> Entry | None:
        return self.by_pid.get(pid) or entry(pid)

    def _is_keeper(self, pid: int) -> bool:
        if pid not in self._keepers:  # it is older than whom this census is about
            self._keepers[pid] = is_keeper(pid)
        return self._keepers[pid]

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
    line = _contents(f"/proc/{pid}/stat", 1024)
    if not line:
        return None
    # The name in parentheses may itself hold spaces and parentheses.
    fields = line[line.rindex(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    state, parent, group, session = fields[:4]
    return Entry(pid, fields[19].decode(), int(parent), int(group), int(session), state.decode())


def is_keeper(pid: int) -> bool:
    """Whether `pid` is a keeper: it says so in its environment, and the lock of the home it names says the same."""
    home = _variable(_environment(pid), KEEPER)
    return bool(home) and _is_locked_by(home, pid)


def kept_among(pids: Iterable[int], leader: int | None) -> set[int]:
    """Those of `pids` of whom `Census.kept` would be true, without a census."""
    look, keeps = functools.cache(entry), functools.cache(is_keeper)
    return {pid for pid in pids if _kept(pid, leader, look, keeps)}


def group_members(group: int) -> list[int]:
    """Everybody in a process group, where that can be told without a census."""
    if sys.platform != "linux":
        return []
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and _group_of(int(name)) == group]


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


def _kept(pid: int, leader: int | None, look: Callable[[int], Entry | None], keeps: Callable[[int], bool]) -> bool:
    while pid > 1 and pid not in (leader, os.getpid()):
        if keeps(pid):
            return not _is_above_us(pid, look)
        one = look(pid)
        if one is None:
            return False
        pid = one.parent
    return False


def _is_above_us(pid: int, look: Callable[[int], Entry | None]) -> bool:
    above = os.getppid()
    while above > 1 and above != pid:
        one = look(above)
        above = 0 if one is None else one.parent
    return above == pid


def _is_locked_by(home: bytes, pid: int) -> bool:
    """Whether the lock in `home` is ours and names `pid`."""
    if not os.path.isabs(home):
        return False
    try:
        # Whatever else a program may have put there must not make us wait or lead us elsewhere.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(os.path.join(home, KEEPER_LOCK.encode()), flags)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # not to be able to look is not to see that it is none
        return False
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
            return False
        return os.read(descriptor, _LOCK_BYTES).split()[:1] == [str(pid).encode()]
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _environment(pid: int) -> bytes:
    """What `pid` was started with, each variable between NULs; empty where the system does not tell."""
    return b"\0" + _contents(f"/proc/{pid}/environ", 1 << 20)


def _variable(environment: bytes, name: str) -> bytes:
    sign = b"\0" + name.encode() + b"="
    begin = environment.find(sign)
    return b"" if begin < 0 else environment[begin + len(sign) :].split(b"\0", 1)[0]


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return -1


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

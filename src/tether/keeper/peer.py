"""Who is at the other end of a connection, and whether that one is served."""

import contextlib
import itertools
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tether.process._census import entry
from tether.process.command import COOKIE

_LINUX = sys.platform == "linux"
_MOST_ENVIRONMENT_BYTES = 1 << 22
_MOST_ANCESTORS = 4096
_TRIES = 5
_GROUP = re.compile(r"/tether-([^/\n]+)")
_DARWIN_PEER_CREDENTIALS, _DARWIN_PEER_PID, _DARWIN_LOCAL = 1, 2, 0


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that connected, as the system vouches for it."""

    pid: int
    uid: int


def peer_of(connection: socket.socket) -> Peer:
    """Who opened the other end of `connection`."""
    if sys.platform == "darwin":
        credentials = connection.getsockopt(_DARWIN_LOCAL, _DARWIN_PEER_CREDENTIALS, 76)
        _, uid = struct.unpack_from("=II", credentials)
        (pid,) = struct.unpack("=i", connection.getsockopt(_DARWIN_LOCAL, _DARWIN_PEER_PID, 4))
        return Peer(pid, uid)
    pid, uid, _ = struct.unpack("=iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return Peer(pid, uid)


def refusal(
    peer: Peer,
    *,
    own_uid: int,
    keeper_pid: int,
    is_guest: Callable[[str], bool],
    leaders: Mapping[int, str],
    guests_seen: bool,
) -> str | None:
    """Why `peer` is not served, in a sentence; None when it is.

    `is_guest` tells whether a process was started on behalf of an agent, `leaders` are the keeper's own children
    with the ids of their processes, `guests_seen` says whether there has ever been a guest.
    """
    if peer.uid != own_uid:
        return f"this keeper serves user {own_uid} only, not user {peer.uid}; use a TETHER_HOME of your own"
    try:
        owners = _owners(peer.pid)
        ancestors = _ancestors(peer.pid, keeper_pid)
    except _UnseenError as unseen:
        return (
            f"{unseen}, and an agent's program is not served; call from a process that stays" if guests_seen else None
        )
    for pid in ancestors[1:]:
        # Others than the peer may well be closed to us: a login or a terminal of the system's.
        with contextlib.suppress(_UnseenError):
            owners += _owners(pid) if pid != keeper_pid else []
    owners += [leaders[pid] for pid in ancestors if pid in leaders]
    guest = next(filter(is_guest, owners), None)
    if guest is not None:
        return (
            f"process {peer.pid} belongs to process {guest}, which an agent started, and such programs are not "
            "served; start it in a terminal of your own"
        )
    if guests_seen and ancestors[-1] == keeper_pid and len(ancestors) > 1 and ancestors[-2] not in leaders:
        return (
            f"process {peer.pid} was left behind by a process that nobody knows any more and may be an agent's; "
            "start it in a terminal of your own"
        )
    return None


class _UnseenError(Exception):
    """A process that is gone or does not let itself be looked at."""


def _owners(pid: int) -> list[str]:
    """The ids of processes that `pid` bears on itself: in its environment and by its control group."""
    return [*_cookies(pid), *_groups(pid)] if _LINUX else []


def _cookies(pid: int) -> list[str]:
    """The ids of the processes that `pid` descends from, as its environment tells."""
    prefix = COOKIE.encode() + b"="
    variables = _read(pid, "environ").split(b"\0")
    # A variable can be there twice, and which of them counts is up to whoever reads it.
    told = b" ".join(one[len(prefix) :] for one in variables if one.startswith(prefix))
    return told.decode("ascii", "replace").split()


def _groups(pid: int) -> list[str]:
    """The ids of the processes in whose control groups `pid` is."""
    lines = _read(pid, "cgroup").decode("utf-8", "surrogateescape").splitlines()
    return [process_id for line in lines if line.startswith("0::") for process_id in _GROUP.findall(line)]


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read(_MOST_ENVIRONMENT_BYTES)
    except OSError as error:
        raise _UnseenError(f"process {pid} cannot be looked at ({error.strerror})") from None


def _ancestors(pid: int, keeper_pid: int) -> list[int]:
    """`pid`, its parent, and so on up to the keeper or to the first process of the system."""
    parent_of = _parent if _LINUX else _parents_by_ps().get
    for _ in range(_TRIES):
        chain: list[int] = []
        link: int | None = pid
        while link is not None and len(chain) < _MOST_ANCESTORS:
            chain.append(link)
            link = None if link in (keeper_pid, 1, 0) else parent_of(link)
        # A parent that ended on the way may have handed its number to somebody else.
        unchanged = all(parent_of(child) == parent for child, parent in itertools.pairwise(chain))
        if unchanged and chain[-1] in (keeper_pid, 1, 0):
            return chain
    raise _UnseenError(f"process {pid} has gone or cannot be traced to where it comes from")


def _parent(pid: int) -> int | None:
    found = entry(pid)
    return found.parent if found is not None else None


def _parents_by_ps() -> dict[int, int]:
    listed = subprocess.run(("/bin/ps", "-A", "-o", "pid=,ppid="), capture_output=True, text=True, check=False)
    return {int(pid): int(parent) for pid, parent in (line.split() for line in listed.stdout.splitlines())}

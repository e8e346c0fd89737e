"""A control group per process, where the system lets us have one: the only complete list of a tree's members."""

import contextlib
import errno
import functools
import logging
import os
import re
from collections.abc import Generator

logger = logging.getLogger(__name__)

_PREFIX = "tether-"
_STALE_AT_ONCE = 4


class Cgroup:
    """One control group that holds a process and everything it starts."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def holding(cls, pid: int, name: str) -> "Cgroup | None":
        """A new group with `pid` in it, or None where there is none to be had."""
        parent = _parent()
        if parent is None:
            return None
        _remove_stale()
        group = cls(os.path.join(parent, _PREFIX + name))
        try:
            os.mkdir(group.path)
            group.add(pid)
        except OSError as error:
            logger.debug("process=%s no control group: %s", name, error)
            group.remove()
            return None
        return group

    @classmethod
    @contextlib.contextmanager
    def around_us(cls, name: str) -> "Generator[Cgroup | None]":
        """A new group that this process is in for the block, and so is whoever it starts there, from its birth.

        None where there is none to be had. For a process of one thread: what others start meanwhile is in it too.
        A block that fails leaves no group.
        """
        home = _own()
        group = None if home is None else cls.holding(os.getpid(), name)
        if home is None or group is None:
            yield None
            return
        try:
            yield group
        except BaseException:
            _return_to(home)
            group.remove()
            raise
        _return_to(home)

    def add(self, pid: int) -> None:
        """Put another process into it; one that has ended meanwhile needs no place."""
        try:
            self._put("cgroup.procs", str(pid))
        except ProcessLookupError:
            return

    def pids(self) -> list[int]:
        """Everybody in the group now."""
        try:
            with open(os.path.join(self.path, "cgroup.procs"), encoding="ascii") as file:
                return [int(line) for line in file]
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # not to be able to look is not to see that nobody is there
            return []

    def kill(self) -> bool:
        """SIGKILL to everybody in it at once; False where this kernel cannot."""
        try:
            self._put("cgroup.kill", "1")
        except OSError:
            return False
        return True

    def remove(self) -> None:
        """Forget the group; one that still has members stays until they end."""
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.debug("control group %s is not empty yet: %s", self.path, error)
            _stale.append(self)

    def _put(self, name: str, value: str) -> None:
        descriptor = os.open(os.path.join(self.path, name), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)


# Groups whose last members had not ended when they were to be removed.
_stale: list[Cgroup] = []


def _remove_stale() -> None:
    """Try a few of them again, so that a long-lived host does not collect them."""
    for group in [_stale.pop(0) for _ in range(min(len(_stale), _STALE_AT_ONCE))]:
        group.remove()


def _return_to(home: str) -> None:
    try:
        Cgroup(home).add(os.getpid())
    except OSError as error:
        # Whoever ends the group that we are in instead spares us.
        logger.warning("cannot return to the control group %s: %s", home, error)


def leave_group() -> None:
    """Leave the control group of whichever process started us, where we are in one and may: we do not end with it."""
    own, parent = _own(), _parent()
    if own is None or parent is None or own == parent:
        return
    try:
        Cgroup(parent).add(os.getpid())
    except OSError as error:
        logger.debug("staying in the control group %s: %s", own, error)
    _own.cache_clear()


@functools.cache
def _own() -> str | None:
    """The directory of our own group in the version 2 tree."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split() for line in file]
        mount = next(fields[4] for fields in mounts if fields[fields.index("-") + 1] == "cgroup2")
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            own = next(line[3:].strip() for line in file if line.startswith("0::"))
    except (OSError, StopIteration, ValueError):
        return None
    return os.path.normpath(os.path.join(mount, own.lstrip("/")))


@functools.cache
def _parent() -> str | None:
    """Where groups are made: our own group, if we may make others in it; empty leftovers are swept on the way."""
    own = _own()
    if own is None:
        return None
    # A process that is itself in one of these groups makes its own beside it: groups stay flat.
    parent = re.sub(rf"/{_PREFIX}[^/]*$", "", own)
    try:
        leftovers = [name for name in os.listdir(parent) if name.startswith(_PREFIX)]
    except OSError:
        return None
    for name in leftovers:
        Cgroup(os.path.join(parent, name)).remove()
    return parent if os.access(parent, os.W_OK) else None

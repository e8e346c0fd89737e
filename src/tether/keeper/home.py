"""TETHER_HOME: where a keeper's files are, who holds the lock on them, and the socket it is reached by."""

import contextlib
import errno
import fcntl
import os
import pwd
import re
import socket
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tether.errors import KeeperUnavailableError
from tether.process._census import KEEPER_LOCK

_SOCKET = "keeper.sock"
_MOST_SOCKET_BYTES = 100  # the system takes 108, macOS 104; the name it is first bound under must fit as well
_BACKLOG = 128
_MOUNTINFO = "/proc/self/mountinfo"
_NETWORK_TYPE = re.compile(
    r"afs|beegfs|ceph|cifs|coda|davfs|glusterfs|gpfs|lustre|ncpfs|nfs4?|orangefs|smb3|smbfs|"
    r"fuse\.(ceph|ceph-fuse|cifs|davfs2?|gcsfuse|glusterfs|goofys|juicefs|nfs|rclone|s3fs|smbnetfs|sshfs)"
)
_LOCK_TRIES, _LOCK_PAUSE = 20, 0.002


@dataclass(frozen=True, slots=True)
class Home:
    """One directory of state, and with it one keeper: a different home is a different world."""

    path: str

    @classmethod
    def of(cls, path: str | None = None, environ: Mapping[str, str] = os.environ) -> "Home":
        """The home at `path`, else at TETHER_HOME, else in the platform's state directory.

        Raises:
            KeeperUnavailableError: there is no such path.
        """
        chosen = (environ.get("TETHER_HOME") or _state_directory(environ)) if path is None else path
        try:
            if not chosen or b"\0" in os.fsencode(chosen):
                raise ValueError
            return cls(os.path.abspath(chosen))
        except ValueError:  # also what cannot be encoded as a file name
            raise KeeperUnavailableError(f"{chosen!r} cannot be a directory's name; set TETHER_HOME to one") from None
        except OSError as error:
            raise KeeperUnavailableError(
                f"no home at {chosen!r}: the current directory is gone ({error.strerror}); give an absolute path"
            ) from error

    @property
    def processes(self) -> str:
        """The directory with one directory per process."""
        return os.path.join(self.path, "processes")

    @property
    def lock_path(self) -> str:
        """The file whose lock the living keeper holds."""
        return os.path.join(self.path, KEEPER_LOCK)

    @property
    def log_path(self) -> str:
        """The keeper's own log."""
        return os.path.join(self.path, "keeper.log")

    @property
    def fingerprint(self) -> str:
        """A short name that only this home has, whatever links lead to it."""
        import hashlib  # megabytes of cryptography that a keeper rarely needs

        return hashlib.sha256(os.fsencode(os.path.realpath(self.path))).hexdigest()[:32]

    @property
    def socket_path(self) -> str:
        """Where the keeper answers: in the home, or in a short private directory when that name is too long.

        Raises:
            KeeperUnavailableError: that private directory is not ours alone.
        """
        inside = self.socket_name
        if _fits(inside):
            return inside
        # The keeper may have been started with another XDG_RUNTIME_DIR than ours: it leaves word where it is.
        with contextlib.suppress(OSError):
            told = os.readlink(inside)
            if os.path.isabs(told) and os.path.basename(told) == f"{self.fingerprint}.sock":
                _check_private(os.path.dirname(told))
                return told
        return _short_socket_path(self)

    @property
    def socket_name(self) -> str:
        """The socket in the home itself, or a link to it where its name would be too long."""
        return os.path.join(os.path.realpath(self.path), _SOCKET)

    def prepare(self) -> None:
        """Make the directories, for us alone; what is there already is tightened.

        Raises:
            KeeperUnavailableError: this cannot be a home; the message says why and what to do.
        """
        _refuse_network(self.path)
        try:
            _make_directory(self.path)
            _claim(self.path)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.processes, 0o700)
            _claim(self.processes)
        except OSError as error:
            raise _unusable(self.path, error) from error
        if not os.access(self.path, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise _unusable(self.path, OSError(errno.EROFS, "it cannot be written to"))


@dataclass(frozen=True, slots=True)
class Holder:
    """The keeper that holds a home's lock."""

    pid: int
    instance: str


class KeeperLock:
    """The one lock of a home; it ends with its holder, however that ends."""

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def take(cls, home: Home, instance: str) -> "KeeperLock | None":
        """Become the keeper of `home` under the name `instance`; None while another one lives.

        Raises:
            KeeperUnavailableError: there can be no lock in that home.
        """
        for _ in range(_LOCK_TRIES):
            try:
                lock = cls(os.open(home.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
                if lock._settle(home.lock_path, f"{os.getpid()} {instance}\n".encode()):
                    return lock
            except OSError as error:
                raise _unusable(home.path, error) from error
            # Whoever asks for the holder has it shared for a moment, and a file may have been replaced under us.
            time.sleep(_LOCK_PAUSE)
        return None

    @classmethod
    def adopt(cls, descriptor: int) -> "KeeperLock":
        """The lock that a keeper left open for the program it was replaced by.

        Raises:
            KeeperUnavailableError: the descriptor does not hold the lock.
        """
        try:
            held = _locked(descriptor, fcntl.LOCK_EX)
            fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        except OSError as error:
            raise KeeperUnavailableError(f"descriptor {descriptor} is no lock: {error.strerror}") from error
        if not held:
            raise KeeperUnavailableError(f"descriptor {descriptor} does not hold the lock: another keeper has it")
        return cls(descriptor)

    @staticmethod
    def holder(home: Home) -> Holder | None:
        """Who keeps `home` now; None when nobody does, whatever the file says."""
        try:
            descriptor = os.open(home.lock_path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unusable(home.path, error) from error
        try:
            told = None
            for _ in range(_LOCK_TRIES):
                if _locked(descriptor, fcntl.LOCK_SH):
                    return None
                told = _told(descriptor)
                # One that took the lock just now has not written its name yet: this is its forerunner's.
                if told is not None and _exists(told.pid):
                    break
                time.sleep(_LOCK_PAUSE)
            return told or Holder(0, "")
        finally:
            os.close(descriptor)

    def in_place(self, home: Home) -> bool:
        """Whether the file that others look at is still the one we have locked."""
        return _leads_to(home.lock_path, os.fstat(self.descriptor))

    def release(self) -> None:
        """Let the next keeper have it."""
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        os.close(self.descriptor)

    def _settle(self, path: str, name: bytes) -> bool:
        """Lock the file and write `name` into it; else close it again."""
        settled = False
        try:
            if _locked(self.descriptor, fcntl.LOCK_EX) and _leads_to(path, os.fstat(self.descriptor)):
                # Shortened last: written over what was there it needs no space on a disk that may be full.
                os.pwrite(self.descriptor, name, 0)
                os.ftruncate(self.descriptor, len(name))
                settled = True
        finally:
            if not settled:
                os.close(self.descriptor)
        return settled


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket that knows which file leads to it."""

    socket: socket.socket
    path: str
    device: int
    inode: int

    @classmethod
    def inherited(cls, descriptor: int, path: str, device: int, inode: int) -> "Listener":
        """The listener whose descriptor was left open for the program its owner was replaced by."""
        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        listening = socket.socket(fileno=descriptor)
        listening.settimeout(0)
        return cls(listening, path, device, inode)

    def close(self, home: Home) -> None:
        """Stop listening, and remove what led here."""
        if bound_here(home, self):
            for path in {self.path, home.socket_name}:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        self.socket.close()


def bind(home: Home) -> Listener:
    """Listen where clients of `home` look; only for the holder of its lock.

    Raises:
        KeeperUnavailableError: the socket cannot be made.
    """
    path = home.socket_name if _fits(home.socket_name) else _short_socket_path(home)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _make_directory(os.path.dirname(path))
        _check_private(os.path.dirname(path))
        temporary = os.path.splitext(path)[0] + ".new"
        _remove(temporary)
        listening.settimeout(0)
        listening.bind(temporary)
        os.chmod(temporary, 0o600)
        listening.listen(_BACKLOG)
        made = os.stat(temporary)
        os.rename(temporary, path)
        if path != home.socket_name:
            _link(path, home.socket_name)
    except OSError as error:
        listening.close()
        raise KeeperUnavailableError(
            f"cannot listen on {path!r}: {error.strerror or error}; set TETHER_HOME to a directory on a local disk"
        ) from error
    except KeeperUnavailableError:
        listening.close()
        raise
    return Listener(listening, path, made.st_dev, made.st_ino)


def bound_here(home: Home, listener: Listener) -> bool:
    """Whether clients of `home` still reach `listener`: its path was neither removed nor replaced."""
    try:
        found = os.stat(listener.path, follow_symlinks=False)
        linked = listener.path == home.socket_name or os.readlink(home.socket_name) == listener.path
    except OSError:
        return False
    return linked and (found.st_dev, found.st_ino) == (listener.device, listener.inode)


def mounts(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The mount point and type of every file system in `lines` of a mountinfo."""
    for line in lines:
        left, separator, right = line.partition(" - ")
        fields, types = left.split(" "), right.split(" ")
        if separator and len(fields) > 4:
            yield re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4]), types[0].strip()


def mounted_now() -> list[tuple[str, str]]:
    """The file systems of this system; none where it does not tell."""
    try:
        with open(_MOUNTINFO, encoding="utf-8", errors="surrogateescape") as file:
            return list(mounts(file))
    except OSError:
        return []


def file_system_type(path: str, mounted: Iterable[tuple[str, str]]) -> str:
    """What kind of file system holds `path`; empty when nobody knows."""
    best, found = "", ""
    for point, kind in mounted:
        # Of two file systems on one point the later one covers the other.
        if len(point) >= len(best) and (path == point or path.startswith(point.rstrip("/") + "/")):
            best, found = point, kind
    return found


def _refuse_network(path: str) -> None:
    kind = file_system_type(os.path.realpath(path), mounted_now())
    if _NETWORK_TYPE.fullmatch(kind):
        raise KeeperUnavailableError(
            f"{path!r} is on a network file system ({kind}) and logs need a local file system; "
            "set TETHER_HOME to a directory on a local disk"
        )


def _state_directory(environ: Mapping[str, str]) -> str:
    if sys.platform == "darwin":
        return os.path.join(_user_directory(environ), "Library", "Application Support", "tether")
    base = environ.get("XDG_STATE_HOME", "")
    # The specification has relative ones ignored.
    if not os.path.isabs(base):
        base = os.path.join(_user_directory(environ), ".local", "state")
    return os.path.join(base, "tether")


def _user_directory(environ: Mapping[str, str]) -> str:
    try:
        return environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        raise KeeperUnavailableError(f"user {os.geteuid()} has no home directory; set TETHER_HOME") from None


def _fits(path: str) -> bool:
    return len(os.fsencode(path)) <= _MOST_SOCKET_BYTES


def _short_socket_path(home: Home) -> str:
    """In the session's own directory if that is ours alone, else in one in /tmp."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    path = os.path.join(given, "tether", f"{home.fingerprint}.sock")
    if not (os.path.isabs(given) and _fits(path) and _is_private(given)):
        path = f"/tmp/tether-{os.geteuid()}/{home.fingerprint}.sock"  # noqa: S108 - checked to be ours alone
    _check_private(os.path.dirname(path))
    return path


def _is_private(path: str) -> bool:
    """Whether `path` is a directory, not a link to one, that only we can look into."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _check_private(path: str) -> None:
    """Refuse a directory that somebody else may have put there; one that does not exist harms nobody."""
    if os.path.lexists(path) and not _is_private(path):
        raise KeeperUnavailableError(
            f"{path!r} is not a directory for you alone: somebody may have put it there to be your keeper; "
            "remove it, or set TETHER_HOME to a shorter path"
        )


def _make_directory(path: str) -> None:
    """Make `path` and what is missing above it, for us alone."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    except FileNotFoundError:
        parent = os.path.dirname(path)
        if os.path.isdir(parent):
            raise
        _make_directory(parent)
        _make_directory(path)


def _claim(path: str) -> None:
    """Make sure that `path` is a directory of ours that nobody else can look into."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise KeeperUnavailableError(
                f"{path!r} belongs to user {found.st_uid} and you are {os.geteuid()}; "
                "set TETHER_HOME to a directory of your own"
            )
        if path == "/" or found.st_mode & stat.S_ISVTX:
            raise KeeperUnavailableError(f"{path!r} is shared by all users; set TETHER_HOME to a directory inside it")
        if stat.S_IMODE(found.st_mode) != 0o700:
            os.fchmod(descriptor, 0o700)
            if os.fstat(descriptor).st_mode & 0o077:
                raise KeeperUnavailableError(
                    f"{path!r} stays open to others: its file system knows no modes; set TETHER_HOME to another one"
                )
    finally:
        os.close(descriptor)


def _unusable(path: str, error: OSError) -> KeeperUnavailableError:
    remedy = "set TETHER_HOME to a directory you may write to"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "make room there, or set TETHER_HOME to a directory on another disk"
    return KeeperUnavailableError(f"cannot keep anything in {path!r}: {error.strerror or error}; {remedy}")


def _locked(descriptor: int, kind: int) -> bool:
    """Whether the lock is ours now; a shared one is given back at once, it was only to find out."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    if kind == fcntl.LOCK_SH:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _leads_to(path: str, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), file)
    except FileNotFoundError:
        return False


def _told(descriptor: int) -> Holder | None:
    line, complete, _ = os.pread(descriptor, 200, 0).decode("ascii", "replace").partition("\n")
    pid, _, instance = line.partition(" ")
    return Holder(int(pid), instance) if complete and pid.isdecimal() else None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _link(target: str, path: str) -> None:
    """Make `path` a link to `target`, whatever was there."""
    temporary = f"{path}.{os.urandom(4).hex()}"
    os.symlink(target, temporary)
    os.rename(temporary, path)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)

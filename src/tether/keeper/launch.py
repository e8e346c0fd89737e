"""Starting a keeper that belongs to nobody, and reaching the one that runs."""

import asyncio
import contextlib
import errno
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from tether.errors import KeeperUnavailableError
from tether.keeper.home import Home, KeeperLock, mounted_now
from tether.keeper.peer import peer_of
from tether.process._census import KEEPER

logger = logging.getLogger(__name__)

_SYSTEMD = "/run/systemd/system"
_BUS = "DBUS_SESSION_BUS_ADDRESS"
_LEAVING_SECONDS, _LEAVING_PAUSE = 3.0, 0.001
_PASSED_ON = re.compile(
    r"PATH|HOME|LANG|LC_.*|TZ|USER|LOGNAME|SHELL|TMPDIR|XDG_.*|"
    r"PYTHONPATH|PYTHONHOME|PYTHONDEVMODE|VIRTUAL_ENV"
)
# The shell ends at once and leaves the keeper to the system: no child of ours, and never a session's leader.
_LEAVE = ("/bin/sh", "-c", '"$@" &', "sh")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.05
_RELAUNCH_SECONDS = 2.0
_NOBODY = frozenset((errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR, errno.ENOTSOCK))
_MOST_LOG_BYTES, _MOST_LOG_LINES = 4096, 10
_CGROUP = "/proc/self/cgroup"


def launch(home: Home, argv: Sequence[str] | None = None) -> None:
    """Start a keeper for `home` that outlives us, our terminal and our service; `argv` says what, if not ours.

    Raises:
        KeeperUnavailableError: it cannot even be tried.
    """
    for pause in _launching(home, argv or keeper_argv(home)):
        time.sleep(pause)


async def connect(
    home: Home, *, start: bool, seconds: float = 10.0, argv: Sequence[str] | None = None
) -> socket.socket:
    """A connection to the keeper of `home`, one that runs or, with `start`, one that is started for it.

    Raises:
        KeeperUnavailableError: nobody answers, or nobody could be started within `seconds`.
    """
    began = time.monotonic()
    attempt = _Attempt(home, argv)
    pause = _FIRST_PAUSE
    while (connection := _knock(home)) is None:
        kept = KeeperLock.holder(home) is not None
        if not kept and not start:
            raise KeeperUnavailableError(f"no keeper runs for {home.path!r}; start something with `tether run`")
        if time.monotonic() - began > seconds:
            raise attempt.failure(seconds)
        if not kept and attempt.due():
            await attempt.launch()
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
    return connection


def keeper_argv(home: Home, *options: str, python: str | None = None) -> list[str]:
    """The command line of the keeper that `python`, ours if not given, has installed.

    Raises:
        KeeperUnavailableError: this Python does not know its own program.
    """
    program = python or sys.executable
    if not program:
        raise KeeperUnavailableError(
            "this Python does not say where its program is; start the keeper from another one"
        )
    return [program, "-P", "-m", "tether.keeper", "--home", home.path, *options]


def keeper_environment(home: Home, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a keeper may know of its starter's environment: never whose descendant that was."""
    chosen = {name: value for name, value in environ.items() if _PASSED_ON.fullmatch(name)}
    if "PYTHONPATH" in chosen:
        # The keeper works in another directory.
        chosen["PYTHONPATH"] = os.pathsep.join(
            os.path.abspath(entry) for entry in chosen["PYTHONPATH"].split(os.pathsep) if entry
        )
    return {**chosen, KEEPER: home.path}


def unlocked_keeper(home: Home) -> int | None:
    """A keeper of `home` that lives although its lock was removed from under it; None where nobody can tell."""
    words = b"\0".join([b"", b"tether.keeper", b"--home", os.fsencode(home.path), b""])
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()) if os.path.isdir("/proc/self") else ():
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if words not in file.read() or pid == os.getpid():
                    continue
            opened = (os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd"))
            if any(target.endswith("/keeper.lock (deleted)") for target in opened):
                return pid
    return None


def restore_signals() -> None:
    """Undo, in a keeper that has just started, what its starter or the shell ignored or blocked."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Python itself ignores these two, to see errors instead.
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def leave_control_group() -> None:
    """Move ourselves out of the control group of a process that is ours to end, where the system lets us."""
    try:
        with open(_CGROUP, encoding="utf-8", errors="surrogateescape") as file:
            own = next((line.rstrip("\n") for line in file if line.startswith("0::")), "")
        outside, inside, _ = own.removeprefix("0::").partition("/tether-")
        tree = next((point for point, kind in mounted_now() if kind == "cgroup2"), None)
        if inside and tree is not None:
            with open(os.path.join(tree, outside.lstrip("/"), "cgroup.procs"), "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
    except OSError as error:
        logger.info("the keeper stays in the control group it was started in: %s", error)


@dataclass(slots=True)
class _Attempt:
    """One caller's effort to have a keeper."""

    home: Home
    argv: Sequence[str] | None
    _launched_at: float | None = None
    _log_start: int = 0

    def due(self) -> bool:
        """Whether a keeper is to be launched now: the first time, and when that one has come to nothing."""
        return self._launched_at is None or time.monotonic() - self._launched_at >= _RELAUNCH_SECONDS

    async def launch(self) -> None:
        """Prepare the home and launch a keeper."""
        if self._launched_at is None:
            self.home.prepare()
            self._log_start = _size(self.home.log_path)
        with contextlib.closing(_launching(self.home, self.argv or keeper_argv(self.home))) as steps:
            for pause in steps:
                await asyncio.sleep(pause)
        self._launched_at = time.monotonic()

    def failure(self, seconds: float) -> KeeperUnavailableError:
        """Why there was no answer, as far as can be known."""
        holder = KeeperLock.holder(self.home)
        if holder is not None:
            return KeeperUnavailableError(
                f"the keeper of {self.home.path!r} (pid {holder.pid}) does not answer within {seconds:g} s; "
                f"wait, or end it with `kill {holder.pid}`"
            )
        said = _tail(self.home.log_path, self._log_start)
        return KeeperUnavailableError(
            f"no keeper for {self.home.path!r} within {seconds:g} s; "
            + (f"it said:\n{said}" if said else f"it left no word in {self.home.log_path!r}")
        )


def _knock(home: Home) -> socket.socket | None:
    """Connect to whoever listens for `home`; None when nobody does or it has too many callers at the moment."""
    path = home.socket_path
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(0)
        connection.connect(path)
        uid = peer_of(connection).uid
    except OSError as error:
        connection.close()
        if error.errno in _NOBODY or isinstance(error, BlockingIOError):
            return None
        raise KeeperUnavailableError(
            f"cannot connect to the keeper at {path!r}: {error.strerror or error}; check who may use that path"
        ) from error
    if uid != os.geteuid():
        connection.close()
        raise KeeperUnavailableError(f"whoever listens on {path!r} is user {uid}, not you; remove it and try again")
    return connection


def _launching(home: Home, argv: Sequence[str]) -> Generator[float]:
    """Launch a keeper step by step; each value is a pause that is to be made before the next step."""
    environment = keeper_environment(home)
    scope = scope_prefix(home, os.environ)
    if scope:
        bus = {name: os.environ[name] for name in (_BUS,) if name in os.environ}
        if (yield from _leaving(home, (*scope, *_LEAVE, *argv), environment | bus)):
            return
    if not (yield from _leaving(home, (*_LEAVE, *argv), environment)):
        raise KeeperUnavailableError(
            f"the system does not start another process: {_tail(home.log_path, 0)}; end some and try again"
        )


def _leaving(home: Home, argv: Sequence[str], environment: Mapping[str, str]) -> Generator[float, None, bool]:
    """Run what leaves a keeper behind; whether that went well."""
    try:
        log = os.open(home.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            starter = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd="/",
                env=environment,
                umask=0o077,
                start_new_session=True,
            )
        finally:
            os.close(log)
    except OSError as error:
        raise KeeperUnavailableError(
            f"cannot launch a keeper for {home.path!r}: {error.strerror} ({error.filename or argv[0]}); "
            "set TETHER_HOME to a directory you may write to, or end processes that are not needed"
        ) from error
    deadline = time.monotonic() + _LEAVING_SECONDS
    try:
        while starter.poll() is None and time.monotonic() < deadline:
            yield _LEAVING_PAUSE
    finally:
        if starter.poll() is None:
            starter.kill()
            starter.wait()
    return starter.returncode == 0


def scope_prefix(home: Home, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The beginning of a command line that leaves our service unit; empty where there is none to leave."""
    import shutil  # the keeper itself, which loads this module too, never needs it

    program = shutil.which("systemd-run", path=environ.get("PATH"))
    if program is None or not os.path.isdir(_SYSTEMD):
        return ()
    whose: tuple[str, ...] = ()
    if os.geteuid() != 0:
        runtime = environ.get("XDG_RUNTIME_DIR")
        if _BUS not in environ and not (runtime and os.path.exists(os.path.join(runtime, "systemd", "private"))):
            return ()
        whose = ("--user",)
    # Not `tether-...`, which is what the control groups of single processes are called.
    unit = f"keeper-of-tether-{home.fingerprint[:12]}-{os.urandom(4).hex()}"
    options = ("--scope", "--quiet", "--collect", "-p", "Delegate=yes", f"--unit={unit}")
    return (os.path.abspath(program), *whose, *options, "--")


def _tail(path: str, start: int) -> str:
    """The last lines that were written to the log at `path` since it was `start` bytes long."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = start if start <= size else 0  # it was begun anew meanwhile
            file.seek(max(start, size - _MOST_LOG_BYTES))
            text = file.read(_MOST_LOG_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.strip().splitlines()[-_MOST_LOG_LINES:])


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0

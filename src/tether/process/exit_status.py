"""How a process ended, in the words used at every door."""

import os
import re
import signal
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Where a process is in its life."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    KILLED = "killed"
    LOST = "lost"


class Cause(StrEnum):
    """Why a process ended."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    STOPPED = "stopped"
    TIMED_OUT = "timed_out"
    OUTPUT_LIMIT = "output_limit"
    LOST = "lost"


_STATUS = {
    Cause.EXITED: Status.COMPLETED,
    Cause.SIGNALLED: Status.KILLED,
    Cause.STOPPED: Status.KILLED,
    Cause.OUTPUT_LIMIT: Status.KILLED,
    Cause.TIMED_OUT: Status.TIMED_OUT,
    Cause.LOST: Status.LOST,
}


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a process ended: `code` or `signal`, why, and its core file where one was written."""

    code: int | None
    signal: str | None
    cause: Cause
    core_file: str | None = None

    @property
    def status(self) -> Status:
        """The word of the doors for this end."""
        return _STATUS[self.cause]

    @property
    def shell_code(self) -> int:
        """The exit code a shell would report: 124 after a timeout, 128+n after a signal, 1 when unknown."""
        if self.cause is Cause.TIMED_OUT:
            return 124
        if self.signal is not None:
            return 128 + signal_number(self.signal)
        return 1 if self.code is None else self.code


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; numbers without a name, such as real-time signals, become `SIG35`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def signal_number(name: str) -> int:
    """The number behind `signal_name`."""
    try:
        return int(signal.Signals[name])
    except KeyError:
        return int(name.removeprefix("SIG"))


def core_file(pid: int, program: str, directory: str, signal_value: int) -> str | None:
    """Where the system wrote the core of dead process `pid`, if it is a file that can be found."""
    try:
        with open("/proc/sys/kernel/core_pattern", encoding="utf-8", errors="surrogateescape") as file:
            pattern = file.read().strip()
        with open("/proc/sys/kernel/core_uses_pid", encoding="ascii") as file:
            append_pid = file.read().strip() == "1"
    except OSError:
        return None
    if pattern.startswith("|"):
        return None  # handed to a program such as systemd-coredump: `coredumpctl` knows it, we do not
    values = {"%": "%", "p": str(pid), "P": str(pid), "i": str(pid), "s": str(signal_value)}
    values |= {"u": str(os.getuid()), "g": str(os.getgid()), "e": os.path.basename(program)[:15]}
    values |= {"E": program.replace("/", "!"), "h": os.uname().nodename}
    name = re.sub(r"%(.)", lambda found: values.get(found[1], "*"), pattern)
    if append_pid and "%p" not in pattern:
        name += f".{pid}"
    path = os.path.join(directory, name)
    return path if os.path.isfile(path) else None

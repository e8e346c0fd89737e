"""What a test process holds: compared before and after every test."""

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SETTLE_SECONDS = 2.0
_POLL_SECONDS = 0.01
_OUR_PREFIX = "tether-"
_LINUX = sys.platform == "linux"


@dataclass(frozen=True, slots=True)
class Held:
    """One thing the process holds, told apart by kind and key; the description is for people."""

    kind: str
    key: object
    description: str


Holdings = Mapping[tuple[str, object], Held]


def holdings(scratch: str) -> Holdings:
    """Everything held now: descriptors, children, threads, heirs of `scratch` and our entries in it."""
    everything = [*_descriptors(), *_threads(), *_entries(scratch)]
    if _LINUX:
        children = list(_children())
        own = {os.getpid(), *(child.key for child in children)}
        everything += [*children, *(heir for heir in _heirs(scratch) if heir.key not in own)]
    return {(held.kind, held.key): held for held in everything}


def left_behind(before: Holdings, scratch: str, *, settle: float = _SETTLE_SECONDS) -> list[Held]:
    """What is held now and was not `before`, after giving dying things `settle` seconds to be gone."""
    deadline = time.monotonic() + settle
    left = _difference(before, scratch)
    if left:
        gc.collect()
        left = _difference(before, scratch)
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        left = _difference(before, scratch)
    return left


def tasks_left() -> list[str]:
    """The tasks of the running loop other than the caller's."""
    mine = asyncio.current_task()
    return [f"task {task.get_name()}: {task.get_coro()!r}" for task in asyncio.all_tasks() if task is not mine]


def end_processes(left: list[Held]) -> None:
    """Kill the leaked processes, so that one careless test does not slow down the others."""
    for held in left:
        if held.kind in ("child", "heir") and isinstance(held.key, int):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(held.key, signal.SIGKILL)


def _difference(before: Holdings, scratch: str) -> list[Held]:
    return [held for key, held in holdings(scratch).items() if key not in before]


def _descriptors() -> Iterator[Held]:
    directory = "/proc/self/fd" if _LINUX else "/dev/fd"
    try:
        numbers = os.listdir(directory)
    except FileNotFoundError:
        return
    for number in numbers:
        # The descriptor of the listing itself is closed by now.
        with contextlib.suppress(OSError):
            target = os.readlink(f"{directory}/{number}") if _LINUX else _identity(int(number))
            yield Held("descriptor", (number, target), f"descriptor {number} -> {target}")


def _identity(descriptor: int) -> str:
    status = os.fstat(descriptor)
    return f"device {status.st_dev} inode {status.st_ino} mode {status.st_mode:o}"


def _threads() -> Iterator[Held]:
    known = {thread.native_id: thread for thread in threading.enumerate()}
    for thread in known.values():
        yield Held("thread", thread.native_id, f"thread {thread.name!r} ({type(thread).__name__})")
    if _LINUX:
        for tid in map(int, os.listdir("/proc/self/task")):
            if tid not in known:
                yield Held("thread", tid, f"thread {_read(f'/proc/self/task/{tid}/comm').strip()!r} (not Python's)")


def _children() -> Iterator[Held]:
    for pid in _child_pids():
        yield Held("child", pid, f"child process {_describe(pid)}")


def _child_pids() -> set[int]:
    tasks = "/proc/self/task"
    if os.path.exists(f"{tasks}/{os.getpid()}/children"):
        return {int(pid) for tid in os.listdir(tasks) for pid in _read(f"{tasks}/{tid}/children").split()}
    mine = str(os.getpid())
    return {pid for pid in _pids() if _stat(pid)[1:2] == [mine]}


def _heirs(scratch: str) -> Iterator[Held]:
    """Processes anywhere whose environment names `scratch`: daemons that no parent leads to any more."""
    mark = f"TMPDIR={scratch}"
    for pid in _pids():
        if mark in _read(f"/proc/{pid}/environ").split("\0"):
            yield Held("heir", pid, f"detached process {_describe(pid)}")


def _entries(scratch: str) -> Iterator[Held]:
    for name in os.listdir(scratch):
        if name.startswith(_OUR_PREFIX):
            yield Held("entry", name, f"temporary entry {os.path.join(scratch, name)}")


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _describe(pid: int) -> str:
    command = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    state = (_stat(pid) or ["gone"])[0]
    return f"{pid} (state {state}): {command[:200] or 'no command line'}"


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, which may itself contain spaces and parentheses."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""

"""Keeping 4 KB chunks and reading 16 KB parts of them: Tether's log, a plain file, and nothing at all."""

import functools
import os
import random
import tempfile
import time
from collections.abc import Callable
from typing import Protocol

from bench.work import Figures, Work, contest, cpu_seconds
from tether.process.command import OutputPolicy
from tether.process.output import OutputLog

CHUNK = (b"a line of output as a build prints it, some sixty bytes long\n" * 70)[:4096]
PART = 16 * 1024
STDOUT = 1
# Reads stay where every contestant still has the bytes: Tether keeps the head and the newest 10 MB.
NEWEST = 4 * 1024 * 1024


class Store(Protocol):
    """Where chunks go and parts come from."""

    def append(self, stream: int, data: bytes) -> object: ...
    def read(self, start: int, limit: int) -> object: ...
    def close(self) -> None: ...


class Nothing:
    """Counts: what the calls alone cost."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._end = 0

    def append(self, stream: int, data: bytes) -> None:
        self._end += len(data) * stream

    def read(self, start: int, limit: int) -> object:
        return CHUNK[start % 16 : limit]

    def close(self) -> None:
        pass


class PlainFile:
    """One file that only grows."""

    def __init__(self, directory: str) -> None:
        self._fd = os.open(os.path.join(directory, "output"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def append(self, stream: int, data: bytes) -> None:
        if os.write(self._fd, data) != len(data):
            raise OSError(f"the disk is full at stream {stream!r}")

    def read(self, start: int, limit: int) -> object:
        return os.pread(self._fd, limit, start)

    def close(self) -> None:
        os.close(self._fd)


def _tether(directory: str) -> Store:
    return OutputLog(os.path.join(directory, "log"), OutputPolicy())


STORES: dict[str, Callable[[str], Store]] = {"nothing": Nothing, "file": PlainFile, "tether": _tether}


def _append_all(store: Store, size: int) -> None:
    append = store.append
    for _ in range(size // len(CHUNK)):
        append(STDOUT, CHUNK)


def append(work: Work, *, make: Callable[[str], Store]) -> Figures:
    with tempfile.TemporaryDirectory() as directory:
        store = make(directory)
        cpu = cpu_seconds()
        _append_all(store, work.bytes)
        used = cpu_seconds() - cpu
        store.close()
    return {"cpu_s_per_gb": used / (work.bytes / 1e9)}


def read(work: Work, *, make: Callable[[str], Store]) -> Figures:
    with tempfile.TemporaryDirectory() as directory:
        store = make(directory)
        _append_all(store, work.bytes)
        chooser = random.Random(7)
        starts = [chooser.randrange(work.bytes - NEWEST, work.bytes - PART) for _ in range(work.reps)]
        started = time.perf_counter()
        for start in starts:
            store.read(start, PART)
        wall = time.perf_counter() - started
        store.close()
    return {"us": wall / work.reps * 1e6}


if __name__ == "__main__":
    contest(
        {f"log-append-{name}": functools.partial(append, make=make) for name, make in STORES.items()}
        | {f"log-read-{name}": functools.partial(read, make=make) for name, make in STORES.items()}
    )

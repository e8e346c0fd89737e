"""What a contestant is asked to do, and the clocks and meters they all measure with."""

import gc
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace

Figures = dict[str, float]
Task = Callable[["Work"], Figures]

TRUE_ARGV = ["/bin/true"]
IDLE_ARGV = ["/bin/cat"]
WARM_UP = 10
READ_SIZE = 65536


@dataclass(frozen=True, slots=True)
class Work:
    """One task and its size; fields a task does not need stay 0."""

    task: str
    reps: int = 0
    ballast_mb: int = 0
    bytes: int = 0
    count: int = 0
    child: str = ""

    def arguments(self) -> list[str]:
        """Return the key=value words every contestant takes, in whatever language it is written."""
        return [f"{key}={value}" for key, value in asdict(self).items()]

    def share(self, part: float) -> "Work":
        """Return the same work, smaller: for contestants too slow for the whole of it."""
        return replace(
            self,
            reps=max(3, int(self.reps * part)) if self.reps else 0,
            bytes=int(self.bytes * part),
            count=int(self.count * part),
        )


def _parse(words: list[str]) -> Work:
    given = dict(word.split("=", 1) for word in words)
    sizes = {key: int(given.get(key, 0)) for key in ("reps", "ballast_mb", "bytes", "count")}
    return Work(task=given["task"], child=given.get("child", ""), **sizes)


def contest(tasks: Mapping[str, Task]) -> None:
    """Run the task the command line names and print its figures as one JSON line."""
    work = _parse(sys.argv[1:])
    ballast = _touched_memory(work.ballast_mb)
    figures = tasks[work.task](work)
    del ballast
    print(json.dumps(figures))


def _touched_memory(megabytes: int) -> bytearray:
    memory = bytearray(megabytes << 20)
    # One byte per page: zeroed memory that was never written has no pages of its own to copy at a fork.
    memory[::4096] = b"\1" * len(memory[::4096])
    return memory


def cpu_seconds() -> float:
    """Return the CPU time this process, not its children, has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu_seconds_of(pid: int) -> float:
    """Return the same for any process, in steps of the kernel's clock; only where there is /proc."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        words = stat.read().rpartition(")")[2].split()
    user, system = words[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def resident_kb() -> float:
    """Return this process's resident memory, exact where the kernel tells it so."""
    gc.collect()
    try:
        return resident_kb_of(os.getpid())
    except OSError:
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def resident_kb_of(pid: int) -> float:
    """Return the resident memory of any process; only where there is /proc."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
        return next(float(line.split()[1]) for line in rollup if line.startswith("Rss:"))


def allow_many_descriptors() -> None:
    """Raise the soft limit of open files to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def spawn_figures(seconds: list[float]) -> Figures:
    """Summarise start-to-end times: the fastest, which load cannot lower, and the typical one."""
    return {"us": min(seconds) * 1e6, "typical_us": statistics.median(seconds) * 1e6}


def time_spawns(once: Callable[[], object], reps: int) -> Figures:
    """Time each of `reps` starts."""
    samples: list[float] = []
    for _ in range(reps):
        started = time.perf_counter()
        once()
        samples.append(time.perf_counter() - started)
    return spawn_figures(samples)


async def time_async_spawns(once: Callable[[], Awaitable[object]], reps: int) -> Figures:
    """Time each of `reps` starts in the running loop."""
    samples: list[float] = []
    for _ in range(reps):
        started = time.perf_counter()
        await once()
        samples.append(time.perf_counter() - started)
    return spawn_figures(samples)


def echo_figures(seconds: list[float]) -> Figures:
    """Summarise round trips: the median and the slow end."""
    ordered = sorted(seconds)
    return {"us": statistics.median(ordered) * 1e6, "p99_us": ordered[len(ordered) * 99 // 100] * 1e6}


def time_echoes(once: Callable[[], object], reps: int) -> Figures:
    """Time each of `reps` round trips."""
    samples: list[float] = []
    for _ in range(reps):
        started = time.perf_counter()
        once()
        samples.append(time.perf_counter() - started)
    return echo_figures(samples)


class ThroughputClock:
    """Measures wall and CPU time from its making to `figures`."""

    def __init__(self, work: Work) -> None:
        self._expected = work.bytes
        self._cpu = cpu_seconds()
        self._started = time.perf_counter()

    def figures(self, received: int) -> Figures:
        """Return rate, reader CPU per GB and what is missing."""
        wall = time.perf_counter() - self._started
        cpu = cpu_seconds() - self._cpu
        return {
            "mb_s": received / 1e6 / wall,
            "cpu_s_per_gb": cpu / (received / 1e9),
            "lost": self._expected - received,
        }


class ScaleClock:
    """Measures a thousand starts, the memory they hold and their end; figures are per 1,000."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._resident = resident_kb()
        self._cpu = cpu_seconds()
        self._started = time.perf_counter()
        self._figures: Figures = {}

    def all_started(self) -> None:
        """Take the start figures; the kill clock runs from here."""
        thousands = self._count / 1000
        self._figures["start_s"] = (time.perf_counter() - self._started) / thousands
        self._figures["start_cpu_s"] = (cpu_seconds() - self._cpu) / thousands
        self._figures["rss_kb_each"] = (resident_kb() - self._resident) / self._count
        self._started = time.perf_counter()

    def all_gone(self) -> Figures:
        """Take the kill figure and return them all."""
        self._figures["kill_s"] = (time.perf_counter() - self._started) / (self._count / 1000)
        return self._figures

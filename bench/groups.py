"""The groups of the table: which contestants do which work, and how their figures are read."""

import sys
from dataclasses import dataclass

from bench.native import CPrograms
from bench.work import Work

PEER_MODULES = {"ptyprocess": "ptyprocess_peer", "pexpect": "pexpect_peer", "terminado": "terminado_peer"}
TETHER = "tether"
KEEPER = "keeper"
THROWN_AWAY = "bytes thrown away"


@dataclass(frozen=True, slots=True)
class Contestant:
    """A row: how to start it, and how much of the group's work it does."""

    name: str
    argv: tuple[str, ...] | None
    task: str
    part: float = 1.0
    absent: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a contestant: `key` in its JSON."""

    key: str
    title: str
    larger_is_better: bool = False
    compared: bool = False
    """Whether its ratio is told even where it is not the first figure."""
    worst: bool = False
    """Whether the worst round is the one to tell, since once is too often."""


@dataclass(frozen=True, slots=True)
class Group:
    """Contestants of one kind of work; the first contestant that ran is the base of the ratios."""

    name: str
    work: Work
    rounds: int
    figures: tuple[Figure, ...]
    contestants: tuple[Contestant, ...]
    ours: str = TETHER
    """The contestant that the targets are about."""


SPAWN = (Figure("us", "us"), Figure("typical_us", "typical us"))
THROUGHPUT = (
    Figure("mb_s", "MB/s", larger_is_better=True),
    Figure("cpu_s_per_gb", "CPU s/GB", compared=True),
    Figure("lost", "lost", worst=True),
)
ECHO = (Figure("us", "us"), Figure("p99_us", "p99 us"))
SCALE = (
    Figure("start_s", "start s"),
    Figure("start_cpu_s", "start CPU s"),
    Figure("rss_kb_each", "KB each"),
    Figure("kill_s", "kill s"),
)
KEPT_START = (
    Figure("us", "us answered"),
    Figure("typical_us", "typical us", compared=True),
    Figure("exit_us", "us to exit known", compared=True),
    Figure("typical_exit_us", "typical us to exit known", compared=True),
    Figure("alone_us", "us answered after a pause", compared=True),
)
KEPT_IDLE = (Figure("rss_mb", "RSS MB"), Figure("rss_kb_each", "KB each"))
KEPT_PTY = (
    Figure("mb_per_cpu_s", "MB/CPU s", larger_is_better=True),
    Figure("mb_s", "MB/s", larger_is_better=True),
    Figure("lost", "lost", worst=True),
    Figure("news_per_s", "growth news/s", worst=True),
)
KEPT_ECHO = (Figure("us", "us"), Figure("p99_us", "p99 us"), Figure("burst_us", "us without a pause", compared=True))


class Registry:
    """Builds the groups from what this machine has."""

    def __init__(self, programs: CPrograms, node: list[str] | None, *, quick: bool) -> None:
        self._programs = programs
        self._node = node
        self._rounds = 2 if quick else 5
        self._size = 0.25 if quick else 1.0

    def groups(self) -> list[Group]:
        """Return all groups, in the order of the table."""
        return [
            self._spawn_pipes("spawn-pipes", 0),
            self._spawn_pipes("spawn-pipes-500mb", 500),
            self._spawn_pty("spawn-pty", 0),
            self._spawn_pty("spawn-pty-500mb", 500),
            self._pipe(),
            self._pty(),
            self._echo(),
            self._log("log-append", Figure("cpu_s_per_gb", "CPU s/GB")),
            self._log("log-read", Figure("us", "us")),
            self._scale(),
            self._kept("keeper-start-pipes", KEPT_START, self._work("start-pipes", reps=100)),
            self._kept("keeper-start-pty", KEPT_START, self._work("start-pty", reps=100)),
            self._kept("keeper-idle", KEPT_IDLE, self._work("idle", count=500), max(1, self._rounds // 2)),
            self._kept("keeper-pty", KEPT_PTY, self._work("pty", megabytes=200)),
            self._kept("keeper-echo", KEPT_ECHO, self._work("echo", reps=200)),
        ]

    def _c(self, name: str, task: str) -> Contestant:
        if self._programs.limits is None:
            return Contestant(name, None, task, absent=self._programs.missing)
        return Contestant(name, (self._programs.limits,), task)

    def _python(self, name: str, module: str, task: str, part: float = 1.0) -> Contestant:
        return Contestant(name, (sys.executable, "-m", f"bench.contestants.{module}"), task, part)

    def _peer(self, name: str, task: str, part: float = 1.0, note: str = "") -> Contestant:
        return self._python(f"{name}, {note}" if note else name, PEER_MODULES[name], task, part)

    def _node_pty(self, task: str, part: float = 1.0) -> Contestant:
        if self._node is None:
            return Contestant("node-pty", None, task, absent="not installed")
        return Contestant("node-pty", tuple(self._node), task, part)

    def _work(self, task: str, *, reps: int = 0, ballast_mb: int = 0, megabytes: int = 0, count: int = 0) -> Work:
        whole = Work(task, reps, ballast_mb, megabytes * 1_000_000, count, self._programs.child)
        return whole.share(self._size)

    def _spawn_pipes(self, name: str, ballast_mb: int) -> Group:
        task = "spawn-pipes"
        contestants = (
            self._c("C vfork+exec (limit)", "spawn"),
            self._c("C vfork+exec, 3 pipes", task),
            self._python("subprocess.Popen", "popen", task),
            self._python("asyncio.create_subprocess_exec", "asyncio_exec", task),
            self._python(TETHER, "tether_peer", task),
        )
        return Group(name, self._work(task, reps=60, ballast_mb=ballast_mb), self._rounds, SPAWN, contestants)

    def _spawn_pty(self, name: str, ballast_mb: int) -> Group:
        task = "spawn-pty"
        contestants = (
            self._c("C vfork+exec (limit)", "spawn"),
            self._c("C vfork+pty+ctty", task),
            self._python("pty.fork + add_reader", "pty_fork", task, 0.2),
            self._peer("pexpect", task, 0.05),
            self._peer("pexpect", "spawn-pty-no-delay", 0.2, "delays off"),
            self._peer("ptyprocess", task, 0.05),
            self._peer("ptyprocess", "spawn-pty-no-delay", 0.2, "delays off"),
            self._peer("terminado", task, 0.05),
            self._node_pty(task, 0.2),
            self._python(TETHER, "tether_peer", task),
        )
        return Group(name, self._work(task, reps=60, ballast_mb=ballast_mb), self._rounds, SPAWN, contestants)

    def _pipe(self) -> Group:
        task = "throughput-pipe"
        contestants = (
            self._c("C read 64K + write to file (limit)", task),
            self._python(f"subprocess.Popen, {THROWN_AWAY}", "popen", task),
            self._python(f"asyncio StreamReader, {THROWN_AWAY}", "asyncio_exec", task, 0.25),
            self._python(TETHER, "tether_peer", task),
        )
        return Group("pipe", self._work(task, megabytes=400), self._rounds, THROUGHPUT, contestants)

    def _pty(self) -> Group:
        task = "throughput-pty"
        contestants = (
            self._c("C read 64K + write to file (limit)", task),
            self._python(f"pty.fork + add_reader, {THROWN_AWAY}", "pty_fork", task),
            self._peer("pexpect", task, 0.25, THROWN_AWAY),
            self._peer("pexpect", "throughput-pty-kept", 0.25, "written to file"),
            self._peer("ptyprocess", task, 1.0, THROWN_AWAY),
            self._peer("ptyprocess", "throughput-pty-kept", 1.0, "written to file"),
            self._peer("terminado", task, 0.25),
            self._node_pty(task),
            self._python(TETHER, "tether_peer", task),
        )
        return Group("pty", self._work(task, megabytes=64), self._rounds, THROUGHPUT, contestants)

    def _echo(self) -> Group:
        contestants = (
            self._c("C + write to file (limit)", "echo"),
            self._python(f"pty.fork + add_reader, {THROWN_AWAY}", "pty_fork", "echo"),
            self._peer("pexpect", "echo", 0.002),
            self._peer("pexpect", "echo-no-delay", 0.25, f"delays off, {THROWN_AWAY}"),
            self._peer("pexpect", "echo-kept", 0.25, "delays off, written to file"),
            self._peer("ptyprocess", "echo", 1.0, THROWN_AWAY),
            self._peer("ptyprocess", "echo-kept", 1.0, "written to file"),
            self._peer("terminado", "echo"),
            self._node_pty("echo"),
            self._python(TETHER, "tether_peer", "echo"),
        )
        return Group("echo", self._work("echo", reps=4000), self._rounds, ECHO, contestants)

    def _log(self, name: str, figure: Figure) -> Group:
        contestants = (
            self._python("plain file (limit)", "logs", f"{name}-file"),
            self._python("nothing kept", "logs", f"{name}-nothing"),
            self._python(TETHER, "logs", f"{name}-tether"),
        )
        work = self._work(name, reps=4000, megabytes=64)
        return Group(name, work, self._rounds, (figure,), contestants)

    def _scale(self) -> Group:
        contestants = (
            self._c("C vfork+pty (limit)", "scale"),
            self._python("pty.fork + add_reader", "pty_fork", "scale"),
            self._peer("pexpect", "scale", 0.2),
            self._peer("ptyprocess", "scale", 0.2),
            self._peer("terminado", "scale", 0.05),
            self._node_pty("scale"),
            self._python(TETHER, "tether_peer", "scale"),
        )
        rounds = max(1, self._rounds // 2)
        return Group("scale-1000", self._work("scale", count=1000), rounds, SCALE, contestants)

    def _kept(self, name: str, figures: tuple[Figure, ...], work: Work, rounds: int = 0) -> Group:
        """Put the keeper beside our own table, which does the same without a process in between."""
        contestants = (
            self._python("table", "keeper_peer", f"{work.task}-table"),
            self._python(KEEPER, "keeper_peer", f"{work.task}-keeper"),
        )
        return Group(name, work, rounds or self._rounds, figures, contestants, KEEPER)

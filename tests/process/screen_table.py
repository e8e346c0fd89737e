"""What a process table does with the screen helper: logs that grow, and answers that arrive."""

import os
import signal
from pathlib import Path

from tether.process.command import OutputPolicy
from tether.process.log_reader import STDOUT
from tether.process.output import OutputLog
from tether.process.screen import Screen, ScreenHelper, screen_from

Answers = list[tuple[str, int, bytes]]


class Table:
    """What a process table does with the helper: logs that grow, and answers that arrive."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.answers: Answers = []
        self.helper = ScreenHelper(lambda name, offset, data: self.answers.append((name, offset, data)))
        self.logs: dict[str, OutputLog] = {}

    def start(
        self, name: str = "p", cols: int = 80, rows: int = 24, policy: OutputPolicy = OutputPolicy()
    ) -> OutputLog:
        log = self.logs[name] = OutputLog(str(self.directory / name), policy)
        self.helper.open(name, log.directory, cols, rows)
        return log

    def write(self, data: bytes, name: str = "p") -> None:
        self.logs[name].append(STDOUT, data)
        self.helper.grown(name, self.logs[name].end)

    async def screen(self, name: str = "p") -> Screen:
        return screen_from(await self.helper.view(name, self.logs[name].end, "screen"))

    async def close(self) -> None:
        await self.helper.aclose()
        for log in self.logs.values():
            log.close()

    def restarted(self) -> "Table":
        """The same logs in another table, as after a restart of everything but the files."""
        other = Table(self.directory)
        other.logs = self.logs
        return other


def kill(table: Table) -> int:
    pid = table.helper.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid

"""Processes under a keeper, as the commands of `tether` see them."""

import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import tether as library
from tests.cli.running import BOUND, TETHER, Finished, eventually, tether
from tests.helpers import alive
from tether.keeper.home import Home, KeeperLock

Record = dict[str, object]


def keeper_pid(home: Path) -> int | None:
    """The keeper of that home, if one runs."""
    holder = KeeperLock.holder(Home(str(home)))
    return None if holder is None else holder.pid


def end_keeper(home: Path) -> None:
    """End the keeper and what it keeps, and wait until nothing is left of it."""
    pid = keeper_pid(home)
    if pid is None:
        return
    subprocess.run((TETHER, "keeper", "stop", "--yes"), capture_output=True, timeout=BOUND, check=False)
    if alive(pid) and keeper_pid(home) == pid:
        eventually_or_kill(pid)


def eventually_or_kill(pid: int) -> None:
    """Wait for a keeper that was told to end; one that does not is ended, and the test fails."""
    try:
        eventually(lambda: not alive(pid))
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        raise


def detached(*words: str, options: tuple[str, ...] = ()) -> str:
    """Start a command in the background; returns its id."""
    finished = tether("run", "--detach", *options, "--", *words)
    assert (finished.returncode, finished.stderr) == (0, b""), finished
    return finished.stdout.decode().removesuffix("\n")


def ended(*words: str, options: tuple[str, ...] = ()) -> str:
    """Start a command in the background and wait for its end."""
    process_id = detached(*words, options=options)
    tether("wait", process_id)
    return process_id


def listed(*words: str) -> list[Record]:
    """What `tether ps --json` says."""
    finished = tether("ps", "--json", *words)
    assert (finished.returncode, finished.stderr) == (0, b""), finished
    return cast("list[Record]", json.loads(finished.stdout))


def record(process_id: str) -> Record:
    """What the list says about one process."""
    return next(found for found in listed("--all") if found["id"] == process_id)


def logs(*words: str) -> bytes:
    """What `tether logs` shows of a process nothing is missing of."""
    finished = tether("logs", *words)
    assert (finished.returncode, finished.stderr) == (0, b""), finished
    return finished.stdout


def error_of(finished: Finished) -> tuple[int, str]:
    """The exit code and the one line on stderr of a command that printed nothing else."""
    text = finished.stderr.decode()
    assert finished.stdout == b""
    assert text.startswith("tether: "), text
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    return finished.returncode, text.removeprefix("tether: ").rstrip("\n")


@asynccontextmanager
async def at_terminal(*words: str, cols: int = 120, rows: int = 30) -> AsyncGenerator[library.Process, None]:
    """`tether` as a person at a terminal runs it, ended with the block."""
    command = library.Command(argv=(TETHER, *words), stdio=library.Pty(cols, rows))
    async with library.open_process(command) as process:
        yield process


async def shown(process: library.Process, pattern: str, since: int = 0) -> int:
    """Wait until the terminal has shown `pattern` behind offset `since`; returns where its output ends then."""
    waited = await library.wait_for(process, library.Text(re.compile(pattern), since), timeout=BOUND)
    assert waited.met, process.output.read(0).data
    return waited.offset

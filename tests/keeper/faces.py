"""Faces to be killed: a program that forks one for each line of JSON on its standard input and answers its pid.

Everything is loaded before the first fork, so that many can live and die within a second. What a face is, its
role says; a killed one leaves no trace but what it did to the keeper.
"""

import asyncio
import json
import os
import pty
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import cast

from tether.cli.commands import run as run_tether
from tether.errors import InputRefusedError, ProcessEndedError
from tether.keeper.client import open_keeper
from tether.keeper.home import Home
from tether.process.command import Command, OutputPolicy, Pipes, Pty
from tether.process.place import Stamp

Options = dict[str, object]
_CAPACITY = 1 << 30
_BACKLOG_PAUSE = 0.01


async def follow(home: Home, options: Options) -> None:
    """Find a process and read all of its output as it comes."""
    async with open_keeper(home) as keeper:
        process = await keeper.find(str(options["process"]))
        at = 0
        while True:
            part = await process.read(at)
            at = part.end
            if not part.data:
                if process.exit_status is not None:
                    return
                await process.grown_or_ended(at)


async def start(home: Home, options: Options) -> None:
    """Start a process under an id that was chosen before, then follow it."""
    command = Command(
        argv=tuple(cast("list[str]", options["argv"])),
        root="/",
        stdio=Pty() if options.get("pty") else Pipes(),
        output=OutputPolicy(_CAPACITY),
    )
    async with open_keeper(home) as keeper:
        await keeper.start(command, process_id=str(options["process"]))
    await follow(home, options)


async def feed(home: Home, options: Options) -> None:
    """Send numbered lines as one writer, going on where that writer was: with its last line once more."""
    async with open_keeper(home) as keeper:
        process = await keeper.find(str(options["process"]))
        writer = str(options["writer"])
        number = max(1, await process.last_number(writer))
        while True:
            await send_line(process.write, writer, number)
            number += 1


async def send_line(write: Callable[[bytes, Stamp], Awaitable[bool]], writer: str, number: int) -> None:
    """Send a line until it is taken."""
    while True:
        try:
            await write(b"line %d\n" % number, Stamp(writer, number))
        except ProcessEndedError:
            raise
        except InputRefusedError:  # too much waits already
            await asyncio.sleep(_BACKLOG_PAUSE)
        else:
            return


def tether(words: list[str]) -> None:
    """The real command line, its output thrown away."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    _run_tether(words)


def tether_at_terminal(words: list[str]) -> None:
    """The real command line at a terminal that somebody reads; here the pid is told by the face itself."""
    pid, master = pty.fork()
    if not pid:
        _run_tether(words)
    _answer(pid)
    try:
        while os.read(master, 65536):
            pass
    except OSError:  # the terminal's last user is gone
        pass
    os.waitpid(pid, 0)


def _run_tether(words: list[str]) -> None:
    sys.argv = ["tether", *words]
    run_tether()


def _answer(pid: int) -> None:
    os.write(1, b"%d\n" % pid)


def _become(options: Options) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    home = Home.of(str(options["home"]))
    os.environ["TETHER_HOME"] = home.path
    role = options["role"]
    words = cast("list[str]", options.get("words", []))
    if role == "attach":
        tether_at_terminal(words)
    elif role == "tether":
        tether(words)
    else:
        roles = {"follow": follow, "start": start, "feed": feed}
        asyncio.run(roles[str(role)](home, options))


def main() -> None:
    os.setpgid(0, 0)  # who is left at the end is ended by our group
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        options = cast("Options", json.loads(line))
        pid = os.fork()
        if not pid:
            status = 1
            try:
                _become(options)
                status = 0
            except SystemExit as ended:
                status = ended.code if isinstance(ended.code, int) else 1
            finally:
                os._exit(status)
        if options["role"] != "attach":
            _answer(pid)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)


if __name__ == "__main__":
    main()

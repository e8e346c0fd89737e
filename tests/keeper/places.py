"""The places that promise the same: our own table, a keeper at its socket, and a keeper behind standard streams."""

import re
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pytest

from tether.keeper.client import KeeperClient, open_distant_keeper, open_keeper
from tether.keeper.home import Home
from tether.process.command import Command, OutputPolicy, Overflow, Pipes, Pty
from tether.process.place import Place, PlacedProcess
from tether.process.table import ProcessTable
from tether.process.waiting import Text, wait_for

BOUND = 20.0
WHOLE = OutputPolicy(64 * 1024 * 1024, Overflow.STOP)
RELAY = (sys.executable, "-m", "tether", "keeper", "--stdio")
on_both_streams = pytest.mark.parametrize("stdio", [Pipes(), Pty()], ids=["pipes", "pty"])


@dataclass(frozen=True, slots=True)
class Door:
    """One of the two ways to a keeper."""

    home: Home
    distant: bool

    def open(self, *owners: str) -> AbstractAsyncContextManager[KeeperClient]:
        """One more client of the keeper."""
        return open_distant_keeper(RELAY, owners=owners) if self.distant else open_keeper(self.home, owners=owners)


@pytest.fixture(params=["keeper", "stdio"])
def door(request: pytest.FixtureRequest, home: Home) -> Door:
    """Both ways to a keeper, one after the other."""
    return Door(home, distant=request.param == "stdio")


@pytest.fixture(params=["table", "keeper", "stdio"])
async def place(request: pytest.FixtureRequest, home: Home) -> AsyncIterator[Place]:
    """Every place where processes can live, one after the other."""
    if request.param == "table":
        async with ProcessTable() as table:
            yield table
        return
    async with Door(home, distant=request.param == "stdio").open() as client:
        yield client


def shell(script: str, stdio: Pipes | Pty = Pipes(), output: OutputPolicy = WHOLE) -> Command:
    """A script on those streams, of which everything is kept."""
    return Command(argv=("bash", "--norc", "-c", script), stdio=stdio, output=output)


async def said(process: PlacedProcess, pattern: str, since: int = 0) -> str:
    """Wait until the process has written what `pattern` describes."""
    waited = await wait_for(process, Text(re.compile(pattern), since), timeout=BOUND)
    assert waited.match is not None, await everything(process)
    return waited.match


async def everything(process: PlacedProcess, start: int = 0, stream: int | None = None) -> bytes:
    """All bytes there are from `start` on, however many a place gives at once."""
    parts: list[bytes] = []
    while True:
        part = await process.read(start, stream=stream)
        if part.end <= start:
            return b"".join(parts)
        parts.append(part.data)
        start = part.end


async def outcome(place: Place, command: Command) -> tuple[int | None, str]:
    """The exit code of a command and everything it wrote."""
    process = await place.start(command)
    status = await process.wait()
    return status.code, (await everything(process)).decode().replace("\r\n", "\n")

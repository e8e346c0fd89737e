"""What the campaigns share: a home whose keeper ends with the test, keepers to be harmed, and faces to be killed."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path

from tests.helpers import alive, wait_until
from tether.keeper.home import Home, KeeperLock
from tether.keeper.kept_process import KeptProcess
from tether.keeper.launch import connect
from tether.process.command import COOKIE, Pipes, Pty

BOUND = 30.0
_DRIVEN = Path(__file__).with_name("driven_keeper.py")
_FACES = Path(__file__).with_name("faces.py")
_POLL_SECONDS = 0.01


@contextlib.contextmanager
def kept_home(directory: Path) -> Generator[Home]:
    """A home whose keeper, and whatever it keeps, ends with the block; one that does not end fails the test."""
    home = Home.of(str(directory))
    try:
        yield home
    finally:
        end_keeper(home)


def keeper_pid(home: Home) -> int:
    """The pid of the keeper of `home`; 0 when there is none."""
    holder = KeeperLock.holder(home)
    return 0 if holder is None else holder.pid


def end_keeper(home: Home) -> None:
    """Have the keeper of `home` end in good order, and wait for that."""
    pid = keeper_pid(home)
    if not pid:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + BOUND
    while alive(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"keeper {pid} did not end within {BOUND:g} s after SIGTERM")
        time.sleep(_POLL_SECONDS)


async def kill_keeper(home: Home) -> int:
    """Kill the keeper of `home` and wait until it is gone; who it was."""
    pid = keeper_pid(home)
    assert pid
    os.kill(pid, signal.SIGKILL)
    await wait_until(lambda: not alive(pid))
    return pid


def driven(home: Home, **options: object) -> tuple[str, ...]:
    """The command line of a keeper that something is done to."""
    return (sys.executable, "-P", str(_DRIVEN), home.path, json.dumps(options))


async def start_driven(home: Home, **options: object) -> int:
    """Start such a keeper; its pid, once it answers."""
    (await connect(home, start=True, seconds=BOUND, argv=driven(home, **options))).close()
    return keeper_pid(home)


async def until(asked: Callable[[], Awaitable[bool]]) -> None:
    """Return as soon as the answer is yes."""
    async with asyncio.timeout(BOUND):
        while True:
            if await asked():
                return
            await asyncio.sleep(_POLL_SECONDS)


def exists(path: str | Path) -> bool:
    """Whether anything has that name."""
    return os.path.lexists(path)


def text_of(path: Path) -> str:
    """What a file says; nothing when there is none."""
    return path.read_text() if path.exists() else ""


def standard_streams(*, pty: bool) -> Pipes | Pty:
    """A terminal or pipes."""
    return Pty() if pty else Pipes()


async def everything(process: KeptProcess) -> bytes:
    """All of the output that is there, which must be all in one piece."""
    parts: list[bytes] = []
    at = 0
    while (part := await process.read(at)).data:
        assert (part.start, part.dropped) == (at, 0)
        parts.append(part.data)
        at = part.end
    return b"".join(parts)


def members(process_id: str) -> list[int]:
    """Everybody alive, anywhere, who carries the cookie of that process."""
    found: list[int] = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            environment = Path(f"/proc/{name}/environ").read_bytes()
            cookie = re.search(rb"(?:^|\0)%s=([^\0]*)" % COOKIE.encode(), environment)
            if cookie and process_id.encode() in cookie[1].split() and alive(int(name)):
                found.append(int(name))
    return found


def open_descriptors(pid: int) -> list[str]:
    """What a process holds open, by name."""
    held: list[str] = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            held.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return held


class Faces:
    """Programs that use a keeper, made quickly: each is a fork of one that has everything loaded already."""

    def __init__(self, server: asyncio.subprocess.Process) -> None:
        self._server = server
        self._asking = asyncio.Lock()

    async def begin(self, role: str, home: Home, **options: object) -> int:
        """Start a face; its pid."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        async with self._asking:
            self._server.stdin.write(json.dumps({"role": role, "home": home.path, **options}).encode() + b"\n")
            line = await asyncio.wait_for(self._server.stdout.readline(), BOUND)
        assert line, "the server of faces has ended; see its stderr"
        return int(line)


@contextlib.asynccontextmanager
async def open_faces() -> AsyncGenerator[Faces, None]:
    """A server of faces; with the block it ends, and every face that is left."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-P", str(_FACES), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield Faces(server)
    finally:
        assert server.stdin is not None
        server.stdin.close()
        await asyncio.wait_for(server.wait(), BOUND)


def kill(pid: int) -> bool:
    """SIGKILL to a face; False when it had ended before."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True

"""A keeper becomes another version of itself: the new one tries the state on first, and only then takes over."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import cast

from tether.errors import KeeperError
from tether.keeper.frames import Header
from tether.keeper.home import Home
from tether.keeper.launch import keeper_argv
from tether.process._census import KEEPER

logger = logging.getLogger(__name__)

STATE_FORMAT = 1
READY = "ready: "
ENDING = (signal.SIGTERM, signal.SIGINT)
_TRIAL_SECONDS = 30.0
_MOST_WORDS = 4096


async def try_out(python: str, home: Home, state: Header, on_start: Callable[[int], None]) -> str:
    """Have the version that `python` has installed load `state` in a process of its own; returns that version.

    Raises:
        KeeperError: it cannot; nothing was touched.
    """
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe()
    kept = save(state)
    try:
        trial = _start(keeper_argv(home, "--try", python=python), kept, writing, home.path)
    except OSError as error:
        os.close(reading)
        raise KeeperError(f"cannot run {python!r}: {error.strerror}; the keeper goes on as it was") from error
    finally:
        os.close(writing)
        os.close(kept)
    on_start(trial.pid)
    said, over = bytearray(), loop.create_future()

    def listen() -> None:
        data = os.read(reading, _MOST_WORDS)
        del said[: max(len(said) + len(data) - _MOST_WORDS, 0)]
        said.extend(data)
        if not data and not over.done():
            over.set_result(None)

    loop.add_reader(reading, listen)
    try:
        async with asyncio.timeout(_TRIAL_SECONDS):
            await over
    except TimeoutError:
        said += f"no answer within {_TRIAL_SECONDS:g} s".encode()
    finally:
        loop.remove_reader(reading)
        os.close(reading)
        trial.kill()
        trial.wait()
    words = said.decode(errors="replace").strip()
    last = words.splitlines()[-1] if words else "it said nothing"
    if not last.startswith(READY):
        raise KeeperError(f"that version cannot take over: {last:.500}; the keeper goes on as it was")
    return last.removeprefix(READY)


def _start(argv: list[str], stdin: int, output: int, home: str) -> "subprocess.Popen[bytes]":
    environment = {name: value for name, value in os.environ.items() if name != KEEPER}
    return subprocess.Popen(argv, stdin=stdin, stdout=output, stderr=output, cwd=home, env=environment)


def save(state: Header) -> int:
    """A descriptor from which `load` reads the state again, whatever program this process is then."""
    data = json.dumps(state).encode("ascii")
    if sys.platform == "linux":
        descriptor = os.memfd_create("tether-keeper")
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def load(descriptor: int) -> Header:
    """The state that another version has saved.

    Raises:
        KeeperError: it is none that this version knows.
    """
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb") as file:
        try:
            state: object = json.loads(file.read())
        except ValueError as error:
            raise KeeperError(f"the saved state of a keeper cannot be read: {error}") from error
    if not isinstance(state, dict) or cast("Header", state).get("format") != STATE_FORMAT:
        raise KeeperError(f"the saved state is not of format {STATE_FORMAT}: another version of Tether wrote it")
    return cast("Header", state)


def become(argv: list[str], state: Header, descriptors: Iterable[int]) -> None:
    """Replace this program by another, which inherits these descriptors and the state; returns only by raising.

    Raises:
        OSError: the system does not let us; nothing has changed.
    """
    kept = save(state)
    inherited = [*descriptors, kept]
    try:
        for descriptor in inherited:
            os.set_inheritable(descriptor, True)  # noqa: FBT003 - it takes no keyword
        # A signal that comes before the new program listens waits until it does.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        os.execve(argv[0], [*argv, "--resume", str(kept)], os.environ)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        for descriptor in inherited:
            os.set_inheritable(descriptor, False)  # noqa: FBT003 - it takes no keyword
        os.close(kept)

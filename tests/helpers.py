"""What many tests share: real children to run, and waits for facts instead of for time."""

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

_POLL_SECONDS = 0.01
_DEAD_STATES = ("Z", "X", "")


def python(code: str) -> tuple[str, ...]:
    """The arguments that run `code` in an unbuffered Python of its own."""
    return (sys.executable, "-u", "-c", textwrap.dedent(code))


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    return _state(pid) not in _DEAD_STATES


async def wait_until(
    predicate: Callable[[], object],
    timeout: float = 30,  # noqa: ASYNC109 - the deadline names the predicate that never came true
) -> None:
    """Return as soon as `predicate()` is true; fail the test when it is not within `timeout` seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while not predicate():
        if loop.time() > deadline:
            raise AssertionError(f"not true within {timeout} s: {_where(predicate)}")
        await asyncio.sleep(_POLL_SECONDS)


def _where(predicate: Callable[[], object]) -> str:
    code = getattr(predicate, "__code__", None)
    return f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})" if code else repr(predicate)


def _state(pid: int) -> str:
    """The state letter the system shows for `pid`; empty when there is no such process."""
    if sys.platform == "linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return ""
        return chr(stat[stat.rindex(b")") + 2])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    listing = subprocess.run(("ps", "-o", "stat=", "-p", str(pid)), capture_output=True, text=True, check=False)
    return listing.stdout.strip()[:1]

"""A real keeper with something done to it from outside: killed at a named call, impatient, or with another clock.

Run as a program: `driven_keeper.py HOME JSON`, where JSON has any of
  crash: "module:name" of the call at which it is killed;
  when: "before" or "after" it, or "half" of a call that writes bytes;
  armed: the file that must exist for that;
  crashed: the file it leaves to say that it really was there;
  idle: seconds without anybody after which it ends;
  clock: the file that says by how many seconds its wall clock is wrong.
"""

import importlib
import inspect
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import cast

from tether.keeper import keeper


def found(target: str) -> tuple[object, str]:
    """Whoever has the attribute that "module:name" means, and what it is called there."""
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    holder: object = importlib.import_module(module)
    for owner in owners:
        holder = getattr(holder, owner)
    return holder, name


def crash_at(target: str, when: str, armed: Path, crashed: Path) -> None:
    """Have this process killed by the system right before or after the next call of `target`."""
    holder, name = found(target)
    real: Callable[..., object] = getattr(holder, name)

    def die() -> None:
        if armed.exists():
            crashed.write_text(target)
            os.kill(os.getpid(), signal.SIGKILL)

    @wraps(real)
    def called(*words: object, **named: object) -> object:
        if when == "before":
            die()
        if when == "half" and armed.exists():
            descriptor, data, *rest = words
            assert isinstance(data, bytes)
            real(descriptor, data[: len(data) // 2], *rest)
            die()
        result = real(*words, **named)
        if when == "after":
            die()
        return result

    async def awaited(*words: object, **named: object) -> object:
        if when == "before":
            die()
        result = await cast("Awaitable[object]", real(*words, **named))
        if when == "after":
            die()
        return result

    setattr(holder, name, awaited if inspect.iscoroutinefunction(real) else called)


def shift_clock(file: Path) -> None:
    """Make the wall clock of this process wrong by as many seconds as `file` says at the moment."""
    right = time.time
    time.time = lambda: right() + float(file.read_text() or 0)


def main() -> int:
    home, options = sys.argv[1], json.loads(sys.argv[2])
    sys.argv[1:] = ["--home", home]
    if "crash" in options:
        crash_at(options["crash"], options["when"], Path(options["armed"]), Path(options["crashed"]))
    if "idle" in options:
        setattr(keeper, "IDLE_SECONDS", options["idle"])  # noqa: B010 - a constant, but not for us
    if "clock" in options:
        shift_clock(Path(options["clock"]))
    return keeper.main()


if __name__ == "__main__":
    sys.exit(main())

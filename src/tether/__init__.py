"""Tether: the terminal runtime for coding agents.

    import re
    import tether

    print(tether.run("make test", timeout=600).stdout)              # one line, synchronous

    async with tether.open_process(tether.Command(argv=("python3",), stdio=tether.Pty())) as process:
        await tether.wait_for(process, tether.Prompt())
        await process.submit("6 * 7")
        await tether.wait_for(process, tether.Text(re.compile("42")), timeout=5)

`ProcessTable` holds many processes; `process.output` is everything a process wrote, read by offset.
"""

import importlib
from typing import TYPE_CHECKING

from tether import errors

if TYPE_CHECKING:
    from tether.process.command import Command, OutputPolicy, Overflow, Pipes, Pty
    from tether.process.exit_status import Cause, ExitStatus, Status
    from tether.process.log_reader import LogReader, OutputSlice
    from tether.process.process import Process
    from tether.process.run import Result, execute, run
    from tether.process.table import ProcessTable, open_process
    from tether.process.waiting import Exit, Idle, Output, Prompt, Text, Waited, wait_for

__all__ = [
    "Cause",
    "Command",
    "Exit",
    "ExitStatus",
    "Idle",
    "LogReader",
    "Output",
    "OutputPolicy",
    "OutputSlice",
    "Overflow",
    "Pipes",
    "Process",
    "ProcessTable",
    "Prompt",
    "Pty",
    "Result",
    "Status",
    "Text",
    "Waited",
    "errors",
    "execute",
    "open_process",
    "run",
    "wait_for",
]

# Loaded when first asked for: a short-lived program, such as `tether --version`, pays for nothing else.
_HOMES = {
    "command": ("Command", "OutputPolicy", "Overflow", "Pipes", "Pty"),
    "exit_status": ("Cause", "ExitStatus", "Status"),
    "log_reader": ("LogReader", "OutputSlice"),
    "process": ("Process",),
    "run": ("Result", "execute", "run"),
    "table": ("ProcessTable", "open_process"),
    "waiting": ("Exit", "Idle", "Output", "Prompt", "Text", "Waited", "wait_for"),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            value: object = getattr(importlib.import_module(f"tether.process.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'tether' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__

"""Tether: the terminal runtime for coding agents.

    import re
    import tether

    print(tether.run("make test", timeout=600).stdout)              # one line, synchronous

    async with tether.open_process(tether.Command(argv=("python3",), stdio=tether.Pty())) as process:
        await tether.wait_for(process, tether.Prompt())
        await process.submit("6 * 7")
        await tether.wait_for(process, tether.Text(re.compile("42")), timeout=5)

`ProcessTable` holds many processes; `process.read()` gives what one wrote, by offset. `open_keeper` offers the
same for processes that live on when this program ends.
"""

import importlib
from typing import TYPE_CHECKING

from tether import errors

if TYPE_CHECKING:
    from tether.keeper.client import KeeperClient, open_distant_keeper, open_keeper
    from tether.keeper.kept_process import KeptProcess
    from tether.keeper.lease import Forever, Owned
    from tether.process.command import Command, OutputPolicy, Overflow, Pipes, Pty
    from tether.process.exit_status import Cause, ExitStatus, Status
    from tether.process.log_reader import LogReader, OutputSlice
    from tether.process.place import Place, PlacedProcess, Stamp
    from tether.process.process import Process
    from tether.process.run import Result, execute, run
    from tether.process.table import ProcessTable, open_process
    from tether.process.waiting import Exit, Idle, Output, Prompt, Text, Waited, wait_for

__all__ = [
    "Cause",
    "Command",
    "Exit",
    "ExitStatus",
    "Forever",
    "Idle",
    "KeeperClient",
    "KeptProcess",
    "LogReader",
    "Output",
    "OutputPolicy",
    "OutputSlice",
    "Overflow",
    "Owned",
    "Pipes",
    "Place",
    "PlacedProcess",
    "Process",
    "ProcessTable",
    "Prompt",
    "Pty",
    "Result",
    "Stamp",
    "Status",
    "Text",
    "Waited",
    "errors",
    "execute",
    "open_distant_keeper",
    "open_keeper",
    "open_process",
    "run",
    "wait_for",
]

# Loaded when first asked for: a short-lived program, such as `tether --version`, pays for nothing else.
_HOMES = {
    "keeper.client": ("KeeperClient", "open_distant_keeper", "open_keeper"),
    "keeper.kept_process": ("KeptProcess",),
    "keeper.lease": ("Forever", "Owned"),
    "process.command": ("Command", "OutputPolicy", "Overflow", "Pipes", "Pty"),
    "process.exit_status": ("Cause", "ExitStatus", "Status"),
    "process.log_reader": ("LogReader", "OutputSlice"),
    "process.place": ("Place", "PlacedProcess", "Stamp"),
    "process.process": ("Process",),
    "process.run": ("Result", "execute", "run"),
    "process.table": ("ProcessTable", "open_process"),
    "process.waiting": ("Exit", "Idle", "Output", "Prompt", "Text", "Waited", "wait_for"),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            value: object = getattr(importlib.import_module(f"tether.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'tether' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__

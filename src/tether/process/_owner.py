"""What a process expects of the table it lives in."""

from typing import TYPE_CHECKING, Protocol

from tether.process.exit_status import Cause
from tether.process.keys import KeyModes
from tether.process.screen import Screen, StyledRun, VtSnapshot

if TYPE_CHECKING:
    from tether.process.process import Process


class Owner(Protocol):
    """The table a process lives in."""

    def grew(self, process: "Process", data: bytes) -> None:
        """The process wrote `data`."""
        ...

    def ended(self, process: "Process") -> None:
        """The process has its exit status; nobody else was told yet."""
        ...

    def stop_soon(self, process: "Process", cause: Cause) -> None:
        """Stop the process without making anybody wait."""
        ...

    async def screen(self, process: "Process") -> Screen:
        """What a person would see on the process's terminal now."""
        ...

    async def styled_screen(self, process: "Process") -> list[list[StyledRun]]:
        """The same as runs of one style each."""
        ...

    async def vt_snapshot(self, process: "Process") -> VtSnapshot:
        """Bytes that re-create the process's terminal elsewhere."""
        ...

    async def key_modes(self, process: "Process") -> KeyModes:
        """How the program on the terminal wants its keys."""
        ...

    async def forget(self, process: "Process") -> None:
        """Release everything the process still has."""
        ...

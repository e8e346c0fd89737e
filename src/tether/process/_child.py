"""What a running child offers, whatever it is attached to and whichever system it runs on."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tether.process.probe import Probe


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a tree; `started` tells a reused pid from the one we meant."""

    pid: int
    started: str


@dataclass(frozen=True, slots=True)
class Containment:
    """How the members of a tree will be recognised.

    `shared_reaper` is for a process of one thread that has many trees and is handed the orphans of all of them:
    such an orphan belongs to a tree only if something else says so, and a `Reaper` collects it.
    """

    process_id: str
    root: str
    control_group: bool
    adopt_orphans: bool
    shared_reaper: bool = False


class Tree(Protocol):
    """A child and everything it has started; `since` is when, by the census's clock."""

    @property
    def since(self) -> float:
        """No member was started before this moment of the census's clock."""
        ...

    def nearest(self) -> list[Member]:
        """Those living members that can be told without a look at all processes."""
        ...

    def members_in(self, census: object) -> list[Member]:
        """Everybody of it that is alive, according to one look at all processes."""
        ...

    def alive(self, members: Sequence[Member]) -> list[Member]:
        """Those of `members` that still live."""
        ...

    def strays_in(self, census: object) -> list[Member]:
        """Processes that may belong to it, but not for certain: nobody ends them, a person is told."""
        ...

    def ask_to_end(self, members: Sequence[Member]) -> None:
        """Tell these members politely to end."""
        ...

    def kill(self, members: Sequence[Member]) -> None:
        """End these members, and whoever certainly belongs to the tree, by force."""
        ...

    def kill_at_once(self) -> bool:
        """End by force whoever can be reached without looking around; whether that is certainly everybody."""
        ...

    def describe(self, member: Member) -> str:
        """The command by which a person recognises a member."""
        ...

    def reap(self) -> None:
        """Collect orphans that were handed to us and have ended."""
        ...

    def close(self) -> None:
        """Release what was held to find the members."""
        ...


class Receiver(Protocol):
    """Told what a child does, on the event loop's thread."""

    def received(self, stream: int, data: bytes) -> None:
        """The child wrote `data` to `stream` (1 stdout and everything of a PTY, 2 stderr)."""
        ...

    def stream_ended(self, stream: int) -> None:
        """Nobody can write to `stream` any more."""
        ...

    def exited(self, code: int | None, signal_number: int | None, *, core_dumped: bool) -> None:
        """The child is gone and reaped; both None when its end could not be learned."""
        ...


class Child(Protocol):
    """One started child and our ends of its streams."""

    @property
    def pid(self) -> int:
        """The system's number of the child."""
        ...

    @property
    def tree(self) -> Tree:
        """The child and everything it has started."""
        ...

    @property
    def pty(self) -> bool:
        """Whether its streams are one terminal; else they are pipes."""
        ...

    @property
    def line_limit(self) -> int | None:
        """How many bytes of one line its terminal can hold before Enter; None where there is no limit."""
        ...

    def attach(self, loop: asyncio.AbstractEventLoop, receiver: Receiver) -> None:
        """Begin to read its output and to watch for its end."""
        ...

    def pause(self) -> None:
        """Stop reading its output; the child blocks once its pipe or terminal is full."""
        ...

    def resume(self) -> None:
        """Go on reading its output."""
        ...

    def drain(self) -> None:
        """Read what is there right now."""
        ...

    def write(self, data: memoryview) -> int:
        """Give it what it takes at once; returns how much that was; BrokenPipeError when it reads no more."""
        ...

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Call back when it takes more input; None ends that."""
        ...

    def end_input(self, *, line_open: bool) -> bytes:
        """Tell it that no more input comes; returns what must still be sent for that, because it took nothing now.

        `line_open` says whether a line was typed without Enter.
        """
        ...

    def resize(self, cols: int, rows: int) -> None:
        """Set its terminal's size."""
        ...

    def interrupt(self) -> None:
        """What Ctrl+C does."""
        ...

    def probe(self) -> Probe:
        """One look at what it is doing with its input."""
        ...

    def state(self) -> dict[str, object]:
        """What `restore_child` needs after this process has become another program: JSON values only.

        Raises:
            OSError: a child cannot be handed over on this system.
        """
        ...

    def descriptors(self) -> list[int]:
        """What must stay open when this process becomes another program."""
        ...

    def destroy(self) -> None:
        """Kill the child itself and collect it, now: for a start that failed half-way."""
        ...

    def close(self) -> None:
        """Release every descriptor; may be called again."""
        ...

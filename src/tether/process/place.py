"""Where processes live: one small interface, whether that is this program, a keeper or another machine."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tether.errors import InputGapError, InvalidCommandError
from tether.process._stopping import Stopped, Survivor
from tether.process.command import Command, Pipes, Pty
from tether.process.exit_status import ExitStatus, Status
from tether.process.log_reader import Chunk, Gap, Lines, OutputSlice, Resize
from tether.process.probe import Look
from tether.process.screen import Screen, StyledRun, VtSnapshot

_MOST_WRITERS = 4096
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who sends a piece of input and which one it is: the same piece is taken once, however often it is sent.

    A writer numbers its pieces 1, 2, 3, … per process.
    """

    writer: str
    number: int

    def __post_init__(self) -> None:
        if not self.writer or self.number < 1:
            raise InvalidCommandError(
                f"impossible stamp {self.writer!r}, {self.number!r}; name a writer, count from 1"
            )


class TakenInput:
    """How far each writer's input was taken."""

    __slots__ = ("last",)

    def __init__(self, last: dict[str, int] | None = None) -> None:
        self.last = last or {}

    def has(self, stamp: Stamp | None) -> bool:
        """Whether this piece was taken before.

        Raises:
            InputGapError: the piece before it was not.
        """
        if stamp is None:
            return False
        expected = self.last.get(stamp.writer, 0) + 1
        if stamp.number > expected:
            raise InputGapError(stamp.writer, stamp.number, expected)
        return stamp.number < expected

    def take(self, stamp: Stamp | None) -> None:
        """This piece was taken now."""
        if stamp is None:
            return
        self.last.pop(stamp.writer, None)
        self.last[stamp.writer] = stamp.number
        if len(self.last) > _MOST_WRITERS:
            # Whoever has been silent for longest; who has a name of its own may still come back.
            nameless = (writer for writer in self.last if _UUID.fullmatch(writer))
            del self.last[next(nameless, next(iter(self.last)))]


class PlacedProcess(Protocol):
    """A process wherever it lives: what is known of it, and what can be done with it."""

    @property
    def id(self) -> str:
        """Its own id, a UUID."""
        ...

    @property
    def name(self) -> str:
        """What a person called it; may be empty."""
        ...

    @property
    def command(self) -> Command:
        """What it was told to run."""
        ...

    @property
    def pid(self) -> int:
        """The system's number of the child."""
        ...

    @property
    def stdio(self) -> Pipes | Pty:
        """What its streams are attached to, at its present size."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """What was not as asked for."""
        ...

    @property
    def survivors(self) -> tuple[Survivor, ...]:
        """Who of its tree could not be ended."""
        ...

    @property
    def started_at(self) -> float:
        """When it started, in seconds of the wall clock."""
        ...

    @property
    def ended_at(self) -> float | None:
        """When it ended."""
        ...

    @property
    def exit_status(self) -> ExitStatus | None:
        """How it ended; None while it runs."""
        ...

    @property
    def status(self) -> Status:
        """Where it is in its life, in the doors' word."""
        ...

    @property
    def end(self) -> int:
        """How far its output is known to reach."""
        ...

    @property
    def idle_seconds(self) -> float:
        """How long it has been silent."""
        ...

    async def read(self, start: int = 0, limit: int | None = None, *, stream: int | None = None) -> OutputSlice:
        """What is there from `start` on, of one stream if given; never waits, never spans a hole."""
        ...

    async def read_lines(self, first: int, limit: int) -> Lines:
        """Up to `limit` raw lines from number `first` on."""
        ...

    async def chunks(self, start: int = 0, end: int | None = None) -> list[Chunk]:
        """The stretches of [start, end) by stream and time."""
        ...

    async def gaps(self) -> list[Gap]:
        """Where bytes could not be kept, how many and why."""
        ...

    async def resizes(self, start: int = 0) -> list[Resize]:
        """Changes of its terminal's size at or after `start`."""
        ...

    async def discard_before(self, offset: int) -> None:
        """Where everything is kept for one consumer: it has taken what is before `offset`."""
        ...

    async def write(self, data: bytes, stamp: Stamp | None = None) -> bool:
        """Send bytes as they are; True when all were taken at once, False while some still wait."""
        ...

    async def end_input(self, stamp: Stamp | None = None) -> None:
        """No more input: closes a pipe; on a terminal types its end-of-file key."""
        ...

    async def interrupt(self, stamp: Stamp | None = None) -> None:
        """What Ctrl+C does."""
        ...

    async def last_number(self, writer: str) -> int:
        """The number of the last piece of input that was taken from `writer`; 0 before any."""
        ...

    async def send_keys(self, keys: Sequence[str]) -> None:
        """Press keys by name, encoded as the program on the terminal wants them."""
        ...

    async def paste(self, text: str) -> None:
        """Paste text, bracketed only if the program asked for that."""
        ...

    async def submit(self, text: str = "") -> None:
        """Type a line and press Enter."""
        ...

    async def resize(self, cols: int, rows: int) -> None:
        """Give its terminal another size."""
        ...

    async def look(self) -> Look:
        """One look at what it is doing with its input."""
        ...

    async def screen(self) -> Screen:
        """What a person would see on its terminal now."""
        ...

    async def styled_screen(self) -> list[list[StyledRun]]:
        """The rows of its screen as runs of one style each."""
        ...

    async def vt_snapshot(self) -> VtSnapshot:
        """Bytes that bring a fresh terminal of the same size to its present state."""
        ...

    async def wait(self) -> ExitStatus:
        """Wait for its end."""
        ...

    async def grown_or_ended(self, offset: int) -> None:
        """Wait until there is output past `offset` or the process has its exit status."""
        ...

    async def stop(self, *, grace: float = 2.0) -> Stopped:
        """End it and everything it started: politely, after `grace` seconds by force; says who survived."""
        ...

    async def kill(self) -> None:
        """SIGKILL to everybody of its tree, now."""
        ...

    async def release(self) -> None:
        """Forget it: a running one is ended first, its log is removed."""
        ...


class Place(Protocol):
    """Starts processes and finds them again."""

    async def start(self, command: Command, *, process_id: str | None = None, name: str = "") -> PlacedProcess:
        """Start a child; with the id of one that was started before, that one is meant."""
        ...

    async def find(self, process_id: str) -> PlacedProcess:
        """The process with that id."""
        ...

    async def processes(self) -> Sequence[PlacedProcess]:
        """All of them."""
        ...

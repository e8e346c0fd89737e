"""One wait verb: until a process ends, writes, says something, falls silent or asks for input."""

import asyncio
import contextlib
import re
from dataclasses import dataclass

from tether.errors import InvalidCommandError
from tether.process.place import PlacedProcess
from tether.process.probe import Certainty, WaitingForInput
from tether.process.text import TextView

_WINDOW = 65536
_FIRST_LOOK = 0.01
_LONGEST_PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class Exit:
    """Until it has ended."""


@dataclass(frozen=True, slots=True)
class Output:
    """Until it has written past byte `beyond`."""

    beyond: int


@dataclass(frozen=True, slots=True)
class Text:
    """Until its text from byte `since` on matches `pattern`, a regular expression."""

    pattern: re.Pattern[str] | str
    since: int = 0

    def compiled(self) -> re.Pattern[str]:
        """The pattern, ready to search.

        Raises:
            InvalidCommandError: it is no regular expression over text.
        """
        try:
            pattern = re.compile(self.pattern)
            pattern.search("")
        except (re.error, TypeError) as error:
            raise InvalidCommandError(
                f"cannot look for {self.pattern!r}: {error}; give a regular expression over text"
            ) from error
        return pattern


@dataclass(frozen=True, slots=True)
class Idle:
    """Until it has been silent for `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Prompt:
    """Until it waits for somebody to type."""


Until = Exit | Output | Text | Idle | Prompt


@dataclass(frozen=True, slots=True)
class Waited:
    """Whether the wait was met, and where the output ended then; `match` is what a pattern found."""

    met: bool
    offset: int
    match: str | None = None


def parse_until(words: str, *, offset: int = 0) -> Until:
    """Read the doors' notation: exit, output, idle:MS, prompt or text:REGEX; output and text look behind `offset`.

    Raises:
        InvalidCommandError: it is none of these.
    """
    kind, _, rest = words.partition(":")
    try:
        match kind:
            case "exit" | "output" | "prompt" if rest:
                raise ValueError(f"{kind} takes nothing behind it")
            case "exit":
                return Exit()
            case "output":
                return Output(offset)
            case "prompt":
                return Prompt()
            case "idle":
                return Idle(_milliseconds(rest) / 1000)
            case "text":
                return Text(re.compile(rest), offset)
            case _:
                raise ValueError("unknown condition")
    except (ValueError, re.error) as error:
        raise InvalidCommandError(
            f"cannot wait for {words!r}: {error}; use exit, output, idle:MS, prompt or text:REGEX"
        ) from error


async def wait_for(process: PlacedProcess, until: Until, *, timeout: float | None = None) -> Waited:  # noqa: ASYNC109 - running out of time is a result here, not a cancellation
    """Wait until the condition holds; not met when the process ends first or `timeout` seconds pass."""
    try:
        async with asyncio.timeout(timeout):
            match until:
                case Exit():
                    await process.wait()
                    return Waited(met=True, offset=process.end)
                case Output(beyond):
                    end = await _output_or_end(process, beyond)
                    return Waited(met=end > beyond, offset=end)
                case Text():
                    return await _text(process, until)
                case Idle(seconds):
                    return await _idle(process, seconds)
                case Prompt():
                    return await _prompt(process)
                case _:
                    known = "Exit(), Output(beyond), Text(pattern), Idle(seconds) or Prompt()"
                    raise InvalidCommandError(f"cannot wait for {until!r}; use {known}")
    except TimeoutError:
        return Waited(met=False, offset=process.end)


async def _output_or_end(process: PlacedProcess, beyond: int) -> int:
    """The log's end, once it is past `beyond` or the process has its exit status."""
    await process.grown_or_ended(beyond)
    return process.end


async def _text(process: PlacedProcess, until: Text) -> Waited:
    pattern = until.compiled()
    view, offset, window = TextView(), until.since, ""
    while True:
        over = process.exit_status is not None
        part = await process.read(offset, _WINDOW)
        if part.data:
            window = (window + view.feed(part.data))[-_WINDOW:]
            offset = part.end
            found = pattern.search(window + view.pending)
            if found is not None:
                return Waited(met=True, offset=offset, match=found[0])
        elif over:
            return Waited(met=False, offset=offset)
        else:
            await process.grown_or_ended(offset)


async def _idle(process: PlacedProcess, seconds: float) -> Waited:
    while process.exit_status is None:
        left = seconds - process.idle_seconds
        if left <= 0:
            return Waited(met=True, offset=process.end)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await process.wait()
    return Waited(met=False, offset=process.end)


async def _prompt(process: PlacedProcess) -> Waited:
    """Kernel evidence first; a silent program in select or poll counts when its last line is left open."""
    pause = _FIRST_LOOK
    while process.exit_status is None:
        look = await process.look()
        if look.probe is None:
            await process.wait()
            break
        certain = look.probe.reading is Certainty.YES
        likely = look.waiting is WaitingForInput.LIKELY
        if certain or (likely and (not look.probe.line_mode or await _line_open(process, look.end))):
            return Waited(met=True, offset=look.end)
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
    return Waited(met=False, offset=process.end)


async def _line_open(process: PlacedProcess, end: int) -> bool:
    return end > 0 and (await process.read(end - 1, 1)).data != b"\n"


def _milliseconds(words: str) -> float:
    value = float(words)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{words!r} is not a number of milliseconds")
    return value

"""The words a keeper and its clients use: version, errors and values as JSON."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import TypeVar, cast

import tether.errors
from tether.errors import KeeperError, TetherError
from tether.keeper.fields import Fields
from tether.keeper.frames import Frame, Header
from tether.process.log_reader import Chunk, Gap, Lines, OutputSlice, Resize
from tether.process.place import Stamp
from tether.process.probe import Certainty, Look, Probe

PROTOCOL = 1
"""Grows when an older program could not make sense of a newer one any more; new words and fields do not count."""

HELLO = 0
"""The number of the first request on every connection, and of the answer to it."""

ANY_PROTOCOL = frozenset({"hello", "status", "shut_down", "upgrade"})
"""What a client of any protocol may ask, so that it can always get rid of a keeper it cannot talk to."""

_LONGEST_MESSAGE = 10_000

T = TypeVar("T")


def field(header: Mapping[str, object], name: str, kind: type[T]) -> T:
    """A field of the header that must be there and of that type.

    Raises:
        KeeperError: it is not.
    """
    return _fields(header).need(name, kind)


def optional(header: Mapping[str, object], name: str, kind: type[T]) -> T | None:
    """The same for a field that may be missing or null."""
    return _fields(header).maybe(name, kind)


def objects(header: Mapping[str, object], name: str) -> list[Header]:
    """A field that holds a list of objects."""
    return cast("list[Header]", field(header, name, list))


def strings(header: Mapping[str, object], name: str) -> list[str]:
    """A field that holds a list of strings; none of them when it is missing.

    Raises:
        KeeperError: it holds anything else.
    """
    return _fields(header).items(name, str)


def _fields(header: Mapping[str, object]) -> Fields:
    return Fields(header, f"message {header.get('do', 'answer')!r}")


def error_to_json(error: TetherError) -> Header:
    """An error by its name, sentence and attributes."""
    attributes: dict[str, object] = {
        name: value for name, value in vars(error).items() if isinstance(value, (str, int, tuple))
    }
    message = str(error)
    if len(message) > _LONGEST_MESSAGE:
        message, attributes = f"{message[:_LONGEST_MESSAGE]}…", {}
    return {"kind": type(error).__name__, "message": message, "attributes": attributes}


def error_from_json(value: Mapping[str, object]) -> TetherError:
    """The same error again; of a kind this version does not know, a KeeperError."""
    kind: object = getattr(tether.errors, field(value, "kind", str), None)
    if not (isinstance(kind, type) and issubclass(kind, TetherError)):
        kind = KeeperError
    error = kind.__new__(kind)
    error.args = (field(value, "message", str),)
    for name, attribute in cast("Header", value.get("attributes") or {}).items():
        setattr(error, name, tuple(cast("list[object]", attribute)) if isinstance(attribute, list) else attribute)
    return error


def stamp_of(header: Mapping[str, object]) -> Stamp | None:
    """Who sends this piece of input and which one it is."""
    writer = optional(header, "writer", str)
    return None if writer is None else Stamp(writer, field(header, "number", int))


def stamp_to_json(stamp: Stamp) -> Header:
    """The fields that `stamp_of` reads."""
    return {"writer": stamp.writer, "number": stamp.number}


def slice_to_frame(part: OutputSlice) -> Frame:
    """A part of a log; its bytes are the body."""
    return Frame({"start": part.start, "end": part.end, "dropped": part.dropped}, part.data)


def slice_from_frame(frame: Frame) -> OutputSlice:
    """The part of a log again."""
    start, end, dropped = (field(frame.header, name, int) for name in ("start", "end", "dropped"))
    return OutputSlice(start, frame.body, end, dropped)


def lines_to_frame(lines: Lines) -> Frame:
    """Lines of a log; they are the body, one after the other."""
    lengths = [len(line) for line in lines.lines]
    header: Header = {"first": lines.first, "total": lines.total, "dropped": lines.dropped, "lengths": lengths}
    return Frame(header, b"".join(lines.lines))


def lines_from_frame(frame: Frame) -> Lines:
    """The lines of a log again."""
    first, total, dropped = (field(frame.header, name, int) for name in ("first", "total", "dropped"))
    lines: list[bytes] = []
    at = 0
    for length in cast("list[int]", field(frame.header, "lengths", list)):
        lines.append(frame.body[at : at + length])
        at += length
    return Lines(first, lines, total, dropped)


def marks_to_json(marks: Iterable[Chunk | Gap | Resize]) -> list[Header]:
    """What a log's index says."""
    return [asdict(mark) for mark in marks]


def marks_from_json(kind: Callable[..., T], frame: Frame) -> list[T]:
    """The marks again, which are of that kind."""
    return [kind(**mark) for mark in objects(frame.header, "marks")]


def look_to_json(look: Look) -> Header:
    """One look at a process."""
    return asdict(look)


def look_from_json(header: Header) -> Look:
    """The look again."""
    seen = cast("Header | None", header.get("probe"))
    probe = None
    if seen is not None:
        line_mode, echo, signals = (field(seen, name, bool) for name in ("line_mode", "echo", "signals"))
        foreground = tuple(cast("list[int]", field(seen, "foreground", list)))
        probe = Probe(line_mode, echo, signals, foreground, Certainty(field(seen, "reading", str)))
    return Look(
        probe=probe,
        quiet=field(header, "quiet", bool),
        idle_seconds=field(header, "idle_seconds", float),
        end=field(header, "end", int),
    )

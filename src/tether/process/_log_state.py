"""Going on with an output log: what its writer knew beside the files, as plain values, and what it left in them."""

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, Self, cast

from tether.errors import InvalidCommandError, OutputLogError
from tether.process import _log_format as fmt
from tether.process._log_format import RECORD_BYTES, Kind, Record
from tether.process.command import OutputPolicy, Overflow

_LARGEST = 2**63 - 1
_MOST_COLS = 2**16 - 1
_MOST_ROWS = 2**32 - 1


@dataclass(slots=True)
class Held:
    """What came at `now` and could not be written: bytes of a stream, or a size of the terminal."""

    now: int
    kind: Kind
    data: bytearray
    cols: int = 0
    rows: int = 0


@dataclass(slots=True, kw_only=True)
class LogState:
    """A writer at one moment.

    `end`, `lines` and `index_size` say for which files the rest is true: a writer that died later has left
    others, and then the files count.
    """

    policy: OutputPolicy
    closed: bool
    epoch_ns: int
    grown_ns: int
    end: int
    lines: int
    index_size: int
    gone: int
    stream: int
    merge_until: int
    failure: int
    missing: int
    recorded: int
    held: list[Held]

    def to_json(self) -> dict[str, object]:
        """The state as values that JSON has."""
        return {
            "capacity": self.policy.capacity,
            "overflow": self.policy.overflow.value,
            "closed": self.closed,
            "epoch_ns": self.epoch_ns,
            "grown_ns": self.grown_ns,
            "end": self.end,
            "lines": self.lines,
            "index_size": self.index_size,
            "gone": self.gone,
            "stream": self.stream,
            "merge_until": self.merge_until,
            "failure": self.failure,
            "missing": self.missing,
            "recorded": self.recorded,
            "held": [
                {
                    "now": held.now,
                    "kind": int(held.kind),
                    "data": base64.b64encode(held.data).decode("ascii"),
                    "cols": held.cols,
                    "rows": held.rows,
                }
                for held in self.held
            ],
        }

    @classmethod
    def from_json(cls, directory: str, values: object) -> Self:
        """The state that `to_json` gave for the log in `directory`.

        Raises:
            OutputLogError: nobody gave such a state.
        """
        fields = _Fields(directory, values)
        state = cls(
            policy=fields.policy(),
            closed=fields.truth("closed"),
            epoch_ns=fields.number("epoch_ns", least=-_LARGEST),
            grown_ns=fields.number("grown_ns"),
            end=fields.number("end"),
            lines=fields.number("lines", most=fields.number("end")),
            index_size=fields.number("index_size"),
            gone=fields.number("gone", most=fields.number("end")),
            stream=fields.number("stream", most=Kind.STDERR),
            merge_until=fields.number("merge_until"),
            failure=fields.number("failure"),
            missing=fields.number("missing"),
            recorded=fields.number("recorded"),
            held=fields.held(),
        )
        if (state.held or state.missing) and not state.failure:
            fields.refuse("failure", state.failure)
        return state

    def forget_written(self, size: int) -> None:
        """The first `size` bytes of what was held, or more than was held, stand in the files by now."""
        while size and self.held and size >= len(self.held[0].data):
            size -= len(self.held.pop(0).data)
        if self.held:
            del self.held[0].data[:size]
        elif size:
            # What comes behind the held bytes is written only when their gap is.
            self.failure = self.missing = 0


class LogFiles(NamedTuple):
    """The segments that exist, where the first and the last end, and the whole records of each, in bytes."""

    starts: list[int]
    first_end: int
    end: int
    index_sizes: list[int]

    @classmethod
    def of(cls, directory: str, written: int) -> Self:
        """What is there now of `written` bytes or more; FileNotFoundError when some was dropped meanwhile.

        Where all files are gone the log ends where it did, so that no offset is given twice.

        Raises:
            OutputLogError: the end of the log is gone, but not all of it.
        """
        starts = fmt.segment_starts(directory)
        if not starts:
            return cls(starts, 0, written, [])
        first_end, end = (at + _size(directory, fmt.data_name(at)) for at in (starts[0], starts[-1]))
        if end < written:
            raise OutputLogError(
                f"log {directory!r} ends at {end} but was written up to {written}: its files were cut, "
                "so its output can be read but no more can be added"
            )
        sizes = [_size(directory, fmt.index_name(start)) for start in starts]
        return cls(starts, first_end, end, [size - size % RECORD_BYTES for size in sizes])


def cover_bytes(index: int, size: int, cover: Record) -> int:
    """Put `cover` before the `size` bytes of an index whose first bytes lost their record; returns the new size.

    Nobody knows the stream of such bytes any more.
    """
    records = Record.unpack_all(fmt.read_at(index, size, 0))
    if any(record.offset == cover.offset and record.kind in (Kind.STDOUT, Kind.STDERR) for record in records):
        return size
    if records:
        cover = cover._replace(time_us=records[0].time_us)
    packed = [record.pack() for record in (cover, *records)]
    # The last first: a disk too full for it fails before any is overwritten.
    fmt.write_at(index, packed[-1], size)
    fmt.write_at(index, b"".join(packed), 0)
    return size + RECORD_BYTES


def _size(directory: str, name: str) -> int:
    return os.stat(os.path.join(directory, name)).st_size


class _Fields:
    """Values from outside, each checked as it is taken."""

    def __init__(self, directory: str, values: object, where: str = "") -> None:
        self._directory = directory
        self._where = where
        if not isinstance(values, Mapping):
            self.refuse("", values)
        self._values = cast("Mapping[str, object]", values)

    def refuse(self, name: str, value: object) -> NoReturn:
        """Say which field cannot be."""
        field = f"{self._where}{name}" or "the whole"
        raise OutputLogError(
            f"damaged state of log {self._directory!r}: {field} is {_shortened(value)}; "
            "its output so far can be read, but no more can be added"
        )

    def number(self, name: str, *, least: int = 0, most: int = _LARGEST) -> int:
        value = self._values.get(name)
        if type(value) is not int or not least <= value <= most:
            self.refuse(name, value)
        return value

    def truth(self, name: str) -> bool:
        value = self._values.get(name)
        if type(value) is not bool:
            self.refuse(name, value)
        return value

    def policy(self) -> OutputPolicy:
        overflow = self._values.get("overflow")
        try:
            return OutputPolicy(self.number("capacity"), Overflow(overflow))
        except InvalidCommandError:
            self.refuse("capacity", self._values.get("capacity"))
        except ValueError:
            self.refuse("overflow", overflow)

    def held(self) -> list[Held]:
        values = self._values.get("held")
        if not isinstance(values, list):
            self.refuse("held", values)
        items = cast("list[object]", values)
        return [_Fields(self._directory, item, f"held[{number}].").one_held() for number, item in enumerate(items)]

    def one_held(self) -> Held:
        kind = Kind(self.number("kind", least=Kind.STDOUT, most=Kind.RESIZE))
        data = self._values.get("data")
        try:
            decoded = bytearray(base64.b64decode(data, validate=True)) if isinstance(data, str) else None
        except ValueError:
            decoded = None
        if decoded is None or bool(decoded) is (kind is Kind.RESIZE):
            self.refuse("data", data)
        cols, rows = self.number("cols", most=_MOST_COLS), self.number("rows", most=_MOST_ROWS)
        return Held(self.number("now"), kind, decoded, cols, rows)


def _shortened(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."

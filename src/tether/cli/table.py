"""Tables for people: as wide as their terminal, in colour where that is wanted."""

import os
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

import click

_GAP = "  "
_LEAST_LAST = 24
_UNITS = ("B", "K", "M", "G", "T")
_SPANS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class Column:
    """A heading; where there is no room for all, columns with the highest `expendable` go first (0: never)."""

    heading: str
    expendable: int = 0
    right: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A text without anything invisible in it, and its colour as the parameters of an SGR sequence."""

    text: str
    colour: str = ""


def terminal_width() -> int | None:
    """How many columns a person at our stdout has; None when it is no terminal and nothing needs to be cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wants_colour() -> bool:
    """Whether a person at our stdout would see colours, and wants to."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_lines(lines: Sequence[str], stream: TextIO | None = None) -> None:
    """Print lines, with escapes for what the stream cannot spell."""
    out = stream or sys.stdout
    data = "".join(f"{line}\n" for line in lines).encode(out.encoding, "backslashreplace")
    click.echo(data, nl=False, err=out is sys.stderr)


def render(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, width: int | None, colour: bool
) -> list[str]:
    """One line per row below the headings, aligned; the last column takes and is cut to what `width` leaves."""
    shown = _fitting(columns, rows, width)
    widths = [_widest(columns, rows, index) for index in shown]
    if width is not None:
        widths[-1] = min(widths[-1], max(width - sum(widths[:-1]) - len(_GAP) * (len(shown) - 1), 1))
    lines = [[Cell(column.heading, "1") for column in columns], *rows]
    return [
        _GAP.join(
            _padded(line[index], columns[index], cells, colour=colour)
            for index, cells in zip(shown, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def size_words(count: int) -> str:
    """A number of bytes in at most four digits and a unit."""
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return (
        f"{count} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}" if value < 10 else f"{value:.0f} {_UNITS[unit]}"
    )


def time_words(seconds: float) -> str:
    """A span of time by its two largest units."""
    left, parts = max(0, int(seconds)), list[str]()
    for unit, span in _SPANS:
        count, left = divmod(left, span)
        if count or parts or unit == "s":
            parts.append(f"{count}{unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0")) or "0s"


def cell_width(text: str) -> int:
    """How many columns a terminal uses for `text`."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def cut(text: str, width: int) -> str:
    """`text`, or its beginning and an ellipsis when it is wider than `width` columns."""
    if cell_width(text) <= width:
        return text
    used = length = 0
    for length, character in enumerate(text):  # noqa: B007 - where it stops is the answer
        used += _character_width(character)
        if used > width - 1:
            break
    return text[:length] + "…"


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _fitting(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None) -> list[int]:
    shown = list(range(len(columns)))
    if width is None:
        return shown
    least = min(_LEAST_LAST, _widest(columns, rows, len(columns) - 1))
    for index in sorted(shown, key=lambda index: -columns[index].expendable):
        others = sum(_widest(columns, rows, other) + len(_GAP) for other in shown[:-1])
        if others + least <= width or not columns[index].expendable:
            break
        shown.remove(index)
    return shown


def _widest(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], index: int) -> int:
    return max(cell_width(columns[index].heading), *(cell_width(row[index].text) for row in rows), 0)


def _padded(cell: Cell, column: Column, width: int, *, colour: bool) -> str:
    text = cut(cell.text, width)
    padding = " " * (width - cell_width(text))
    painted = f"\x1b[{cell.colour}m{text}\x1b[0m" if colour and cell.colour else text
    return padding + painted if column.right else painted + padding

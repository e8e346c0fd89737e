"""A process's screen on a terminal of another size: what fits of it, drawn row by row."""

import unicodedata
from collections.abc import Sequence

from tether.cli.terminal import CLEAR, PLAIN, set_title
from tether.process._styled_run import StyledRun, select_style
from tether.process.keys import KeyModes
from tether.process.screen import Cursor, Screen

# No half picture where the terminal knows how; a row that is wider than counted stays in its row.
_BEGIN = b"\x1b[?2026h\x1b[?25l\x1b[?7l"
_END = b"\x1b[?7h\x1b[?2026l"
_CURSOR_SHOWN = b"\x1b[?25h"
_PLAIN_STYLE = b"\x1b[0m"
_DIM = ("faint",)
_WITHOUT_WIDTH = ("Mn", "Me", "Cf")


class Drawing:
    """One picture of a process's screen on a terminal of `cols` by `rows`, kept up to date.

    With `keys` the terminal types its keys as the program has asked for. `remark` is shown dimly where the
    terminal has a row to spare.
    """

    def __init__(self, cols: int, rows: int, *, keys: bool, remark: str) -> None:
        self._cols = cols
        self._rows = rows
        self._keys = keys
        self._remark = remark
        self._lines: list[bytes] = []
        self._title = ""
        self._modes: KeyModes | None = None

    def update(self, rows: Sequence[Sequence[StyledRun]], screen: Screen) -> bytes:
        """What brings our terminal from the picture before to this one; the first time from anything."""
        first = first_shown(len(rows), self._rows, screen.cursor.y)
        lines = [clipped(row, self._cols) for row in rows[first : first + self._rows]]
        lines += [b""] * (self._rows - len(lines))
        if len(rows) < self._rows:
            lines[-1] = clipped([StyledRun(self._remark, flags=_DIM)], self._cols)
        pieces = [_BEGIN] if self._lines else [PLAIN + CLEAR + _BEGIN]
        before = self._lines or [b""] * self._rows
        for number, (old, new) in enumerate(zip(before, lines, strict=True), start=1):
            if old != new:
                pieces.append(b"\x1b[%d;1H" % number + _PLAIN_STYLE + b"\x1b[2K" + new)
        self._lines = lines
        pieces += [_PLAIN_STYLE, self._titled(screen.title), self._typing(screen.modes), _END]
        return b"".join([*pieces, self._cursor(screen.cursor, first)])

    def _titled(self, title: str) -> bytes:
        if title in ("", self._title):
            return b""
        self._title = title
        return set_title(title)

    def _typing(self, modes: KeyModes) -> bytes:
        if not self._keys or modes == self._modes:
            return b""
        self._modes = modes
        switches = ((b"?1", modes.application_cursor), (b"?66", modes.application_keypad))
        switches += ((b"?2004", modes.bracketed_paste),)
        pieces = [b"\x1b[" + mode + (b"h" if wanted else b"l") for mode, wanted in switches]
        return b"".join([*pieces, b"\x1b[=%du" % modes.kitty_flags])

    def _cursor(self, cursor: Cursor, first: int) -> bytes:
        row = cursor.y - first
        if not cursor.visible or row >= self._rows or cursor.x >= self._cols:
            return b""
        return b"\x1b[%d;%dH" % (row + 1, cursor.x + 1) + _CURSOR_SHOWN


def first_shown(rows: int, room: int, cursor_row: int) -> int:
    """The first of so many rows to show where there is room for fewer: the cursor's row is always among them."""
    return max(min(cursor_row - room + 1, rows - room), 0)


def clipped(row: Sequence[StyledRun], cols: int) -> bytes:
    """The beginning of a row in its colours, as much as `cols` columns hold."""
    pieces: list[bytes] = []
    for run in row:
        text, cols = _beginning(run.text, cols)
        if text:
            pieces.append(select_style(run) + text.encode("utf-8", "replace"))
        if len(text) < len(run.text):
            break
    return b"".join(pieces)


def _beginning(text: str, cols: int) -> tuple[str, int]:
    """As much of a text as fits, and how many columns are left then."""
    text = text if text.isprintable() else "".join(" " if _is_control(letter) else letter for letter in text)
    if text.isascii():
        return text[:cols], max(cols - len(text), 0)
    for index, letter in enumerate(text):
        width = _width(letter)
        if width > cols:
            return text[:index], 0
        cols -= width
    return text, cols


def _width(letter: str) -> int:
    if unicodedata.category(letter) in _WITHOUT_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1


def _is_control(letter: str) -> bool:
    return unicodedata.category(letter) == "Cc"

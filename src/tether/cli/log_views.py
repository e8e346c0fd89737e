"""How output is shown: as its bytes, as bytes that are safe for a terminal, or as text."""

import re
from typing import Protocol

from tether.cli.terminal import ColourWatch, closing_lines
from tether.process.queries import QueryFilter
from tether.process.text import TextView

# Everything that outlasts the text it stands in, but not colours of text, which are not worth a reset.
_TOUCHES = re.compile(rb"\x1b(?:[=>()]|\[[?<=>!]|\[[0-9]*[hl]|\][0-9])")
_ALTERNATE_SCREEN = re.compile(rb"\x1b\[\?(?:47|1047|1049)([hl])")
_LONGEST_SWITCH = 8
_NORMAL_SCREEN = b"\x1b[?1049l"


class View(Protocol):
    """Makes of a process's bytes what a reader gets."""

    def feed(self, data: bytes) -> bytes:
        """What to show now."""
        ...

    def end(self) -> bytes:
        """What to show when there is no more."""
        ...


def view_of(name: str, *, at_terminal: bool) -> View:
    """The view of that name, for somebody at a terminal or for a program."""
    if name == "text":
        return _Text()
    return _AtTerminal() if at_terminal else _Bytes()


class _Bytes:
    def feed(self, data: bytes) -> bytes:
        return data

    def end(self) -> bytes:
        return b""


class _AtTerminal:
    """Without questions to the terminal: a person's own would answer them, to whoever reads its keys by then.

    Afterwards the terminal is as usable as before: modes, colours and screen are put back if they were touched.
    """

    def __init__(self) -> None:
        self._filter = QueryFilter()
        self._colours = ColourWatch()
        self._before = b""
        self._touched = self._alternate = False

    def feed(self, data: bytes) -> bytes:
        shown = self._colours.saw(self._filter.feed(data))
        seen = self._before + shown
        self._touched = self._touched or _TOUCHES.search(seen) is not None
        for switched in _ALTERNATE_SCREEN.finditer(seen):
            self._alternate = switched[1] == b"h"
        self._before = seen[-_LONGEST_SWITCH:]
        return shown

    def end(self) -> bytes:
        back = closing_lines(colours_changed=self._colours.changed) if self._touched else b""
        return self._filter.flush() + (_NORMAL_SCREEN if self._alternate else b"") + back


class _Text:
    """Lines are shown when they are complete, since until then they may be overwritten."""

    def __init__(self) -> None:
        self._view = TextView()

    def feed(self, data: bytes) -> bytes:
        return self._view.feed(data).encode("utf-8", "backslashreplace")

    def end(self) -> bytes:
        return self._view.feed(b"", final=True).encode("utf-8", "backslashreplace")

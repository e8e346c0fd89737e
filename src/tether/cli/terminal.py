"""The terminal of the person who typed the command: lent to a process, and given back as it was."""

import contextlib
import os
import re
import sys

if sys.platform != "win32":
    import termios
    import tty

STDIN, STDOUT = 0, 1

# An unfinished string may end at CAN in one terminal and only at ST in another.
_BREAK_OFF = b"\x18\x1b\\"
_KEYBOARD_PLAIN = b"\x1b[=0u\x1b[<99u\x1b[>4m"
_MODES_OFF = b"".join(
    b"\x1b[?%dl" % mode
    for mode in (1, 5, 9, 66, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 2026, 2027, 2031, 2048)
)
_PLAIN_LINES = (
    _BREAK_OFF
    + _KEYBOARD_PLAIN
    + _MODES_OFF
    + b"\x1b[?7h\x1b[4l\x1b[20l\x1b>\x1b(B\x1b)B\x0f\x1b[0m\x1b[0 q\x1b[?25h"
)
# What a program may have left behind on either screen of a terminal; where the cursor is then is not said.
PLAIN = (
    _PLAIN_LINES + b"\x1b[?1049l" + _KEYBOARD_PLAIN + b"\x1b[!p\x1b[?6l\x1b[?69l\x1b[r\x1b%G\x1b[?5W" + _PLAIN_LINES
)
CLEAR = b"\x1b[H\x1b[2J"
BELL = b"\a"
_LAST_ROW = b"\x1b[9999;1H"
_TITLE_KEPT, _TITLE_BACK = b"\x1b[22;0t", b"\x1b[23;0t"
_COLOURS_BACK = b"\x1b]104\x1b\\" + b"".join(b"\x1b]%d\x1b\\" % code for code in (110, 111, 112, 117, 119))
_COLOUR_SET = re.compile(rb"(?:\x1b\]|\x9d)(?:4|5|1[0-9]|21);")
_LONGEST_COLOUR_START = 4


def at_terminal() -> bool:
    """Whether both our input and our output are a terminal."""
    return os.isatty(STDIN) and os.isatty(STDOUT)


def own_size() -> tuple[int, int] | None:
    """Columns and rows of our terminal; None when it does not say."""
    try:
        size = os.get_terminal_size(STDOUT)
    except OSError:
        return None
    return (size.columns, size.lines) if size.columns > 0 and size.lines > 0 else None


def opening(title: str, *, rows: int) -> bytes:
    """Keeps the window's title, sets ours, and moves what is on the screen up, where it can be scrolled back to."""
    return _TITLE_KEPT + set_title(title) + _LAST_ROW + b"\n" * rows + b"\x1b[H"


def set_title(title: str) -> bytes:
    """Gives the window this title."""
    return b"\x1b]2;" + printable(title).encode() + b"\x1b\\"


def closing(free_row: int | None, *, colours_changed: bool) -> bytes:
    """Undoes what a program on a whole terminal may have done, and goes to a free line below what it shows."""
    place = _LAST_ROW + b"\r\n" if free_row is None else b"\x1b[%d;1H\x1b[J" % free_row
    return PLAIN + (_COLOURS_BACK if colours_changed else b"") + place + _TITLE_BACK


def closing_lines(*, colours_changed: bool) -> bytes:
    """The same for a program that wrote lines: the cursor stays where it is."""
    return _PLAIN_LINES + (_COLOURS_BACK if colours_changed else b"")


def printable(text: str) -> str:
    """The text without what a terminal would act on."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class ColourWatch:
    """Knows whether a program has changed the terminal's own colours."""

    def __init__(self) -> None:
        self.changed = False
        self._before = b""

    def saw(self, data: bytes) -> bytes:
        """Look at what is about to be shown; returns it."""
        if not self.changed:
            self.changed = _COLOUR_SET.search(self._before + data) is not None
            self._before = (self._before + data)[-_LONGEST_COLOUR_START:]
        return data


class OwnTerminal:
    """The settings of our terminal's line discipline: changed by `lend_*`, put back by `give_back`."""

    def __init__(self) -> None:
        self._before = termios.tcgetattr(STDIN)
        self._lent = False

    def lend_raw(self) -> None:
        """Every key goes through as it is, and output is not touched."""
        self._lent = True
        tty.setraw(STDIN, termios.TCSADRAIN)

    def lend_lines(self, ending: int | None) -> None:
        """Lines are edited here as usual; the key `ending` hands them over at once, like Enter."""
        self._lent = True
        settings = termios.tcgetattr(STDIN)
        if ending is not None:
            settings[6][termios.VEOL] = bytes([ending])
        termios.tcsetattr(STDIN, termios.TCSADRAIN, settings)

    def give_back(self) -> None:
        """As it was; what is typed but not read yet was meant for the process and is gone."""
        if not self._lent:
            return
        self._lent = False
        # A terminal that is gone needs nothing; one that is somebody else's now must not be touched.
        with contextlib.suppress(OSError, termios.error):
            if os.tcgetpgrp(STDIN) == os.getpgrp():
                termios.tcflush(STDIN, termios.TCIFLUSH)
                # Not TCSADRAIN: who does not take our output must not keep us from ending.
                termios.tcsetattr(STDIN, termios.TCSANOW, self._before)

"""One terminal in memory: bytes in; screen, replies and snapshots out. Only this module knows pyghostty."""

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyghostty import __version__ as _library_version
from pyghostty import ffi, lib
from pyghostty.core import init_sized, union_fn

from tether.process._styled_run import FLAG_CODES, StyledRun, append_text, select_style, shows_on_blanks
from tether.process.keys import KeyModes

ENGINE = f"pyghostty {_library_version}"

_FOREGROUND = (0xD8, 0xD8, 0xD8)
_BACKGROUND = (0x10, 0x10, 0x10)
_SCROLLBACK_LINES = 2_000
# The library's own cap of 10,000 bytes keeps some 500 rows whatever number of lines is asked for.
_SCROLLBACK_BYTES = 8 * 1024 * 1024
_CONTINUATION_BYTES = 1024 * 1024
_STRING_BYTES = 64 * 1024
_REPLY_BYTES = 64 * 1024
_CELL_PIXELS = (8, 16)
_CELLS_REMEMBERED = 4096
_CLUSTER_LENGTH = 16

_OPTIONS = (
    ("SCROLLBACK_MAX_LINES", "size_t*", _SCROLLBACK_LINES),
    ("SCROLLBACK_MAX_BYTES", "size_t*", _SCROLLBACK_BYTES),
    ("CONTINUATION_MAX_BYTES", "size_t*", _CONTINUATION_BYTES),
    ("APC_MAX_BYTES", "size_t*", _STRING_BYTES),
    ("CLIPBOARD_WRITE_MAX_BYTES", "size_t*", _STRING_BYTES),
    ("COLOR_FOREGROUND", "GhosttyColorRgb*", _FOREGROUND),
    ("COLOR_BACKGROUND", "GhosttyColorRgb*", _BACKGROUND),
    # A picture could name any file to be read or, as a temporary one, removed.
    ("KITTY_IMAGE_STORAGE_LIMIT", "uint64_t*", 0),
    ("KITTY_IMAGE_MEDIUM_FILE", "bool*", False),
    ("KITTY_IMAGE_MEDIUM_SHARED_MEM", "bool*", False),
)

_MODE_NAMES = {
    1: "application_cursor",
    5: "reverse_screen",
    6: "origin",
    7: "autowrap",
    9: "mouse_x10",
    66: "application_keypad",
    1000: "mouse_press",
    1002: "mouse_drag",
    1003: "mouse_motion",
    1004: "focus_events",
    1005: "mouse_utf8",
    1006: "mouse_sgr",
    1015: "mouse_urxvt",
    1016: "mouse_pixels",
    2004: "bracketed_paste",
    2026: "synchronized_output",
    2027: "grapheme_clusters",
    2048: "size_reports",
}
_ALTERNATE_MODES = (1049, 1047, 47)
# What a reply may look like: numbers and our own names only, never a text the program chose.
_REPLY = re.compile(
    rb"(?:\x1b\[[?>]?[0-9;]*[cnRuyt]|\x1b\[\??[0-9]+;[0-9]\$y"
    rb"|\x1bP>\|libghostty[0-9. ]*\x1b\\|\x1bP!\|[0-9A-F]{8}\x1b\\"
    rb"|\x1bP[01]\$r[0-9;:]*(?:m|r|s| q|\"[pq])?\x1b\\"
    rb"|\x1b\](?:10|11|12|4;[0-9]{1,3});rgb:[0-9a-f/]{6,14}(?:\x07|\x1b\\))+"
)
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f]")
# Before the text of a snapshot these modes would spoil it.
_MODES_AFTER_TEXT = re.compile(rb"\x1b\[(?:\?7l|\?6h|4h)")
_CANCEL = b"\x18"
_HOME = b"\x1b[H"
_TOP_MARGIN = re.compile(rb"\x1b\[(\d+);\d+r")
_LEFT_MARGIN = re.compile(rb"\x1b\[(\d+);\d+s")


class EmulatorError(Exception):
    """The emulator refused a call; the message names it."""


@dataclass(frozen=True, slots=True)
class _CellFacts:
    """What a cell's number says of itself; a cluster's further characters are to be asked for."""

    text: str
    clustered: bool
    style_id: int
    bg: int | str | None


def _check(result: int, what: str) -> None:
    if result:
        raise EmulatorError(f"{what} failed with {result}")


def _fill(call: Callable[[Any, int, Any], int], what: str) -> bytes:
    """The bytes a C function gives that is asked for the size first."""
    size = ffi.new("size_t*")
    call(ffi.NULL, 0, size)
    space = ffi.new("uint8_t[]", max(size[0], 1))
    _check(call(space, max(size[0], 1), size), what)
    return ffi.buffer(space, size[0])[:]


def _colour(colour: Any) -> int | str | None:
    if colour.tag == lib.GHOSTTY_STYLE_COLOR_PALETTE:
        return int(colour.value.palette)
    if colour.tag == lib.GHOSTTY_STYLE_COLOR_RGB:
        return _hex(colour.value.rgb)
    return None


def _hex(rgb: Any) -> str:
    return f"#{rgb.r:02x}{rgb.g:02x}{rgb.b:02x}"


def _read_cell(cell: int) -> _CellFacts:
    def fact(name: str, ctype: str) -> Any:
        value = ffi.new(f"{ctype}*")
        _check(lib.ghostty_cell_get(cell, getattr(lib, f"GHOSTTY_CELL_DATA_{name}"), value), name)
        return value[0]

    tag, style_id = fact("CONTENT_TAG", "GhosttyCellContentTag"), int(fact("STYLE_ID", "uint16_t"))
    if tag == lib.GHOSTTY_CELL_CONTENT_BG_COLOR_PALETTE:
        return _CellFacts(" ", clustered=False, style_id=style_id, bg=int(fact("COLOR_PALETTE", "uint8_t")))
    if tag == lib.GHOSTTY_CELL_CONTENT_BG_COLOR_RGB:
        return _CellFacts(" ", clustered=False, style_id=style_id, bg=_hex(fact("COLOR_RGB", "GhosttyColorRgb")))
    if fact("WIDE", "GhosttyCellWide") == lib.GHOSTTY_CELL_WIDE_SPACER_TAIL:
        return _CellFacts("", clustered=False, style_id=style_id, bg=None)
    codepoint = int(fact("CODEPOINT", "uint32_t"))
    clustered = tag == lib.GHOSTTY_CELL_CONTENT_CODEPOINT_GRAPHEME
    return _CellFacts(chr(codepoint) if codepoint else " ", clustered, style_id, None)


def _restore(state: bytes, handle: Any) -> None:
    decoder = ffi.new("GhosttySnapshotDecoder*")
    _check(lib.ghostty_snapshot_decoder_new_buf(ffi.NULL, decoder, state, len(state)), "restore")
    try:
        keep, option = ffi.new("bool*", 1), lib.GHOSTTY_SNAPSHOT_DECODER_OPT_RETAIN_CONTINUATION
        _check(lib.ghostty_snapshot_decoder_set(decoder[0], option, keep), "restore")
        _check(lib.ghostty_snapshot_decoder_decode(decoder[0], handle), "restore")
    finally:
        lib.ghostty_snapshot_decoder_free(decoder[0])


class Emulator:
    """A terminal of `cols` by `rows` that takes a program's bytes and says what a person would see."""

    def __init__(self, cols: int, rows: int, *, state: bytes | None = None) -> None:
        """A fresh terminal, or the one that `save` described; its size is then that of the state."""
        handle = ffi.new("GhosttyTerminal*")
        if state is None:
            _check(lib.ghostty_terminal_new(ffi.NULL, handle, cols, rows), f"a terminal of {cols}x{rows}")
        else:
            _restore(state, handle)
        self._handle = ffi.gc(handle[0], lib.ghostty_terminal_free)
        self._replies: list[bytes] = []
        self._reply_room = _REPLY_BYTES
        self._facts: dict[int, _CellFacts] = {}
        self._reply_callback = ffi.callback("GhosttyTerminalWritePtyFn", self._replied)
        self._set("WRITE_PTY", self._reply_callback)
        for name, ctype, value in _OPTIONS:
            self._set(name, ffi.new(ctype, value))
        self._set("KITTY_IMAGE_MEDIUM_TEMP_FILE", ffi.NULL)

    def feed(self, data: bytes) -> bytes:
        """Take the program's bytes; returns what the terminal replies to the queries among them."""
        lib.ghostty_terminal_vt_write(self._handle, data, len(data))
        return self._take_replies()

    def resize(self, cols: int, rows: int) -> bytes:
        """Change the size, reflowing lines; returns the report a program may have asked for."""
        _check(lib.ghostty_terminal_resize(self._handle, cols, rows, *_CELL_PIXELS), f"resize {cols}x{rows}")
        return self._take_replies()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self._get("COLS", "uint16_t"), self._get("ROWS", "uint16_t")

    @property
    def cursor(self) -> tuple[int, int, bool]:
        """Column, row, both from 0, and whether it is shown."""
        x, y = self._get("CURSOR_X", "uint16_t"), self._get("CURSOR_Y", "uint16_t")
        return x, y, bool(self._get("CURSOR_VISIBLE", "bool"))

    @property
    def title(self) -> str:
        """The window title the program set."""
        found = self._get("TITLE", "GhosttyString")
        raw = ffi.buffer(found.ptr, found.len)[:] if found.len else b""
        return _UNPRINTABLE.sub("", raw.decode("utf-8", "replace"))

    @property
    def alternate_screen(self) -> bool:
        """The program draws on the alternate screen."""
        return self._get("ACTIVE_SCREEN", "GhosttyTerminalScreen") == lib.GHOSTTY_TERMINAL_SCREEN_ALTERNATE

    @property
    def at_ground(self) -> bool:
        """No escape sequence or character is unfinished."""
        return bool(self._get("VT_GROUND", "bool"))

    @property
    def key_modes(self) -> KeyModes:
        """What the program asked of its keyboard."""
        flags = int(self._get("KITTY_KEYBOARD_FLAGS", "uint8_t"))
        return KeyModes(self._mode(1), self._mode(66), self._mode(2004), flags)

    @property
    def mode_names(self) -> list[str]:
        """Names of the modes that are on."""
        return [name for number, name in _MODE_NAMES.items() if self._mode(number)]

    def text(self) -> str:
        """The rows of the screen, right-trimmed, joined by newlines; always as many as there are rows."""
        cols, rows = self.size
        selection = init_sized("GhosttySelection")
        selection.start, selection.end = self._ref(0, 0)[0], self._ref(cols - 1, rows - 1)[0]
        options = init_sized("GhosttyTerminalSelectionFormatOptions")
        options.emit, options.trim = lib.GHOSTTY_FORMATTER_FORMAT_PLAIN, True
        options.selection = selection
        plain = _fill(
            lambda space, room, size: lib.ghostty_terminal_selection_format_buf(
                self._handle, options[0], space, room, size
            ),
            "text",
        ).decode("utf-8", "replace")
        lines = [line.rstrip() for line in plain.split("\n")]
        return "\n".join(lines + [""] * (rows - len(lines)))

    def cells(self) -> list[list[StyledRun]]:
        """Each row as runs of one style; cells that were never drawn at a row's end are left out."""
        cols, rows = self.size
        return [self._row(y, cols) for y in range(rows)]

    def vt(self) -> bytes:
        """Bytes that bring a fresh terminal of this size to this state, an unfinished sequence included.

        Left out are links, a saved cursor, and what `save` fails on of an unfinished string and a screen behind.
        """
        pieces = [self._format_vt()]
        if self.title:
            pieces.append(b"\x1b]2;" + self.title.encode() + b"\x1b\\")
        if self.alternate_screen:
            with contextlib.suppress(EmulatorError):
                # Its margins would cut what is drawn next, which brings margins of its own.
                pieces[:0] = [self._primary_vt(), b"\x1b7\x1b[r\x1b8"]
        with contextlib.suppress(EmulatorError):
            pieces.append(
                _fill(
                    lambda space, room, size: lib.ghostty_terminal_continuation_buf(self._handle, space, room, size),
                    "continuation",
                )
            )
        return b"".join(pieces)

    def save(self) -> bytes:
        """The whole state, both screens and an unfinished sequence included, to restore it from.

        Raises:
            EmulatorError: the library cannot describe it: half a wide character, a malformed unfinished string.
        """
        return _fill(
            lambda space, room, size: lib.ghostty_snapshot_encode_buf(self._handle, space, room, size), "save"
        )

    def _set(self, name: str, value: Any) -> None:
        option = getattr(lib, f"GHOSTTY_TERMINAL_OPT_{name}")
        _check(lib.ghostty_terminal_set(self._handle, option, value), name)

    def _replied(self, _terminal: Any, _userdata: Any, data: Any, size: int) -> None:
        reply = ffi.buffer(data, size)[:]
        if len(reply) <= self._reply_room:
            self._reply_room -= len(reply)
            self._replies.append(reply)

    def _take_replies(self) -> bytes:
        if not self._replies:
            return b""
        written, self._replies, self._reply_room = self._replies, [], _REPLY_BYTES
        return b"".join(reply for reply in written if _REPLY.fullmatch(reply))

    def _get(self, name: str, ctype: str) -> Any:
        value = ffi.new(f"{ctype}*")
        key = getattr(lib, f"GHOSTTY_TERMINAL_DATA_{name}")
        _check(lib.ghostty_terminal_get(self._handle, key, value), name)
        return value[0]

    def _mode(self, number: int) -> bool:
        question = ffi.new("GhosttyTerminalModeConfig*")
        question.mode = number
        _check(lib.ghostty_terminal_get(self._handle, lib.GHOSTTY_TERMINAL_DATA_MODE, question), f"mode {number}")
        return bool(question.value)

    def _ref(self, x: int, y: int) -> Any:
        """A cell of the screen; valid until the next change."""
        find = union_fn(
            "ghostty_terminal_grid_ref", "GhosttyResult(*)(GhosttyTerminal, GhosttyPointS, GhosttyGridRef*)"
        )
        point, ref = ffi.new("GhosttyPointS*"), init_sized("GhosttyGridRef")
        point.tag = lib.GHOSTTY_POINT_TAG_ACTIVE
        point.value.x, point.value.y = x, y
        _check(find(self._handle, point[0], ref), f"cell {x},{y}")
        return ref

    def _primary_vt(self) -> bytes:
        """The screen behind the alternate one: the formatter knows the active one only, so a copy is led back."""
        copy = Emulator(*self.size, state=self.save())
        copy.feed(_CANCEL)
        for mode in _ALTERNATE_MODES:
            if copy.alternate_screen and self._mode(mode):
                copy.feed(b"\x1b[?%dl" % mode)
        return b"" if copy.alternate_screen else copy.vt()

    def _format_vt(self) -> bytes:
        """The active screen with its scrollback, modes, margins, tab stops and cursor."""
        content = self._formatted(lib.GHOSTTY_FORMATTER_FORMAT_VT, extras=False)
        whole = self._formatted(lib.GHOSTTY_FORMATTER_FORMAT_VT, extras=True)
        before, home, behind = whole.partition(_HOME)
        behind = behind.removeprefix(content.removeprefix(_HOME))
        late = b"".join(_MODES_AFTER_TEXT.findall(before))
        if b"\x1b[?6h" in late:
            late += self._cursor_within_margins(behind)
        return _MODES_AFTER_TEXT.sub(b"", before) + home + content + self._touched_up() + behind + late

    def _formatted(self, form: int, *, extras: bool) -> bytes:
        options = init_sized("GhosttyFormatterTerminalOptions")
        options.emit, options.unwrap = form, form == lib.GHOSTTY_FORMATTER_FORMAT_VT
        for name in ("modes", "scrolling_region", "tabstops", "pwd", "keyboard"):
            setattr(options.extra, name, extras)
        for name in ("cursor", "style", "hyperlink", "protection", "kitty_keyboard", "charsets"):
            setattr(options.extra.screen, name, extras)
        formatter = ffi.new("GhosttyFormatter*")
        _check(lib.ghostty_formatter_terminal_new(ffi.NULL, formatter, self._handle, options[0]), "format")
        try:
            return _fill(
                lambda space, room, size: lib.ghostty_formatter_format_buf(formatter[0], space, room, size),
                "format",
            )
        finally:
            lib.ghostty_formatter_free(formatter[0])

    def _touched_up(self) -> bytes:
        """What the formatter gets wrong: rows below the last text, and the colour of blanks behind coloured text."""
        cols, rows = self.size
        plain = self._formatted(lib.GHOSTTY_FORMATTER_FORMAT_PLAIN, extras=False)
        written = plain.count(b"\n") + 1 if plain else 0
        blank = int(self._get("TOTAL_ROWS", "size_t")) - written
        pieces = [b"\r\n" * (blank if written else blank - 1)]
        for y in range(rows):
            runs = self._row(y, cols)
            if any(shows_on_blanks(run) for run in runs):
                pieces.append(b"\x1b[%d;1H" % (y + 1))
                pieces += [select_style(run) + run.text.encode() for run in runs]
        return b"".join([*pieces, b"\x1b[0m"])

    def _cursor_within_margins(self, behind: bytes) -> bytes:
        """Where the cursor is, for a terminal that counts from its margins, which `behind` sets."""
        x, y, _ = self.cursor
        top, left = _TOP_MARGIN.search(behind), _LEFT_MARGIN.search(behind)
        row = y + 2 - int(top[1]) if top else y + 1
        return b"\x1b[%d;%dH" % (row, x + 2 - int(left[1]) if left else x + 1)

    def _row(self, y: int, cols: int) -> list[StyledRun]:
        ref, cell = self._ref(0, y), ffi.new("GhosttyCell*")
        runs: list[StyledRun] = []
        pieces: list[str] = []
        key: tuple[int, str | int | None] | None = None
        for x in range(cols):
            ref.x = x
            _check(lib.ghostty_grid_ref_cell(ref, cell), "cell")
            facts = self._cell_facts(cell[0])
            if key != (facts.style_id, facts.bg):
                key = (facts.style_id, facts.bg)
                append_text(runs, pieces)
                runs.append(self._style(ref, facts))
            pieces.append(self._graphemes(ref) if facts.clustered else facts.text)
        append_text(runs, pieces)
        if runs[-1] == StyledRun(runs[-1].text):
            plain = runs.pop().text.rstrip()
            runs += [StyledRun(plain)] if plain else []
        return runs

    def _cell_facts(self, cell: int) -> _CellFacts:
        known = self._facts.get(cell)
        if known is None:
            if len(self._facts) >= _CELLS_REMEMBERED:
                self._facts.clear()
            known = self._facts[cell] = _read_cell(cell)
        return known

    def _graphemes(self, ref: Any) -> str:
        size, space = ffi.new("size_t*"), ffi.new("uint32_t[]", _CLUSTER_LENGTH)
        result = lib.ghostty_grid_ref_graphemes(ref, space, _CLUSTER_LENGTH, size)
        if result == lib.GHOSTTY_OUT_OF_SPACE:
            space = ffi.new("uint32_t[]", size[0])
            result = lib.ghostty_grid_ref_graphemes(ref, space, size[0], size)
        _check(result, "graphemes")
        return "".join(chr(space[at]) for at in range(size[0]))

    def _style(self, ref: Any, facts: _CellFacts) -> StyledRun:
        if not facts.style_id:
            return StyledRun("", bg=facts.bg)
        style = init_sized("GhosttyStyle")
        _check(lib.ghostty_grid_ref_style(ref, style), "style")
        flags = tuple(name for name in FLAG_CODES if getattr(style, name))
        background = facts.bg if facts.bg is not None else _colour(style.bg_color)
        return StyledRun("", _colour(style.fg_color), background, flags, int(style.underline))

r"""Text made late from the raw bytes of a terminal or a pipe.

The text view follows these rules, whatever the chunks the bytes come in:

- Every newline byte of the input is exactly one "\n" of the text, so lines are never merged or renumbered
  and can be counted in the raw bytes. A newline ends any escape sequence or string it falls into.
- Escape sequences and control characters are removed, from ESC and from the code points U+0080-U+009F alike.
  A string (OSC, DCS, SOS, PM, APC) ends at ST, a newline, CAN, SUB or the start of another sequence, an OSC
  also at BEL, and at the latest after STRING_LIMIT characters. What follows is text again.
- A carriage return, a backspace and the CSI sequences C, D, G, K, P, X and @ edit the line they stand in.
  Vertical movement is ignored: that is the screen's work.
- A column is one code point, also for tabs, wide and combining characters.
- Edits reach back EDITABLE characters at most; older text of a long line is settled. A move to the right
  leaves no gap beyond column GAP_LIMIT.
- A line longer than LINE_LIMIT characters is handed out in pieces of that size, with no newline added.
"""

import codecs
import re
import unicodedata
from dataclasses import dataclass
from typing import Final

STRING_LIMIT: Final = 64 * 1024
LINE_LIMIT: Final = 1024 * 1024
EDITABLE: Final = 4096
GAP_LIMIT: Final = 512

_PARAMETER_LIMIT: Final = 256

# 0xc2 begins the code points U+0080-U+009F.
_NOT_PLAIN = bytes({*range(0x20), 0x7F, 0xC2} - set(b"\t\n"))

_INTRODUCERS = "\x1b\x9b\x9d\x90\x98\x9e\x9f"
_STRING_ENDS = r"\n\x18\x1a\x1b\x90\x98\x9b-\x9f"
_OSC_BODY = rf"[^\x07{_STRING_ENDS}]{{0,{STRING_LIMIT}}}"
_STRING_BODY = rf"[^{_STRING_ENDS}]{{0,{STRING_LIMIT}}}"
_INTERMEDIATES = rf"[ -/]{{0,{_PARAMETER_LIMIT}}}"
_CSI_BODY = rf"[0-?]{{0,{_PARAMETER_LIMIT}}}{_INTERMEDIATES}"
_CSI_EDIT = rf"[0-9;]{{0,{_PARAMETER_LIMIT}}}[@CDGKPX]"
# Tab, newline, backspace and carriage return are not among these.
_CONTROLS = r"\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f"


def _removal(controls: str, kept_sequence: str) -> re.Pattern[str]:
    """A pattern of all that is removed; it begins with one set, which is what a regex searches fastest."""
    csi = rf"(?!{kept_sequence}){_CSI_BODY}[@-~]?"
    after_escape = rf"\[{csi}|\]{_OSC_BODY}|[PX^_]{_STRING_BODY}|(?!\[){_INTERMEDIATES}[0-~]?"
    return re.compile(
        rf"[{controls}](?:(?<=\x1b)(?:{after_escape})|(?<=\x9b){csi}|(?<=\x9d){_OSC_BODY}"
        rf"|(?<=[\x90\x98\x9e\x9f]){_STRING_BODY}|(?<![\x1b\x9b]))"
    )


_REMOVED = _removal(_CONTROLS, _CSI_EDIT)
_REMOVED_WITH_EDITS = _removal(rf"\x08{_CONTROLS}", r"[^\s\S]")
_EDIT_STARTS = "\r\x08\x1b\x9b"
_EDIT = re.compile(rf"(\r|\x08|(?:\x1b\[|\x9b){_CSI_EDIT})")
_UNFINISHED_SEQUENCE = re.compile(rf"\x1b{_INTERMEDIATES}|(?:\x1b\[|\x9b){_CSI_BODY}")
_UNFINISHED_STRING = re.compile(
    rf"(?:\x1b\]|\x9d)(?P<osc>{_OSC_BODY})|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])(?P<other>{_STRING_BODY})"
)
_OSC_END = re.compile(rf"[\x07{_STRING_ENDS}]")
_STRING_END = re.compile(rf"[{_STRING_ENDS}]")

# The standard decoder cannot tell this: it also waits for the third byte of a surrogate, which is invalid.
_INCOMPLETE_CHARACTER = re.compile(
    rb"(?:[\xc2-\xdf]|\xe0[\xa0-\xbf]?|\xed[\x80-\x9f]?|[\xe1-\xec\xee\xef][\x80-\xbf]?"
    rb"|\xf0(?:[\x90-\xbf][\x80-\xbf]?)?|\xf4(?:[\x80-\x8f][\x80-\xbf]?)?|[\xf1-\xf3][\x80-\xbf]{0,2})\Z"
)

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Letters and marks that take no ink: joiner, Hangul fillers, Khmer vowels, variation selectors.
_HIDDEN_OTHERS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def complete_length(data: bytes) -> int:
    """The length of `data` without a character still incomplete at its end: 3 bytes less at most."""
    incomplete = _INCOMPLETE_CHARACTER.search(data, max(0, len(data) - 3))
    return incomplete.start() if incomplete else len(data)


def decode(data: bytes) -> str:
    """`data` as UTF-8, each invalid byte sequence as U+FFFD, otherwise unchanged."""
    return data.decode("utf-8", "replace")


class Utf8Decoder:
    """Decodes chunks into the same text as `decode` of them all, never splitting a character."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """The characters that `data` completes; with `final` an incomplete rest becomes U+FFFD."""
        return self._decoder.decode(data, final)


def strip_escapes(text: str) -> str:
    r"""`text` without escape sequences and controls other than "\n", "\t" and "\r"; nothing is moved."""
    return _REMOVED_WITH_EDITS.sub("", text)


def _is_plain(data: bytes) -> bool:
    """Whether no control but tab and newline can come from `data`, nor from a character it completes."""
    return len(data.translate(None, _NOT_PLAIN)) == len(data) and not b"\x80" <= data[:1] < b"\xa0"


class TextView:
    """The text a person would read, line by line, by the rules at the top of this module."""

    def __init__(self) -> None:
        self._decoder = Utf8Decoder()
        self._unfinished_sequence = ""
        self._string_left = 0
        self._string_end = _STRING_END
        self._finished: list[str] = []
        self._settled: list[str] = []
        self._settled_length = 0
        self._line = ""
        self._column = 0

    @property
    def pending(self) -> str:
        """The current line as far as it is known, without what was already handed out."""
        return "".join(self._settled) + self._line

    def feed(self, data: bytes, *, final: bool = False) -> str:
        r"""The lines that `data` completes, each with its "\n"; `final` adds the rest and starts anew."""
        # A terminal makes "\r\n" of every "\n": without the "\r" most output is plain.
        data = data.replace(b"\r\n", b"\n")
        is_plain = not self._unfinished_sequence and _is_plain(data)
        text = self._unfinished_sequence + self._decoder.feed(data, final=final)
        self._unfinished_sequence = ""
        if self._string_left:
            text = self._skip_string(text)
        if not is_plain:
            text = _REMOVED.sub("", self._hold_back_unfinished(text))
        if is_plain or not any(start in text for start in _EDIT_STARTS):
            self._append(text)
        else:
            self._apply_edits(text)
        if final:
            self._finish()
        finished = "".join(self._finished)
        self._finished.clear()
        return finished

    def _finish(self) -> None:
        self._finished.append(self.pending)
        self._start_line()
        self._unfinished_sequence = ""
        self._string_left = 0

    def _skip_string(self, text: str) -> str:
        end = self._string_end.search(text, 0, self._string_left)
        if end:
            self._string_left = 0
            return text[end.start() :]
        skipped = min(self._string_left, len(text))
        self._string_left -= skipped
        return text[skipped:]

    def _hold_back_unfinished(self, text: str) -> str:
        # Every introducer ends what was before it, so only the last one can still be open.
        start = max(map(text.rfind, _INTRODUCERS))
        if start < 0:
            return text
        if _UNFINISHED_SEQUENCE.fullmatch(text, start):
            self._unfinished_sequence = text[start:]
            return text[:start]
        string = _UNFINISHED_STRING.fullmatch(text, start)
        if string is None:
            return text
        kind = string.lastgroup or ""
        self._string_end = _OSC_END if kind == "osc" else _STRING_END
        self._string_left = STRING_LIMIT - len(string[kind])
        return text[:start]

    def _append(self, text: str) -> None:
        first, newline, rest = text.partition("\n")
        self._write(first)
        if newline:
            self._end_line()
            lines, newline, last = rest.rpartition("\n")
            self._finished.append(lines + newline)
            self._write(last)

    def _apply_edits(self, text: str) -> None:
        *lines, last = text.split("\n")
        for line in lines:
            self._apply_edits_of_line(line)
            self._end_line()
        self._apply_edits_of_line(last)

    def _apply_edits_of_line(self, text: str) -> None:
        run, *parts = _EDIT.split(text)
        self._write(run)
        for edit, run in zip(parts[::2], parts[1::2], strict=True):
            if edit == "\r":
                self._column = 0
            elif edit == "\x08":
                self._column = max(0, self._column - 1)
            else:
                self._apply_sequence(edit)
            self._write(run)

    def _apply_sequence(self, sequence: str) -> None:
        parameter = sequence.lstrip("\x1b[\x9b")[:-1].partition(";")[0]
        if sequence[-1] == "K":
            self._erase_line(int(parameter or 0))
            return
        count = int(parameter or 1) or 1
        line, column = self._line, self._column
        match sequence[-1]:
            case "C":
                self._move_to(column + count)
            case "D":
                self._column = max(0, column - count)
            case "G":
                self._move_to(count - 1)
            case "P":
                self._line = line[:column] + line[column + count :]
            case "X":
                self._blank(column, column + count)
            case _:
                blanks = " " * min(count, GAP_LIMIT) if column < len(line) else ""
                self._line = (line[:column] + blanks + line[column:])[:EDITABLE]

    def _move_to(self, column: int) -> None:
        self._column = min(column, max(self._column, len(self._line), GAP_LIMIT))

    def _erase_line(self, part: int) -> None:
        if part == 0:
            self._line = self._line[: self._column]
        elif part == 1:
            self._blank(0, self._column + 1)
        elif part == 2:
            self._line = ""

    def _blank(self, start: int, end: int) -> None:
        if end >= len(self._line):
            self._line = self._line[:start]
        else:
            self._line = self._line[:start] + " " * (end - start) + self._line[end:]

    def _write(self, text: str) -> None:
        if not text:
            return
        line, end = self._line, self._column + len(text)
        self._line = line[: self._column].ljust(self._column) + text + line[end:]
        self._column = end
        if end > EDITABLE:
            self._settle()

    def _settle(self) -> None:
        length = (self._column - 1) // EDITABLE * EDITABLE
        self._settled.append(self._line[:length])
        self._settled_length += length
        self._line = self._line[length:]
        self._column -= length
        if self._settled_length >= LINE_LIMIT:
            settled = "".join(self._settled)
            self._settled_length %= LINE_LIMIT
            whole = len(settled) - self._settled_length
            self._finished.append(settled[:whole])
            self._settled = [settled[whole:]]

    def _end_line(self) -> None:
        self._finished.append(f"{self.pending}\n")
        self._start_line()

    def _start_line(self) -> None:
        self._settled = []
        self._settled_length = 0
        self._line = ""
        self._column = 0


def render(data: bytes) -> str:
    """The whole text view of `data`."""
    return TextView().feed(data, final=True)


@dataclass(frozen=True)
class Clipped:
    """Text shortened for one reply, and how many of its characters (code points) were left out."""

    text: str
    omitted: int


def clip(text: str, limit: int) -> Clipped:
    """The first `limit` characters of `text`."""
    _require_limit(limit)
    return Clipped(text[:limit], max(0, len(text) - limit))


def clip_middle(text: str, limit: int) -> Clipped:
    """`limit` characters of `text`, half from each end, around a marker line not counted in `limit`."""
    _require_limit(limit)
    omitted = len(text) - limit
    if omitted <= 0:
        return Clipped(text, 0)
    head_length = limit - limit // 2
    head, tail = text[:head_length], text[head_length + omitted :]
    marker = f"… {omitted:,} character{'s' if omitted > 1 else ''} left out …"
    before = "\n" if head and not head.endswith("\n") else ""
    after = "\n" if tail and not tail.startswith("\n") else ""
    return Clipped(head + before + marker + after + tail, omitted)


def _require_limit(limit: int) -> None:
    if limit < 0:
        raise ValueError(f"limit {limit!r} is negative: pass the number of characters to keep, 0 or more")


def visible(text: str, *, keep: str = "\n\t") -> str:
    r"""`text` with what a reader cannot see (controls, bidi, zero-width) as \x1b, \u202e or \U000e0001.

    Backslashes stay single: the result is for eyes, not to be parsed back.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in keep or not _is_hidden(char) else _escaped(char) for char in text)


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _HIDDEN_CATEGORIES or _HIDDEN_OTHERS.match(char) is not None


def _escaped(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"

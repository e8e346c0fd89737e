r"""A terminal's output without what a terminal would answer by typing.

The emulator answers each query of a program once. Whoever else shows the same output must not answer it again, so
these never reach a person's terminal or a browser: device attributes, status, mode, window, colour, font,
clipboard, keyboard and graphics reports, `ENQ` and `DECID`, in their 7-bit and 8-bit forms; a byte inside a
character of UTF-8 is no control. A mode that makes the terminal report at once (in-band resizes) is taken out of
its list.

Everything else passes unchanged, whatever the chunks. What is undecided at the end of a chunk is held, at most
`HELD_BYTES`. A longer sequence of a kind that could be a query is dropped to its end: no program in use sends one,
and a query must not pass by being long. Strings that cannot ask (titles, pictures, clipboard contents) are never
held.

Controls inside a removed sequence are kept. A query that breaks off an unfinished sequence leaves `ESC CAN` in its
place, so that what follows is read as it was meant.
"""

import enum
import re
from dataclasses import dataclass

HELD_BYTES = 4096

_ENQ = b"\x05"
_BREAK_OFF = b"\x1b\x18"

# A character of UTF-8 or as much of it as there is, and bytes that neither belong to one nor are a control.
_HIGH = (
    rb"[\xc3-\xdf][\x80-\xbf]?+|\xc2(?![\x90\x98\x9a-\x9f])[\x80-\xbf]?+"
    rb"|\xe0(?:[\xa0-\xbf][\x80-\xbf]?+)?+|\xed(?:[\x80-\x9f][\x80-\xbf]?+)?+"
    rb"|[\xe1-\xec\xee\xef](?:[\x80-\xbf][\x80-\xbf]?+)?+"
    rb"|\xf0(?:[\x90-\xbf][\x80-\xbf]{0,2}+)?+|\xf4(?:[\x80-\x8f][\x80-\xbf]{0,2}+)?+"
    rb"|[\xf1-\xf3](?:[\x80-\xbf][\x80-\xbf]{0,2}+)?+"
    rb"|[\x80-\x8f\x91-\x97\x99\xa0-\xc1\xf5-\xff]"
)
# Executed or skipped by a terminal in the middle of a sequence.
_NOISE = rb"[\x00-\x17\x19\x1c-\x1f\x7f]|" + _HIGH
_PARTIAL = re.compile(rb"(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z")
_CODED_CONTROL = re.compile(rb"\xc2[\x90\x98\x9a-\x9f]")

# Text, and the sequences of which most output consists, none of which is ever answered.
_HARMLESS = re.compile(
    rb"(?:[^\x05\x1b\x80-\xff]++|\x1b\[[0-9;:]*+[@-bd-mo-su-wyz{|}~]"
    rb"|\x1b\[\?(?!0*+2048h)[0-9]++[hl]|\x1b[()*+][0-9A-Z]|\x1b[78=>DEHM]"
    rb"|\x1b\](?:[01278]|133);[ -~]*+(?:\x07|\x1b\\)|" + _HIGH + rb")*+"
)
_INTRODUCER = re.compile(rb"\x1b(?:" + _NOISE + rb")*+([\[\]PX^_])|\xc2?([\x90\x98\x9b\x9d-\x9f])")
_ESCAPE = re.compile(rb"\x1b(?:[ -/]|" + _NOISE + rb")*+")
_CONTROL_BODY = re.compile(rb"(?:[ -?]|" + _NOISE + rb")*+")
_WELL_FORMED = re.compile(rb"([<=>?]?)([0-9;:]*)([ -/]*)")
_STRING = re.compile(rb"(?:[^\x18\x1a\x1b\x80-\xff]++|" + _HIGH + rb")*+")
_STRING_TO_BELL = re.compile(rb"(?:[^\x07\x18\x1a\x1b\x80-\xff]++|" + _HIGH + rb")*+")
_TMUX_WRAPPED = re.compile(rb"tmux;((?:[^\x1b]++|\x1b\x1b)*+)")
_OF_A_SEQUENCE = re.compile(rb"[ -\x7f\x05\x1b]")
_UNPRINTABLE = re.compile(rb"[\x00-\x1f\x7f]")
_FIRST_NUMBER = re.compile(rb"0*+([0-9]*)")

_QUERIES = frozenset(
    {
        (b"", b"c"), (b">", b"c"), (b"=", b"c"),  # device attributes
        (b"", b"n"), (b"?", b"n"),  # status, cursor, printer, colour scheme, ...
        (b"", b"$p"), (b"?", b"$p"),  # is a mode set
        (b">", b"q"), (b"?", b"u"), (b"?", b"m"), (b"?", b"g"),  # version; keyboard flags, modifiers, formats
        (b"", b"x"), (b"?", b"S"), (b"", b"*y"),  # parameters, graphics, checksum of a rectangle
        (b"", b"&u"), (b"", b"$u"), (b"", b"$w"), (b"", b'"v'),  # character set, state, presentation, extent
        (b"", b"#R"), (b"", b"#|"), (b"", b"'|"), (b"", b"+x"), (b"", b"+p"),  # colours, SGR, locator, keys, reset
    }
)  # fmt: skip
# Answered with these first numbers only.
_NUMBERED_QUERIES = {
    (b"", b"t"): frozenset({11, 13, 14, 15, 16, 18, 19, 20, 21}),
    (b">", b" q"): frozenset({0, 100, 101}),
}
_QUERY_FINALS = frozenset(code[-1:] for _, code in (*_QUERIES, *_NUMBERED_QUERIES))
_REPORTS_AT_ONCE = b"2048"

_DEVICE_REQUEST = re.compile(rb"[0-9:;<=>?]*[$+][qQ]|@kitty-cmd")
_DEVICE_HEAD = re.compile(rb"[0-9:;<=>?]*[ -/]*")
_TITLES = frozenset({0, 1, 2, 3, 9, 30, 31})
_ANSWERED_ALWAYS = frozenset({60, 61, 5522})
_ASKED_IN_A_FIELD = frozenset({4, 5, *range(10, 21), 21, 22, 39, 49, 50, *range(701, 712)})
_CLIPBOARD, _NOTIFICATION, _ITERM = 52, 99, 1337
_ITERM_REQUESTS = (b"report", b"requestupload", b"capabilities")
_LONGEST_ITERM_NAME = 16


class _Mode(enum.Enum):
    GROUND = enum.auto()
    PASS_STRING = enum.auto()
    DROP_STRING = enum.auto()
    DROP_CONTROL = enum.auto()


@dataclass(frozen=True, slots=True)
class _Step:
    """How far a look came, what passes on, and how to go on; `broken` when the terminal is left in a sequence."""

    at: int
    passed: bytes
    mode: _Mode = _Mode.GROUND
    bell_ends: bool = False
    broken: bool = False


class QueryFilter:
    """Takes a terminal's output in chunks and gives it back without the queries in it."""

    __slots__ = ("_bell_ends", "_broken", "_held", "_mode")

    def __init__(self) -> None:
        self._held = b""
        self._mode = _Mode.GROUND
        self._bell_ends = False
        self._broken = False

    def feed(self, data: bytes) -> bytes:
        """What may be shown of everything fed so far and was not given back yet."""
        if not self._held and self._mode is _Mode.GROUND and _is_plain(data):
            return data
        data = self._held + data
        stop = _whole_characters(data, len(data))
        pieces: list[bytes] = []
        at = 0
        while at < stop:
            step = self._step(data, at, stop)
            if step is None:
                break
            pieces.append(step.passed)
            at, self._mode, self._bell_ends, self._broken = step.at, step.mode, step.bell_ends, step.broken
        self._held = data[at:]
        return b"".join(pieces)

    @property
    def held(self) -> int:
        """How many bytes are kept back because it is undecided what they begin."""
        return len(self._held)

    def flush(self) -> bytes:
        """What is still held when the output has ended, unless it is the beginning of a query."""
        held, dropping = self._held, self._mode in (_Mode.DROP_STRING, _Mode.DROP_CONTROL)
        self._held, self._mode, self._bell_ends, self._broken = b"", _Mode.GROUND, False, False
        if dropping:
            return b""
        intro = _INTRODUCER.match(held)
        if intro and (kind := _kind(intro)) in b"]P_":
            content = _string_run(kind).match(held, intro.end())
            assert content is not None
            if _is_request(kind, content[0], ended=True) or content[0].startswith(b"tmux;"):
                return b""
        return held.replace(_ENQ, b"")

    def _step(self, data: bytes, at: int, stop: int) -> _Step | None:
        match self._mode:
            case _Mode.GROUND:
                return self._in_text(data, at, stop)
            case _Mode.PASS_STRING | _Mode.DROP_STRING:
                return self._in_string(data, at, stop)
            case _Mode.DROP_CONTROL:
                return _in_dropped_control(data, at, stop)

    def _in_text(self, data: bytes, at: int, stop: int) -> _Step | None:
        run = _HARMLESS.match(data, at, stop)
        assert run is not None
        if run.end() > at:
            return _Step(run.end(), run[0])
        if data[at] == 0x05:
            return _Step(at + 1, b"")
        full = stop - at >= HELD_BYTES
        limit = _whole_characters(data, at + HELD_BYTES) if full else stop
        removed = _BREAK_OFF if self._broken else b""
        intro = _INTRODUCER.match(data, at, limit)
        if intro is None:
            step = _escape(data, at, limit, removed)
        elif _kind(intro) == b"[":
            step = _control(data, intro, limit, removed)
        else:
            step = _string(data, intro, limit, removed)
        if step is None and full:
            return _too_long(data[at:limit], intro, limit, removed)
        return step

    def _in_string(self, data: bytes, at: int, stop: int) -> _Step | None:
        dropping = self._mode is _Mode.DROP_STRING
        run = (_STRING_TO_BELL if self._bell_ends else _STRING).match(data, at, stop)
        assert run is not None
        if run.end() > at:
            passed = b"" if dropping else run[0].replace(_ENQ, b"")
            return _Step(run.end(), passed, self._mode, self._bell_ends)
        terminator = _terminator(data, at, stop)
        if dropping:
            return None if terminator is None else _Step(at + len(terminator), b"")
        return _Step(at + len(terminator), terminator) if terminator else _Step(at, b"", broken=True)


def _is_plain(data: bytes) -> bool:
    """Whether there is no control in it that could begin anything."""
    if b"\x1b" in data or _ENQ in data:
        return False
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return _CODED_CONTROL.search(data) is None


def _whole_characters(data: bytes, end: int) -> int:
    """Where the last character before `end` ends that is complete by then."""
    partial = _PARTIAL.search(data, max(end - 3, 0), end)
    return partial.start() if partial else end


def _kind(intro: re.Match[bytes]) -> bytes:
    """The second byte of the introducer's 7-bit form."""
    return intro[1] or bytes([intro[2][0] - 0x40])


def _string_run(kind: bytes) -> re.Pattern[bytes]:
    return _STRING_TO_BELL if kind == b"]" else _STRING


def _terminator(data: bytes, at: int, stop: int) -> bytes | None:
    """What ends a string here: empty when another sequence breaks it off, None when that is undecided."""
    if data[at] in b"\x07\x18\x1a\x9c":
        return data[at : at + 1]
    if data[at] == 0xC2:
        return data[at : at + 2] if data[at + 1] == 0x9C else b""
    if data[at] != 0x1B:
        return b""
    if at + 1 == stop:
        return None
    return data[at : at + 2] if data[at + 1] == 0x5C else b""


def _escape(data: bytes, at: int, limit: int, removed: bytes) -> _Step | None:
    """An escape sequence that introduces nothing, or a single 8-bit control."""
    if data[at] != 0x1B:
        code = data[at + 1] if data[at] == 0xC2 else data[at]
        end = at + 2 if data[at] == 0xC2 else at + 1
        return _Step(end, removed) if code == 0x9A else _Step(end, data[at:end])
    head = _ESCAPE.match(data, at, limit)
    assert head is not None
    end = head.end()
    if end == limit:
        return None
    if data[end] in b"\x18\x1a":
        return _kept(data, at, end + 1)
    if not 0x30 <= data[end] <= 0x7E:
        return _kept(data, at, end, broken=True)
    if data[end] == 0x5A and not any(0x20 <= byte <= 0x2F for byte in head[0]):
        return _Step(end + 1, removed + _controls(head[0]))
    return _kept(data, at, end + 1)


def _control(data: bytes, intro: re.Match[bytes], limit: int, removed: bytes) -> _Step | None:
    body = _CONTROL_BODY.match(data, intro.end(), limit)
    assert body is not None
    at, end = intro.start(), body.end()
    if end == limit:
        return None
    if data[end] in b"\x18\x1a":
        return _kept(data, at, end + 1)
    if not 0x40 <= data[end] <= 0x7E:
        return _kept(data, at, end, broken=True)
    final = data[end : end + 1]
    words = b"".join(re.findall(rb"[ -?]", body[0]))
    controls = _inside(intro) + _controls(body[0])
    if _is_query(words, final):
        return _Step(end + 1, removed + controls)
    modes = words[1:].split(b";") if final == b"h" and words.startswith(b"?") else []
    others = [mode for mode in modes if mode.lstrip(b"0") != _REPORTS_AT_ONCE]
    if len(others) == len(modes):
        return _kept(data, at, end + 1)
    rewritten = b"\x1b[?" + b";".join(others) + b"h" if others else removed
    return _Step(end + 1, rewritten + controls)


def _kept(data: bytes, at: int, end: int, *, broken: bool = False) -> _Step:
    return _Step(end, data[at:end].replace(_ENQ, b""), broken=broken)


def _inside(intro: re.Match[bytes]) -> bytes:
    """The controls between the two bytes of an introducer."""
    return _controls(intro[0]) if intro[1] else b""


def _controls(sequence: bytes) -> bytes:
    """What a terminal would have done or shown in the middle of it."""
    return _OF_A_SEQUENCE.sub(b"", sequence)


def _is_query(words: bytes, final: bytes) -> bool:
    """Whether a control sequence is answered; of those that are malformed, any that might be."""
    parts = _WELL_FORMED.fullmatch(words)
    if parts is None:
        return final in _QUERY_FINALS
    code = (parts[1], parts[3] + final)
    if code not in _NUMBERED_QUERIES:
        return code in _QUERIES
    first = _FIRST_NUMBER.match(parts[2])
    assert first is not None
    # A terminal may keep only the low bits of a number no program would send.
    return len(first[1]) > 4 or int(first[1] or b"0") in _NUMBERED_QUERIES[code]


def _string(data: bytes, intro: re.Match[bytes], limit: int, removed: bytes) -> _Step | None:
    """The beginning of a string: as soon as it is known whether it asks, it passes or is dropped."""
    kind, start = _kind(intro), intro.end()
    run = _string_run(kind).match(data, start, limit)
    assert run is not None
    ended = run.end() < limit
    if kind == b"P" and run[0].startswith(b"tmux;"):
        wrapped = _TMUX_WRAPPED.match(data, start, limit)
        assert wrapped is not None
        ending = data[wrapped.end() : min(wrapped.end() + 2, limit)]
        if len(ending) < 2:
            return None
        if ending == b"\x1b\\":
            whole = intro[0] + wrapped[0] + ending
            return _Step(start + len(wrapped[0]) + 2, removed if _asks(wrapped[1]) else whole)
    asks = _is_request(kind, run[0], ended=ended)
    if asks is None:
        return None
    mode = _Mode.DROP_STRING if asks else _Mode.PASS_STRING
    return _Step(start, removed if asks else intro[0].replace(_ENQ, b""), mode, bell_ends=kind == b"]")


def _asks(wrapped: bytes) -> bool:
    """Whether there is a query in what a tmux would pass through."""
    inner = wrapped.replace(b"\x1b\x1b", b"\x1b")
    nested = QueryFilter()
    return nested.feed(inner) + nested.flush() != inner


def _is_request(kind: bytes, content: bytes, *, ended: bool) -> bool | None:
    """Whether a string with this content is answered; None while more of it is needed to know."""
    content = _UNPRINTABLE.sub(b"", content)
    match kind:
        case b"]":
            return _is_system_request(content, ended=ended)
        case b"P":
            return _is_device_request(content, ended=ended)
        case b"_":
            return _is_graphics_request(content, ended=ended)
        case _:
            return False


def _is_device_request(content: bytes, *, ended: bool) -> bool | None:
    if _DEVICE_REQUEST.match(content):
        return True
    head = _DEVICE_HEAD.match(content)
    assert head is not None
    undecided = head.end() == len(content) or b"@kitty-cmd".startswith(content) or b"tmux;".startswith(content)
    return None if undecided and not ended else False


def _is_graphics_request(content: bytes, *, ended: bool) -> bool | None:
    """Of kitty's pictures, those with a number are answered, unless they ask for silence."""
    settings, semicolon, _ = content.partition(b";")
    if content and not content.startswith(b"G"):
        return False
    if not semicolon and not ended:
        return None
    keys = settings[1:].split(b",")
    numbered = any(key.startswith((b"i=", b"I=")) for key in keys)
    return b"a=q" in keys or (numbered and b"q=2" not in keys)


def _is_system_request(content: bytes, *, ended: bool) -> bool | None:
    digits, semicolon, rest = content.partition(b";")
    if not digits.isdigit():
        return False if content or ended else None
    if not semicolon and not ended:
        return None
    number = int(digits[-6:])
    if number in _ANSWERED_ALWAYS:
        return True
    if number in _TITLES:
        return False
    if number in _ASKED_IN_A_FIELD:
        return b"?" in rest if ended else None
    decided, asks = _asks_by_its_words(number, rest)
    return asks if decided or ended else None


def _asks_by_its_words(number: int, rest: bytes) -> tuple[bool, bool]:
    """Whether enough of the words is there to decide, and whether they ask."""
    if number == _CLIPBOARD:
        _, semicolon, contents = rest.partition(b";")
        return bool(semicolon and contents), contents.startswith(b"?")
    if number == _NOTIFICATION:
        settings, semicolon, _ = rest.partition(b";")
        return bool(semicolon), bool({b"p=?", b"p=alive"} & set(settings.split(b":")))
    if number == _ITERM:
        name = rest[:_LONGEST_ITERM_NAME]
        return len(name) == _LONGEST_ITERM_NAME, name.lower().startswith(_ITERM_REQUESTS)
    return bool(rest), rest.startswith(b"?")


def _in_dropped_control(data: bytes, at: int, stop: int) -> _Step:
    body = _CONTROL_BODY.match(data, at, stop)
    assert body is not None
    end = body.end()
    controls = _controls(body[0])
    if end == stop:
        return _Step(end, controls, _Mode.DROP_CONTROL)
    return _Step(end + 1 if 0x40 <= data[end] <= 0x7E else end, controls)


def _too_long(held: bytes, intro: re.Match[bytes] | None, limit: int, removed: bytes) -> _Step:
    if intro is None:
        return _Step(limit, removed + _controls(held))
    kind = _kind(intro)
    if kind == b"[":
        return _Step(limit, removed + _inside(intro) + _controls(held[len(intro[0]) :]), _Mode.DROP_CONTROL)
    return _Step(limit, removed, _Mode.DROP_STRING, bell_ends=kind == b"]")

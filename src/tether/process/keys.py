"""tmux-style key names, pasted text and hex values to the bytes a terminal would send.

A token is one of:

- a key name in any case: `Enter`, `PgUp`, `F5`, `KP+`, ...; `KEY_NAMES` lists them all;
- a character, which stands for itself: `q`, `:`, `é`;
- either of them after `C-`, `M-` or `S-`, in any order and number: `C-c`, `C-M-Left`, `S-F5`;
- a control character in caret form: `^C`, `^[`, `^?`;
- a named or modified key and how often to press it: `Down:5`, `C-w:2`, at most `REPEAT_LIMIT` times;
- any other text, typed as it stands: `ls -l`, `j:5`, `host:80`.

The count follows a colon because no shell expands that. A bare character takes none, so that `j:5` stays
text; five of them are `jjjjj`. Text that happens to read as a key is typed by sending it as text.

Control names a key, not a letter case: `C-C` is `C-c`, and Control with Shift is `C-S-c`.
"""

import difflib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tether.errors import InputRefusedError, TetherError, UnknownKeyError

REPEAT_LIMIT: Final = 1000

_SHIFT: Final = 1
_ALT: Final = 2
_CONTROL: Final = 4
_MODIFIERS: Final = {"s": _SHIFT, "m": _ALT, "c": _CONTROL}

_KITTY_DISAMBIGUATE: Final = 1
_KITTY_ALTERNATE_KEYS: Final = 4
_KITTY_ALL_KEYS: Final = 8
_KITTY_TEXT: Final = 16

# `CSI 1 ; modifiers letter`
_LETTER_KEYS: Final = {
    "up": "A", "down": "B", "right": "C", "left": "D", "end": "F", "home": "H",
    "f1": "P", "f2": "Q", "f3": "R", "f4": "S",
}  # fmt: skip

# `CSI number ; modifiers ~`
_NUMBER_KEYS: Final = {
    "insert": 2, "delete": 3, "pageup": 5, "pagedown": 6,
    "f5": 15, "f6": 17, "f7": 18, "f8": 19, "f9": 20, "f10": 21, "f11": 23, "f12": 24,
}  # fmt: skip

_CONTROL_KEYS: Final = {"enter": 0x0D, "tab": 0x09, "escape": 0x1B, "backspace": 0x7F}
_HIGH_FUNCTION_KEYS: Final = {f"f{number}": number for number in range(13, 25)}

# In the order of the kitty protocol's key numbers.
_KEYPAD_KEYS: Final = {f"kp{name}": name for name in "0123456789./*-+"} | {"kpenter": "enter", "kp=": "="}
_KEYPAD_APPLICATION_LETTERS: Final = dict(zip(_KEYPAD_KEYS, "pqrstuvwxynojmkMX", strict=True))
_KITTY_KEYPAD_NUMBERS: Final = {name: 57399 + place for place, name in enumerate(_KEYPAD_KEYS)}
_KITTY_F13: Final = 57376

_SPELLINGS: Final = {
    "Enter": "enter", "Return": "enter", "Tab": "tab", "BTab": "btab", "Escape": "escape", "Esc": "escape",
    "Space": " ", "BSpace": "backspace", "Backspace": "backspace",
    "Up": "up", "Down": "down", "Left": "left", "Right": "right", "Home": "home", "End": "end",
    "PageUp": "pageup", "PgUp": "pageup", "PPage": "pageup",
    "PageDown": "pagedown", "PgDn": "pagedown", "NPage": "pagedown",
    "Insert": "insert", "IC": "insert", "Delete": "delete", "Del": "delete", "DC": "delete",
    **{f"F{number}": f"f{number}" for number in range(1, 25)},
    **{f"KP{name}": f"kp{name}" for name in "0123456789/*-+.="}, "KPEnter": "kpenter",
}  # fmt: skip
_KEY_BY_NAME: Final = {spelling.lower(): key for spelling, key in _SPELLINGS.items()}
KEY_NAMES: Final = tuple(_SPELLINGS)
_KNOWN_NAMES: Final = (
    "Enter Tab BTab Escape Space BSpace Up Down Left Right Home End PgUp PgDn Insert Delete F1-F24 "
    "KP0-KP9 KP/ KP* KP- KP+ KP. KP= KPEnter"
)

# What people write instead of C- M- S-: `Ctrl+C`, `Alt-x`, `Control-Shift-Up`.
_LONG_MODIFIER = re.compile(r"(?i)(?:^|(?<=[-+]))(ctrl|control|shift|alt|meta)[-+](?=.)")
_SHORT_MODIFIER = {"ctrl": "C-", "control": "C-", "shift": "S-", "alt": "M-", "meta": "M-"}
_NO_FUNCTION_KEY = re.compile(r"(?i)f[0-9]+")
_CARET: Final = re.compile(r"\^[@-_a-z?]")
# A caret names the control character itself, so these four stay the keys that send it even where
# the kitty protocol tells Control+I from Tab.
_KEY_BY_CARET: Final = {"[": "escape", "?": "backspace", "i": "tab", "m": "enter"}

# What Xlib, and so xterm, makes of Control with a character outside `@` to `~`.
_CONTROL_BY_CHARACTER: Final = dict(zip(" 2345678/?", b"\x00\x00\x1b\x1c\x1d\x1e\x1f\x7f\x1f\x7f", strict=True))

_PASTE_START: Final = "\x1b[200~"
_PASTE_END: Final = "\x1b[201~"
# U+DC9B is how a lone byte 0x9B, the C1 form of `ESC [`, reads among UTF-8.
_PASTE_MARKERS: Final = [
    list(f"{introducer}{number}~") for introducer in ("\x1b[", "\x9b", "\udc9b") for number in (200, 201)
]
_PASTE_MARKER: Final = re.compile("(?:\x1b\\[|[\x9b\udc9b])20[01]~")
_HEX_VALUE: Final = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,2})")


@dataclass(frozen=True, slots=True)
class KeyModes:
    """What the program in the terminal asked of its keyboard."""

    application_cursor: bool = False
    application_keypad: bool = False
    bracketed_paste: bool = False
    kitty_flags: int = 0


_NORMAL_MODES: Final = KeyModes()


@dataclass(frozen=True, slots=True)
class _Press:
    """One key, as a name of the tables above or a single character, with its modifiers."""

    token: str
    key: str
    modifiers: int


def encode_keys(keys: Sequence[str], modes: KeyModes = _NORMAL_MODES) -> bytes:
    """Return what a terminal in `modes` sends when these keys are pressed one after the other.

    Raises:
        UnknownKeyError: a modified token that is no key, a combination no terminal sends, or a bad count.
    """
    return b"".join(_encode_token(token, modes) for token in keys)


def encode_hex(values: Sequence[str]) -> bytes:
    """Return the raw bytes written as one or two hexadecimal digits each, with or without `0x`.

    Raises:
        UnknownKeyError: a value that is not such a byte.
    """
    encoded = bytearray()
    for value in values:
        match = _HEX_VALUE.fullmatch(value)
        if match is None:
            raise UnknownKeyError(f"not a byte in hexadecimal: {value!r} (write one or two digits: '1b', '0x1b')")
        encoded.append(int(match[1], 16))
    return bytes(encoded)


def encode_paste(text: str | bytes, modes: KeyModes = _NORMAL_MODES) -> bytes:
    """Return what a terminal sends for pasted text: no text can end its own bracket, newlines become Enter.

    Raises:
        InputRefusedError: text with half a surrogate pair, which has no bytes.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    text = _without_paste_markers(text).replace("\r\n", "\r").replace("\n", "\r")
    if modes.bracketed_paste:
        text = f"{_PASTE_START}{text}{_PASTE_END}"
    return encode_text(text)


def encode_text(text: str) -> bytes:
    """Return what typing `text` sends.

    Raises:
        InputRefusedError: text with half a surrogate pair, which has no bytes.
    """
    return _utf8(text, InputRefusedError)


def _without_paste_markers(text: str) -> str:
    """Remove paste markers, also those that come together when one inside them is removed."""
    if _PASTE_MARKER.search(text) is None:
        return text
    # One pass over a stack: repeated replacing takes quadratic time on nested markers.
    kept: list[str] = []
    for character in text:
        kept.append(character)
        if character == "~":
            for marker in _PASTE_MARKERS:
                if kept[-len(marker) :] == marker:
                    del kept[-len(marker) :]
                    break
    return "".join(kept)


def _utf8(text: str, error: type[TetherError]) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as problem:
        lone = text[problem.start]
        raise error(f"text with half a surrogate pair: {lone!r} (send whole characters)") from None


def _encode_token(token: str, modes: KeyModes) -> bytes:
    base, _, count = token.rpartition(":")
    if base and count.isascii() and count.isdigit():
        press = _parse(base)
        if press is not None and len(base) > 1:
            if len(count) > len(str(REPEAT_LIMIT)) or not 1 <= int(count) <= REPEAT_LIMIT:
                raise UnknownKeyError(f"cannot press {token!r}: the count goes from 1 to {REPEAT_LIMIT}")
            return _encode_press(press, modes) * int(count)
    press = _parse(token)
    return _utf8(token, UnknownKeyError) if press is None else _encode_press(press, modes)


def _parse(token: str) -> _Press | None:
    """Read a token as a key, or return None for text that is to be typed as it stands."""
    modifiers, name = 0, _LONG_MODIFIER.sub(lambda found: _SHORT_MODIFIER[found[1].lower()], token)
    while len(name) > 2 and name[1] == "-" and name[0].lower() in _MODIFIERS:
        modifiers |= _MODIFIERS[name[0].lower()]
        name = name[2:]
    key = _KEY_BY_NAME.get(name.lower())
    if key == "btab":
        return _Press(token, "tab", modifiers | _SHIFT)
    if key is not None:
        return _Press(token, key, modifiers)
    if _CARET.fullmatch(name):
        letter = name[1].lower()
        if letter in _KEY_BY_CARET:
            return _Press(token, _KEY_BY_CARET[letter], modifiers)
        return _Press(token, letter, modifiers | _CONTROL)
    if len(name) == 1 and unicodedata.category(name) not in ("Cc", "Cs"):
        return _Press(token, name, modifiers)
    if modifiers or _NO_FUNCTION_KEY.fullmatch(name):
        raise _unknown(token, token[: len(token) - len(name)], name)
    return None


def _unknown(token: str, prefix: str, name: str) -> UnknownKeyError:
    close = difflib.get_close_matches(name.lower(), _KEY_BY_NAME, n=3)
    matches = [repr(prefix + spelling) for spelling in KEY_NAMES if spelling.lower() in close]
    hint = f"did you mean {' or '.join(matches)}? " if matches else ""
    return UnknownKeyError(
        f"unknown key {token!r}: no key is called {name!r} ({hint}"
        f"a modifier takes one character or a name: {_KNOWN_NAMES}; to type {token!r}, send it as text)"
    )


def _encode_press(press: _Press, modes: KeyModes) -> bytes:
    if modes.kitty_flags & (_KITTY_DISAMBIGUATE | _KITTY_ALL_KEYS):
        return _encode_kitty(press, modes.kitty_flags)
    return _encode_xterm(press, modes)


def _encode_xterm(press: _Press, modes: KeyModes) -> bytes:
    key, modifiers = press.key, press.modifiers
    if key in _HIGH_FUNCTION_KEYS:
        key, modifiers = _as_low_function_key(press)
    if key in _KEYPAD_KEYS:
        if modes.application_keypad and not modifiers:
            return f"\x1bO{_KEYPAD_APPLICATION_LETTERS[key]}".encode()
        key = _KEYPAD_KEYS[key]
    if key in _LETTER_KEYS and not modifiers:
        application = key in ("f1", "f2", "f3", "f4") or modes.application_cursor
        return f"\x1b{'O' if application else '['}{_LETTER_KEYS[key]}".encode()
    if key in _LETTER_KEYS or key in _NUMBER_KEYS:
        return _function_key(key, modifiers)
    return _encode_xterm_typing(_Press(press.token, key, modifiers))


def _as_low_function_key(press: _Press) -> tuple[str, int]:
    # xterm's terminfo entry has F13 to F24 as Shift with F1 to F12, and that is where programs look keys up;
    # the VT220 numbers (25~, 26~, 28~, ...) are not in it, and vim takes two of them for Undo and Help.
    if press.modifiers & _SHIFT:
        raise UnknownKeyError(
            f"cannot press {press.token!r}: F13 to F24 already are Shift with F1 to F12 (leave S- away)"
        )
    return f"f{_HIGH_FUNCTION_KEYS[press.key] - 12}", press.modifiers | _SHIFT


def _encode_xterm_typing(press: _Press) -> bytes:
    """Encode a character, Enter, Tab, Escape or Backspace; `CSI u` only where nothing older says the same."""
    key, others = press.key, press.modifiers & ~_ALT
    plain: bytes | None = None
    if not others:
        plain = bytes([_CONTROL_KEYS[key]]) if key in _CONTROL_KEYS else key.encode()
    elif (key, others) == ("tab", _SHIFT):
        plain = b"\x1b[Z"
    elif (key, others) == ("backspace", _CONTROL):
        plain = b"\b"
    elif key not in _CONTROL_KEYS and others == _SHIFT:
        plain = _shifted(press).encode()
    elif key not in _CONTROL_KEYS and others == _CONTROL:
        plain = _control_code(key)
    if plain is None:
        return f"\x1b[{_CONTROL_KEYS.get(key) or ord(_unshifted(key))};{press.modifiers + 1}u".encode()
    return b"\x1b" + plain if press.modifiers & _ALT else plain


def _encode_kitty(press: _Press, flags: int) -> bytes:
    """Encode the press of a key as the kitty keyboard protocol has it; releases are never sent."""
    key, modifiers = press.key, press.modifiers
    if key in _LETTER_KEYS or key in _NUMBER_KEYS:
        # `CSI R` answers a cursor position query, so the protocol gives F3 a number.
        return f"\x1b[13{_parameter(modifiers)}~".encode() if key == "f3" else _function_key(key, modifiers)
    if key in _HIGH_FUNCTION_KEYS:
        return f"\x1b[{_KITTY_F13 + _HIGH_FUNCTION_KEYS[key] - 13}{_parameter(modifiers)}u".encode()
    if key in _CONTROL_KEYS:
        # These three stay bytes so that a shell left in this mode by a crash can still be typed in.
        if key != "escape" and not modifiers and not flags & _KITTY_ALL_KEYS:
            return bytes([_CONTROL_KEYS[key]])
        return f"\x1b[{_CONTROL_KEYS[key]}{_parameter(modifiers)}u".encode()
    return _encode_kitty_text(press, flags)


def _encode_kitty_text(press: _Press, flags: int) -> bytes:
    key, modifiers = press.key, press.modifiers
    typed, text = _KEYPAD_KEYS.get(key, key), ""
    if modifiers in (0, _SHIFT) and len(typed) == 1 and flags & (_KITTY_ALL_KEYS | _KITTY_TEXT) != _KITTY_ALL_KEYS:
        text = _shifted(_Press(press.token, typed, modifiers)) if modifiers else typed
    if text and not flags & _KITTY_ALL_KEYS:
        return text.encode()
    if key in _KEYPAD_KEYS:
        number = str(_KITTY_KEYPAD_NUMBERS[key])
    else:
        lower = _unshifted(key)
        if lower != key and not modifiers & _CONTROL:
            modifiers |= _SHIFT
        number = str(ord(lower))
        if flags & _KITTY_ALTERNATE_KEYS and modifiers & _SHIFT:
            number += _alternate(lower)
    fields = _parameter(modifiers)
    if text:
        fields = f"{fields or ';'};{ord(text)}"
    return f"\x1b[{number}{fields}u".encode()


def _alternate(lower: str) -> str:
    upper = lower.upper()
    return f":{ord(upper)}" if len(upper) == 1 and upper != lower else ""


def _function_key(key: str, modifiers: int) -> bytes:
    if key in _NUMBER_KEYS:
        return f"\x1b[{_NUMBER_KEYS[key]}{_parameter(modifiers)}~".encode()
    return f"\x1b[{'1' if modifiers else ''}{_parameter(modifiers)}{_LETTER_KEYS[key]}".encode()


def _parameter(modifiers: int) -> str:
    return f";{modifiers + 1}" if modifiers else ""


def _control_code(character: str) -> bytes | None:
    if "@" <= character <= "~":
        return bytes([ord(character) & 0x1F])
    code = _CONTROL_BY_CHARACTER.get(character)
    return None if code is None else bytes([code])


def _unshifted(character: str) -> str:
    lower = character.lower()
    return lower if len(lower) == 1 else character


def _shifted(press: _Press) -> str:
    upper = press.key.upper()
    if press.key == " " or (len(upper) == 1 and upper.lower() != upper):
        return upper
    raise UnknownKeyError(
        f"cannot press {press.token!r}: what Shift makes of {press.key!r} depends on the keyboard "
        "(write the character itself, without S-)"
    )

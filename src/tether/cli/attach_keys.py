"""The key that detaches: how a person names it, and how it is found in what they type."""

import re
from dataclasses import dataclass
from typing import Self

from tether.errors import UnknownKeyError
from tether.process.keys import encode_keys

NO_KEY = "none"
_IN_EVERY_KEY = b"\x1b\r\t"
# Shift, Alt, Control and further modifiers are bits above 1; the lock keys do not make another key of it.
_CONTROL_AND_LOCKS = "(?:5|69|133|197)"


@dataclass(frozen=True, slots=True)
class DetachKey:
    """One control key, `byte` on a plain keyboard; None of both when there is no such key."""

    shown: str
    byte: int | None
    pattern: re.Pattern[bytes] | None

    @classmethod
    def named(cls, name: str) -> Self:
        r"""The key of that tmux name, such as `C-]`, `C-a` or `C-\`; `none` for no key.

        Raises:
            UnknownKeyError: no key that types one control character of its own.
        """
        if name.lower() == NO_KEY:
            return cls("", None, None)
        typed = encode_keys([name])
        if len(typed) != 1 or typed[0] >= 0x20 or typed in _IN_EVERY_KEY:
            raise UnknownKeyError(
                f"cannot detach with {name!r}; take a key with Control, such as C-] or C-a, or none"
            )
        base = chr(typed[0] | 0x40).lower()
        # Programs can ask the keyboard to spell out its keys, in one way or another.
        spelt = f"\x1b\\[{ord(base)}(?::[0-9]*)*;{_CONTROL_AND_LOCKS}(?::[12])?(?:;[0-9:]*)?u"
        older = f"\x1b\\[27;{_CONTROL_AND_LOCKS};{ord(base)}~"
        pattern = re.compile(b"|".join((re.escape(typed), spelt.encode(), older.encode())))
        return cls(f"Ctrl-{base.upper()}", typed[0], pattern)

    def split(self, typed: bytes) -> tuple[bytes, bool]:
        """What was typed before the key, and whether the key was pressed."""
        found = self.pattern.search(typed) if self.pattern else None
        return (typed, False) if found is None else (typed[: found.start()], True)

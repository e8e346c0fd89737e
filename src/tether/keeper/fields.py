"""Values out of JSON objects that somebody else wrote, each checked when it is taken."""

import contextlib
import math
from collections.abc import Mapping
from typing import Final, NoReturn, TypeVar, cast

from tether.errors import KeeperError

T = TypeVar("T")


class Fields:
    """The keys of a JSON object, each checked when it is taken."""

    __slots__ = ("_what", "everything")

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, dict):
            # Only its type is told: it may be a secret.
            raise KeeperError(f"no {what}: of type {type(value).__name__!r}, not a JSON object")
        self.everything = cast("dict[str, object]", value)
        self._what = what

    def find(self, key: str) -> object:
        """Whatever stands there; None when nothing does."""
        return self.everything.get(key)

    def maybe(self, key: str, kind: type[T]) -> T | None:
        """A value of this kind; None when there is none."""
        value = self.everything.get(key)
        return None if value is None else self._checked(key, value, kind)

    def get(self, key: str, kind: type[T], default: T) -> T:
        """A value of this kind, or the default when there is none."""
        value = self.everything.get(key)
        return default if value is None else self._checked(key, value, kind)

    def need(self, key: str, kind: type[T]) -> T:
        """A value of this kind, which must be there."""
        return self._checked(key, self.everything.get(key), kind)

    def count(self, key: str) -> int:
        """A whole number from 0 up; 0 when there is none."""
        value = self.get(key, int, 0)
        return value if value >= 0 else self.refuse(key, value, "a whole number from 0 up")

    def items(self, key: str, kind: type[T]) -> list[T]:
        """A list of such values; empty when there is none."""
        return [self._checked(key, one, kind) for one in self.objects(key)]

    def objects(self, key: str) -> list[object]:
        """A list of anything; empty when there is none."""
        return cast("list[object]", self.get(key, list, []))

    def refuse(self, key: str, value: object, wanted: str) -> NoReturn:
        """Say what is wrong with the value of a key."""
        raise KeeperError(f"no {self._what}: {key!r} is {value!r:.200}, not {wanted}")

    def _checked(self, key: str, value: object, kind: type[T]) -> T:
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):
                value = float(value)
        fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if not fits or (isinstance(value, float) and not math.isfinite(value)):
            self.refuse(key, value, _KIND_NAMES[kind])
        return cast("T", value)


_KIND_NAMES: Final[Mapping[type, str]] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    list: "a list",
}

"""Reading back what a program has saved for the one that this process becomes next."""

from collections.abc import Mapping
from typing import TypeVar, cast

_Kind = TypeVar("_Kind", int, float, str, bool)


def saved(state: Mapping[str, object], name: str, kind: type[_Kind]) -> _Kind:
    """One plain value of a saved state.

    Raises:
        ValueError: it is missing or of another kind.
    """
    value = state.get(name)
    if isinstance(value, kind):
        return value
    raise ValueError(f"a saved state has {name}={value!r} where {kind.__name__} belongs; save it again")


def saved_part(state: Mapping[str, object], name: str) -> Mapping[str, object]:
    """A part of a saved state that has values of its own.

    Raises:
        ValueError: it is missing or of another kind.
    """
    value = state.get(name)
    if isinstance(value, dict):
        return cast("dict[str, object]", value)
    raise ValueError(f"a saved state has {name}={value!r} where an object belongs; save it again")

"""Which process somebody means."""

from collections.abc import Callable, Mapping, Sequence

from tether.errors import AmbiguousProcessError, InvalidCommandError, UnknownProcessError

_LONGEST_NAME = 100


def check_name(name: str, running: Mapping[str, str]) -> None:
    """Refuse a name that nobody can read, or by which a process of `running` (id to name) goes already.

    Raises:
        InvalidCommandError: with the reason.
    """
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise InvalidCommandError(
            f"impossible name {name[:_LONGEST_NAME]!r}; use up to {_LONGEST_NAME} printable characters"
        )
    taken = [process_id for process_id, other in running.items() if name and other == name]
    if taken:
        raise InvalidCommandError(f"process {taken[0]} runs under the name {name!r}; choose another name")


def meant(words: str, ids: Sequence[str], named: Callable[[str], list[str]]) -> str:
    """The one id that is meant by an id, by a name, or by the beginning of an id, in that order.

    Raises:
        AmbiguousProcessError: several are.
        UnknownProcessError: none is.
    """
    if words in ids:
        return words
    found = (named(words) or [one for one in ids if one.startswith(words)]) if words else []
    if not found:
        raise UnknownProcessError(words[:_LONGEST_NAME], ids)
    if len(found) > 1:
        raise AmbiguousProcessError(words, found)
    return found[0]

"""Words that several commands take, and how a shell completes them."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import click
from click.shell_completion import CompletionItem

_ALSO_ENDED = ("logs", "wait", "forget")

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Size:
    """Columns and rows of a terminal."""

    cols: int
    rows: int


def seconds(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """A number of seconds that a clock can count."""
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise click.BadParameter(f"{value!r} is not a number of seconds above 0.")
    return number


def size(_context: click.Context, _option: click.Parameter, value: str | None) -> Size | None:
    """Both numbers of COLSxROWS."""
    if value is None:
        return None
    found = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})", value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not COLSxROWS, such as 120x30.")
    return Size(int(found[1]), int(found[2]))


def complete_file(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete a file."""
    return [CompletionItem(incomplete, type="file")]


def complete_directory(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete a directory."""
    return [CompletionItem(incomplete, type="dir")]


def process_argument(function: F) -> F:
    """One process: its id, a unique beginning of that, or a unique name."""
    return click.argument("process_id", metavar="ID", callback=_named, shell_complete=_complete)(function)


def processes_argument(function: F) -> F:
    """Any number of processes."""
    return click.argument("process_ids", metavar="ID...", nargs=-1, shell_complete=_complete)(function)


def some(process_ids: tuple[str, ...]) -> tuple[str, ...]:
    """The words, each once; refused when there is none."""
    if not process_ids:
        raise click.UsageError("No process given; `tether ps` lists their ids.")
    return tuple(dict.fromkeys(_checked(word) for word in process_ids))


def _named(_context: click.Context, _argument: click.Parameter, value: str) -> str:
    return _checked(value)


def _checked(word: str) -> str:
    if not word:
        raise click.UsageError("'' names no process; `tether ps --all` lists all of them.")
    return word


def _complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from tether.cli.completion_ids import matching_processes  # nothing but a completion needs it

    found = matching_processes(incomplete, ended=context.info_name in _ALSO_ENDED)
    return [CompletionItem(value, help=words) for value, words in found]

"""What to run, as a value that cannot change."""

import copy
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Self, TypedDict, Unpack, cast

from tether.errors import InvalidCommandError, WorkingDirectoryError
from tether.process.shell import script_argv

COOKIE = "TETHER_PROCESS"
MOST_COOKIE_IDS = 32
LARGEST_SIDE = 10_000
DEFAULT_CAPACITY = 10 * 1024 * 1024


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipes:
    """Standard streams on three pipes; the child may get the starter's own stdin instead of one of ours."""

    inherit_stdin: bool = False


@dataclass(frozen=True, slots=True)
class Pty:
    """Standard streams on a pseudo-terminal of this size; unless `required`, on pipes where there is none."""

    cols: int = 120
    rows: int = 30
    required: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for side, cells in (("cols", self.cols), ("rows", self.rows)):
            if not _is_whole_number(cells) or not 1 <= cells <= LARGEST_SIDE:
                raise InvalidCommandError(f"impossible terminal size {side}={cells!r}; use 1 to {LARGEST_SIDE}")


class Overflow(Enum):
    """What happens when a process has written more than its log may hold."""

    DROP = "drop"
    """The oldest output is dropped, but the first segment is kept."""
    STOP = "stop"
    """Everything is kept; at the cap the process is stopped."""
    WAIT = "wait"
    """Everything is kept; reading waits until a consumer has freed room."""


@dataclass(frozen=True, slots=True)
class OutputPolicy:
    """How many bytes of output are kept, and what happens beyond."""

    capacity: int = DEFAULT_CAPACITY
    overflow: Overflow = Overflow.DROP

    def __post_init__(self) -> None:
        if not _is_whole_number(self.capacity) or self.capacity < 1:
            raise InvalidCommandError(f"impossible output capacity {self.capacity!r}; give a number of bytes above 0")


class CommandOptions(TypedDict, total=False):
    """Every field of a command except its argv."""

    root: str
    cwd: str
    env: Mapping[str, str] | None
    stdin: bytes | None
    stdio: Pipes | Pty
    output: OutputPolicy
    timeout: float | None


def _current_directory() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise WorkingDirectoryError("the current directory is gone; pass an absolute root") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program, where and how to run it; valid by construction.

    Attributes:
        argv: the program and its arguments.
        root: absolute directory that the working directory may not leave.
        cwd: working directory, relative to `root`.
        env: the whole environment; None means the starter's own at start.
        stdin: these bytes, then end of input; None leaves input open for writing.
        stdio: what the standard streams are attached to.
        output: how much output is kept.
        timeout: seconds until the process is stopped; None means never.
    """

    argv: tuple[str, ...]
    root: str = field(default_factory=_current_directory)
    cwd: str = "."
    # Secrets live in these two: no repr may carry them into a log.
    env: Mapping[str, str] | None = field(default=None, repr=False, hash=False)
    stdin: bytes | None = field(default=None, repr=False)
    stdio: Pipes | Pty = Pipes()
    output: OutputPolicy = OutputPolicy()
    timeout: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "argv", _checked_argv(self.argv))
        _check_root(self.root)
        _check_cwd(self.cwd)
        if self.env is not None:
            object.__setattr__(self, "env", _checked_env(self.env))
        _check_kind("stdio", self.stdio, (Pipes, Pty), "Pipes() or Pty(cols, rows)")
        _check_kind("output", self.output, (OutputPolicy,), "OutputPolicy(capacity, overflow)")
        _check_stdin(self.stdin, self.stdio)
        _check_timeout(self.timeout)

    def without_secrets(self) -> Self:
        """The same command without its environment and given input."""
        if self.env is None and self.stdin is None:
            return self
        bare = copy.copy(self)
        object.__setattr__(bare, "env", None)
        object.__setattr__(bare, "stdin", None)
        return bare

    @classmethod
    def shell(cls, script: str, **options: Unpack[CommandOptions]) -> Self:
        """A command that runs `script` in the system's shell."""
        return cls(argv=script_argv(script), **options)


def display(argv: Sequence[str]) -> str:
    """The words as a person would type them to a shell, with nothing invisible left in them."""
    return " ".join(shlex.quote(word) if word.isprintable() else _escaped(word) for word in argv)


def starter_environment(command: Command, inherited: Mapping[str, str]) -> dict[str, str]:
    """The whole environment its starter means the child to have."""
    environment = dict(inherited if command.env is None else command.env)
    if isinstance(command.stdio, Pty):
        if command.env is None:
            environment["TERM"] = "xterm-256color"
            environment["COLORTERM"] = "truecolor"
            # Programs believe these before they ask the terminal for its real size.
            environment.pop("LINES", None)
            environment.pop("COLUMNS", None)
        else:
            environment.setdefault("TERM", "xterm-256color")
    return environment


def child_environment(command: Command, process_id: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The same with the cookie by which the child's descendants are recognised."""
    environment = starter_environment(command, inherited)
    # The chain keeps the outer ids, so that an outer owner still finds its descendants.
    outer = environment.get(COOKIE, "").split()
    environment[COOKIE] = " ".join([*outer, process_id][-MOST_COOKIE_IDS:])
    return environment


def _checked_argv(argv: object) -> tuple[str, ...]:
    if not isinstance(argv, (tuple, list)):
        raise InvalidCommandError(
            f"argv is {argv!r:.200}, not a tuple of strings; split it into words, or use Command.shell"
        )
    words = tuple(cast("Sequence[object]", argv))
    if not words or words[0] == "":
        raise InvalidCommandError(f"no program in {words!r:.200}; the first word of argv names the program to run")
    return tuple([_checked_text("argument", word) for word in words])


def _check_kind(what: str, value: object, kinds: tuple[type, ...], wanted: str) -> None:
    if not isinstance(value, kinds):
        raise InvalidCommandError(f"{what} is {value!r:.200}; use {wanted}")


def _check_root(root: object) -> None:
    if not os.path.isabs(_checked_text("root", root)):
        raise InvalidCommandError(
            f"root {root!r:.200} is not an absolute path; pass one, such as os.path.abspath(root)"
        )


def _check_cwd(cwd: object) -> None:
    path = _checked_text("cwd", cwd)
    drive, rest = os.path.splitdrive(path)
    if not path or drive or rest.startswith(("/", os.sep)):
        raise InvalidCommandError(f"cwd {path!r:.200} is not relative to root; pass '.' or a directory below root")
    depth = 0
    for part in path.replace(os.sep, "/").split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            raise InvalidCommandError(f"cwd {path!r:.200} climbs out of root; choose a root that contains it")


def _checked_env(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        _checked_text("environment name", name)
        if not name or "=" in name:
            raise InvalidCommandError(f"impossible environment name {name!r:.200}; it must be non-empty without '='")
        if _flaw(value) is not None:
            # The value may be a secret: only its name is told.
            raise InvalidCommandError(f"the environment value of {name!r:.200} {_flaw(value)}")
    return dict(env)


def _check_stdin(stdin: object, stdio: Pipes | Pty) -> None:
    if stdin is None:
        return
    if not isinstance(stdin, bytes):
        raise InvalidCommandError(f"stdin is of type {type(stdin).__name__!r}, not bytes; encode it first")
    if isinstance(stdio, Pipes) and stdio.inherit_stdin:
        raise InvalidCommandError("stdin bytes and Pipes(inherit_stdin=True) exclude each other; choose one")


def _check_timeout(timeout: object) -> None:
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise InvalidCommandError(f"timeout {timeout!r:.200} is not a number of seconds")
    if not math.isfinite(timeout) or timeout <= 0:
        raise InvalidCommandError(f"impossible timeout {timeout!r}; give seconds above 0, or None for no limit")


def _checked_text(what: str, text: object) -> str:
    flaw = _flaw(text)
    if flaw is not None or not isinstance(text, str):
        raise InvalidCommandError(f"{what} {text!r:.200} {flaw}")
    return text


def _flaw(text: object) -> str | None:
    """Why the system could not take this as an argument, name or value; None when it can."""
    if not isinstance(text, str):
        return f"is of type {type(text).__name__!r}; pass a string"
    if "\0" in text:
        return "contains a NUL character; remove it"
    if not text.isascii():
        try:
            os.fsencode(text)
        except UnicodeEncodeError as error:
            return f"cannot be encoded as {error.encoding}; remove the character at index {error.start}"
    return None


_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}


def _escaped(word: str) -> str:
    return "$'" + "".join(_escaped_character(character) for character in word) + "'"


def _escaped_character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no text
        code -= 0xDC00
        return f"\\x{code:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

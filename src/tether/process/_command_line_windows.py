"""The one string and the one block that CreateProcess wants in place of argv and environment."""

import ntpath
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tether.errors import InvalidCommandError

# CreateProcess counts the closing NUL in its 32,767; cmd.exe reads at most 8,191.
_LONGEST_LINE: Final = 32_766
_LONGEST_BATCH_LINE: Final = 8_191
_BATCH_EXTENSIONS: Final = (".bat", ".cmd")
_NEEDS_NO_QUOTES: Final = re.compile(r"[A-Za-z0-9#$*+\-./:?@\\_]+")
# No quoting keeps these from cmd.exe: it expands %NAME% inside quotes, ends a quoted text at any ",
# and reads a second command after a line break.
_UNSAFE_FOR_BATCH: Final = re.compile(r'["%\r\n]')


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line in the two parts that pywinpty joins with a space."""

    program: str
    arguments: str

    @property
    def text(self) -> str:
        """The whole line, as CreateProcess takes it."""
        return f"{self.program} {self.arguments}" if self.arguments else self.program


def command_line(argv: Sequence[str], command_processor: str) -> CommandLine:
    """Quote `argv` so that the program receives exactly those arguments.

    Batch files are run by `command_processor` (the path of cmd.exe). An argument that cmd.exe would change
    or run on the way is refused, never passed on altered.

    Raises:
        InvalidCommandError: an argument that cannot be passed on, or a line longer than Windows takes.
    """
    for argument in argv:
        if "\0" in argument:
            raise InvalidCommandError(f"an argument holds a NUL character: {argument!r}; remove it")
    program, *arguments = argv
    limit = _LONGEST_LINE
    if is_batch_file(program):
        line = _batch_line(program, arguments, command_processor)
        limit = _LONGEST_BATCH_LINE
    elif _is_shell_text(program, arguments):
        # cmd.exe knows no \" and, told /s, takes off just the outer quotes: what is between stays as written.
        options = subprocess.list2cmdline(arguments[:-1])
        line = CommandLine(_quoted(program), f'{options} "{arguments[-1]}"')
    else:
        line = CommandLine(_quoted(program), subprocess.list2cmdline(arguments))
    length = len(line.text.encode("utf-16-le", "surrogatepass")) // 2
    if length > limit:
        raise InvalidCommandError(
            f"the command line of {program!r} has {length} characters and Windows takes {limit}; "
            "pass long values through a file or standard input"
        )
    return line


def is_batch_file(program: str) -> bool:
    """Whether Windows hands this program to cmd.exe; as there, dots and spaces at the end do not count."""
    return program.rstrip(". ").lower().endswith(_BATCH_EXTENSIONS)


def _is_shell_text(program: str, arguments: Sequence[str]) -> bool:
    name = ntpath.basename(program).lower()
    switches = [argument.lower() for argument in arguments[:-1]]
    return name in ("cmd", "cmd.exe") and "/s" in switches and switches[-1] in ("/c", "/k")


def _batch_line(script: str, arguments: Sequence[str], command_processor: str) -> CommandLine:
    for text in (script, *arguments):
        if _UNSAFE_FOR_BATCH.search(text):
            raise InvalidCommandError(
                f"{text!r} cannot be passed safely to the batch file {script!r}: cmd.exe gives quotes, "
                "percent signs and line breaks a meaning of their own; run the program behind the batch "
                "file directly, or pass the value through a file or an environment variable"
            )
    words = [_quoted(script)]
    words += [text if _NEEDS_NO_QUOTES.fullmatch(text) else _quoted(text) for text in arguments]
    # /d no autorun, /e:on and /v:off the documented defaults whatever the registry says.
    return CommandLine(_quoted(command_processor), f'/d /e:on /v:off /s /c "{" ".join(words)}"')


def _quoted(text: str) -> str:
    """`text`, which holds no quote, in quotes; a backslash before the closing one would otherwise undo it."""
    if '"' in text:
        raise InvalidCommandError(f"a Windows path holds no quotes: {text!r}")
    backslashes = len(text) - len(text.rstrip("\\"))
    return '"' + text + "\\" * backslashes + '"'


def windows_environment(env: Mapping[str, str]) -> dict[str, str]:
    """`env` as Windows keeps it: sorted, and of names that differ in case only, the last one given.

    Raises:
        InvalidCommandError: a name or value that Windows cannot hold.
    """
    kept: dict[str, tuple[str, str]] = {}
    for name, value in env.items():
        # A leading = is Windows' own: =C: holds the current directory of a drive.
        if not name or "=" in name[1:] or "\0" in name or "\0" in value:
            raise InvalidCommandError(f"not an environment variable that Windows can hold: {name!r}; remove it")
        kept[_upper(name)] = (name, value)
    order = sorted(kept, key=lambda upper: upper.encode("utf-16-be", "surrogatepass"))
    return dict(kept[upper] for upper in order)


def environment_block(env: Mapping[str, str]) -> str:
    """The environment as CreateProcess wants it: NAME=value, a NUL after each, one more at the end."""
    entries = [f"{name}={value}\0" for name, value in windows_environment(env).items()]
    return "".join(entries or ["\0"]) + "\0"


def _upper(name: str) -> str:
    # Windows maps character by character: ß stays ß where Python would write SS.
    return "".join(upper if len(upper := letter.upper()) == 1 else letter for letter in name)

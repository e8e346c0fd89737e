"""Arguments that run a script or a list of words through the system's shell."""

import sys
from collections.abc import Callable, Sequence

from tether.errors import InvalidCommandError
from tether.process.program import locate

# One argument may take 128 KiB on Linux; a character of the line may take four bytes.
_LONGEST_LINE = 30_000

Which = Callable[[str], str | None]

# `$?` alone loses the number; `$LASTEXITCODE` alone is null after a cmdlet and stale after an older program.
_EXIT_AS_LAST_COMMAND = "if ($?) { exit 0 } elseif ($LASTEXITCODE) { exit $LASTEXITCODE } else { exit 1 }"

# PowerShell reads the typographic single quotes as quotes too.
_POWERSHELL_QUOTES = "'\u2018\u2019\u201a\u201b"
_DOUBLED_QUOTES = {ord(quote): quote * 2 for quote in _POWERSHELL_QUOTES}


def script_argv(script: str, *, platform: str = sys.platform, which: Which = locate) -> tuple[str, ...]:
    """Arguments that run a whole shell script in a shell that is not a login shell."""
    if platform == "win32":
        shell = which("powershell.exe") or "powershell.exe"
        # A newline, not a semicolon: the script may end in a comment.
        text = f"{script}\n{_EXIT_AS_LAST_COMMAND}"
        return (shell, "-NoLogo", "-NoProfile", "-NonInteractive", "-Command", text)
    shell = _first_found(("bash", "sh"), which)
    # A shell takes a script such as "-x" or "+x" for one more option.
    if script.startswith(("-", "+")):
        return (shell, "-c", "--", script)
    return (shell, "-c", script)


def command_line_argv(
    tokens: Sequence[str], *, platform: str = sys.platform, which: Which = locate
) -> tuple[str, ...]:
    """Arguments that run a program through the login shell, which reads no token a second time.

    Raises:
        InvalidCommandError: there is no token, or the first names no program.
    """
    if not tokens or not tokens[0]:
        raise InvalidCommandError(f"no program in {tuple(tokens)!r:.200}; the first token names the program to run")
    if platform == "win32":
        words = " ".join(map(_powershell_quoted, tokens))
        shell = which("pwsh.exe") or "pwsh.exe"
        return (shell, "-NoLogo", "-NoProfile", "-Command", f"& {words}; {_EXIT_AS_LAST_COMMAND}")
    shell = _first_found(("zsh", "sh") if platform == "darwin" else ("bash", "sh"), which)
    line = " ".join(map(_posix_quoted, tokens))
    if len(line) > _LONGEST_LINE:
        # Each token by itself may be as long as the line as a whole; the shell then stays as their parent.
        return (shell, "-lc", '"$@"', shell, *tokens)
    return (shell, "-lc", line)


def _first_found(names: Sequence[str], which: Which) -> str:
    """Path of the first shell that is there, else the last name, so that the start says what is missing."""
    for name in names:
        path = which(name)
        if path is not None:
            return path
    return names[-1]


def _posix_quoted(token: str) -> str:
    """The token as one word in which nothing is expanded."""
    # Quotes always, unlike shlex.quote: bare `if`, `A=1`, aliases and zsh's `=ls` look safe and are not.
    return "'" + token.replace("'", "'\"'\"'") + "'"


def _powershell_quoted(token: str) -> str:
    """The token as a PowerShell string in which nothing is expanded."""
    return "'" + token.translate(_DOUBLED_QUOTES) + "'"

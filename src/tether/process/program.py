"""Finds the program a child would run, in the child's own environment and directory."""

import ntpath
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping

from tether.errors import ProgramNotFoundError, ProgramNotRunnableError

MOST_NAMES_COMPARED = 4000

# CreateProcess starts these and no others, whatever PATHEXT lists.
_WINDOWS_RUNNABLE = (".com", ".exe", ".bat", ".cmd")

_POSIX_BUILTIN_WORDS = """
. alias bg builtin cd declare disown eval exec exit export fg hash history jobs let local popd pushd read
readonly return set shift shopt source trap type typeset ulimit umask unalias unset wait
"""
_CMD_BUILTIN_WORDS = """
assoc call chdir cls copy del dir echo erase for ftype if md mkdir mklink move rd ren rename rmdir start
ver vol
"""
_SHELL_BUILTINS = frozenset(_POSIX_BUILTIN_WORDS.split())
_WINDOWS_SHELL_BUILTINS = _SHELL_BUILTINS.union(_CMD_BUILTIN_WORDS.split())

_NODE = "install Node.js, which brings it"
_RUST = "install Rust with rustup, which brings it"
_INSTALL_HINTS = {
    "node": "install Node.js",
    "npm": _NODE,
    "npx": _NODE,
    "corepack": _NODE,
    "yarn": "npm install -g yarn",
    "pnpm": "npm install -g pnpm",
    "bun": "install Bun: npm install -g bun",
    "deno": "install Deno",
    "tsc": "npm install -g typescript",
    "claude": "npm install -g @anthropic-ai/claude-code",
    "codex": "npm install -g @openai/codex",
    "gemini": "npm install -g @google/gemini-cli",
    "copilot": "npm install -g @github/copilot",
    "opencode": "npm install -g opencode-ai",
    "python": "try 'python3', or install Python 3",
    "python3": "install Python 3",
    "pip": "try 'python3 -m pip'",
    "pip3": "try 'python3 -m pip'",
    "pytest": "try 'python3 -m pytest', or pip install pytest",
    "ruff": "pip install ruff",
    "uv": "pip install uv",
    "uvx": "pip install uv",
    "poetry": "pip install poetry",
    "cargo": _RUST,
    "rustc": _RUST,
    "rustup": "install Rust with rustup",
    "go": "install Go",
    "java": "install a JDK",
    "javac": "install a JDK",
    "docker": "install Docker",
    "gh": "install the GitHub CLI",
    "rg": "install ripgrep",
    "fd": "install fd (some systems call it 'fdfind')",
    "pwsh": "install PowerShell 7",
    "pwsh.exe": "install PowerShell 7",
}
_PROJECT_BINARIES = ("", "node_modules/.bin/", ".venv/bin/", "venv/bin/")
_WINDOWS_PROJECT_BINARIES = ("", "node_modules\\.bin\\", ".venv\\Scripts\\", "venv\\Scripts\\")


def find_program(name: str, *, env: Mapping[str, str], cwd: str, platform: str = sys.platform) -> str:
    """Path of the program that `name` means to a child with this environment and directory.

    Raises:
        ProgramNotFoundError: nothing of that name is there; says where it looked and a likely remedy.
        ProgramNotRunnableError: something of that name is there, but it cannot be run.
    """
    found = _search(name, env, cwd, platform)
    if found is None:
        raise _failure(name, env, cwd, platform)
    return found


def locate(name: str) -> str | None:
    """Absolute path of `name` in our own environment, or None."""
    found = _search(name, os.environ, os.curdir, sys.platform)
    return found if found is None or os.path.isabs(found) else os.path.abspath(found)


def _search(name: str, env: Mapping[str, str], cwd: str, platform: str) -> str | None:
    if not name:
        return None
    if platform == "win32":
        return _first_file(_windows_candidates(name, env, cwd))
    if "/" in name:
        path = os.path.join(cwd, name)
        return path if _is_runnable(path) else None
    for directory in _posix_directories(env, cwd):
        path = f"{directory}/{name}"
        if _is_runnable(path):
            return path
    return None


def _is_runnable(path: str) -> bool:
    return os.access(path, os.X_OK) and os.path.isfile(path)


def _first_file(paths: Iterable[str]) -> str | None:
    return next((path for path in paths if os.path.isfile(path)), None)


def _posix_directories(env: Mapping[str, str], cwd: str) -> Iterator[str]:
    for entry in env.get("PATH", os.defpath).split(":"):
        if entry.startswith("/"):
            yield entry
        else:
            # An empty entry means the working directory, as it does to exec.
            yield os.path.join(cwd, entry) if entry else cwd


def _windows_directories(env: Mapping[str, str], cwd: str) -> Iterator[str]:
    if _windows_variable(env, "NoDefaultCurrentDirectoryInExePath") is None:
        yield cwd
    for entry in (_windows_variable(env, "PATH") or "").split(";"):
        directory = entry.strip().strip('"')
        if directory:
            yield _windows_join(cwd, directory)


def _windows_candidates(name: str, env: Mapping[str, str], cwd: str) -> Iterator[str]:
    directories = (cwd,) if _has_windows_directory(name) else _windows_directories(env, cwd)
    listed = (_windows_variable(env, "PATHEXT") or "").lower().split(";")
    # A PATHEXT without .exe is broken, and nothing would run.
    extensions = dict.fromkeys((*(ext for ext in listed if ext in _WINDOWS_RUNNABLE), *_WINDOWS_RUNNABLE))
    as_written = ("",) if name.lower().endswith(_WINDOWS_RUNNABLE) else ()
    for directory in directories:
        for extension in (*as_written, *extensions):
            yield _windows_join(directory, name + extension)


def _has_windows_directory(name: str) -> bool:
    return "\\" in name or "/" in name or bool(ntpath.splitdrive(name)[0])


def _windows_join(directory: str, name: str) -> str:
    # On Windows itself the replacement changes nothing; elsewhere it makes the shape testable on a real tree.
    return ntpath.join(directory, name).replace("\\", os.sep)


def _windows_variable(env: Mapping[str, str], name: str) -> str | None:
    value = env.get(name)
    if value is not None:
        return value
    return next((value for key, value in env.items() if key.upper() == name.upper()), None)


def _failure(
    name: str, env: Mapping[str, str], cwd: str, platform: str
) -> ProgramNotFoundError | ProgramNotRunnableError:
    windows = platform == "win32"
    has_directory = _has_windows_directory(name) if windows else "/" in name
    if has_directory:
        path = _windows_join(cwd, name) if windows else os.path.join(cwd, name)
        obstacle = _why_not_runnable(path, platform)
        if obstacle:
            return ProgramNotRunnableError(f"cannot run {name!r}: {obstacle}")
        remedy = _whole_line_remedy(name) or f"no such file; a relative path starts at {cwd!r}"
        return ProgramNotFoundError(name, [os.path.dirname(path)], remedy)

    directories = list(dict.fromkeys((_windows_directories if windows else _posix_directories)(env, cwd)))
    remedy = _misuse_remedy(name, windows=windows)
    if remedy is None:
        for directory in directories:
            path = os.path.join(directory, name)
            # A PATH directory closed to this user says nothing about the program.
            obstacle = _why_not_runnable(path, platform) if os.path.lexists(path) else None
            if obstacle:
                return ProgramNotRunnableError(f"cannot run {name!r}: {obstacle}")
        remedy = _missing_remedy(name, directories, cwd, windows=windows)
    return ProgramNotFoundError(name, directories, remedy)


def _why_not_runnable(path: str, platform: str) -> str | None:
    """What keeps the thing at `path` from being run, with a remedy; None when nothing is there."""
    try:
        mode = os.stat(path).st_mode
    except PermissionError:
        return f"{path!r} is in a directory closed to this user; ask for access or run it as another user"
    except (OSError, ValueError):
        if os.path.islink(path):
            return f"{path!r} is a link to {os.readlink(path)!r}, which is missing; repair the link"
        return None
    if stat.S_ISDIR(mode):
        return f"{path!r} is a directory; name a program inside it"
    if not stat.S_ISREG(mode):
        return f"{path!r} is not a regular file; name a program"
    if platform == "win32":
        return f"{path!r} is not a program; name the program that opens it first"
    if mode & 0o111:
        return f"{path!r} may not be run by this user or from this file system; change its mode or copy it"
    return f"{path!r} is not executable; run chmod +x on it, or name its interpreter first"


def _whole_line_remedy(name: str) -> str | None:
    if len(name.split()) > 1:
        return "this is a whole command line: pass its words as separate arguments, or run it in a shell"
    return None


def _misuse_remedy(name: str, *, windows: bool) -> str | None:
    """What to do instead, where no program of that name is meant to exist."""
    whole_line = _whole_line_remedy(name)
    if whole_line:
        return whole_line
    if (name.lower() in _WINDOWS_SHELL_BUILTINS) if windows else (name in _SHELL_BUILTINS):
        return "it is a shell builtin: run it in a shell"
    variable, equals, _ = name.partition("=")
    if equals and variable.isidentifier():
        return f"it is an assignment: set {variable!r} in the environment, or run the line in a shell"
    return None


def _missing_remedy(name: str, directories: list[str], cwd: str, *, windows: bool) -> str:
    for place in _WINDOWS_PROJECT_BINARIES if windows else _PROJECT_BINARIES:
        path = f"./{place}{name}"
        if windows:
            path = f".\\{place}{name}"
            found = _first_file(_windows_candidates(path, {}, cwd)) is not None
        else:
            found = _is_runnable(os.path.join(cwd, path))
        if found:
            return f"the working directory has {path!r}: run it by that path"
    hint = _INSTALL_HINTS.get(name.lower() if windows else name)
    if hint:
        return hint
    similar = _similar_names(name, directories, windows=windows)
    if similar:
        return f"did you mean {' or '.join(map(repr, similar))}?"
    return "install it, or pass its absolute path"


def _similar_names(name: str, directories: list[str], *, windows: bool) -> list[str]:
    """Up to two programs whose names look like a slip of `name`."""
    from difflib import get_close_matches  # only a failed start pays for it

    wanted = name.lower() if windows else name
    near: dict[str, None] = {}
    for seen in _names_in(directories, windows=windows):
        if abs(len(seen) - len(wanted)) <= 2:
            near[seen] = None
    return get_close_matches(wanted, near, n=2, cutoff=0.65)


def _names_in(directories: list[str], *, windows: bool) -> Iterator[str]:
    left = MOST_NAMES_COMPARED
    for directory in directories:
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if left == 0:
                        return
                    left -= 1
                    if not windows:
                        yield entry.name
                    elif entry.name.lower().endswith(_WINDOWS_RUNNABLE):
                        yield entry.name.lower().rpartition(".")[0]
        except OSError:
            continue

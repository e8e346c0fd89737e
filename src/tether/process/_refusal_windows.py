"""Typed errors for starts that Windows refused."""

import ntpath
from typing import Final

from tether.errors import (
    InvalidCommandError,
    ProgramNotFoundError,
    ProgramNotRunnableError,
    PtyUnavailableError,
    StartError,
    TooManyOpenFilesError,
    TooManyProcessesError,
    WorkingDirectoryError,
)
from tether.process._job_windows import message_of

_NOT_RUNNABLE: Final = {
    5: "access is denied; check who may run it and whether a virus scanner holds it",
    193: "it is not a program for this machine; run it with the program that understands it",
    216: "it is built for another kind of processor; install the one for this machine",
    740: "it wants an administrator; start Tether as administrator",
    1260: "a policy of this machine forbids it; ask its administrator",
}
_NO_MEMORY: Final = (8, 14, 1450, 1455)


def start_error(code: int, program: str, directory: str) -> StartError | InvalidCommandError:
    """The typed error for a start that Windows refused with this error code."""
    if code in _NOT_RUNNABLE:
        return ProgramNotRunnableError(f"cannot run {program!r}: {_NOT_RUNNABLE[code]}")
    if code in (2, 3):
        folder = ntpath.dirname(program) or directory
        return ProgramNotFoundError(program, (folder,), "it has gone since it was found; install it again")
    if code == 267:
        return WorkingDirectoryError(f"cannot start {program!r} in {directory!r}: not a directory we can enter")
    if code == 4:
        return TooManyOpenFilesError(f"cannot start {program!r}: too many open files; close some processes")
    if code in _NO_MEMORY:
        return TooManyProcessesError(f"cannot start {program!r}: out of memory; end other processes")
    if code in (87, 206):
        return InvalidCommandError(
            f"arguments or environment of {program!r} are too long for Windows; pass data by stdin or a file"
        )
    return StartError(f"cannot start {program!r}: Windows error {code} {message_of(code)}".rstrip())


def spawn_error(text: str, program: str, directory: str) -> StartError | InvalidCommandError:
    """The typed error for what pywinpty says, which is Windows' own sentence in the user's language."""
    for code in (*_NOT_RUNNABLE, *_NO_MEMORY, 2, 3, 4, 87, 206, 267):
        sentence = message_of(code)
        if sentence and sentence in text:
            return start_error(code, program, directory)
    return PtyUnavailableError(f"no terminal for {program!r}: {text}; use pipes")

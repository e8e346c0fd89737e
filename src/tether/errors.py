"""Every error Tether raises on purpose.

TetherError
├── InvalidCommandError        the command itself cannot be run as written
├── StartError                 the child could not be started
│   ├── ProgramNotFoundError
│   ├── ProgramNotRunnableError
│   ├── WorkingDirectoryError
│   ├── TooManyOpenFilesError
│   ├── TooManyProcessesError
│   └── PtyUnavailableError
├── ProcessEndedError          the process is over and takes nothing any more
├── UnknownProcessError        no process has that id
├── InputRefusedError          the process lives but this input cannot be delivered
│   ├── LineTooLongError
│   └── InputBacklogError
├── UnknownKeyError            a key name nobody knows
├── OutputLogError             a log directory that cannot be read
└── ScreenUnavailableError     no terminal emulator to render with
"""

from collections.abc import Sequence


class TetherError(Exception):
    """Base of every error Tether raises on purpose: one sentence that says what happened and what to do."""


class InvalidCommandError(TetherError):
    """The command cannot be run as written: empty, NUL bytes, impossible size."""


class StartError(TetherError):
    """The child could not be started; nothing was left behind."""


class ProgramNotFoundError(StartError):
    """No such program, with the places that were searched."""

    def __init__(self, program: str, searched: Sequence[str], remedy: str) -> None:
        places = ", ".join(searched) if searched else "nowhere: PATH is empty"
        super().__init__(f"command not found: {program!r} (looked in {places}; {remedy})")
        self.program = program
        self.searched = tuple(searched)
        self.remedy = remedy


class ProgramNotRunnableError(StartError):
    """The program exists but the system refuses to run it."""


class WorkingDirectoryError(StartError):
    """The working directory is missing, not a directory, closed to us or outside its root."""


class TooManyOpenFilesError(StartError):
    """The limit of open files is reached."""


class TooManyProcessesError(StartError):
    """The limit of processes or of memory for a new one is reached."""


class PtyUnavailableError(StartError):
    """The system has no pseudo-terminal to give."""


class ProcessEndedError(TetherError):
    """The process has ended and takes no input, size or signal any more."""


class UnknownProcessError(TetherError):
    """No process has that id; the message names those that exist."""

    def __init__(self, process_id: str, known: Sequence[str]) -> None:
        listed = ", ".join(known[:20]) + (", …" if len(known) > 20 else "") if known else "none"
        super().__init__(f"no process {process_id!r} (known: {listed})")
        self.process_id = process_id
        self.known = tuple(known)


class InputRefusedError(TetherError):
    """The process lives, but this input cannot be delivered to it."""


class LineTooLongError(InputRefusedError):
    """A line longer than the terminal's line editor can hold."""

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(
            f"a line of {length} bytes is longer than this terminal takes ({limit} bytes before Enter); "
            "send it in shorter lines, through a file, or to a program that reads in raw mode"
        )
        self.length = length
        self.limit = limit


class InputBacklogError(InputRefusedError):
    """The process does not read, and its queue of unread input is full."""


class UnknownKeyError(TetherError):
    """A key name nobody knows; the message says what is known."""


class OutputLogError(TetherError):
    """A log directory that cannot be read: missing, damaged or of another format."""


class ScreenUnavailableError(TetherError):
    """The screen cannot be rendered here; bytes and text views are unaffected."""

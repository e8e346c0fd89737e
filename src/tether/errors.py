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
│   └── AmbiguousProcessError  several have it
├── InputRefusedError          the process lives but this input cannot be delivered
│   ├── LineTooLongError
│   ├── InputBacklogError
│   └── InputGapError
├── UnknownKeyError            a key name nobody knows
├── OutputLogError             a log directory that cannot be read
├── ScreenUnavailableError     no terminal emulator to render with
└── KeeperError                the keeper could not do what it was asked
    ├── KeeperUnavailableError
    ├── KeeperLostError
    ├── KeeperVersionError
    └── KeeperRefusedError
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


class AmbiguousProcessError(UnknownProcessError):
    """Several processes go by that beginning of an id or by that name; the message names them."""

    def __init__(self, process_id: str, known: Sequence[str]) -> None:
        super().__init__(process_id, known)
        self.args = (f"{process_id!r} stands for several processes: {', '.join(known)}; give more of the id",)


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


class InputGapError(InputRefusedError):
    """A piece of numbered input came before the one that precedes it."""

    def __init__(self, writer: str, number: int, expected: int) -> None:
        super().__init__(f"input {number} of writer {writer!r} came before input {expected}; send that one first")
        self.writer = writer
        self.number = number
        self.expected = expected


class UnknownKeyError(TetherError):
    """A key name nobody knows; the message says what is known."""


class OutputLogError(TetherError):
    """A log directory that cannot be read: missing, damaged or of another format."""


class ScreenUnavailableError(TetherError):
    """The screen cannot be rendered here; bytes and text views are unaffected."""


class KeeperError(TetherError):
    """The keeper could not do what it was asked."""


class KeeperUnavailableError(KeeperError):
    """There is no keeper, and none could be started."""


class KeeperLostError(KeeperError):
    """The keeper died while it was needed; what it kept has ended or will be ended by the next one."""


class KeeperVersionError(KeeperError):
    """The keeper that runs is of another version than this program and they cannot talk."""


class KeeperRefusedError(KeeperError):
    """The keeper does not serve this caller: another user, or a program that an agent started."""

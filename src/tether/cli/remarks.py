"""What a person should know about an end besides the exit code, and how it is told."""

from collections.abc import Iterator, Sequence

from tether.cli.exec_output import write_all
from tether.process.command import display
from tether.process.exit_status import Cause, ExitStatus
from tether.process.log_reader import STDERR
from tether.process.place import PlacedProcess

_LONGEST_SHOWN = 200


def remarks(process: PlacedProcess, status: ExitStatus) -> Iterator[str]:
    """Why it was ended if we did it, what went wrong, and who is left of it."""
    if status.cause is Cause.TIMED_OUT and process.command.timeout is not None:
        yield f"stopped after {process.command.timeout:g} s: {recognisable(process.command.argv)}"
    if status.cause is Cause.LOST:
        yield f"its keeper was lost: nobody knows how process {process.id} ended"
    if status.core_file is not None:
        yield f"core dumped to {status.core_file}"
    yield from process.warnings
    yield from left_over(process)


def left_over(process: PlacedProcess) -> Iterator[str]:
    """Who of its tree is still there."""
    for left in process.survivors:
        doubt = "could not be ended" if left.certain else "still runs and may belong to it"
        yield f"{doubt}: pid {left.pid} ({left.command})"


def recognisable(argv: Sequence[str]) -> str:
    """The command as a person would type it, cut when it is very long."""
    shown = display(argv)
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"


def line(message: str) -> bytes:
    """One line as everything we say on stderr looks."""
    return f"tether: {message}\n".encode("utf-8", "backslashreplace")


def tell(message: str) -> None:
    """Say something on stderr at once; a stderr that takes nothing is no reason to fail."""
    write_all(STDERR, line(message))

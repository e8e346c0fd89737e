"""The first instructions of the `tether` program."""

import os
import signal


def main() -> None:
    """Make the world safe for a command line, then run it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until a command says otherwise Ctrl+C ends us at once, without a word about where we were.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "SIGCHLD"):
        # Whoever started us may ignore it; then the system would throw away the exit codes of our children.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _open_standard_streams()
    # Most of the time until a command starts is spent in here.
    from tether.cli.commands import run

    run()


def _open_standard_streams() -> None:
    """A closed stream would become whatever is opened next: let it be empty and swallow what is written."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - named by its function

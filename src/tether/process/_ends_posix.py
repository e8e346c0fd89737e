"""Pipes and pseudo-terminals on POSIX, before anybody is attached to them."""

import ctypes
import errno
import fcntl
import os
import struct
import sys
import termios

from tether.errors import PtyUnavailableError, TooManyOpenFilesError

_libc = ctypes.CDLL(None, use_errno=True)


def set_window_size(terminal: int, cols: int, rows: int) -> None:
    """Set a terminal's size; the programs on it are told by SIGWINCH."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def open_terminal() -> tuple[int, str]:
    """Our side of a new pseudo-terminal, and the name of the other.

    Raises:
        PtyUnavailableError: the system has none to give.
        TooManyOpenFilesError: we may open no more files.
    """
    try:
        if sys.platform == "linux":
            return _open_linux_terminal()
        master, slave = os.openpty()
        name = os.ttyname(slave)
        os.close(slave)
        os.set_blocking(master, False)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise TooManyOpenFilesError(
                f"cannot open a pseudo-terminal: {error.strerror}; "
                "close processes that are not needed or raise `ulimit -n`"
            ) from error
        raise PtyUnavailableError(
            f"no pseudo-terminal to be had: {error.strerror}; end other terminals, "
            "see /proc/sys/kernel/pty/max and whether /dev/pts is mounted, or run the command on pipes"
        ) from error
    return master, name


def _open_linux_terminal() -> tuple[int, str]:
    """Our side only: the other is opened by the child, as its controlling terminal."""
    master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    name = ctypes.create_string_buffer(64)
    if _libc.unlockpt(master) or _libc.ptsname_r(master, name, ctypes.sizeof(name)):
        number = ctypes.get_errno()
        os.close(master)
        raise OSError(number, os.strerror(number))
    return master, os.fsdecode(name.value)


def pipe_clear_of_streams(opened: list[int]) -> tuple[int, int]:
    """A pipe clear of descriptors 0 to 2, which the child's own streams will take."""
    ends = list(os.pipe())
    opened += ends
    for position, end in enumerate(ends):
        if end < 3:
            ends[position] = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3)
            opened[opened.index(end)] = ends[position]
            os.close(end)
    return ends[0], ends[1]


def close_all(descriptors: list[int]) -> None:
    """Close each of `descriptors`."""
    for descriptor in descriptors:
        os.close(descriptor)

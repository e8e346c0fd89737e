"""Opening a working directory beneath its root, so that no path can be swapped between check and use."""

import ctypes
import errno
import os
import sys

from tether.errors import StartError, TooManyOpenFilesError, WorkingDirectoryError

_OPENAT2 = 437  # the same number on every Linux architecture
_BENEATH = 0x08 | 0x02  # RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", 0)

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_directory(root: str, relative: str) -> int:
    """A descriptor of directory `relative` beneath `root`, never outside it.

    Raises:
        WorkingDirectoryError: it is missing, no directory, closed to us, or leads outside.
        TooManyOpenFilesError: no descriptor is left.
    """
    try:
        descriptor = os.open(root, _FLAGS)
    except OSError as error:
        raise _explain(error, root) from error
    if relative in ("", "."):
        return _enterable(descriptor, root)
    path = os.path.join(root, relative)
    try:
        found = _open_beneath(descriptor, relative)
    except OSError as error:
        raise _explain(error, path) from error
    finally:
        os.close(descriptor)
    return _enterable(found, path)


def _enterable(descriptor: int, path: str) -> int:
    """The same descriptor, unless we may not enter the directory: opening does not tell."""
    if os.access(".", os.X_OK, dir_fd=descriptor, effective_ids=os.access in os.supports_effective_ids):
        return descriptor
    os.close(descriptor)
    raise _explain(OSError(errno.EACCES, os.strerror(errno.EACCES)), path)


def _open_beneath(root: int, relative: str) -> int:
    if sys.platform == "linux":
        how = _OpenHow(_FLAGS, 0, _BENEATH)
        descriptor = _libc.syscall(_OPENAT2, root, os.fsencode(relative), ctypes.byref(how), ctypes.sizeof(how))
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number not in (errno.ENOSYS, errno.EPERM):
            raise OSError(number, os.strerror(number))
    return _walk_beneath(root, relative)


def _walk_beneath(root: int, relative: str) -> int:
    """Where the kernel cannot resolve beneath a root: one component at a time, no link followed."""
    trail = [os.dup(root)]
    try:
        for part in relative.split("/"):
            if part == "..":
                if len(trail) == 1:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                os.close(trail.pop())
            elif part not in ("", "."):
                trail.append(os.open(part, _FLAGS | os.O_NOFOLLOW, dir_fd=trail[-1]))
        return os.dup(trail[-1])
    finally:
        for descriptor in trail:
            os.close(descriptor)


def _explain(error: OSError, path: str) -> StartError:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TooManyOpenFilesError(
            f"cannot open working directory {path!r}: {error.strerror}; "
            "close processes that are not needed or raise `ulimit -n`"
        )
    if error.errno == errno.EXDEV:
        return WorkingDirectoryError(f"working directory {path!r} leads outside its root; name one inside it")
    if error.errno == errno.ENOENT:
        return WorkingDirectoryError(f"working directory {path!r} does not exist; create it or name another")
    if error.errno == errno.ENOTDIR:
        return WorkingDirectoryError(f"working directory {path!r} is not a directory; name one that is")
    return WorkingDirectoryError(f"working directory {path!r} cannot be used: {error.strerror}")

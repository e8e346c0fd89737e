"""A private temporary directory that is removed even if its owner never could: by whoever comes next."""

import contextlib
import os
import shutil
import sys
import tempfile
import time

from tether.errors import OutputLogError

if sys.platform != "win32":
    import fcntl

_PREFIX = "tether-"
_OWNER = "owner"
_SETTLED_SECONDS = 60.0

_swept: set[str] = set()


class Scratch:
    """One directory, held by a lock as long as its owner lives."""

    def __init__(self) -> None:
        try:
            _sweep(tempfile.gettempdir())
            self.path = tempfile.mkdtemp(prefix=_PREFIX)
            self._lock = os.open(os.path.join(self.path, _OWNER), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            place = f"{error.strerror or error} ({error.filename})"
            raise OutputLogError(f"no place for output: {place}; set TMPDIR to one we may write to") from error
        _take(self._lock)

    def remove(self) -> None:
        """Delete it with everything in it."""
        os.close(self._lock)
        shutil.rmtree(self.path, ignore_errors=True)


def _take(descriptor: int) -> bool:
    """Lock a directory's owner file; False while its owner lives."""
    if sys.platform == "win32":
        return False  # an open file cannot be deleted there: leftovers stay with the system's own cleaning
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sweep(directory: str) -> None:
    """Remove what owners that were killed have left, once in the life of this process."""
    if directory in _swept:
        return
    _swept.add(directory)
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_left(entry)


def _remove_if_left(entry: "os.DirEntry[str]") -> None:
    found = entry.stat(follow_symlinks=False)
    # One that was made just now may not have its lock yet; what is not ours is none of our business.
    if not entry.is_dir(follow_symlinks=False) or time.time() - found.st_mtime < _SETTLED_SECONDS:
        return
    if sys.platform != "win32" and found.st_uid != os.getuid():
        return
    lock = os.open(os.path.join(entry.path, _OWNER), os.O_RDWR | os.O_NOFOLLOW)
    try:
        if _take(lock):
            shutil.rmtree(entry.path, ignore_errors=True)
    finally:
        os.close(lock)

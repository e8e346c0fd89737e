"""The keeper's own log: what it did and what went wrong, never more than two files of 1 MB."""

import contextlib
import logging
import os

_MOST_BYTES = 1024 * 1024
_LOOK_EVERY = 64


class OwnLog(logging.Handler):
    """Appends lines to a file that is set aside once it is full; never fails its caller."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._path = path
        self._lines = 0

    def install(self) -> None:
        """Have everything from INFO on written here, and what Python itself says as well."""
        root = logging.getLogger()
        root.addHandler(self)
        root.setLevel(logging.INFO)
        self._set_aside()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line; a full disk loses it, which is better than losing the keeper."""
        self._lines += 1
        if self._lines % _LOOK_EVERY == 0:
            self._set_aside()
        with contextlib.suppress(OSError):
            os.write(2, self.format(record).encode("utf-8", "backslashreplace") + b"\n")

    def _set_aside(self) -> None:
        """Standard error is the file, so that a crash of Python itself is in it too."""
        with contextlib.suppress(OSError):
            if os.path.exists(self._path) and os.stat(self._path).st_size > _MOST_BYTES:
                os.replace(self._path, self._path + ".1")
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.dup2(file, 2)
            finally:
                os.close(file)

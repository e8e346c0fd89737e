"""The output log's files: what they are called and what stands in them.

A log directory holds `format`, and per segment `START.out` (the bytes) and `START.idx` (fixed-size records),
START being the offset of the segment's first byte. A record is written before the bytes it describes and says
what begins at its offset; it is valid until the next record of its kind. A torn last record is ignored.
"""

import errno
import os
import struct
import sys
from enum import IntEnum
from typing import NamedTuple, Self

from tether.errors import OutputLogError

FORMAT = b"tether-log 1\n"
_RECORD = struct.Struct("<QQQBBHI")
RECORD_BYTES = _RECORD.size
_BINARY: int = getattr(os, "O_BINARY", 0)
_COUNT_IS_FAST = sys.version_info >= (3, 13)


class Kind(IntEnum):
    """What begins at a record's offset."""

    STDOUT = 1
    STDERR = 2
    RESIZE = 3
    GAP = 4


class Record(NamedTuple):
    """One index entry: from `offset` on, since `time_us`, this is what is going on.

    `lines` is how many newlines lie before it, dropped bytes included, so that line numbers never shift.
    `reason` is the errno of a gap; `amount` its bytes, or the rows of a resize.
    """

    offset: int
    time_us: int
    kind: Kind
    reason: int = 0
    cols: int = 0
    amount: int = 0
    lines: int = 0

    def pack(self) -> bytes:
        """The record's bytes on disk."""
        return _RECORD.pack(
            self.offset, self.time_us, self.lines, self.kind, self.reason & 0xFF, self.cols, self.amount
        )

    @classmethod
    def unpack_all(cls, data: bytes) -> list[Self]:
        """Every whole record in `data`; a torn tail is ignored.

        Raises:
            OutputLogError: there is a record that nobody wrote.
        """
        whole = len(data) - len(data) % RECORD_BYTES
        try:
            return [
                cls(offset, time_us, Kind(kind), reason, cols, amount, lines)
                for offset, time_us, lines, kind, reason, cols, amount in _RECORD.iter_unpack(data[:whole])
            ]
        except ValueError as error:
            raise OutputLogError(f"damaged log index: {error}; the bytes can still be read by offset") from error


def data_name(start: int) -> str:
    """File name of the segment whose first byte has offset `start`."""
    return f"{start:020d}.out"


def index_name(start: int) -> str:
    """File name of that segment's index."""
    return f"{start:020d}.idx"


def segment_starts(directory: str) -> list[int]:
    """First offsets of the segments present, ascending; empty when nothing was written yet."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(int(name[:-4]) for name in names if name.endswith(".out"))


def check_format(directory: str) -> None:
    """Refuse a directory that another version of the format wrote.

    Raises:
        OutputLogError: the directory is of an unknown format.
    """
    if not os.path.exists(directory):
        return  # nothing was written yet
    try:
        with open(os.path.join(directory, "format"), "rb") as file:
            found = file.read(64)
    except FileNotFoundError:
        return
    if not FORMAT.startswith(found):  # a beginning of ours is just being written
        raise OutputLogError(
            f"log {directory!r} has format {found.decode('ascii', 'backslashreplace').strip()!r}, "
            f"this version reads {FORMAT.decode().strip()!r}: use the version of Tether that wrote it"
        )


def write_format(directory: str) -> None:
    """Make the directory and say in it which format its files have."""
    os.makedirs(directory, 0o700, exist_ok=True)
    descriptor = open_file(os.path.join(directory, "format"), os.O_WRONLY | os.O_CREAT)
    try:
        write_at(descriptor, FORMAT, 0)
    finally:
        os.close(descriptor)


def open_file(path: str, flags: int) -> int:
    """A descriptor of one of the log's files, for our own user only."""
    return os.open(path, flags | _BINARY, 0o600)


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """Up to `size` bytes from `offset` of a file."""
    if sys.platform == "win32":
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, size)
    return os.pread(descriptor, size, offset)


def write_at(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset`; a torn write is overwritten by the next one there."""
    if sys.platform == "win32":
        os.lseek(descriptor, offset, os.SEEK_SET)
        written = os.write(descriptor, data)
    else:
        written = os.pwrite(descriptor, data, offset)
    if written != len(data):
        raise disk_full()


def disk_full() -> OSError:
    """What a write that the system cut short means."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def count_newlines(data: bytes | bytearray) -> int:
    """How many newlines there are; before Python 3.13 `count` looks at every byte, `replace` leaps ahead."""
    return data.count(b"\n") if _COUNT_IS_FAST else len(data) - len(data.replace(b"\n", b""))

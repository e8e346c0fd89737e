"""The record of a process on disk: a file that outlives whoever wrote it.

It has three lines, each a checksum and a JSON object: the facts of the start, and two reserved slots of fixed
size that are overwritten in place, one when the process runs and one when it has ended. Both exist before the
child does, so that a full disk cannot lose an exit code.
"""

import contextlib
import errno
import json
import logging
import os
import stat
import zlib
from dataclasses import replace
from typing import Final, cast

from tether.errors import KeeperError, StartError, TooManyOpenFilesError
from tether.keeper.records import ProcessRecord, record_from_json, record_to_json
from tether.process import _log_format as fmt

logger = logging.getLogger(__name__)

RECORD_NAME: Final = "record"
_RUNNING_BYTES: Final = 1024
_END_BYTES: Final = 2048
_RUNNING_KEYS: Final = ("pid", "started_mark", "stdio", "warnings")
_END_KEYS: Final = ("exit_status", "ended_at", "survivors", "end", "missing", "stdio")


def create_record(directory: str, record: ProcessRecord, spare: str = "") -> None:
    """Make the process's private directory with its record, slots reserved; a failure leaves nothing behind.

    A `spare` directory that was made before, by `make_spare`, becomes it and saves the time to make one.

    Raises:
        KeeperError: the directory has a record already.
        OSError: there is no room, or no permission.
    """
    made = _made(directory, spare)
    path = os.path.join(directory, RECORD_NAME)
    if not made and os.path.lexists(path) and has_whole_record(directory):
        raise KeeperError(f"process {record.id} has a record in {directory!r} already; give each an id of its own")
    if not made:
        _empty(directory)
    data = _line(record_to_json(record)) + _padded(b"", _RUNNING_BYTES) + _padded(b"", _END_BYTES)
    try:
        # Half a record, left by one who is killed here, does not match its checksum and counts as none.
        descriptor = fmt.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        try:
            fmt.write_at(descriptor, data, 0)
        finally:
            os.close(descriptor)
    except OSError:
        with contextlib.suppress(OSError):  # the first failure is the one to tell
            os.unlink(path)
        if made:
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        raise


def make_spare(spare: str) -> None:
    """Make a directory that the next process may have; where that fails, it makes its own."""
    with contextlib.suppress(OSError):
        os.mkdir(spare, 0o700)
        os.close(fmt.open_file(os.path.join(spare, RECORD_NAME), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC))


def no_room(error: OSError, directory: str) -> StartError:
    """Why something cannot be started that must be put on record first."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TooManyOpenFilesError(f"the keeper cannot open another file: {error.strerror}; end some processes")
    return StartError(f"no place to keep it in {directory!r}: {error.strerror}; make room there")


def remove_record(directory: str) -> None:
    """Undo `create_record` for a process that could not be started; needs no descriptor."""
    try:
        os.unlink(os.path.join(directory, RECORD_NAME))
        os.rmdir(directory)
    except OSError as error:
        logger.warning("what is left of a start cannot be removed: %s; a later sweep will try", error)


def _made(directory: str, spare: str) -> bool:
    """Whether the directory is new; else it was left by one who was killed while making or forgetting it."""
    if spare:
        with contextlib.suppress(OSError):
            os.rename(spare, directory)
            return True
    try:
        os.makedirs(os.path.dirname(directory), 0o700, exist_ok=True)
        os.mkdir(directory, 0o700)
    except FileExistsError:
        return False
    return True


def _empty(directory: str) -> None:
    """Remove what is left of a process that has no record any more: a log there would be taken for another's."""
    for name in os.listdir(directory):
        os.unlink(os.path.join(directory, name))


def write_running(directory: str, record: ProcessRecord) -> None:
    """Note that it runs: pid, what it really got, and as much of its warnings as there is room for."""
    _write_slot(directory, record, _RUNNING_KEYS, _RUNNING_BYTES, behind=_END_BYTES)


def write_end(directory: str, record: ProcessRecord) -> None:
    """Note how it ended, and as much about survivors as there is room for; needs no room on the disk.

    Raises:
        OSError: the file is gone, or no descriptor is left to open it with; try again.
    """
    _write_slot(directory, record, _END_KEYS, _END_BYTES, behind=0)


def read_record(directory: str) -> ProcessRecord:
    """What the directory says about its process; a slot that is damaged or half-written counts as empty.

    Raises:
        KeeperError: there is no record, its start is damaged, or it belongs to another directory.
        OSError: nobody could look.
    """
    start, running, end = _lines(directory)
    if start is None:
        raise KeeperError(f"no whole process record in {directory!r}; its process never ran, or it is forgotten")
    record = record_from_json(start | (running or {}) | (end or {}))
    if record.id != os.path.basename(os.path.normpath(directory)):
        raise KeeperError(f"the record in {directory!r} is that of process {record.id}; remove the copy")
    return record


def has_whole_record(directory: str) -> bool:
    """Whether somebody has written a record there, even if this version cannot read it."""
    return _lines(directory)[0] is not None


def _lines(directory: str) -> tuple[dict[str, object] | None, dict[str, object] | None, dict[str, object] | None]:
    """The start, the running slot and the end slot, each None where it is empty or damaged."""
    try:
        descriptor = _open_record(directory, os.O_RDONLY)
    except KeeperError:
        return None, None, None
    with os.fdopen(descriptor, "rb") as file:
        data = file.read()
    running = max(len(data) - _RUNNING_BYTES - _END_BYTES, 0)
    end = running + _RUNNING_BYTES
    return _parsed(data[:running]), _parsed(data[running:end]), _parsed(data[end:])


def _write_slot(directory: str, record: ProcessRecord, keys: tuple[str, ...], size: int, *, behind: int) -> None:
    most = size
    while True:
        value = record_to_json(record if most == size else _clipped(record, most))
        line = _line({key: value[key] for key in keys})
        if len(line) <= size:
            break
        if most == 0:
            raise KeeperError(f"process {record.id} has facts beyond {size} bytes: {line!r:.200}")
        most = most * 3 // 4
    descriptor = _open_record(directory, os.O_WRONLY)
    try:
        at = os.fstat(descriptor).st_size - behind - size
        if at < 0:
            raise KeeperError(f"the record in {directory!r} was cut short by somebody else")
        fmt.write_at(descriptor, _padded(line, size), at)
    finally:
        os.close(descriptor)


def _open_record(directory: str, flags: int) -> int:
    """A descriptor of the record, which is a plain file and never waited for.

    Raises:
        KeeperError: there is none, or something else in its place.
        OSError: nobody can look at it now.
    """
    path = os.path.join(directory, RECORD_NAME)
    try:
        descriptor = fmt.open_file(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise KeeperError(f"no record in {directory!r}: {error.strerror}") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise KeeperError(f"the record in {directory!r} is no file")
    return descriptor


def _clipped(record: ProcessRecord, most: int) -> ProcessRecord:
    """The record with at most `most` warnings and survivors, and no text about them longer than that."""
    status = record.exit_status
    if status is not None and len(status.core_file or "") > most:
        status = replace(status, core_file=None)  # half a path leads nowhere
    return replace(
        record,
        warnings=tuple(_clip(text, most) for text in record.warnings[:most]),
        survivors=tuple(replace(one, command=_clip(one.command, most)) for one in record.survivors[:most]),
        exit_status=status,
    )


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _line(value: dict[str, object]) -> bytes:
    # Bytes that are no text are lone surrogates in argv and paths: as ASCII escapes they survive.
    data = json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(data), data)


def _padded(line: bytes, size: int) -> bytes:
    return line.rstrip(b"\n").ljust(size - 1) + b"\n"


def _parsed(line: bytes) -> dict[str, object] | None:
    """What stands in a line; None when it is empty, damaged or half-written."""
    checksum, _, data = line.strip().partition(b" ")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(data):
        return None
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", value) if isinstance(value, dict) else None

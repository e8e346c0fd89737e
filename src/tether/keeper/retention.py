"""Keeping what has ended for a while, and forgetting it by age, size and number."""

import contextlib
import logging
import os
from collections.abc import Collection, Iterator
from typing import NamedTuple

from tether.errors import KeeperError
from tether.keeper.record_file import RECORD_NAME, has_whole_record, read_record
from tether.keeper.records import ProcessRecord, is_process_id
from tether.process._removal import remove_directory

logger = logging.getLogger(__name__)

_UNFINISHED_SECONDS = 60.0
_BLOCK_BYTES = 512


class _Kept(NamedTuple):
    """What has to be known of an ended process to decide when it is forgotten."""

    ended_at: float
    size: int


class Shelf:
    """The ended processes in a directory of processes; holds a few hundred bytes of memory for each.

    Only directories that are named by a process id are ever touched.
    """

    def __init__(
        self,
        directory: str,
        *,
        keep_seconds: float = 24 * 3600,
        keep_bytes: int = 2 * 1024**3,
        keep_count: int = 10_000,
    ) -> None:
        self._directory = directory
        self._keep_seconds = keep_seconds
        self._keep_bytes = keep_bytes
        self._keep_count = keep_count
        self.guests: set[str] = set()
        self._kept: dict[str, _Kept] = {}
        self._bytes = 0
        self._unfinished: set[str] = set()  # directories without a whole record
        self._unremovable: set[str] = set()  # forgotten, but their record is still there

    @property
    def bytes(self) -> int:
        """How much room the ended processes take on the disk."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, process_id: object) -> bool:
        return process_id in self._kept

    def __iter__(self) -> Iterator[str]:
        """The ids by the time of their end, oldest first."""
        return iter(sorted(self._kept, key=lambda process_id: self._kept[process_id].ended_at))

    def load(self, but: Collection[str] = ()) -> list[str]:
        """Take in what an earlier keeper left, `but` not these; returns those that have no end on record."""
        endless: list[str] = []
        try:
            with os.scandir(self._directory) as entries:
                names = [one.name for one in entries if is_process_id(one.name) and one.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return endless
        for process_id in names:
            if process_id in but:
                continue
            try:
                if not self._put(read_record(self._path(process_id))):
                    endless.append(process_id)
            except KeeperError as error:
                # Damaged, never finished, or written by a newer version: a sweep tells which.
                logger.warning("process=%s is not shown: %s", process_id, error)
                self._unfinished.add(process_id)
            except OSError as error:
                logger.warning("process=%s cannot read its record: %s; leaving it alone", process_id, error)
        return endless

    def add(self, record: ProcessRecord) -> None:
        """Take in a process that has ended and whose end is on record.

        Raises:
            KeeperError: it has no end.
            OSError: nobody can look at its directory now; try again.
        """
        if not self._put(record):
            raise KeeperError(f"process {record.id} has no end on record; write that before it is shelved")

    def read(self, process_id: str) -> ProcessRecord:
        """All that is known of an ended process.

        Raises:
            KeyError: it is not here, or no longer.
            OSError: its record cannot be read now; try again.
        """
        if process_id not in self._kept:
            raise KeyError(process_id)
        try:
            return read_record(self._path(process_id))
        except KeeperError as error:
            logger.warning("process=%s is lost from the shelf: %s", process_id, error)
            self._drop(process_id)
            self._unfinished.add(process_id)
            raise KeyError(process_id) from error

    def forget(self, process_id: str) -> None:
        """Remove an ended process and its output; what cannot be removed now is removed by a later sweep.

        Raises:
            KeyError: it is not here.
        """
        if process_id not in self._kept:
            raise KeyError(process_id)
        self._drop(process_id)
        self._remove(process_id)

    def sweep(self, now: float) -> list[str]:
        """Forget who ended too long ago, then the oldest beyond the bounds of bytes and number; returns their ids.

        The newest stays, however large it is. One that ended in the future, by a clock that was set back, has
        no age.
        """
        for process_id in list(self._unremovable):
            self._remove(process_id)
        for process_id in list(self._unfinished):
            self._remove_unfinished(process_id, now)
        outdated = [one for one in self if now - self._kept[one].ended_at > self._keep_seconds]
        for process_id in outdated:
            self.forget(process_id)
        return outdated + self._forget_beyond_bounds()

    def _forget_beyond_bounds(self) -> list[str]:
        forgotten: list[str] = []
        for process_id in self:
            too_large = self._bytes > self._keep_bytes and len(self._kept) > 1
            if not too_large and len(self._kept) <= self._keep_count:
                break
            self.forget(process_id)
            forgotten.append(process_id)
        return forgotten

    def _path(self, process_id: str) -> str:
        return os.path.join(self._directory, process_id)

    def _put(self, record: ProcessRecord) -> bool:
        """Take it in; False when it has no end."""
        if record.exit_status is None or record.ended_at is None:
            return False
        kept = _Kept(record.ended_at, _size(self._path(record.id)))
        self._drop(record.id)
        self._kept[record.id] = kept
        if record.guest:
            self.guests.add(record.id)
        self._bytes += kept.size
        return True

    def _drop(self, process_id: str) -> None:
        kept = self._kept.pop(process_id, None)
        if kept is not None:
            self._bytes -= kept.size

    def _remove(self, process_id: str) -> None:
        """Remove a directory, its record first: whoever dies on the way leaves nothing that is still listed."""
        path = self._path(process_id)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(path, RECORD_NAME))
        except OSError as error:
            if process_id not in self._unremovable:
                logger.warning("process=%s cannot be removed: %s; trying again later", process_id, error)
            self._unremovable.add(process_id)
            return
        self._unremovable.discard(process_id)
        self._remove_rest(process_id)

    def _remove_unfinished(self, process_id: str, now: float) -> None:
        """Remove a directory without a whole record, unless it may just be made."""
        path = self._path(process_id)
        try:
            if has_whole_record(path):
                self._unfinished.discard(process_id)  # it was started after all, or a newer version wrote it
            elif now - os.stat(path, follow_symlinks=False).st_mtime > _UNFINISHED_SECONDS:
                self._remove_rest(process_id)
        except FileNotFoundError:
            self._unfinished.discard(process_id)
        except OSError as error:
            logger.debug("process=%s cannot look at its directory: %s", process_id, error)

    def _remove_rest(self, process_id: str) -> None:
        try:
            remove_directory(self._path(process_id))
        except FileNotFoundError:
            pass
        except OSError as error:
            if process_id not in self._unfinished:
                logger.warning("process=%s cannot be removed wholly: %s; trying again later", process_id, error)
            self._unfinished.add(process_id)
            return
        self._unfinished.discard(process_id)


def _size(directory: str) -> int:
    """The room that the files of a directory take; what vanishes meanwhile takes none."""
    total = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for one in entries:
            with contextlib.suppress(FileNotFoundError):
                status = one.stat(follow_symlinks=False)
                total += max(status.st_size, getattr(status, "st_blocks", 0) * _BLOCK_BYTES)
    return total

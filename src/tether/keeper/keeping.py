"""What a keeper keeps: running processes, channels, and the records of what has ended."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import NamedTuple, Self, cast

from tether.errors import (
    InvalidCommandError,
    KeeperError,
    ProcessEndedError,
    ScreenUnavailableError,
    TetherError,
    UnknownProcessError,
)
from tether.keeper.channel import Channel
from tether.keeper.frames import Header
from tether.keeper.lease import FOREVER, Holders, Lease, Owned
from tether.keeper.naming import check_name, meant
from tether.keeper.protocol import objects
from tether.keeper.record_file import create_record, make_spare, no_room, remove_record, write_end, write_running
from tether.keeper.records import ProcessRecord, check_process_id, record_from_json, record_to_json
from tether.keeper.retention import Shelf
from tether.keeper.sweep import end_runaways
from tether.process._census import entry
from tether.process._saved_state import saved, saved_part
from tether.process._spawn_posix import born_with
from tether.process.command import COOKIE, Command, Pipes, Pty
from tether.process.log_reader import LogReader
from tether.process.place import Stamp, TakenInput
from tether.process.process import Process
from tether.process.table import ProcessTable

logger = logging.getLogger(__name__)

_LISTED_AT_ONCE = 100
_SWEEP_SECONDS = 20.0
_RECENT = 64
_SPARE = "spare"
_CHANNEL_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class Kept:
    """What the keeper knows of a running process besides the process itself."""

    process: Process
    lease: Lease
    guest: bool
    started_mark: str = ""
    told: bool = True
    """Whether its end is on record; False while that could not be written."""
    written: ProcessRecord | None = None
    """What was put on record of its end."""


class _Recent(NamedTuple):
    """What has ended just now and may still be asked for."""

    record: ProcessRecord
    taken: TakenInput


class Keeping:
    """Starts, finds and forgets; whatever happens is on record before `on_news` tells it.

    It is the observer of its table: the end of a process passes through here before anybody hears of it.
    """

    def __init__(self, directory: str, shelf: Shelf, on_news: Callable[[str], None]) -> None:
        self.directory = directory
        self.shelf = shelf
        self.table = ProcessTable(directory, observer=self)
        self.kept: dict[str, Kept] = {}
        self.channels: dict[str, Channel] = {}
        self.holders = Holders()
        self.guests: set[str] = set()
        self.on_news = on_news
        self._recent: dict[str, _Recent] = {}
        self._spare = os.path.join(os.path.dirname(directory), _SPARE)
        self._swept_at = 0.0

    async def __aenter__(self) -> Self:
        await self.table.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel_id in list(self.channels):
            try:
                self.close_channel(channel_id)
            except (OSError, TetherError) as failure:
                logger.warning("channel=%s cannot be closed in good order: %s", channel_id, failure)
        for process_id in [one for one, kept in self.kept.items() if kept.process.exit_status is not None]:
            self._retire(process_id)  # what came after its end is on record then, too
        await self.table.__aexit__(kind, error, trace)

    async def take_over(self) -> None:
        """Shelve what earlier keepers left, and end whatever of it still runs although its keeper is dead."""
        lost = await end_runaways(self.directory, self.shelf.load())
        for record in lost.values():
            self.shelf.add(record)
        self.shelf.sweep(time.time())

    def path(self, process_id: str) -> str:
        """Where everything about a process is."""
        return os.path.join(self.directory, process_id)

    async def start(
        self,
        command: Command,
        *,
        process_id: str,
        name: str = "",
        lease: Lease = FOREVER,
        guest: bool = False,
        umask: int | None = None,
    ) -> ProcessRecord:
        """Start a process, or say how the one with that id is doing; `umask` is that of whoever asks for it."""
        check_process_id(process_id)
        known = self.find(process_id)
        if known is not None:
            return known
        if command.env is None:
            raise InvalidCommandError("a kept process needs its environment: the keeper's own is never used")
        if isinstance(command.stdio, Pipes) and command.stdio.inherit_stdin:
            raise InvalidCommandError(
                "a kept process cannot read its starter's stdin; send it input, or give it stdin"
            )
        if COOKIE in command.env:
            # It is no descendant of the process it was asked for from: it lives on when that is ended.
            command = replace(command, env={key: value for key, value in command.env.items() if key != COOKIE})
        check_name(
            name, {one: kept.process.name for one, kept in self.kept.items() if kept.process.exit_status is None}
        )
        directory = self.path(process_id)
        planned = ProcessRecord(
            id=process_id, name=name, command=command, lease=lease, guest=guest, started_at=time.time()
        )
        try:
            create_record(directory, planned, self._spare)
        except OSError as error:
            raise no_room(error, directory) from error
        try:
            with born_with(umask):
                process = await self.table.start(command, process_id=process_id, name=name)
        except BaseException:
            remove_record(directory)
            raise
        process.command = command.without_secrets()  # what was started needs them no more
        process.started_at = planned.started_at
        if guest:
            self.guests.add(process_id)
        self.kept[process_id] = Kept(process, lease, guest)
        # Nobody waits for that: should we die before, the next keeper finds the process by its cookie.
        asyncio.get_running_loop().call_soon(self._note_running, process_id)
        return self.record(process_id)

    def _note_running(self, process_id: str) -> None:
        make_spare(self._spare)
        kept = self.kept.get(process_id)
        if kept is None:
            return
        try:
            seen = entry(kept.process.pid)
            kept.started_mark = "" if seen is None else seen.started
            write_running(self.path(process_id), self._everything(process_id))
        except (OSError, KeeperError) as error:
            logger.warning("process=%s its pid cannot be put on record: %s", process_id, error)

    def record(self, process_id: str) -> ProcessRecord:
        """What is known of a running process or an open channel now."""
        if process_id in self.channels:
            return self.channels[process_id].record()
        record = self._everything(process_id)
        return record if self.kept[process_id].told else replace(record, ended_at=None, exit_status=None)

    def _everything(self, process_id: str) -> ProcessRecord:
        """The same, also of an end that is not on record yet."""
        kept = self.kept[process_id]
        process = kept.process
        return ProcessRecord(
            id=process_id,
            name=process.name,
            command=process.command,
            stdio=process.stdio,
            lease=kept.lease,
            guest=kept.guest,
            started_at=process.started_at,
            pid=process.pid,
            started_mark=kept.started_mark,
            warnings=tuple(process.warnings),
            ended_at=process.ended_at,
            exit_status=process.exit_status,
            survivors=process.survivors,
            end=process.output.end,
            missing=process.output.refused,
            idle_seconds=process.idle_seconds,
            output_held=process.output_is_held,
        )

    def find(self, process_id: str) -> ProcessRecord | None:
        """What is known of a process, whether it runs or has ended; None when it is not here."""
        if process_id in self.kept or process_id in self.channels:
            return self.record(process_id)
        if process_id in self._recent and process_id in self.shelf:
            return self._recent[process_id].record
        with contextlib.suppress(KeyError):
            return self.shelf.read(process_id)
        return None

    def reach(self, process_id: str) -> int | None:
        """How far the output of something that still lives reaches; None once only its record is left."""
        if process_id in self.channels:
            return self.channels[process_id].log.end
        kept = self.kept.get(process_id)
        return None if kept is None or kept.process.exit_status is not None else kept.process.output.end

    def size(self, process_id: str) -> tuple[int, int] | None:
        """The size of a running process's terminal; None where there is none."""
        kept = self.kept.get(process_id)
        stdio = None if kept is None else kept.process.stdio
        return (stdio.cols, stdio.rows) if isinstance(stdio, Pty) else None

    def described(self, process_id: str) -> ProcessRecord:
        """The same for one that must be here.

        Raises:
            UnknownProcessError: it is not.
        """
        record = self.find(process_id)
        if record is None:
            raise UnknownProcessError(process_id, self.ids())
        return record

    def running(self, process_id: str) -> Process:
        """The process itself, while there is anything to be done with it.

        Raises:
            ProcessEndedError: only its record is left.
            UnknownProcessError: no process has that id.
        """
        kept = self.kept.get(process_id)
        if kept is None:
            raise ProcessEndedError(
                f"process {process_id} has ended ({self.described(process_id).status}); start another"
            )
        return kept.process

    def took(self, process_id: str, stamp: Stamp | None) -> bool:
        """Whether a process that has ended just now had taken this piece of input."""
        return stamp is not None and process_id in self._recent and self._recent[process_id].taken.has(stamp)

    def ids(self) -> list[str]:
        """Everybody who is here, running ones first."""
        return [*self.kept, *self.channels, *self.shelf]

    def full_id(self, words: str) -> str:
        """The one id that is meant; raises like `meant`."""
        return meant(words, self.ids(), self._named)

    def _named(self, name: str) -> list[str]:
        """Who goes by that name: those that run, else the last that did."""
        running = [one for one, kept in self.kept.items() if kept.process.name == name]
        if running:
            return running
        ended = (one for one in reversed([*self.shelf]) if (record := self.find(one)) and record.name == name)
        return [one for _, one in zip(range(1), ended, strict=False)]

    async def listing(self, *, ended: bool, after: str = "") -> AsyncIterator[tuple[str, ProcessRecord]]:
        """What is known of everybody, with pauses in which the keeper does its real work.

        Each comes with a mark; listing on `after` that, nobody is missed, but who ends meanwhile may come twice.
        """
        where, _, last = after.partition(" ")
        living = [] if where == "ended" else [*self.kept, *self.channels]
        for process_id in living[living.index(last) + 1 :] if last in living else living:
            if (record := self.find(process_id)) is not None and (ended or record.exit_status is None):
                yield f"living {process_id}", record
        shelved = [*self.shelf] if ended else []
        begin = shelved.index(last) + 1 if where == "ended" and last in shelved else 0
        for position, process_id in enumerate(shelved[begin:]):
            with contextlib.suppress(KeyError):  # forgotten meanwhile
                yield f"ended {process_id}", self.shelf.read(process_id)
            if position % _LISTED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def log(self, process_id: str) -> LogReader:
        """The output of a process or channel, for reading."""
        if process_id in self.channels:
            return self.channels[process_id].log
        if process_id in self.kept:
            return self.kept[process_id].process.output
        self.described(process_id)
        return LogReader(self.path(process_id))

    async def view(self, process_id: str, what: str) -> dict[str, object]:
        """A view of a process's terminal, as the screen helper words it; of an ended one, how it was left."""
        if process_id in self.kept:
            return await self.table.view(self.running(process_id), what)
        record = self.described(process_id)
        if record.command is None or not isinstance(record.command.stdio, Pty) or not isinstance(record.stdio, Pty):
            raise ScreenUnavailableError(f"process {process_id} had no terminal, so it has no screen")
        return await self.table.view_of_log(process_id, self.path(process_id), record.command.stdio, record.end, what)

    async def release(self, process_id: str) -> None:
        """Forget a process; a running one is ended first."""
        if process_id in self.channels:
            self.close_channel(process_id)
        elif process_id in self.kept:
            process = self.running(process_id)
            if process.exit_status is None or process.output_is_held:
                await process.stop()
            if process.exit_status is None:
                raise KeeperError(f"process {process_id} cannot be ended (pid {process.pid}), so it is not forgotten")
            if process_id in self.kept:
                self._retire(process_id)
        if process_id in self.shelf:
            self.shelf.forget(process_id)
        else:
            raise UnknownProcessError(process_id, self.ids())

    def open_channel(self, channel_id: str, key: str, capacity: int = _CHANNEL_BYTES) -> ProcessRecord:
        """Make a channel, or say how the one with that id is doing."""
        check_process_id(channel_id)
        known = self.find(channel_id)
        if known is not None:
            return known
        channel = Channel.opened(channel_id, key, self.path(channel_id), capacity)
        self.channels[channel_id] = channel
        return channel.record()

    def close_channel(self, channel_id: str) -> None:
        """No more is appended to it; what it holds can be read like the output of anything that has ended."""
        channel = self.channels[channel_id]
        ended = channel.close()
        del self.channels[channel_id]
        self._shelve(ended, channel.taken)
        self.on_news(channel_id)

    def keep(self, process_id: str, lease: Lease, *, drop_oldest: bool = False) -> ProcessRecord:
        """Give a running process another lease; `drop_oldest` when nobody takes its output any more."""
        process = self.running(process_id)
        self.kept[process_id].lease = lease
        if drop_oldest:
            process.drop_oldest()
        return self.record(process_id)

    def end_owned(self, owner: str) -> None:
        """Its owner leaves in good order: what it owns ends with it."""
        owned = [kept for kept in self.kept.values() if isinstance(kept.lease, Owned) and kept.lease.owner == owner]
        self.table.stop_together_soon([kept.process for kept in owned if kept.process.exit_status is None])

    def tend(self, now: float) -> None:
        """What has to be done from time to time: leases, records that could not be written, retention."""
        expired: list[Process] = []
        for process_id, kept in list(self.kept.items()):
            if kept.process.exit_status is not None:
                self._settle(process_id)
            elif self.holders.expired(kept.lease, now):
                logger.info("process=%s nobody holds its owner any more: ending it", process_id)
                kept.lease = FOREVER
                expired.append(kept.process)
        self.table.stop_together_soon(expired)
        for channel in self.channels.values():
            if channel.log.blocked:
                channel.log.retry()
                self.on_news(channel.id)
        leases = [kept.lease for kept in self.kept.values()]
        self.holders.forget_all_but({lease.owner for lease in leases if isinstance(lease, Owned)})
        if now - self._swept_at >= _SWEEP_SECONDS:
            self._swept_at = now
            self.shelf.sweep(time.time())

    def grew(self, process: Process) -> None:
        """A process wrote something."""
        self.on_news(process.id)

    def ended(self, process: Process) -> None:
        """A process has its exit status: it is put on record before anybody is told."""
        kept = self.kept.get(process.id)
        if kept is None:
            return
        kept.told = self._write_end(process.id)
        asyncio.get_running_loop().call_soon(self._settle, process.id)

    def _settle(self, process_id: str) -> None:
        """Tell the end once it is on record, and let go of a process once nobody holds its output any more."""
        kept = self.kept.get(process_id)
        if kept is None:
            return
        kept.told = kept.told or self._write_end(process_id)
        output = kept.process.output
        if kept.told and output.closed and not output.blocked:
            self._retire(process_id)
        self.on_news(process_id)

    def _write_end(self, process_id: str) -> bool:
        record = self._everything(process_id)
        try:
            write_end(self.path(process_id), record)
        except OSError as error:
            logger.warning("process=%s its end cannot be put on record: %s; trying again", process_id, error)
            return False
        except KeeperError as error:
            logger.warning("process=%s its end is told without a record: %s", process_id, error)
        self.kept[process_id].written = record
        return True

    def _retire(self, process_id: str) -> None:
        record, process = self._everything(process_id), self.kept[process_id].process
        written = self.kept[process_id].written
        if written is None or record != replace(written, idle_seconds=record.idle_seconds, output_held=False):
            self._write_end(process_id)
        self.table.retire(process)
        del self.kept[process_id]
        self._shelve(record, process.taken)

    def _shelve(self, record: ProcessRecord, taken: TakenInput) -> None:
        try:
            self.shelf.add(record)
        except (OSError, KeeperError) as error:
            logger.warning("process=%s cannot be shelved: %s; the next keeper will find it", record.id, error)
            return
        self._recent[record.id] = _Recent(record, taken)
        if len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]

    def is_guest(self, process_id: str) -> bool:
        """Whether this process was started on behalf of an agent."""
        return process_id in self.guests or process_id in self.shelf.guests

    def state(self) -> Header:
        """Everything that must survive when this program becomes another one, as JSON values."""
        return {
            "processes": [
                {
                    "record": record_to_json(self._everything(process_id)),
                    "told": kept.told,
                    "state": self.table.state(kept.process),
                }
                for process_id, kept in self.kept.items()
            ],
            "channels": [channel.state() for channel in self.channels.values()],
            "guests": sorted(self.guests),
        }

    def restore(self, state: Header) -> None:
        """Keep what another version kept; touches nothing before `go_on`.

        Raises:
            ValueError, TetherError: this is no such state.
        """
        for value in objects(state, "processes"):
            record = record_from_json(value.get("record"))
            assert record.command is not None, "a channel is no process"
            process = self.table.restore(record.id, record.name, record.command, saved_part(value, "state"))
            process.stdio = record.stdio
            process.warnings = list(record.warnings)
            process.survivors = record.survivors
            process.started_at, process.ended_at = record.started_at, record.ended_at
            process.exit_status = record.exit_status
            self.kept[record.id] = Kept(
                process, record.lease, record.guest, record.started_mark, told=saved(value, "told", bool)
            )
        for value in objects(state, "channels"):
            channel = Channel.restored(self.directory, value)
            self.channels[channel.id] = channel
        self.guests.update(cast("list[str]", state["guests"]))

    def go_on(self) -> None:
        """Read and watch again what was restored, and shelve what has ended before."""
        self.shelf.load(but={*self.kept, *self.channels})
        for kept in list(self.kept.values()):
            self.table.go_on(kept.process)

    def descriptors(self) -> list[int]:
        """What must stay open when this program becomes another."""
        return [descriptor for kept in self.kept.values() for descriptor in kept.process.descriptors()]

    @property
    def busy(self) -> bool:
        """Whether anything lives here."""
        return bool(self.kept or self.channels)

    def leaders(self) -> dict[int, str]:
        """The processes by their pid."""
        # The pid of one that was collected may be somebody else's by now.
        return {kept.process.pid: one for one, kept in self.kept.items() if not kept.process.collected}

    def owned_pids(self) -> Sequence[int]:
        """Our own children, whose ends somebody watches."""
        return [*self.leaders(), *self.table.helper_pids()]

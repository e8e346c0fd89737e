"""What a client may ask of a keeper: each word of the protocol and what it does."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from typing import Protocol

from tether.errors import KeeperLostError, KeeperRefusedError, KeeperVersionError, UnknownProcessError
from tether.keeper.channel import DOWN, UP
from tether.keeper.connection import Connection
from tether.keeper.frames import Frame, Header
from tether.keeper.keeping import Keeping
from tether.keeper.protocol import (
    ANY_PROTOCOL,
    PROTOCOL,
    field,
    lines_to_frame,
    look_to_json,
    marks_to_json,
    optional,
    slice_to_frame,
    stamp_of,
    strings,
)
from tether.keeper.records import command_from_json, lease_from_json, record_to_json
from tether.process.log_reader import Lines
from tether.process.process import Process

_MOST_READ_BYTES = 256 * 1024
_MOST_LINES = 10_000
_PAGE_BYTES = 1024 * 1024
_RECORD_BYTES = 1024  # what a record takes besides its words
_CHANNEL_WORDS = frozenset({"hello", "append", "read", "watch"})

Answer = Awaitable[Frame]


class Host(Protocol):
    """The keeper around what it keeps."""

    version: str

    @property
    def ending(self) -> bool:
        """Whether it is too late to start anything."""
        ...

    def greeting(self) -> Header:
        """Who we are."""
        ...

    def status(self) -> Header:
        """How we are."""
        ...

    def watch(self, connection: Connection, process_id: str) -> None:
        """Tell this connection about this process from now on."""
        ...

    async def upgrade(self, python: str, generation: int) -> Header:
        """Become another version of ourselves, unless we did since that generation."""
        ...

    def shut_down(self) -> None:
        """End, once this was answered."""
        ...


class Requests:
    """Turns the frames of a connection into calls, and what they return into frames."""

    def __init__(self, host: Host, keeping: Keeping) -> None:
        self._host = host
        self._keeping = keeping
        self._words: dict[str, Callable[[Frame], Answer]] = {
            "status": self._status,
            "write": self._write,
            "end_input": self._end_input,
            "interrupt": self._interrupt,
            "last_number": self._last_number,
            "resize": self._resize,
            "stop": self._stop,
            "kill": self._kill,
            "release": self._release,
            "look": self._look,
            "view": self._view,
            "key_modes": self._key_modes,
            "read": self._read,
            "discard": self._discard,
            "keep": self._keep,
            "leave": self._leave,
            "close_channel": self._close_channel,
            "upgrade": self._upgrade,
            "shut_down": self._shut_down,
        }
        self._words_of_connections: dict[str, Callable[[Connection, Frame], Answer]] = {
            "hello": self._hello,
            "start": self._start,
            "describe": self._describe,
            "list": self._list,
            "watch": self._watch,
            "open_channel": self._open_channel,
            "append": self._append,
        }

    def work_for(self, connection: Connection, frame: Frame) -> Answer:
        """Do what a request says."""
        word = field(frame.header, "do", str)
        if not connection.greeted and word != "hello":
            raise KeeperRefusedError(f"say hello before {word!r}")
        if word not in ANY_PROTOCOL and connection.protocol != PROTOCOL:
            raise KeeperVersionError(_other_protocol(connection.protocol, self._host.version))
        if connection.channel is not None and (
            word not in _CHANNEL_WORDS or frame.header.get("process", connection.channel) != connection.channel
        ):
            raise KeeperRefusedError(f"the key of a channel does not open {word!r}")
        if word in self._words:
            return self._words[word](frame)
        if word in self._words_of_connections:
            return self._words_of_connections[word](connection, frame)
        raise KeeperVersionError(
            f"the keeper (version {self._host.version}) does not know {word!r:.100}; run `tether keeper upgrade`"
        )

    async def _hello(self, connection: Connection, frame: Frame) -> Frame:
        header = frame.header
        protocol, owners = field(header, "protocol", int), strings(header, "owners")
        channel_id = optional(header, "channel", str)
        if channel_id is not None:
            channel = self._keeping.channels.get(channel_id)
            if channel is None or not channel.admits(field(header, "key", str)):
                raise KeeperRefusedError("no such channel, or not its key")
            connection.channel = channel_id
        elif connection.channel is not None:
            raise KeeperRefusedError("the key of a channel does not open anything else")
        else:
            for owner in set(owners) - connection.owners:
                connection.owners.add(owner)
                self._keeping.holders.hold(owner)
        connection.protocol = protocol
        connection.greeted = True
        return Frame(self._host.greeting())

    async def _status(self, _frame: Frame) -> Frame:
        return Frame(self._host.status())

    async def _start(self, connection: Connection, frame: Frame) -> Frame:
        header = frame.header
        if self._host.ending:
            raise KeeperLostError("the keeper is just ending; try again")
        command = command_from_json(header.get("command"))
        if header.get("stdin") is True:
            command = replace(command, stdin=frame.body)
        lease = lease_from_json(header.get("lease"))
        process_id, name = field(header, "process", str), field(header, "name", str)
        record = await self._keeping.start(
            command,
            process_id=process_id,
            name=name,
            lease=lease,
            guest=header.get("guest") is True,
            umask=optional(header, "umask", int),
        )
        self._host.watch(connection, process_id)
        return Frame({"record": record_to_json(record)})

    async def _describe(self, connection: Connection, frame: Frame) -> Frame:
        process_id = self._keeping.full_id(field(frame.header, "process", str))
        self._host.watch(connection, process_id)
        return Frame({"record": record_to_json(self._keeping.described(process_id))})

    async def _list(self, connection: Connection, frame: Frame) -> Frame:
        records: list[Header] = []
        size, after = 0, optional(frame.header, "after", str) or ""
        async for mark, record in self._keeping.listing(ended=field(frame.header, "ended", bool), after=after):
            self._host.watch(connection, record.id)
            records.append(record_to_json(record))
            size += sum(map(len, record.command.argv)) + _RECORD_BYTES if record.command else _RECORD_BYTES
            if size > _PAGE_BYTES:
                return Frame({"records": records, "after": mark})
        return Frame({"records": records, "after": None})

    async def _watch(self, connection: Connection, frame: Frame) -> Frame:
        records: list[Header] = []
        for process_id in strings(frame.header, "processes"):
            if connection.channel not in (None, process_id):
                raise KeeperRefusedError("the key of a channel does not open anything else")
            self._host.watch(connection, process_id)
            if (record := self._keeping.find(process_id)) is not None:
                records.append(record_to_json(record))
        return Frame({"records": records})

    async def _write(self, frame: Frame) -> Frame:
        stamp = stamp_of(frame.header)
        if self._keeping.took(field(frame.header, "process", str), stamp):
            return Frame({"at_once": True})  # an answer that got lost on its way
        return Frame({"at_once": await self._process(frame).write(frame.body, stamp)})

    async def _end_input(self, frame: Frame) -> Frame:
        stamp = stamp_of(frame.header)
        if not self._keeping.took(field(frame.header, "process", str), stamp):
            await self._process(frame).end_input(stamp)
        return Frame({})

    async def _interrupt(self, frame: Frame) -> Frame:
        stamp = stamp_of(frame.header)
        if not self._keeping.took(field(frame.header, "process", str), stamp):
            await self._process(frame).interrupt(stamp)
        return Frame({})

    async def _last_number(self, frame: Frame) -> Frame:
        process_id, writer = field(frame.header, "process", str), field(frame.header, "writer", str)
        channel = self._keeping.channels.get(process_id)
        if channel is not None:
            return Frame({"number": channel.taken.last.get(writer, 0)})
        return Frame({"number": await self._keeping.running(process_id).last_number(writer)})

    async def _resize(self, frame: Frame) -> Frame:
        await self._process(frame).resize(field(frame.header, "cols", int), field(frame.header, "rows", int))
        return self._record(frame)

    async def _stop(self, frame: Frame) -> Frame:
        process_id = field(frame.header, "process", str)
        if self._keeping.described(process_id).exit_status is None or process_id in self._keeping.kept:
            await self._keeping.running(process_id).stop(grace=field(frame.header, "grace", float))
        return self._record(frame)

    async def _kill(self, frame: Frame) -> Frame:
        if self._keeping.described(field(frame.header, "process", str)).exit_status is None:
            await self._process(frame).kill()
        return Frame({})

    async def _release(self, frame: Frame) -> Frame:
        await self._keeping.release(field(frame.header, "process", str))
        return Frame({})

    async def _look(self, frame: Frame) -> Frame:
        return Frame(look_to_json(await self._process(frame).look()))

    async def _view(self, frame: Frame) -> Frame:
        what = field(frame.header, "what", str)
        if what not in ("screen", "cells", "vt"):
            raise KeeperVersionError(f"no view {what!r}; there are screen, cells and vt")
        return Frame(await self._keeping.view(field(frame.header, "process", str), what))

    async def _key_modes(self, frame: Frame) -> Frame:
        return Frame({"modes": asdict(await self._process(frame).key_modes())})

    async def _read(self, frame: Frame) -> Frame:
        header = frame.header
        log = self._keeping.log(field(header, "process", str))
        what = optional(header, "what", str) or "bytes"
        start = field(header, "start", int)
        if what == "bytes":
            limit = optional(header, "limit", int)
            most = _MOST_READ_BYTES if limit is None else min(limit, _MOST_READ_BYTES)
            stream = optional(header, "stream", int)
            part = log.read(start, most) if stream is None else log.read_stream(stream, start, most)
            return slice_to_frame(part)
        if what == "lines":
            return lines_to_frame(_page(log.read_lines(start, min(field(header, "limit", int), _MOST_LINES))))
        if what == "chunks":
            return Frame({"marks": marks_to_json(log.chunks(start, optional(header, "end", int)))})
        if what == "gaps":
            return Frame({"marks": marks_to_json(log.gaps())})
        if what == "resizes":
            return Frame({"marks": marks_to_json(log.resizes(start))})
        raise KeeperVersionError(f"a log has no {what!r}; it has bytes, lines, chunks, gaps and resizes")

    async def _discard(self, frame: Frame) -> Frame:
        process_id, offset = field(frame.header, "process", str), field(frame.header, "offset", int)
        channel = self._keeping.channels.get(process_id)
        if channel is not None:
            channel.log.discard_before(offset)
        elif process_id in self._keeping.kept:
            await self._keeping.running(process_id).discard_before(offset)
        return Frame({})

    async def _keep(self, frame: Frame) -> Frame:
        lease = lease_from_json(frame.header.get("lease"))
        drop_oldest = frame.header.get("drop_oldest") is True
        record = self._keeping.keep(field(frame.header, "process", str), lease, drop_oldest=drop_oldest)
        return Frame({"record": record_to_json(record)})

    async def _leave(self, frame: Frame) -> Frame:
        self._keeping.end_owned(field(frame.header, "owner", str))
        return Frame({})

    async def _open_channel(self, connection: Connection, frame: Frame) -> Frame:
        header = frame.header
        process_id, key = field(header, "process", str), field(header, "key", str)
        record = self._keeping.open_channel(process_id, key, field(header, "capacity", int))
        self._host.watch(connection, process_id)
        return Frame({"record": record_to_json(record)})

    async def _close_channel(self, frame: Frame) -> Frame:
        process_id = field(frame.header, "process", str)
        if process_id in self._keeping.channels:
            self._keeping.close_channel(process_id)
        return self._record(frame)

    async def _append(self, connection: Connection, frame: Frame) -> Frame:
        header = frame.header
        process_id, stream = field(header, "process", str), field(header, "stream", int)
        channel = self._keeping.channels.get(process_id)
        stamp = stamp_of(header)
        if channel is None:
            raise UnknownProcessError(process_id, [*self._keeping.channels])
        if stamp is None:
            raise KeeperVersionError("what goes into a channel needs a writer and a number")
        if connection.channel is not None and stream != UP:
            raise KeeperRefusedError(f"the key of a channel opens stream {UP} (up), not {DOWN} (down)")
        end = channel.append(stream, frame.body, stamp)
        self._keeping.on_news(process_id)
        return Frame({"end": end})

    async def _upgrade(self, frame: Frame) -> Frame:
        python, generation = field(frame.header, "python", str), field(frame.header, "generation", int)
        return Frame(await self._host.upgrade(python, generation))

    async def _shut_down(self, _frame: Frame) -> Frame:
        running = sum(kept.process.exit_status is None for kept in self._keeping.kept.values())
        self._host.shut_down()
        return Frame({"ended": running})

    def _process(self, frame: Frame) -> Process:
        return self._keeping.running(field(frame.header, "process", str))

    def _record(self, frame: Frame) -> Frame:
        return Frame({"record": record_to_json(self._keeping.described(field(frame.header, "process", str)))})


def _page(lines: Lines) -> Lines:
    """As many of the lines as are worth one answer, but at least one."""
    size = 0
    for count, line in enumerate(lines.lines):
        size += len(line)
        if size > _PAGE_BYTES and count:
            return replace(lines, lines=lines.lines[:count])
    return lines


def _other_protocol(theirs: int, version: str) -> str:
    if theirs > PROTOCOL:
        return (
            f"the keeper that runs is of an older version ({version}, protocol {PROTOCOL}) than this program "
            f"(protocol {theirs}); run `tether keeper upgrade`"
        )
    return (
        f"the keeper that runs is of a newer version ({version}, protocol {PROTOCOL}) than this program "
        f"(protocol {theirs}); use the newer program, or stop the keeper with `tether keeper stop`"
    )

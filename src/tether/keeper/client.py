"""How a program uses the keeper: the same interface as its own table of processes, but what it starts lives on."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from tether.errors import KeeperError, KeeperUnavailableError, UnknownProcessError
from tether.keeper.frames import Frame, Header
from tether.keeper.home import Home
from tether.keeper.kept_channel import KeptChannel
from tether.keeper.kept_process import KeptProcess
from tether.keeper.launch import connect
from tether.keeper.lease import FOREVER, Lease
from tether.keeper.link import Link
from tether.keeper.protocol import PROTOCOL, field, objects, optional
from tether.keeper.records import ProcessRecord, command_to_json, lease_to_json, record_from_json
from tether.process.command import Command, starter_environment
from tether.process.exit_status import Cause, ExitStatus
from tether.version import VERSION

_CHANNEL_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperStatus:
    """How a keeper is doing."""

    pid: int
    version: str
    protocol: int
    home: str
    socket: str
    started_at: float
    running: int
    ended: int
    connections: int
    log_bytes: int
    screen_pid: int | None


class KeeperClient:
    """Starts and finds processes in a keeper; reconnects by itself, and says so when it cannot.

    Use `open_keeper` or `open_distant_keeper` to get one. What an answer tells of a process is taken in before
    any news behind it, so that its end is never missed.
    """

    def __init__(self, dial: Callable[[], Awaitable[socket.socket]], *, local: bool, owners: Sequence[str]) -> None:
        self.greeting: Header = {}
        self._local = local
        self._owners = list(owners)
        self._known: weakref.WeakValueDictionary[str, KeptProcess | KeptChannel] = weakref.WeakValueDictionary()
        self.link = Link(dial, self)

    async def start(
        self,
        command: Command,
        *,
        process_id: str | None = None,
        name: str = "",
        lease: Lease = FOREVER,
        guest: bool = False,
    ) -> KeptProcess:
        """Start a process, or find the one that was started with that id before.

        `guest` says that it runs on behalf of an agent: nothing it starts may talk to the keeper.

        Raises:
            StartError: of the kind that says why; nothing is left behind.
        """
        environment = starter_environment(command, os.environ)
        request: Header = {
            "do": "start",
            "process": process_id or str(uuid.uuid4()),
            "command": {**command_to_json(command, secrets=False), "env": environment},
            "stdin": command.stdin is not None,
            "name": name,
            "lease": lease_to_json(lease),
            "guest": guest,
            "umask": _umask() if self._local else None,
        }

        def started(answer: Frame) -> KeptProcess:
            return self._process(record_from_json(answer.header.get("record"), command.without_secrets()))

        return await self.link.ask_for(started, request, command.stdin or b"")

    async def find(self, process_id: str) -> KeptProcess:
        """The process with that id, or the only one whose id begins so or that has that name.

        Raises:
            UnknownProcessError: there is none; AmbiguousProcessError: there are several.
        """
        return await self.link.ask_for(self._process_in, {"do": "describe", "process": process_id})

    async def processes(self, *, ended: bool = True) -> list[KeptProcess]:
        """All of them, in the order they were started; without the `ended` ones if so told."""
        found: dict[str, KeptProcess] = {}
        request: Header | None = {"do": "list", "ended": ended}
        while request is not None:
            page, after = await self.link.ask_for(self._processes_in, request)
            found.update({process.id: process for process in page})
            request = None if after is None else {**request, "after": after}
        return sorted(found.values(), key=lambda process: process.started_at)

    async def open_channel(self, channel_id: str, key: str, capacity: int = _CHANNEL_BYTES) -> KeptChannel:
        """A channel with that id, made if there is none; `key` lets its far end in."""
        request: Header = {"do": "open_channel", "process": channel_id, "key": key, "capacity": capacity}
        return await self.link.ask_for(self._channel, request)

    async def find_channel(self, channel_id: str) -> KeptChannel:
        """A channel that was opened before."""
        request: Header = {"do": "watch", "processes": [channel_id]}
        return await self.link.ask_for(lambda answer: self._channel(answer, channel_id), request)

    async def leave(self, owner: str) -> None:
        """An owner goes in good order: what it owns is ended."""
        await self.link.ask({"do": "leave", "owner": owner})

    async def status(self) -> KeeperStatus:
        """How the keeper is doing."""
        header = (await self.link.ask({"do": "status"})).header
        return KeeperStatus(
            pid=field(header, "pid", int),
            version=field(header, "version", str),
            protocol=field(header, "protocol", int),
            home=field(header, "home", str),
            socket=field(header, "socket", str),
            started_at=field(header, "started_at", float),
            running=field(header, "running", int),
            ended=field(header, "ended", int),
            connections=field(header, "connections", int),
            log_bytes=field(header, "log_bytes", int),
            screen_pid=optional(header, "screen_pid", int),
        )

    async def shut_down(self) -> int:
        """End everything that is kept, and the keeper; returns how many processes were running."""
        return await self.link.ask_for(self._dismissed, {"do": "shut_down"})

    async def upgrade(self, python: str | None = None) -> str:
        """Have the keeper become the version that `python` (ours, if not given) has installed; returns that version.

        Raises:
            KeeperError: that version cannot take over, and nothing has changed.
        """
        generation = field(self.greeting, "generation", int)
        answer = await self.link.ask({"do": "upgrade", "python": python or sys.executable, "generation": generation})
        return field(answer.header, "version", str)

    async def ask(self, word: str, process_id: str, body: bytes = b"", **fields: object) -> Frame:
        """Have the keeper do something with a process."""
        return await self.link.ask({"do": word, "process": process_id, **fields}, body)

    def hello(self) -> Header:
        """What to say first on every connection."""
        return {"do": "hello", "protocol": PROTOCOL, "version": VERSION, "owners": self._owners}

    def greeted(self, answer: Header) -> None:
        """A connection stands: what we know of may have changed meanwhile."""
        again = bool(self.greeting)
        self.greeting = answer
        records = [process.record for process in self._known.values()]
        known = [record.id for record in records if record.exit_status is None or record.output_held]
        if again and known:
            self.link.in_background(self._catch_up(known))

    def heard(self, news: Header) -> None:
        """The keeper tells something about a process."""
        match news.get("news"):
            case "grown":
                known = self._known.get(field(news, "process", str))
                if known is not None:
                    known.grown(field(news, "end", int))
                    if isinstance(known, KeptProcess) and news.get("size") is not None:
                        known.resized(*cast("tuple[int, int]", news["size"]))
            case "ended":
                known = self._known.get(field(news, "process", str))
                if known is not None:
                    known.told(record_from_json(news.get("record"), known.record.command))
            case "goodbye":
                self.link.dismiss()
            case _:
                pass  # of what was forgotten nobody can learn any more; newer keepers may tell more

    def lost(self, error: KeeperError) -> None:
        """There is no keeper any more: nobody waits for its news in vain."""
        for process in list(self._known.values()):
            process.lost(error)

    async def _catch_up(self, known: list[str]) -> None:
        with contextlib.suppress(KeeperError):  # the next connection will try again
            records = objects((await self.link.ask({"do": "watch", "processes": known})).header, "records")
            found = {record.id: record for record in map(record_from_json, records)}
            for process_id in known:
                process = self._known.get(process_id)
                if process is not None:
                    process.told(found.get(process_id) or _gone(process.record))

    def _dismissed(self, answer: Frame) -> int:
        self.link.dismiss()
        return field(answer.header, "ended", int)

    def _process_in(self, answer: Frame) -> KeptProcess:
        record = record_from_json(answer.header.get("record"))
        if record.command is None:
            raise UnknownProcessError(record.id, [])  # a channel is no process
        return self._process(record)

    def _processes_in(self, answer: Frame) -> tuple[list[KeptProcess], object]:
        records = objects(answer.header, "records")
        found = map(record_from_json, records)
        processes = [self._process(record) for record in found if record.command is not None]
        return processes, answer.header.get("after")

    def _process(self, record: ProcessRecord) -> KeptProcess:
        known = self._known.get(record.id)
        if isinstance(known, KeptProcess) and not _is_another(record, known.record):
            known.told(record)
            return known
        process = KeptProcess(record, self, self._directory(record))
        self._known[record.id] = process
        return process

    def _channel(self, answer: Frame, channel_id: str = "") -> KeptChannel:
        value = answer.header.get("record")
        if value is None:
            records = objects(answer.header, "records")
            if not records:
                raise KeeperError(f"no channel {channel_id!r}; open it first")
            value = records[0]
        record = record_from_json(value)
        known = self._known.get(record.id)
        if isinstance(known, KeptChannel):
            known.told(record)
            return known
        channel = KeptChannel(record, self, self._directory(record))
        self._known[record.id] = channel
        return channel

    def _directory(self, record: ProcessRecord) -> str | None:
        """Where its log can be read directly; None on another machine."""
        return os.path.join(field(self.greeting, "processes", str), record.id) if self._local else None


def _is_another(record: ProcessRecord, known: ProcessRecord) -> bool:
    """Whether one that runs has the id of an ended one, which was forgotten meanwhile."""
    return record.exit_status is None and known.exit_status is not None and record.pid != known.pid


def _umask() -> int:
    """What this program's own children would be born with."""
    if threading.active_count() == 1:
        ours = os.umask(0o077)  # nobody else is here to be born in between
        os.umask(ours)
        return ours
    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
            return next(int(line.split()[1], 8) for line in file if line.startswith("Umask:"))
    except (OSError, StopIteration):
        ours = os.umask(0o077)  # the system only tells it by changing it
        os.umask(ours)
        return ours


def _gone(record: ProcessRecord) -> ProcessRecord:
    """What is left of a process that no keeper knows any more."""
    return replace(record, exit_status=ExitStatus(None, None, Cause.LOST), ended_at=time.time())


@contextlib.asynccontextmanager
async def open_keeper(
    home: Home | None = None, *, start: bool = True, owners: Sequence[str] = ()
) -> AsyncGenerator[KeeperClient, None]:
    """The keeper of a home (TETHER_HOME's, if not given), started if there is none and `start` says so.

    Who names `owners` holds them as long as the block lasts.

    Raises:
        KeeperUnavailableError: there is none, and none could be started.
        KeeperVersionError, KeeperRefusedError: it does not talk to us.
    """
    at = home or Home.of()

    async def dial() -> socket.socket:
        return await connect(at, start=start)

    async with _opened(KeeperClient(dial, local=True, owners=owners)) as client:
        yield client


@contextlib.asynccontextmanager
async def open_distant_keeper(
    argv: Sequence[str], *, owners: Sequence[str] = ()
) -> AsyncGenerator[KeeperClient, None]:
    """The keeper that a command connects its standard streams to, such as `ssh host tether keeper --stdio`."""
    relays: list[subprocess.Popen[bytes]] = []

    async def dial() -> socket.socket:
        return dial_now()

    def dial_now() -> socket.socket:
        relays[:] = [relay for relay in relays if relay.poll() is None]
        ours, theirs = socket.socketpair()
        try:
            relays.append(
                subprocess.Popen(argv, stdin=theirs.fileno(), stdout=theirs.fileno(), start_new_session=True)
            )
        except OSError as error:
            ours.close()
            raise KeeperUnavailableError(f"cannot run {argv[0]!r}: {error.strerror}") from error
        finally:
            theirs.close()
        ours.settimeout(0)
        return ours

    try:
        async with _opened(KeeperClient(dial, local=False, owners=owners)) as client:
            yield client
    finally:
        for relay in relays:
            relay.kill()
            relay.wait()


@contextlib.asynccontextmanager
async def _opened(client: KeeperClient) -> AsyncGenerator[KeeperClient, None]:
    await client.link.open()
    try:
        yield client
    finally:
        await client.link.close()

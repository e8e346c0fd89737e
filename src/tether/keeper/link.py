"""A client's connection to its keeper: requests that survive a keeper that replaces itself, and news."""

import asyncio
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from tether.errors import KeeperError, KeeperLostError, KeeperUnavailableError, TetherError
from tether.keeper.frames import Frame, FrameReader, Header
from tether.keeper.protocol import HELLO, error_from_json

logger = logging.getLogger(__name__)

_ARRIVING_BYTES = 64 * 1024
_HELLO_SECONDS = 15.0
_MOST_REPEATS = 5
_TRIES, _PAUSE = 5, 0.1

T = TypeVar("T")


class Listener(Protocol):
    """Whoever uses a link."""

    def hello(self) -> Header:
        """What to say first on every connection."""
        ...

    def greeted(self, answer: Header) -> None:
        """What the keeper said to that: a new connection stands, requests under way were sent again."""
        ...

    def heard(self, news: Header) -> None:
        """The keeper tells something."""
        ...

    def lost(self, error: KeeperError) -> None:
        """There is no keeper any more, and none to be had."""
        ...


@dataclass(slots=True)
class _Pending:
    """A request under way: its bytes, what makes a result of its answer, and who waits for that."""

    data: bytes
    read: Callable[[Frame], object]
    future: asyncio.Future[object]
    repeated: int = 0


class _Wire(asyncio.BufferedProtocol):
    """One connection as long as it lasts."""

    def __init__(self, on_frame: Callable[[Frame], None], on_end: "Callable[[_Wire], None]") -> None:
        self._on_frame = on_frame
        self._on_end = on_end
        self._reader = FrameReader()
        self._arriving = bytearray(_ARRIVING_BYTES)
        self._transport: asyncio.Transport | None = None
        self.room = asyncio.Event()
        self.room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - the interface names it
        return self._arriving

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._reader.feed(memoryview(self._arriving)[:nbytes]):
                self._on_frame(frame)
        except TetherError as error:
            logger.warning("the keeper does not make sense, hanging up: %s", error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - how it ended makes no difference
        self._transport = None
        self.room.set()
        self._on_end(self)

    def pause_writing(self) -> None:
        self.room.clear()

    def resume_writing(self) -> None:
        self.room.set()

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Link:
    """Sends requests and waits for their answers, over as many connections as that takes.

    Every request is one that may be sent again: by its process id, its number or its nature it is done once.
    """

    def __init__(self, dial: Callable[[], Awaitable[socket.socket]], listener: Listener) -> None:
        self._dial = dial
        self._listener = listener
        self._tasks = asyncio.TaskGroup()
        self._numbers = itertools.count(HELLO + 1)
        self._pending: dict[int, _Pending] = {}
        self._wire: _Wire | None = None
        self._greeting: asyncio.Future[Frame] | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._closed = False
        self._dismissed = False

    async def open(self) -> None:
        """Reach the keeper for the first time.

        Raises:
            KeeperError: it cannot be reached, or does not talk to us.
        """
        await self._tasks.__aenter__()
        try:
            await self._connect_at_last()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Hang up; whoever still waits for an answer hears that."""
        self._closed = True
        if self._dialling is not None:
            self._dialling.cancel()
        if self._wire is not None:
            self._wire.close()
        self._fail(KeeperError("the connection to the keeper was closed"))
        await self._tasks.__aexit__(None, None, None)

    def dismiss(self) -> None:
        """The keeper will hang up because we wanted it to end: look for another only when something is asked."""
        self._dismissed = True

    def in_background(self, work: Coroutine[object, object, None]) -> None:
        """Do something that ends with the link."""
        self._tasks.create_task(work)

    async def ask(self, header: Header, body: bytes = b"") -> Frame:
        """Have the keeper do something and return its answer.

        Raises:
            TetherError: whatever the keeper says went wrong.
            KeeperLostError: the keeper is gone and there is no other.
        """
        return await self.ask_for(lambda answer: answer, header, body)

    async def ask_for(self, read: Callable[[Frame], T], header: Header, body: bytes = b"") -> T:
        """The same, returning what `read` makes of the answer before any news behind it are heard."""
        if self._closed:
            raise KeeperError("the connection to the keeper was closed")
        number = next(self._numbers)
        data = Frame({"id": number, **header}, body).encode()
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._pending[number] = _Pending(data, read, future)
        try:
            if self._wire is not None:
                self._wire.send(data)
                await self._wire.room.wait()
            else:
                self._reconnect()
            return cast("T", await future)
        finally:
            del self._pending[number]

    async def _connect(self) -> None:
        """A connection on which hello was said and everything under way was sent again."""
        loop = asyncio.get_running_loop()
        reached = await self._dial()
        self._greeting = loop.create_future()
        wire = _Wire(self._received, self._ended)
        try:
            await loop.connect_accepted_socket(lambda: wire, reached)
        except BaseException:
            reached.close()
            raise
        try:
            wire.send(Frame({"id": HELLO, **self._listener.hello()}).encode())
            async with asyncio.timeout(_HELLO_SECONDS):
                answer = await self._greeting
        except TimeoutError:
            wire.close()
            raise KeeperUnavailableError(
                f"the keeper does not answer within {_HELLO_SECONDS:g} s; it is stopped or very busy"
            ) from None
        except BaseException:
            wire.close()
            raise
        self._wire = wire
        for pending in self._pending.values():
            self._repeat(wire, pending)
        self._listener.greeted(answer.header)

    def _repeat(self, wire: _Wire, pending: _Pending) -> None:
        pending.repeated += 1
        if pending.repeated <= _MOST_REPEATS:
            wire.send(pending.data)
        elif not pending.future.done():
            pending.future.set_exception(
                KeeperLostError(f"the keeper was lost {_MOST_REPEATS} times while it was asked for this; see its log")
            )

    def _received(self, frame: Frame) -> None:
        number = frame.header.get("id")
        if number is None and "error" not in frame.header:
            self._listener.heard(frame.header)
            return
        if number == HELLO:
            if self._greeting is not None:
                _settle(self._greeting, lambda answer: answer, frame)
            return
        pending = self._pending.get(cast("int", number))
        if pending is not None:
            _settle(pending.future, pending.read, frame)

    def _ended(self, wire: _Wire) -> None:
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(KeeperLostError("the keeper hung up before it said hello"))
        if wire is not self._wire:
            return
        self._wire = None
        dismissed, self._dismissed = self._dismissed, False
        if dismissed and not self._pending:
            self._lose(KeeperLostError("the keeper was shut down"))
        else:
            self._reconnect()

    def _reconnect(self) -> None:
        if self._dialling is None and not self._closed:
            self._dialling = self._tasks.create_task(self._dial_again())

    async def _dial_again(self) -> None:
        try:
            await self._connect_at_last()
        except KeeperError as error:
            self._give_up(error)
        finally:
            self._dialling = None

    async def _connect_at_last(self) -> None:
        for _ in range(_TRIES):
            try:
                return await self._connect()
            except KeeperLostError as error:  # it is just being replaced
                logger.info("connecting again: %s", error)
                await asyncio.sleep(_PAUSE)
        return await self._connect()

    def _give_up(self, error: KeeperError) -> None:
        lost = error
        if isinstance(error, KeeperUnavailableError | KeeperLostError):
            lost = KeeperLostError(f"the keeper is gone, and no other answers: {error}")
        self._lose(lost)

    def _lose(self, error: KeeperError) -> None:
        self._fail(error)
        self._listener.lost(error)

    def _fail(self, error: KeeperError) -> None:
        for pending in self._pending.values():
            if not pending.future.done():
                pending.future.set_exception(error)


def _settle(future: asyncio.Future[T], read: Callable[[Frame], T], frame: Frame) -> None:
    """Hand an answer, or the error it tells of, to whoever waits for it."""
    if future.done():
        return
    error = frame.header.get("error")
    try:
        if error is not None:
            future.set_exception(error_from_json(cast("Header", error)))
        else:
            future.set_result(read(frame))
    except TetherError as unreadable:
        future.set_exception(unreadable)

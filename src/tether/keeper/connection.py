"""One client at the keeper's socket: its requests in, answers and news out, nothing growing without bound."""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Coroutine
from typing import Protocol, cast

from tether.errors import KeeperError, KeeperRefusedError, TetherError
from tether.keeper.frames import MOST_BYTES, Frame, FrameReader
from tether.keeper.protocol import HELLO, error_to_json, field

logger = logging.getLogger(__name__)

_UNSENT_BYTES = 256 * 1024
_MOST_REQUESTS = 64
_HELLO_SECONDS = 10.0
_HELLO_BYTES = 64 * 1024
_ONLY_LOOKING = frozenset({"list", "read", "view", "look", "status", "describe", "watch", "last_number"})
# Without a buffer of our own asyncio maps a fresh one of 256 KiB for every message.
_ARRIVING = bytearray(64 * 1024)


class Service(Protocol):
    """What the keeper does for its connections."""

    def refusal(self, connection: socket.socket) -> str | None:
        """Why whoever is at the other end is not served; None when it is."""
        ...

    def joined(self, connection: "Connection") -> None:
        """A connection begins."""
        ...

    def left(self, connection: "Connection") -> None:
        """A connection is over."""
        ...

    def work_for(self, connection: "Connection", frame: Frame) -> Awaitable[Frame]:
        """Do what a request says."""
        ...

    def in_background(self, work: Coroutine[object, object, object]) -> None:
        """Do something without making anybody wait."""
        ...

    def news_of(self, process_id: str) -> Frame | None:
        """What a watcher of that process should know now."""
        ...


class Connection(asyncio.BufferedProtocol):
    """Serves requests side by side, each begun in the order it came; news tell how things are when they are sent."""

    def __init__(self, service: Service) -> None:
        self.greeted = False
        self._hello_timer: asyncio.TimerHandle | None = None
        self.channel: str | None = None
        self.protocol = 0
        self.owners: set[str] = set()
        self._service = service
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._news: dict[str, None] = {}
        self._unbegun: deque[tuple[int, Frame]] = deque()
        self._requests = 0
        self._full = False
        self._room = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected: serve them or say why not."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES)
        self._service.joined(self)
        refused = self._service.refusal(transport.get_extra_info("socket"))
        if refused is not None:
            self._send(Frame({"id": HELLO, "error": error_to_json(KeeperRefusedError(refused))}))
            self.close()
        else:
            self._hello_timer = asyncio.get_running_loop().call_later(_HELLO_SECONDS, self._hang_up_on_the_silent)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - how it ended makes no difference
        """Whoever it was is gone; what they wanted to be done is still done."""
        self._transport = None
        self._news.clear()
        self._unbegun = deque(one for one in self._unbegun if one[1].header.get("do") not in _ONLY_LOOKING)
        self._full = False
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        self._go_on()
        self._service.left(self)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - the interface names it
        """Where to put what arrives: one place for all, since it is taken out at once."""
        return _ARRIVING

    def buffer_updated(self, nbytes: int) -> None:
        """Begin every request that is whole by now, as far as there is room for its answer."""
        self._reader.most_bytes = MOST_BYTES if self.greeted else _HELLO_BYTES
        try:
            for frame in self._reader.feed(memoryview(_ARRIVING)[:nbytes]):
                self._unbegun.append((field(frame.header, "id", int), frame))
        except TetherError as error:
            logger.warning("a client was cut off: %s", error)
            self._send(Frame({"error": error_to_json(error)}))
            self.close()
        self._go_on()

    def pause_writing(self) -> None:
        """The client does not read: nothing more is said, nothing more is listened to."""
        self._full = True
        self._room.clear()
        self._regulate()

    def resume_writing(self) -> None:
        """The client reads again: tell it where things stand now."""
        self._full = False
        self._go_on()
        self._tell_news()

    def tell(self, process_id: str) -> None:
        """There is news of a process; many of them become one if the client is slow."""
        self._news[process_id] = None
        self._tell_news()

    def say_goodbye(self) -> None:
        """Tell that the keeper ends on purpose, and hang up once everything is sent."""
        self._tell_news()
        self._send(Frame({"news": "goodbye"}))
        self.close()

    def close(self) -> None:
        """Hang up once everything is sent."""
        if self._transport is not None:
            self._transport.close()
            self._full = False  # no answer is sent any more, so none waits for room
            self._go_on()

    def _go_on(self) -> None:
        """Begin what may begin, and listen for more if there is not enough of it."""
        if not self._full:
            self._room.set()
        while self._unbegun and not self._full and self._requests < _MOST_REQUESTS:
            self._requests += 1
            self._service.in_background(self._serve(*self._unbegun.popleft()))
        self._regulate()

    async def _serve(self, number: int, frame: Frame) -> None:
        while self._full:  # the answers to those before it have filled the room
            await self._room.wait()
        try:
            answer = await self._service.work_for(self, frame)
        except TetherError as error:
            answer = Frame({"error": error_to_json(error)})
        except OSError as error:
            answer = Frame({"error": error_to_json(KeeperError(f"the keeper cannot do that now: {error}"))})
        except Exception as error:
            logger.exception("request %r failed", frame.header.get("do"))
            answer = Frame({"error": error_to_json(KeeperError(f"the keeper failed: {error!r}; see its log"))})
        self._requests -= 1
        self._write(_encoded_answer(number, answer))
        self._go_on()

    def _regulate(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._full or self._unbegun or self._requests >= _MOST_REQUESTS:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _tell_news(self) -> None:
        while self._news and not self._full and self._transport is not None:
            process_id = next(iter(self._news))
            del self._news[process_id]
            try:
                frame = self._service.news_of(process_id)
            except OSError as error:
                # Whoever connects again hears how everything is.
                logger.warning("process=%s cannot be told of: %s; hanging up", process_id, error)
                self.close()
                return
            if frame is not None:
                self._send(frame)

    def _hang_up_on_the_silent(self) -> None:
        if not self.greeted:
            logger.warning("a client has not said hello within %g s: hanging up", _HELLO_SECONDS)
            self.close()

    def _send(self, frame: Frame) -> None:
        self._write(frame.encode())

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


def _encoded_answer(number: int, answer: Frame) -> bytes:
    """The answer's bytes, or those that say that it is too large to be sent."""
    try:
        return Frame({"id": number, **answer.header}, answer.body).encode()
    except TetherError as error:
        return Frame({"id": number, "error": error_to_json(error)}).encode()

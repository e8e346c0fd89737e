"""Blocking reads and writes on threads of their own, for an event loop that cannot watch pipes."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

PIECES_AHEAD: Final = 4
QUEUE_BYTES: Final = 256 * 1024
STOP_SECONDS: Final = 2.0
_UNBLOCK_EVERY_SECONDS: Final = 0.02


class Pump:
    """Carries what a blocking read returns to the event loop: in order, at most PIECES_AHEAD pieces early.

    All methods are called on the loop's thread, and there `received` and `ended` are called.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        read: Callable[[], bytes],
        received: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._read = read
        self._received = received
        self._ended = ended
        self._permits = threading.Semaphore(PIECES_AHEAD)
        self._arrived: deque[bytes] = deque()
        self._paused = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="tether-read", daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Hand over nothing more; reading stops once PIECES_AHEAD pieces wait."""
        self._paused = True

    def resume(self) -> None:
        """Hand over what waits and go on reading."""
        self._paused = False
        self._loop.call_soon(self._hand_over)

    def drain(self) -> None:
        """Hand over what has been read by now."""
        self._hand_over()

    def stop(self, unblock: Callable[[int], None]) -> None:
        """End the thread and hand over nothing more; `unblock(thread_id)` makes its blocking read return."""
        self._stopped = True
        self._permits.release()
        _join(self._thread, unblock)

    def _run(self) -> None:
        data = b"more"
        while data:
            self._permits.acquire()
            if self._stopped:
                return
            data = self._read_piece()
            self._arrived.append(data)
            try:
                self._loop.call_soon_threadsafe(self._hand_over)
            except RuntimeError:  # the loop is closed: nobody listens any more
                return

    def _read_piece(self) -> bytes:
        try:
            return self._read()
        except OSError as error:
            if not self._stopped:
                logger.warning("reading the output of a process failed, taken as its end: %s", error)
            return b""

    def _hand_over(self) -> None:
        while self._arrived and not self._paused and not self._stopped:
            data = self._arrived.popleft()
            self._permits.release()
            if data:
                self._received(data)
            else:
                self._ended()


class Feeder:
    """Writes what it is offered, in order, from a thread of its own; holds at most QUEUE_BYTES unwritten.

    All methods are called on the loop's thread, and there the writable callback is called.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        write: Callable[[memoryview], int],
        finish: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._write = write
        self._finish = finish
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._held = 0
        self._ending = False
        self._stopped = False
        self._broken = False
        self._writable: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="tether-write", daemon=True)
        self._thread.start()

    def offer(self, data: bytes | memoryview) -> int:
        """Take what there is room for and say how much that was; ended input takes all, into nowhere."""
        with self._changed:
            if self._over():
                return len(data)
            taken = min(len(data), max(0, QUEUE_BYTES - self._held))
            self._take(bytes(data[:taken]))
            return taken

    def append(self, data: bytes) -> None:
        """Take all of `data`, however full the queue is: for a key that must not wait for room."""
        with self._changed:
            if not self._over():
                self._take(data)

    def _over(self) -> bool:
        return self._broken or self._ending or self._stopped

    def _take(self, data: bytes) -> None:
        if data:
            self._waiting.append(data)
            self._held += len(data)
            self._changed.notify()

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` now if there is room, and whenever room has been made; None ends that."""
        self._writable = callback
        if callback is not None:
            self._loop.call_soon(self._tell)

    def end(self) -> None:
        """Finish once all that was taken is written."""
        with self._changed:
            self._ending = True
            self._changed.notify()

    def stop(self, unblock: Callable[[int], None]) -> None:
        """End the thread, written or not; `unblock(thread_id)` makes its blocking write return."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        _join(self._thread, unblock)

    def _run(self) -> None:
        while (piece := self._next()) is not None:
            try:
                self._write_all(piece)
            except OSError as error:
                logger.info("a process takes no input any more: %s", error)
                self._broken = True
            with self._changed:
                self._held -= len(piece)
            try:
                self._loop.call_soon_threadsafe(self._tell)
            except RuntimeError:  # the loop is closed: nobody listens any more
                return
        if not self._stopped:
            self._finish()

    def _next(self) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ending or self._stopped or self._broken)
            if self._stopped or self._broken or not self._waiting:
                return None
            return self._waiting.popleft()

    def _write_all(self, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest and not self._stopped:
            rest = rest[self._write(rest) :]

    def _tell(self) -> None:
        if self._writable is not None and not self._stopped and (self._held < QUEUE_BYTES or self._broken):
            self._writable()


def _join(thread: threading.Thread, unblock: Callable[[int], None]) -> None:
    # One try is not enough: the thread may enter its blocking call just after it.
    give_up = time.monotonic() + STOP_SECONDS
    while thread.is_alive() and time.monotonic() < give_up:
        if thread.native_id is not None:
            unblock(thread.native_id)
        thread.join(_UNBLOCK_EVERY_SECONDS)
    if thread.is_alive():
        logger.warning("thread %s still blocks after %s s and is left behind", thread.name, STOP_SECONDS)

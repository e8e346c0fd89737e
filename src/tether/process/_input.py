"""What goes into a child: at once where it takes it, queued where it does not, refused where it cannot."""

import base64
import logging
from collections import deque
from collections.abc import Mapping

from tether.errors import InputBacklogError, InputRefusedError, LineTooLongError, ProcessEndedError
from tether.process._child import Child
from tether.process._saved_state import saved

logger = logging.getLogger(__name__)

BACKLOG_BYTES = 16 * 1024 * 1024
_ANSWER_BYTES = 64 * 1024
_PIECE_BYTES = 256  # what a piece in the queue costs besides its own bytes


class Input:
    """The queue in front of one child's input."""

    __slots__ = ("_bytes", "_child", "_ended", "_line_bytes", "_on_terminal", "_queue", "_refused")

    def __init__(self, child: Child, *, on_terminal: bool) -> None:
        self._child = child
        self._on_terminal = on_terminal
        self._queue: deque[memoryview] | None = None  # made when first needed: most children never wait
        self._bytes = self._line_bytes = 0
        self._ended = self._refused = False

    @property
    def pending(self) -> int:
        """How many bytes wait to be taken."""
        return self._bytes

    @property
    def _cost(self) -> int:
        return self._bytes + _PIECE_BYTES * len(self._queue) if self._queue else 0

    def state(self) -> dict[str, object]:
        """What waits, and what is known of the child's reading, as JSON values."""
        waiting = b"".join(self._queue or ())
        return {
            "waiting": base64.b64encode(waiting).decode("ascii"),
            "line_bytes": self._line_bytes,
            "ended": self._ended,
            "refused": self._refused,
        }

    def restore(self, state: Mapping[str, object]) -> None:
        """Go on from what `state` said; nothing is sent before `resume`."""
        waiting = base64.b64decode(saved(state, "waiting", str))
        if waiting:
            self._queue, self._bytes = deque([memoryview(waiting)]), len(waiting)
        self._line_bytes = saved(state, "line_bytes", int)
        self._ended, self._refused = saved(state, "ended", bool), saved(state, "refused", bool)

    def resume(self) -> None:
        """Send what waits."""
        if self._queue:
            self._child.on_writable(self._feed)

    def write(self, data: bytes) -> bool:
        """Send what somebody typed; True when all of it was taken at once.

        Raises:
            ProcessEndedError: its input was ended.
            InputRefusedError: it has closed its input, cannot hold the line, or too much waits already.
        """
        if self._ended:
            raise ProcessEndedError("its input was ended; start another process to send more")
        if self._refused:
            raise InputRefusedError("it has closed its input and reads no more")
        if data and self._cost + len(data) > BACKLOG_BYTES:
            raise InputBacklogError(
                f"it does not read: {self._bytes} bytes in {len(self._queue or ())} pieces wait already "
                f"(limit {BACKLOG_BYTES}, {_PIECE_BYTES} of it for each piece); "
                "wait until it reads, or stop it"
            )
        if self._on_terminal:
            self._count_line(data)
        self.send(memoryview(data))
        if self._refused:
            raise InputRefusedError("it has closed its input and reads no more")
        return self._bytes == 0

    def give(self, data: bytes) -> None:
        """Send the input given at the start, however much it is; its lines were checked then."""
        if self._on_terminal:
            self._count_line(data)
        self.send(memoryview(data))

    def answer(self, data: bytes) -> None:
        """Send a terminal's own answer; who does not read its answers gets no more of them."""
        if self._cost < _ANSWER_BYTES:
            self.send(memoryview(data))

    def send(self, data: memoryview) -> None:
        """Send bytes without looking at them."""
        if not self._queue:
            data = data[self._take(data) :]
            if not data:
                return
            if self._queue is None:
                self._queue = deque()
        elif not data:
            return
        self._queue.append(data)
        self._bytes += len(data)
        self._child.on_writable(self._feed)

    def end(self) -> None:
        """No more input behind what is queued; on a terminal that is a key, and more may follow."""
        self._ended = True
        self._feed()

    def drop(self) -> None:
        """The child is gone: nothing waits for it any more."""
        self._queue, self._bytes = None, 0

    def _feed(self) -> None:
        while self._queue:
            taken = self._take(self._queue[0])
            self._bytes -= taken
            if taken < len(self._queue[0]):
                self._queue[0] = self._queue[0][taken:]
                self._child.on_writable(self._feed)
                return
            self._queue.popleft()
        self._child.on_writable(None)
        if self._ended:
            keys = self._child.end_input(line_open=self._line_bytes > 0)
            self._line_bytes = 0
            self._ended = not self._on_terminal
            if keys:
                self.send(memoryview(keys))

    def _take(self, data: memoryview) -> int:
        """How much the child takes now; what a child that closed its input is sent is gone."""
        try:
            return self._child.write(data)
        except BrokenPipeError:
            logger.info("pid=%s has closed its input", self._child.pid)
            self._refused = not self._on_terminal
            return len(data)

    def _count_line(self, data: bytes) -> None:
        """Refuse a line that the terminal's own line editor would silently cut."""
        limit = self._child.line_limit
        if limit is None:
            return
        with_line = self._line_bytes + len(data)
        if with_line <= limit and b"\r" not in data and b"\n" not in data:
            self._line_bytes = with_line
            return
        first, *others = data.replace(b"\r", b"\n").split(b"\n")
        longest = max([self._line_bytes + len(first), *map(len, others)])
        if longest > limit:
            if self._child.probe().line_mode:
                raise LineTooLongError(longest, limit)
            self._line_bytes = 0
            return
        self._line_bytes = len(others[-1]) if others else with_line

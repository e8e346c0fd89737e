"""What a person would see on a process's terminal, asked of the screen helper."""

import asyncio
import base64
import itertools
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tether.errors import ScreenUnavailableError
from tether.process._screen_link import Message, ScreenLink
from tether.process._styled_run import StyledRun
from tether.process.keys import KeyModes

logger = logging.getLogger(__name__)

_REQUEST_SECONDS = 10.0
_START_SECONDS = 10.0
_SILENCE_SECONDS = 10.0
_LONGEST_PAUSE = 5.0
_REAP_SECONDS = 5.0
_MOST_REQUESTS = 1024
_CRASHES_UNTIL_GIVEN_UP = 3
_CRASHES_OF_A_REQUEST = 2


@dataclass(frozen=True, slots=True)
class Cursor:
    """Column and row, both from 0, and whether it is shown."""

    x: int
    y: int
    visible: bool


@dataclass(frozen=True, slots=True)
class Screen:
    """The terminal as it was at `offset`; not `exact` when bytes before it are gone from the log.

    `text` has one line per row, right-trimmed.
    """

    text: str
    cols: int
    rows: int
    cursor: Cursor
    title: str
    alternate_screen: bool
    modes: KeyModes
    mode_names: tuple[str, ...]
    offset: int
    exact: bool


@dataclass(frozen=True, slots=True)
class VtSnapshot:
    """Bytes that re-create the terminal at `offset`; the log's bytes from there on continue them anywhere."""

    data: bytes
    offset: int
    exact: bool


@dataclass(slots=True)
class _Terminal:
    """One open process: how far its log reaches, and how far the helper was told and has answered."""

    directory: str
    cols: int
    rows: int
    answered: int
    end: int = 0
    news: bool = False
    outstanding: bool = False
    crashes: int = 0
    crashed_before: int = 0
    given_up: bool = False


@dataclass(slots=True)
class _Request:
    process_id: str
    end: int
    view: str
    future: asyncio.Future[Message]
    crashes: int = 0


def screen_from(answer: Message) -> Screen:
    """The helper's answer to `screen`."""
    view = answer["view"]
    return Screen(
        text=view["text"],
        cols=view["cols"],
        rows=view["rows"],
        cursor=Cursor(*view["cursor"]),
        title=view["title"],
        alternate_screen=view["alternate_screen"],
        modes=KeyModes(**view["key_modes"]),
        mode_names=tuple(view["mode_names"]),
        offset=answer["offset"],
        exact=answer["exact"],
    )


def styled_screen_from(answer: Message) -> list[list[StyledRun]]:
    """The helper's answer to `cells`: the rows of the screen as runs of one style each."""
    return [[_run(*fields) for fields in row] for row in answer["view"]["rows"]]


def vt_snapshot_from(answer: Message) -> VtSnapshot:
    """The helper's answer to `vt`: bytes that bring a fresh terminal of the same size to that state."""
    return VtSnapshot(base64.b64decode(answer["view"]["data"]), answer["offset"], answer["exact"])


class ScreenHelper:
    """The client of the one process that runs the emulators; starts it when needed, and again after a crash.

    `on_answer(process_id, offset, data)` is called with what a terminal replies to queries up to `offset`;
    whoever types it into the process drops what was answered before.
    """

    def __init__(self, on_answer: Callable[[str, int, bytes], None]) -> None:
        self._on_answer = on_answer
        self._terminals: dict[str, _Terminal] = {}
        self._requests: dict[int, _Request] = {}
        self._numbers = itertools.count(1)
        self._link: ScreenLink | None = None
        self._unavailable = (
            "" if sys.platform != "win32" else "no terminal emulator for Windows; bytes and text are unaffected"
        )
        self._closed = False
        self._at = ""
        self._deaths = 0
        self._start_timer: asyncio.TimerHandle | None = None
        self._watch_timer: asyncio.TimerHandle | None = None
        self._heard = 0.0
        self._greeted = False

    @property
    def pid(self) -> int | None:
        """The helper's process, while it runs."""
        return self._link.pid if self._link else None

    def open(self, process_id: str, directory: str, cols: int, rows: int, answered: int = 0) -> None:
        """Follow a process's log; queries before offset `answered` are never answered again."""
        terminal = _Terminal(os.path.abspath(directory), cols, rows, answered)
        self._terminals[process_id] = terminal
        self._send_open(process_id, terminal)

    def grown(self, process_id: str, end: int) -> None:
        """The log reaches to `end`, or its terminal was resized; cheap, at most one message is under way."""
        terminal = self._terminals.get(process_id)
        if terminal is None or terminal.given_up:
            return
        terminal.end = max(terminal.end, end)
        terminal.news = True
        self._ensure_running()
        self._tell_growth(process_id, terminal)

    def close(self, process_id: str) -> None:
        """Forget a process."""
        if self._terminals.pop(process_id, None) is None:
            return
        for request in list(self._requests.values()):
            if request.process_id == process_id:
                _fail(request, f"process {process_id!r} was released while its screen was asked for")
        if self._link:
            self._link.send({"do": "close", "id": process_id})

    def checkpoint(self, process_id: str) -> None:
        """Have the state written beside the log, to go on from when the log has dropped its beginning.

        The helper does so by itself when it sees the log drop.
        """
        terminal = self._terminals.get(process_id)
        if terminal is not None and not terminal.given_up and self._link:
            self._link.send({"do": "checkpoint", "id": process_id, "end": terminal.end})

    async def aclose(self) -> None:
        """End the helper and reap it; requests under way fail."""
        self._closed = True
        for timer in (self._start_timer, self._watch_timer):
            if timer:
                timer.cancel()
        self._start_timer = self._watch_timer = None
        self._terminals.clear()
        self._fail_all("the process table was closed")
        link = self._link
        if link:
            link.kill()
            await asyncio.wait([link.gone], timeout=_REAP_SECONDS)

    async def view(self, process_id: str, end: int, view: str) -> Message:
        """A view of the terminal once everything before `end` was fed: `screen`, `cells` or `vt`.

        Raises:
            ScreenUnavailableError: there is no emulator, it crashes on these bytes, or it takes too long.
        """
        terminal = self._terminals.get(process_id)
        if terminal is None:
            raise ScreenUnavailableError(
                f"process {process_id!r} has no screen: only terminals have one, until they are released"
            )
        if self._unavailable or self._closed:
            raise ScreenUnavailableError(self._unavailable or "the process table was closed")
        if terminal.given_up:
            raise ScreenUnavailableError(_given_up(process_id, terminal))
        if len(self._requests) >= _MOST_REQUESTS:
            raise ScreenUnavailableError(f"{_MOST_REQUESTS} screens are asked for already; ask again later")
        number = next(self._numbers)
        request = _Request(process_id, end, view, asyncio.get_running_loop().create_future())
        self._requests[number] = request
        try:
            self._ensure_running()
            if self._link:
                self._send_request(number, request)
            async with asyncio.timeout(_REQUEST_SECONDS):
                return await request.future
        except TimeoutError:
            raise ScreenUnavailableError(
                f"the screen of process {process_id!r} was not ready within {_REQUEST_SECONDS:g} s; ask again"
            ) from None
        finally:
            self._requests.pop(number, None)

    def _ensure_running(self) -> None:
        if self._link or self._start_timer or self._closed or self._unavailable:
            return
        if self._deaths < 2:
            self._start()
            return
        pause = min(0.1 * 2 ** min(self._deaths - 2, 10), _LONGEST_PAUSE)
        self._start_timer = asyncio.get_running_loop().call_later(pause, self._start)

    def _start(self) -> None:
        self._start_timer = None
        try:
            self._link = ScreenLink(self._heard_message, self._ended)
        except OSError as error:
            self._deaths += 1
            logger.warning("screen helper does not start: %s", error)
            self._fail_all(f"the screen helper does not start: {error}")
            self._start_if_needed()
            return
        self._heard = asyncio.get_running_loop().time()
        self._greeted = False
        for process_id, terminal in self._terminals.items():
            self._send_open(process_id, terminal)
            self._tell_growth(process_id, terminal)
        for number, request in self._requests.items():
            self._send_request(number, request)

    def _send_open(self, process_id: str, terminal: _Terminal) -> None:
        if self._link and not terminal.given_up:
            size = {"cols": terminal.cols, "rows": terminal.rows}
            where = {"directory": terminal.directory, "answered": terminal.answered}
            self._link.send({"do": "open", "id": process_id, **size, **where})

    def _tell_growth(self, process_id: str, terminal: _Terminal) -> None:
        if self._link and terminal.news and not terminal.outstanding and not terminal.given_up:
            terminal.news, terminal.outstanding = False, True
            self._link.send({"do": "grown", "id": process_id, "end": terminal.end})
            self._watch()

    def _send_request(self, number: int, request: _Request) -> None:
        if self._link and not request.future.done():
            process_id, end = request.process_id, request.end
            self._link.send({"do": request.view, "request": number, "id": process_id, "end": end})
            self._watch()

    def _heard_message(self, message: Message) -> None:
        self._heard = asyncio.get_running_loop().time()
        self._greeted = True
        match message["say"]:
            case "at":
                self._at = message["id"]
            case "answer":
                self._answered(message["id"], message["offset"], base64.b64decode(message["data"]))
            case "fed":
                self._fed(message["id"], message["offset"])
            case "view":
                self._deaths = 0
                request = self._requests.get(message["request"])
                if request and not request.future.done():
                    request.future.set_result(message)
            case "failed":
                self._failed(message)
            case "hello" if not message["engine"]:
                self._unavailable = (
                    f"no terminal emulator here ({message['reason']}); install tether[screen]; "
                    "bytes and text are unaffected"
                )
                self._fail_all(self._unavailable)
            case _:
                pass

    def _answered(self, process_id: str, offset: int, data: bytes) -> None:
        terminal = self._terminals.get(process_id)
        if terminal is not None:
            self._on_answer(process_id, offset, data)
            terminal.answered = max(terminal.answered, offset)

    def _fed(self, process_id: str, offset: int) -> None:
        self._deaths = 0
        terminal = self._terminals.get(process_id)
        if terminal is None:
            return
        terminal.outstanding = False
        if offset >= terminal.crashed_before:
            terminal.crashes = 0
        self._tell_growth(process_id, terminal)

    def _failed(self, message: Message) -> None:
        process_id, number = message["id"], message["request"]
        request = self._requests.get(number) if number is not None else None
        if request:
            _fail(request, f"no screen of process {process_id!r}: {message['reason']}")
        elif process_id in self._terminals:
            logger.warning("process=%s cannot be rendered: %s", process_id, message["reason"])
            self._terminals[process_id].outstanding = False

    def _ended(self, status: int) -> None:
        """The helper is gone: find whose bytes it choked on, and start it again if somebody waits for it."""
        self._link = None
        if self._closed or self._unavailable:
            return
        self._deaths += 1
        logger.warning("screen helper ended with %s while at process=%s", status, self._at or "none")
        culprit = self._blame()
        for terminal in self._terminals.values():
            terminal.news = terminal.news or terminal.outstanding
            terminal.outstanding = False
        for request in self._requests.values():
            if culprit in (None, request.process_id):
                request.crashes += 1
            if request.crashes >= _CRASHES_OF_A_REQUEST:
                name = request.process_id
                _fail(request, f"the screen helper ended {request.crashes} times while asked for process {name!r}")
        self._start_if_needed()

    def _blame(self) -> str | None:
        """Whose bytes or screen the helper was busy with when it ended; the third time in a row is the last."""
        process_id, self._at = self._at, ""
        terminal = self._terminals.get(process_id)
        if terminal is None:
            return None
        asked = [request for request in self._requests.values() if request.process_id == process_id]
        if not asked and not terminal.outstanding:
            return None
        terminal.crashes += 1
        terminal.crashed_before = max([terminal.end, *(request.end for request in asked)])
        if terminal.crashes >= _CRASHES_UNTIL_GIVEN_UP:
            terminal.given_up = True
            logger.error("process=%s is rendered no more: it crashed the emulator", process_id)
            for request in asked:
                _fail(request, _given_up(process_id, terminal))
        return process_id

    def _start_if_needed(self) -> None:
        waiting = any(not request.future.done() for request in self._requests.values())
        if waiting or any(t.news and not t.given_up for t in self._terminals.values()):
            self._ensure_running()

    def _watch(self) -> None:
        """Look after a while whether the helper still says anything."""
        if self._watch_timer is None and not self._closed:
            self._watch_timer = asyncio.get_running_loop().call_later(_SILENCE_SECONDS, self._look)

    def _look(self) -> None:
        self._watch_timer = None
        if self._link is None or not (self._requests or any(t.outstanding for t in self._terminals.values())):
            return
        patience = _SILENCE_SECONDS if self._greeted else _START_SECONDS
        if asyncio.get_running_loop().time() - self._heard >= patience:
            logger.warning("screen helper hangs at process=%s: ending it", self._at or "none")
            self._link.kill()
        else:
            self._watch()

    def _fail_all(self, reason: str) -> None:
        for request in self._requests.values():
            _fail(request, reason)


def _fail(request: _Request, reason: str) -> None:
    if not request.future.done():
        request.future.set_exception(ScreenUnavailableError(reason))


def _given_up(process_id: str, terminal: _Terminal) -> str:
    return (
        f"the screen of process {process_id!r} is given up: its output before offset "
        f"{terminal.crashed_before} ended the emulator {terminal.crashes} times in a row; "
        "bytes and text are unaffected"
    )


def _run(text: str, fg: Any, bg: Any, flags: list[str], underline: int) -> StyledRun:
    return StyledRun(text, fg, bg, tuple(flags), underline)

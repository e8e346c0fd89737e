"""The screen helper: a process of its own that runs the emulators, so that their crash takes nothing along.

It speaks JSON lines on its standard input and output. News carry offsets; the bytes it reads from the logs.
It ends when its input does.
"""

import base64
import dataclasses
import json
import os
import select
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from tether.errors import TetherError

if TYPE_CHECKING:
    from tether.process._emulator import Emulator
    from tether.process._playback import Playback

_READ_BYTES = 256 * 1024
_STILL_ALIVE_SECONDS = 1.0

Message = dict[str, Any]


class _Server:
    """Feeds every open log fairly, one slice at a time, and serves screens once they are fed far enough."""

    def __init__(self) -> None:
        from tether.process import _playback
        from tether.process._emulator import ENGINE, EmulatorError

        self._new_playback = _playback.Playback
        self._troubles = (OSError, ValueError, TetherError, EmulatorError)
        self.engine = ENGINE
        self._opened: dict[str, Message] = {}
        self._playbacks: dict[str, Playback] = {}
        self._ready: deque[str] = deque()
        self._requests: dict[str, list[Message]] = {}
        self._at = ""
        self._said_at = 0.0

    @property
    def busy(self) -> bool:
        """There is something to feed or to serve."""
        return bool(self._ready)

    def take(self, command: Message) -> None:
        """Note what the client wants; the work itself is done by `work`."""
        process = str(command["id"])
        do = command["do"]
        if do == "open":
            self._opened[process] = command
        elif do == "close":
            for held in (self._opened, self._playbacks, self._requests):
                held.pop(process, None)
            self._ready = deque(other for other in self._ready if other != process)
        else:
            self._requests.setdefault(process, []).append(command)
            if process not in self._ready:
                self._ready.append(process)

    def work(self) -> None:
        """Feed one slice of the process whose turn it is, and serve its requests when it is fed."""
        process = self._ready.popleft()
        self._say_at(process)
        try:
            playback = self._playback(process)
            for request in self._requests[process]:
                playback.grow(request.get("end", 0))
            answer = playback.step()
            if answer is not None:
                say("answer", id=process, offset=answer.offset, data=_text(answer.data))
            if playback.behind:
                self._ready.append(process)
                return
            for request in self._requests.pop(process):
                self._serve(playback, request)
        except self._troubles as error:
            for request in self._requests.pop(process, []):
                say("failed", id=process, request=request.get("request"), reason=str(error))

    def _playback(self, process: str) -> "Playback":
        """The process's terminal; its log is replayed from the first time somebody needs it."""
        found = self._playbacks.get(process)
        if found is None:
            opened = self._opened[process]
            found = self._new_playback(opened["directory"], opened["cols"], opened["rows"], opened["answered"])
            self._playbacks[process] = found
        return found

    def _serve(self, playback: "Playback", request: Message) -> None:
        emulator, do = playback.emulator, request["do"]
        if do == "grown":
            say("fed", id=request["id"], offset=playback.offset)
        elif do == "checkpoint":
            playback.checkpoint()
        else:
            view = {"screen": _screen, "cells": _cells, "vt": _vt}[do](emulator)
            say("view", request=request["request"], offset=playback.offset, exact=playback.exact, view=view)

    def _say_at(self, process: str) -> None:
        """Name the process whose bytes are touched next, for whoever finds us crashed or hanging."""
        now = time.monotonic()
        if process != self._at or now - self._said_at > _STILL_ALIVE_SECONDS:
            self._at, self._said_at = process, now
            say("at", id=process)


def _screen(emulator: "Emulator") -> Message:
    cols, rows = emulator.size
    return {
        "text": emulator.text(),
        "cols": cols,
        "rows": rows,
        "cursor": emulator.cursor,
        "title": emulator.title,
        "alternate_screen": emulator.alternate_screen,
        "key_modes": dataclasses.asdict(emulator.key_modes),
        "mode_names": emulator.mode_names,
    }


def _cells(emulator: "Emulator") -> Message:
    return {"rows": [[dataclasses.astuple(run) for run in row] for row in emulator.cells()]}


def _vt(emulator: "Emulator") -> Message:
    return {"data": _text(emulator.vt())}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def say(word: str, **fields: object) -> None:
    """Tell the client something."""
    line = memoryview(json.dumps({"say": word, **fields}).encode() + b"\n")
    while line:
        line = line[os.write(1, line) :]


def serve() -> None:
    """Do what the client says until it hangs up."""
    try:
        server = _Server()
    except (ImportError, OSError) as error:
        say("hello", engine=None, reason=str(error))
        return
    say("hello", engine=server.engine)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    unread = b""
    while True:
        if poll.poll(0 if server.busy else None):
            received = os.read(0, _READ_BYTES)
            if not received:
                return
            *lines, unread = (unread + received).split(b"\n")
            for line in lines:
                server.take(json.loads(line))
        elif server.busy:
            server.work()


if __name__ == "__main__":
    try:
        serve()
    except (BrokenPipeError, ConnectionResetError):
        os._exit(0)  # whoever we served is gone; there is nobody to report to

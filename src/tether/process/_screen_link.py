"""The connection to one run of the screen helper: its process, its socket and the lines on it."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

_READ_BYTES = 256 * 1024
_LONGEST_LINE = 64 * 1024 * 1024
_REAP_SECONDS = 0.005

Message = dict[str, Any]


class ScreenLink:
    """A running helper; `on_end` is called once, when it is gone and reaped."""

    def __init__(self, on_message: Callable[[Message], None], on_end: Callable[[int], None]) -> None:
        """Start the helper.

        Raises:
            OSError: the system has no process or descriptor to give.
        """
        self._on_message = on_message
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._socket, theirs = socket.socketpair()
        try:
            self._child = _start(theirs.fileno())
        except OSError:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self.pid = self._child.pid
        self._socket.settimeout(0)
        self._unsent = bytearray()
        self._unread = bytearray()
        self._open = True
        self._loop.add_reader(self._socket, self._readable)

    def send(self, message: Message) -> None:
        """Queue a command; what is queued is bounded by whoever sends."""
        if not self._open:
            return
        idle = not self._unsent
        self._unsent += json.dumps(message).encode() + b"\n"
        if idle:
            self._write()
            if self._unsent and self._open:
                self._loop.add_writer(self._socket, self._write)

    def kill(self) -> None:
        """End the helper now; `gone` is done when it is reaped."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._child.kill()
            self._loop.call_soon(self._reap)

    def _write(self) -> None:
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self.kill()
            return
        if not self._unsent:
            self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        try:
            received = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received or len(self._unread) > _LONGEST_LINE:
            self.kill()
            return
        searched = len(self._unread)
        self._unread += received
        if self._unread.find(b"\n", searched) < 0:
            return
        *lines, rest = self._unread.split(b"\n")
        self._unread = rest
        for line in lines:
            if self._open:
                self._on_message(json.loads(line))

    def _reap(self) -> None:
        status = self._child.poll()
        if status is None:
            self._loop.call_later(_REAP_SECONDS, self._reap)
            return
        if not self.gone.done():
            self.gone.set_result(None)
        self._on_end(status)


def _start(descriptor: int) -> "subprocess.Popen[bytes]":
    import subprocess  # a table without terminals never pays for it

    # Without -P a file in the working directory could pose as a module of ours.
    return subprocess.Popen(
        (sys.executable, "-P", "-m", "tether.process.screen_helper"),
        stdin=descriptor,
        stdout=descriptor,
        stderr=subprocess.DEVNULL,
        cwd=os.sep,
        start_new_session=True,
    )

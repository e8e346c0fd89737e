"""Collecting the orphans that are handed to a sub-reaper once they have ended."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable

from tether.process._census import children_of
from tether.process._tree import become_reaper

_PAUSE_SECONDS = 0.05


class Reaper:
    """Has the orphans of all our descendants handed to us, and collects each that has ended.

    A child of whom `is_ours` is true is left to whoever watches it. For the main thread; where the system
    knows no sub-reapers there is nothing to collect.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, is_ours: Callable[[int], bool]) -> None:
        self._loop = loop
        self._is_ours = is_ours
        self._soon: asyncio.TimerHandle | None = None
        self._next = 0.0
        self._open = sys.platform == "linux"
        if self._open:
            become_reaper()
            loop.add_signal_handler(signal.SIGCHLD, self._collect_soon)
            self._collect_soon()  # whoever ended before this could not be noticed

    def close(self) -> None:
        """Collect no more; may be called again."""
        if self._open:
            self._open = False
            self._loop.remove_signal_handler(signal.SIGCHLD)
            if self._soon is not None:
                self._soon.cancel()

    def _collect_soon(self) -> None:
        if self._soon is None:
            self._soon = self._loop.call_at(self._next, self._collect)

    def _collect(self) -> None:
        self._soon = None
        self._next = self._loop.time() + _PAUSE_SECONDS
        for pid in children_of(os.getpid()):
            if not self._is_ours(pid):
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    continue  # somebody else has just collected it

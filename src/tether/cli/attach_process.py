"""A person at a process: what they type, the signals that reach them, and how it ends."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from signal import Signals

from tether.cli.attach_keys import DetachKey
from tether.cli.attach_view import View
from tether.cli.terminal import BELL, STDIN, OwnTerminal, printable
from tether.errors import InputRefusedError, LineTooLongError, ProcessEndedError, TetherError
from tether.process.command import Pty
from tether.process.exit_status import Cause, ExitStatus
from tether.process.place import PlacedProcess

_AT_ONCE = 64 * 1024
_MOST_TYPED = 16 * 1024 * 1024
_LAST_WORDS_SECONDS = 2.0
_INTERRUPT_KEY = b"\x03"
_LINE = re.compile(rb"[^\r\n]*[\r\n]|[^\r\n]+")
_SHORT_ID = 8
_LEAVING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")


@dataclass(frozen=True, slots=True)
class _Ending:
    """Why a person is attached no more: the process ended, a signal came, something failed; else they detached."""

    status: ExitStatus | None = None
    signal: Signals | None = None
    error: TetherError | None = None


class Attachment:
    """One person at one process, from their first look until they leave or it ends."""

    def __init__(self, process: PlacedProcess, key: DetachKey, *, read_only: bool) -> None:
        self._process = process
        self._key = key
        self._read_only = read_only
        self._on_terminal = isinstance(process.stdio, Pty)
        self._loop = asyncio.get_running_loop()
        self._terminal = OwnTerminal()
        self._view = View(process, self._hung_up, sized=not read_only)
        self._ending: asyncio.Future[_Ending] = self._loop.create_future()
        self._signals: list[Signals] = []
        self._typed = bytearray()
        self._wanted = asyncio.Event()
        self._input_ended = self._detaching = self._overflowed = False
        self._resized = self._suspending = self._resuming = False
        self._refusal = ""

    @property
    def label(self) -> str:
        """The process in a person's words."""
        name = self._process.name or os.path.basename(self._process.command.argv[0])
        return f"{self._process.id[:_SHORT_ID]} ({printable(name)})"

    async def run(self) -> int:
        """Show the process and pass on what is typed until that ends; returns the exit code to end with.

        Raises:
            TetherError: the process cannot be reached any more; the terminal is given back by then.
        """
        self._catch_signals()
        try:
            try:
                ending = await self._attached()
            finally:
                await self._view.close()
        finally:
            self._terminal.give_back()
            self._release_signals()
        if ending.error is not None:
            raise ending.error
        for line in self._last_lines(ending.status):
            await self._view.say(f"tether: {line}\n".encode())
        if ending.signal is not None:
            return 128 + ending.signal
        return 0 if ending.status is None else ending.status.shell_code

    async def _attached(self) -> _Ending:
        self._lend()
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(self._guarded(self._show)), tasks.create_task(self._guarded(self._serve))]
            try:
                return await self._ending
            finally:
                self._loop.remove_reader(STDIN)
                for task in work:
                    task.cancel()

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except TetherError as error:
            self._end(_Ending(error=error))

    def _end(self, ending: _Ending) -> None:
        if not self._ending.done():
            self._ending.set_result(ending)

    def _hung_up(self) -> None:
        self._end(_Ending(signal=signal.SIGHUP))

    def _lend(self) -> None:
        if self._on_terminal:
            self._terminal.lend_raw()
        else:
            self._terminal.lend_lines(self._key.byte)
        self._loop.add_reader(STDIN, self._read_typed)

    async def _show(self) -> None:
        await self._open()
        self._end(_Ending(status=await self._view.follow()))

    async def _open(self) -> None:
        keys = [self._key.shown] if self._key.shown else []
        if self._read_only or not self._on_terminal:
            keys.append("Ctrl-C")
        how = f"detach with {' or '.join(keys)}" if keys else "no key detaches"
        kind = "" if self._on_terminal else "; it has no terminal: it gets whole lines, Ctrl-D ends its input"
        looking = "read-only, " if self._read_only else ""
        title = f"{self.label} - {how}"
        await self._view.open(f"attached to {self.label}, {looking}{how}{kind}", title)

    def _last_lines(self, status: ExitStatus | None) -> list[str]:
        lines: list[str] = []
        if self._refusal:
            lines.append(f"not all that you typed has reached it: {self._refusal}")
        if status is None:
            lines.append(f"detached from {self.label}; it runs on")
        elif status.cause is Cause.LOST:
            lines.append(f"{self.label} was lost with its keeper; nobody knows how it ended")
        elif status.signal is not None:
            lines.append(f"{self.label} was ended by {status.signal} ({status.cause})")
        else:
            lines.append(f"{self.label} ended with exit code {status.shell_code} ({status.cause})")
        return lines

    async def _serve(self) -> None:
        """Do what keys and signals ask for, in order."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self._suspending:
                self._suspending = False
                await self._suspend()
            if self._resuming:
                self._resuming = False
                self._lend()
                await self._open()
            if self._resized:
                self._resized = False
                await self._view.window_changed()
            await self._pass_on()
            if self._detaching:
                self._end(_Ending())

    async def _pass_on(self) -> None:
        while self._typed:
            data = bytes(self._typed[:_AT_ONCE])
            del self._typed[:_AT_ONCE]
            await self._view.claim()
            await self._write(data)
        if self._overflowed:
            self._overflowed = False
            await self._refuse("more was typed than could be passed on")
        if self._input_ended:
            self._input_ended = False
            with contextlib.suppress(ProcessEndedError, InputRefusedError):
                await self._process.end_input()

    async def _write(self, data: bytes) -> None:
        try:
            await self._process.write(data)
        except LineTooLongError as error:
            await self._write_cut(data, error)
        except InputRefusedError as error:
            await self._refuse(str(error))
        except ProcessEndedError:
            pass  # how it ended is about to be told

    async def _write_cut(self, data: bytes, error: LineTooLongError) -> None:
        """Send it line by line; of one that is too long its terminal takes no more than Enter, as any would."""
        lines = _LINE.findall(data)
        if len(lines) == 1:
            await self._refuse(str(error))
            lines = [data[-1:]] if len(data) > 1 and data.endswith((b"\r", b"\n")) else []
        for line in lines:
            await self._write(line)

    async def _refuse(self, reason: str) -> None:
        self._refusal = reason
        await self._view.show(BELL)

    def _read_typed(self) -> None:
        try:
            data = os.read(STDIN, _AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            self._loop.remove_reader(STDIN)
            self._hung_up()
            return
        if data:
            self._take_typed(data)
        elif self._on_terminal:
            self._loop.remove_reader(STDIN)
            self._hung_up()
        elif not self._read_only:
            self._input_ended = True
        self._wanted.set()

    def _take_typed(self, data: bytes) -> None:
        data, detach = self._key.split(data)
        if detach or (self._read_only and _INTERRUPT_KEY in data):
            self._detach()
        if not self._read_only:
            room = max(_MOST_TYPED - len(self._typed), 0)
            self._typed += data[:room]
            self._overflowed |= len(data) > room

    def _detach(self) -> None:
        """Leave once what was typed before is sent, or a moment has passed."""
        self._detaching = True
        self._loop.remove_reader(STDIN)
        self._loop.call_later(_LAST_WORDS_SECONDS, self._end, _Ending())

    async def _suspend(self) -> None:
        """Give the terminal back to the shell that stops us; the process runs on."""
        async with self._view.put_aside():
            self._loop.remove_reader(STDIN)
            self._terminal.give_back()
            os.kill(os.getpid(), signal.SIGSTOP)

    def _catch_signals(self) -> None:
        for number in Signals:
            # Ignored means that somebody said so on purpose: nohup, or a shell of its background jobs.
            if number.name in _LEAVING and signal.getsignal(number) is not signal.SIG_IGN:
                self._catch(number)
        for number in (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT):
            self._catch(number)

    def _catch(self, number: Signals) -> None:
        self._loop.add_signal_handler(number, self._signalled, number)
        self._signals.append(number)

    def _release_signals(self) -> None:
        for number in self._signals:
            self._loop.remove_signal_handler(number)

    def _signalled(self, number: Signals) -> None:
        if number == signal.SIGWINCH:
            self._resized = True
        elif number == signal.SIGTSTP:
            self._suspending = True
        elif number == signal.SIGCONT:
            self._resuming = True
        elif number == signal.SIGINT and not self._on_terminal:
            self._detach()
        else:
            self._end(_Ending(signal=number))
        self._wanted.set()

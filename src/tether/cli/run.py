"""`tether run`: a command under the keeper, followed or left alone."""

import asyncio
import errno
import os
import secrets
import signal
from dataclasses import dataclass

import click

from tether.cli.attach import DEFAULT_KEY, attach_to
from tether.cli.attach_keys import DetachKey
from tether.cli.exec_output import OwnStreams, write_all
from tether.cli.follow import LEAST_CAPACITY, follow
from tether.cli.keeper_session import first_of_ours, with_keeper
from tether.cli.options import Size, complete_directory, complete_file, seconds, size
from tether.cli.own_stdin import pass_stdin_on
from tether.cli.remarks import left_over, line, remarks, tell
from tether.cli.run_signals import FaceSignals
from tether.cli.terminal import at_terminal, own_size
from tether.errors import (
    InvalidCommandError,
    KeeperError,
    KeeperLostError,
    ProgramNotFoundError,
    ProgramNotRunnableError,
    StartError,
    WorkingDirectoryError,
)
from tether.keeper.client import KeeperClient
from tether.keeper.kept_process import KeptProcess
from tether.keeper.lease import FOREVER, Lease, Owned
from tether.process.command import DEFAULT_CAPACITY, Command, OutputPolicy, Overflow, Pipes, Pty
from tether.process.exit_status import Cause
from tether.process.log_reader import STDERR, STDOUT

_LEASE_SECONDS = 900.0
_LAST_WORDS_SECONDS = 7.0
_NOBODY_READS = 128 + 13  # SIGPIPE, which Windows does not have
_HUNG_UP = 128 + signal.SIGHUP
_INTERRUPTED = 128 + signal.SIGINT
_NOT_FOUND, _NOT_RUNNABLE = 127, 126


@dataclass(frozen=True, slots=True)
class _Options:
    pty: bool
    detach: bool
    name: str
    cwd: str
    timeout: float | None
    size: Size | None
    cap: int

    @property
    def attached(self) -> bool:
        """Whether a person gets the command's terminal on their own."""
        return self.pty and not self.detach and at_terminal()


@click.command(
    name="run",
    context_settings={"allow_interspersed_args": False},
    short_help="Start a command that outlives this terminal.",
)
@click.option("--pty", is_flag=True, help="Give it a terminal, for programs that want one.")
@click.option("-d", "--detach", is_flag=True, help="Print the process id and leave it running.")
@click.option(
    "--timeout",
    callback=seconds,
    metavar="SECONDS",
    help="Stop it and everything it started after this long; exit code 124.",
)
@click.option("--name", default="", metavar="NAME", help="A name to find it by, in place of its id.")
@click.option(
    "--cwd",
    default=".",
    metavar="DIR",
    shell_complete=complete_directory,
    help="Directory to run in (default: here).",
)
@click.option(
    "--size", "terminal_size", callback=size, metavar="COLSxROWS", help="Size of its terminal (default: 120x30)."
)
@click.option(
    "--cap",
    type=click.IntRange(min=1),
    default=DEFAULT_CAPACITY,
    metavar="BYTES",
    show_default=True,
    help="How much of its output is kept for `tether logs`.",
)
@click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, shell_complete=complete_file, metavar="-- COMMAND [ARGUMENT]..."
)
def command(
    *,
    words: tuple[str, ...],
    pty: bool,
    detach: bool,
    timeout: float | None,
    name: str,
    cwd: str,
    terminal_size: Size | None,
    cap: int,
) -> int:
    """Start a command under the keeper, where it survives the death of whoever started it.

    The program runs with its arguments as given, without a shell around it and with the environment you have
    here; for pipes and globs run `sh -c` yourself.

    Without --detach its output is followed, live and whole, and the exit code is the command's own (124 on
    timeout, 126 not executable, 127 not found, 128+n when signal n ended it). It reads our stdin. Ctrl+C is
    passed on to it, a second one within two seconds stops it; when we are told to end it ends with us. When
    the terminal goes away it runs on; when we are killed, for up to 15 minutes more: see `tether ps`.

    With --pty at a terminal you sit at the command's own terminal, as with `tether attach`.

    \b
    Examples:
      tether run -- make -j8
      tether run --detach --name web -- npm run dev
      tether run --pty -- python3
      tether run --detach --pty --size 160x50 --timeout 3600 -- claude
    """
    if not words:
        raise click.UsageError("No command given; write it behind --, such as `tether run -- make`.")
    if terminal_size is not None and not pty:
        raise click.UsageError("--size is for terminals; add --pty.")
    options = _Options(pty, detach, name, cwd, timeout, terminal_size, cap)
    code = _failing_clearly(words, options)
    # A reader or writer stuck on somebody who does not care must not keep us from ending.
    os._exit(code)


def _failing_clearly(words: tuple[str, ...], options: _Options) -> int:
    try:
        to_run = _command(words, options)
        if options.detach:
            return with_keeper(lambda keeper: _run_detached(keeper, to_run, options.name))
        owner = secrets.token_hex(16)
        lease = Owned(owner, _LEASE_SECONDS)
        run_it = _run_attached if options.attached else _run_followed
        return with_keeper(lambda keeper: run_it(keeper, to_run, options.name, lease), [owner])
    except ProgramNotFoundError as error:
        return _refuse(str(error), _NOT_FOUND)
    except ProgramNotRunnableError as error:
        return _refuse(str(error), _NOT_RUNNABLE)
    except (InvalidCommandError, WorkingDirectoryError) as error:
        return _refuse(str(error), 2)
    except (StartError, KeeperError) as error:
        return _refuse(str(error), 1)


def _refuse(message: str, code: int) -> int:
    tell(message)
    return code


def _command(words: tuple[str, ...], options: _Options) -> Command:
    if not options.cwd:
        raise InvalidCommandError("--cwd is empty; name a directory, or leave it out to run here")
    try:
        cwd = os.path.abspath(options.cwd)
    except FileNotFoundError:
        raise WorkingDirectoryError("the current directory is gone; pass --cwd with an absolute path") from None
    # Nobody waits for what a detached command writes; ours is taken at once, and must come through whole.
    followed = not (options.detach or options.attached)
    output = OutputPolicy(max(options.cap, LEAST_CAPACITY), Overflow.WAIT) if followed else OutputPolicy(options.cap)
    return Command(
        argv=words,
        root=cwd,
        stdio=_terminal(options) if options.pty else Pipes(),
        output=output,
        timeout=options.timeout,
    )


def _terminal(options: _Options) -> Pty:
    if options.size is not None:
        return Pty(options.size.cols, options.size.rows)
    size = own_size() if options.attached else None
    return Pty() if size is None else Pty(*size)


async def _run_detached(keeper: KeeperClient, to_run: Command, name: str) -> int:
    process = await keeper.start(to_run, name=name, lease=FOREVER)
    for warning in process.warnings:
        tell(warning)
    failure = write_all(STDOUT, f"{process.id}\n".encode())
    if failure is not None:
        tell(f"cannot print the id: {failure.strerror}; it runs as process {process.id}")
    return 0 if failure is None else 1


async def _run_attached(keeper: KeeperClient, to_run: Command, name: str, lease: Lease) -> int:
    process = await keeper.start(to_run, name=name, lease=lease)
    for warning in process.warnings:
        tell(warning)
    code = await attach_to(process, DetachKey.named(DEFAULT_KEY))
    if process.exit_status is None:
        if code in (0, _HUNG_UP):
            await process.keep(FOREVER)
        else:
            await process.stop()
            for message in left_over(process):
                tell(message)
    return code


async def _run_followed(keeper: KeeperClient, to_run: Command, name: str, lease: Lease) -> int:
    streams = OwnStreams()
    with FaceSignals(streams.let_go) as signals:
        process = await keeper.start(to_run, name=name, lease=lease)
        try:
            return await _Following(process, streams, signals).to_the_end()
        except* KeeperError as group:
            error = first_of_ours(group)
            raise KeeperLostError(f"{error}; `tether ps --all` may know of process {process.id}") from error


class _Following:
    """One command in the foreground: its output to ours, our input and signals to it."""

    def __init__(self, process: KeptProcess, streams: OwnStreams, signals: FaceSignals) -> None:
        self._process = process
        self._streams = streams
        self._signals = signals
        self._stop_wanted = asyncio.Event()
        self._leave_wanted = asyncio.Event()

    async def to_the_end(self) -> int:
        """Everything until it has ended or cannot be ended; returns our exit code."""
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._follow())
            stopping = tasks.create_task(self._stop_when_wanted(following))
            leaving = tasks.create_task(self._leave_when_wanted(following))
            beside = [
                tasks.create_task(self._signals.heed(self._process, self._stop_wanted.set, self._leave_wanted.set)),
                tasks.create_task(self._pass_input_on()),
                tasks.create_task(self._let_go_after_timeout()),
            ]
            await asyncio.wait((following,))
            if self._leave_wanted.is_set():
                await leaving
            elif self._stop_wanted.is_set():
                await stopping  # it is over when nobody of the tree is left, or who is left cannot be ended
            for task in (stopping, leaving, *beside):
                task.cancel()
        return await self._code()

    async def _code(self) -> int:
        process, caught, failure = self._process, self._signals.caught, self._streams.failure
        status = process.exit_status
        if status is None and self._leave_wanted.is_set():
            return _HUNG_UP
        if status is None:
            tell(f"process {process.id} could not be ended and is left to the keeper; `tether ps` shows it")
        for message in left_over(process) if status is None else remarks(process, status):
            await self._streams.write(STDERR, line(message))
        if failure is not None:
            return _unwritable(failure, process)
        if caught is not None or status is None:
            return 128 + (caught or signal.SIGKILL)
        return status.shell_code

    async def _follow(self) -> None:
        await follow(self._process, self._take, self._tell_dropped)
        status = await self._process.wait()
        if self._signals.interrupted and status.shell_code == _INTERRUPTED:
            await self._process.stop()  # a shell's background children ignore interrupts

    async def _take(self, stream: int, data: bytes) -> bool:
        await self._streams.write(stream, data)
        if self._streams.failure is not None:
            self._stop_wanted.set()
        return self._streams.failure is None

    async def _tell_dropped(self, count: int) -> None:
        await self._streams.write(STDERR, line(f"{count} bytes dropped here"))

    async def _stop_when_wanted(self, following: asyncio.Task[None]) -> None:
        await self._stop_wanted.wait()
        await self._process.stop()
        if self._process.exit_status is None:
            following.cancel()

    async def _leave_when_wanted(self, following: asyncio.Task[None]) -> None:
        """Nobody follows it any more, and nobody holds it: it runs on, and its log waits for no reader."""
        await self._leave_wanted.wait()
        await self._process.keep(FOREVER, drop_oldest=True)
        following.cancel()

    async def _pass_input_on(self) -> None:
        trouble = await pass_stdin_on(self._process)
        if trouble is not None:
            await self._streams.write(STDERR, line(trouble))

    async def _let_go_after_timeout(self) -> None:
        """Whoever does not read our output cannot keep us waiting when the command's time was up."""
        if (await self._process.wait()).cause is Cause.TIMED_OUT:
            await asyncio.sleep(_LAST_WORDS_SECONDS)
            self._streams.let_go()


def _unwritable(failure: OSError, process: KeptProcess) -> int:
    if failure.errno == errno.EPIPE:
        return _NOBODY_READS
    tell(f"cannot pass the output on: {failure.strerror}; the command was stopped, see `tether logs {process.id}`")
    return 1

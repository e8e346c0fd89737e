"""`tether logs`: what a process wrote."""

import asyncio
import errno
import os
import signal
from collections.abc import Awaitable
from dataclasses import dataclass

import click

from tether.cli.exec_output import OwnStreams
from tether.cli.keeper_session import with_named
from tether.cli.log_reading import Wanted, read_log, tail_start
from tether.cli.log_views import view_of
from tether.cli.options import process_argument
from tether.cli.remarks import line, tell
from tether.keeper.client import KeeperClient
from tether.keeper.kept_process import KeptProcess
from tether.process.log_reader import STDERR, STDOUT

_INTERRUPTED = 128 + signal.SIGINT
_STREAMS = {"stdout": STDOUT, "stderr": STDERR}


@dataclass(frozen=True, slots=True)
class _Options:
    follow: bool
    offset: int | None
    limit: int | None
    tail: int | None
    view: str
    stream: int | None


@click.command(name="logs", short_help="Show what a process wrote.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the process ends.")
@click.option("--offset", type=click.IntRange(min=0), metavar="BYTE", help="Begin at this byte of the output.")
@click.option("--limit", type=click.IntRange(min=0), metavar="BYTES", help="Show at most so many bytes of output.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Begin with so many lines before the end.")
@click.option(
    "--view",
    type=click.Choice(["raw", "text", "screen"]),
    default="raw",
    show_default=True,
    help="The bytes, the text a person would read, or the terminal's screen now.",
)
@click.option("--stream", type=click.Choice(list(_STREAMS)), help="Only this stream (default: both, as read).")
@process_argument
def command(
    *,
    process_id: str,
    follow: bool,
    offset: int | None,
    limit: int | None,
    tail: int | None,
    view: str,
    stream: str | None,
) -> int:
    """Show what a process wrote, running or ended.

    raw are its bytes exactly; at a terminal without the questions programs put to terminals, which yours would
    answer. text has no escape sequences, and lines that were overwritten as they were left. screen is what a
    person at its terminal would see now. Bytes that are gone, because only so much is kept or the disk was
    full, are told on stderr where they are missing.

    \b
    Examples:
      tether logs 3f2a
      tether logs -f --tail 20 web
      tether logs 3f2a --view text --stream stderr
      tether logs 3f2a --view screen
      tether logs 3f2a --offset 1048576 --limit 4096
    """
    options = _Options(follow, offset, limit, tail, view, None if stream is None else _STREAMS[stream])
    _check(options)

    async def show(keeper: KeeperClient) -> int:
        process = await keeper.find(process_id)
        return await (_show_screen(process) if view == "screen" else _show(process, options))

    code = with_named(process_id, show)
    # A writer stuck on somebody who does not read must not keep us from ending.
    os._exit(code)


def _check(options: _Options) -> None:
    if options.offset is not None and options.tail is not None:
        raise click.UsageError("--offset and --tail both say where to begin; give one of them.")
    rest = (options.offset, options.limit, options.tail, options.stream)
    if options.view == "screen" and (options.follow or any(value is not None for value in rest)):
        raise click.UsageError("--view screen is the whole screen now; to watch it go on use `tether attach`.")


async def _show_screen(process: KeptProcess) -> int:
    screen = await process.screen()
    streams = OwnStreams()
    await streams.write(STDOUT, screen.text.rstrip("\n").encode("utf-8", "backslashreplace") + b"\n")
    if not screen.exact:
        await streams.write(STDERR, line("the beginning of its output is gone: this screen may be incomplete"))
    return _code(streams)


async def _show(process: KeptProcess, options: _Options) -> int:
    streams = OwnStreams()
    at_terminal = os.isatty(STDOUT)
    view = view_of(options.view, at_terminal=at_terminal)

    async def take(data: bytes) -> bool:
        await streams.write(STDOUT, view.feed(data))
        return streams.failure is None

    async def say(message: str) -> None:
        await streams.write(STDERR, line(message))

    start, skip = options.offset or 0, 0
    if options.tail is not None:
        start, skip = await tail_start(process, options.tail, options.stream)
    wanted = Wanted(start, skip, options.limit, options.stream, options.follow)
    reading = read_log(process, wanted, take, say)
    interrupted = await _until_interrupted(reading) if at_terminal else await reading
    await streams.write(STDOUT, view.end())
    unrecorded = process.record.missing - sum(gap.missing for gap in await process.gaps())
    if unrecorded > 0 and options.limit is None:
        await say(f"{unrecorded} bytes are missing here: the disk has had no room for them so far")
    return _INTERRUPTED if interrupted else _code(streams)


async def _until_interrupted(reading: Awaitable[None]) -> bool:
    """Whether Ctrl+C ended it: the terminal it was shown on is to be put in order then."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        await reading
    except asyncio.CancelledError:
        task.uncancel()
        return True
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return False


def _code(streams: OwnStreams) -> int:
    failure = streams.failure
    if failure is None:
        return 0
    if failure.errno != errno.EPIPE:
        tell(f"cannot show the output: {failure.strerror or failure}")
    return 1

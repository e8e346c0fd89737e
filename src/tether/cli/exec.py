"""`tether exec`: one command, once, to its end."""

import asyncio
import contextlib
import errno
import json
import os
import signal
import time
from dataclasses import dataclass

import click

from tether.cli.exec_input import TypedInput, at_terminal
from tether.cli.exec_output import Collected, OwnStreams, take_all, write_all
from tether.cli.exec_signals import EndingSignals
from tether.cli.options import seconds
from tether.errors import (
    InvalidCommandError,
    ProgramNotFoundError,
    ProgramNotRunnableError,
    StartError,
    WorkingDirectoryError,
)
from tether.process.command import Command, OutputPolicy, Overflow, Pipes, display
from tether.process.exit_status import Cause, ExitStatus
from tether.process.log_reader import STDERR, STDOUT
from tether.process.process import Process
from tether.process.shell import command_line_argv
from tether.process.table import ProcessTable

_BUFFER = OutputPolicy(16 * 1024 * 1024, Overflow.WAIT)
_DEFAULT_CHARS = 200_000
_LONGEST_SHOWN = 200
_LAST_WORDS_SECONDS = 7.0
_INTERRUPTED = 128 + signal.SIGINT
_NOBODY_READS = 128 + 13  # SIGPIPE, which Windows does not have


@dataclass(frozen=True, slots=True)
class _Options:
    cwd: str
    timeout: float | None
    direct: bool
    as_json: bool
    max_output_chars: int


@click.command(
    name="exec",
    context_settings={"allow_interspersed_args": False},
    short_help="Run a command once, to its end.",
)
@click.option("--cwd", default=".", metavar="DIR", help="Directory to run in (default: here).")
@click.option(
    "--timeout",
    callback=seconds,
    metavar="SECONDS",
    help="Stop the command and everything it started after this long; exit code 124.",
)
@click.option("--direct", is_flag=True, help="Run the program itself, without a login shell around it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of passing output through.")
@click.option(
    "--max-output-chars",
    type=click.IntRange(min=0),
    default=_DEFAULT_CHARS,
    metavar="COUNT",
    show_default=True,
    help="With --json: how many characters of each stream to keep, from its beginning.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARGUMENT]...")
def command(
    *, words: tuple[str, ...], cwd: str, timeout: float | None, direct: bool, as_json: bool, max_output_chars: int
) -> None:
    """Run a command once, to its end.

    Output passes through live and whole; the exit code is the command's own (124 on timeout, 126 not
    executable, 127 not found, 128+n when signal n ended it). Words reach the command exactly as given: no
    shell reads them again; for pipes and globs run `sh -c` yourself. The command reads our stdin.

    \b
    Examples:
      tether exec -- sh -c 'echo out; echo err >&2; exit 3'
      tether exec --cwd web --timeout 120 -- npm test
      tether exec --json --direct -- git status --short
    """
    if not words:
        raise click.UsageError("No command given; write it behind --, such as `tether exec -- git status`.")
    options = _Options(cwd, timeout, direct, as_json, max_output_chars)
    code = _failing_clearly(words, options)
    # A writer stuck on somebody who does not read must not keep us from ending.
    os._exit(code)


def _failing_clearly(words: tuple[str, ...], options: _Options) -> int:
    try:
        return asyncio.run(_exec(words, options))
    except ProgramNotFoundError as error:
        return _refuse(str(error), "COMMAND_NOT_FOUND", 127, options)
    except ProgramNotRunnableError as error:
        return _refuse(str(error), "INTERNAL", 126, options)
    except WorkingDirectoryError as error:
        return _refuse(str(error), "NOT_DIRECTORY", 2, options)
    except InvalidCommandError as error:
        return _refuse(str(error), "INVALID_ARGUMENT", 2, options)
    except StartError as error:
        return _refuse(str(error), "INTERNAL", 1, options)
    except OSError as error:
        return _refuse(f"cannot run {_recognisable(words)}: {error.strerror or error}", "INTERNAL", 1, options)


def _refuse(message: str, code: str, exit_code: int, options: _Options) -> int:
    if options.as_json:
        write_all(STDOUT, _json_line({"error": {"code": code, "message": message}}))
    write_all(STDERR, _line(message))
    return exit_code


async def _exec(words: tuple[str, ...], options: _Options) -> int:
    started = time.monotonic()
    cwd = _absolute(options.cwd)
    typed = at_terminal()
    to_run = Command(
        argv=words if options.direct else command_line_argv(words),
        root=cwd,
        stdio=Pipes(inherit_stdin=not typed),
        output=_BUFFER,
        timeout=options.timeout,
    )
    streams = OwnStreams()
    with EndingSignals(streams.let_go, at_terminal=typed) as signals:
        # Adoption finds everybody a control group would, without the cost of making one.
        async with ProcessTable(contain=False, adopt_orphans=True) as table:
            process = await table.start(to_run)
            signals.hand_to(process, table.in_background)
            if options.timeout is not None:
                loop = asyncio.get_running_loop()
                loop.call_later(options.timeout + _LAST_WORDS_SECONDS, _let_go_after_timeout, process, streams)
            collected = Collected(options.max_output_chars) if options.as_json else None

            async def take(stream: int, data: bytes) -> None:
                if collected is not None:
                    await collected.take(stream, data)
                elif streams.failure is None:
                    await streams.write(stream, data)
                    if streams.failure is not None:
                        process.stop_soon()

            with TypedInput(process, table.in_background) if typed else contextlib.nullcontext():
                await take_all(process, take)
                status = await process.wait()
            if signals.caught is not None or (signals.passed_on and status.shell_code == _INTERRUPTED):
                await process.stop()
            await table.settled()
            code = status.shell_code if signals.caught is None else 128 + signals.caught
            if collected is not None:
                await streams.write(STDOUT, _as_json(cwd, words, code, collected, status, started))
            for message in _remarks(process, status, words, options):
                await streams.write(STDERR, _line(message))
    return code if streams.failure is None else _unwritable(streams.failure)


def _let_go_after_timeout(process: Process, streams: OwnStreams) -> None:
    """Whoever does not read our output cannot keep a command alive whose time was up."""
    if process.exit_status is not None and process.exit_status.cause is Cause.TIMED_OUT:
        streams.let_go()


def _absolute(cwd: str) -> str:
    if not cwd:
        raise InvalidCommandError("--cwd is empty; name a directory, or leave it out to run here")
    try:
        return cwd if os.path.isabs(cwd) else os.path.abspath(cwd)
    except FileNotFoundError:
        raise WorkingDirectoryError("the current directory is gone; pass --cwd with an absolute path") from None


def _as_json(
    cwd: str, words: tuple[str, ...], code: int, output: Collected, status: ExitStatus, started: float
) -> bytes:
    stdout, stdout_truncated = output.clipped(STDOUT)
    stderr, stderr_truncated = output.clipped(STDERR)
    return _json_line(
        {
            "cwd": cwd,
            "command": list(words),
            "exit_code": code,
            "stdout": stdout,
            "stderr": stderr,
            "stdout_truncated": stdout_truncated,
            "stderr_truncated": stderr_truncated,
            "timed_out": status.cause is Cause.TIMED_OUT,
            "duration_ms": int((time.monotonic() - started) * 1000),
        }
    )


def _json_line(value: object) -> bytes:
    # A byte of an argument that is no text is a lone surrogate, which JSON can only hold as an escape.
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _line(message: str) -> bytes:
    return f"tether: {message}\n".encode("utf-8", "backslashreplace")


def _remarks(process: Process, status: ExitStatus, words: tuple[str, ...], options: _Options) -> list[str]:
    remarks: list[str] = []
    if status.cause is Cause.TIMED_OUT:
        remarks.append(f"stopped after {options.timeout:g} s: {_recognisable(words)}")
    if status.code == 127 and len(words) == 1 and not options.direct and words[0].split() != [words[0]]:
        remarks.append("one word with spaces is no command: leave the quotes away, or run it with `sh -c`")
    if status.core_file is not None:
        remarks.append(f"core dumped to {status.core_file}")
    remarks += process.warnings
    for left in process.survivors:
        doubt = "could not be ended" if left.certain else "still runs and may belong to it"
        remarks.append(f"{doubt}: pid {left.pid} ({left.command})")
    return remarks


def _recognisable(words: tuple[str, ...]) -> str:
    shown = display(words)
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"


def _unwritable(failure: OSError) -> int:
    if failure.errno == errno.EPIPE:
        return _NOBODY_READS
    write_all(STDERR, _line(f"cannot pass the output on: {failure.strerror}; the command was stopped"))
    return 1

"""One command from start to end, with its output in hand."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from tether.process.command import Command, CommandOptions, OutputPolicy, Overflow
from tether.process.exit_status import Cause, ExitStatus
from tether.process.log_reader import STDERR, STDOUT
from tether.process.process import Process
from tether.process.table import ProcessTable
from tether.process.text import decode

WHOLE = OutputPolicy(256 * 1024 * 1024, Overflow.STOP)


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended and everything it wrote; `warnings` says what was not as asked for."""

    status: ExitStatus
    stdout: str
    stderr: str
    duration: float
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The code a shell would report: 124 after a timeout, 128+n after a signal."""
        return self.status.shell_code

    @property
    def timed_out(self) -> bool:
        """Whether it was stopped because its time was up."""
        return self.status.cause is Cause.TIMED_OUT


async def execute(command: Command) -> Result:
    """Run a command to its end; its input is empty unless given, its output is whole up to 256 MB or its own policy.

    Raises:
        StartError: it could not be started.
    """
    began = time.monotonic()
    async with ProcessTable() as table:
        process = await table.start(_completed(command))
        status = await process.wait()
        duration = time.monotonic() - began
        await table.settled()
        stdout, stderr = (decode(_all_of(process, stream)) for stream in (STDOUT, STDERR))
        return Result(status, stdout, stderr, duration, tuple(_warnings(process, status)))


def run(command: str | Sequence[str], **options: Unpack[CommandOptions]) -> Result:
    """Run a shell script (a string) or a program with arguments (a sequence) and return what came of it.

    Raises:
        StartError: it could not be started.
        RuntimeError: called inside an event loop, which it would block; await `execute` there.
    """
    _refuse_inside_a_loop()
    if isinstance(command, str):
        return asyncio.run(execute(Command.shell(command, **options)))
    return asyncio.run(execute(Command(argv=tuple(command), **options)))


def _refuse_inside_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("tether.run blocks and an event loop is running here; await tether.execute(...) instead")


def _completed(command: Command) -> Command:
    policy = WHOLE if command.output == OutputPolicy() else command.output
    if policy.overflow is Overflow.WAIT:
        policy = replace(policy, overflow=Overflow.STOP)  # nobody takes anything before the end
    return replace(command, output=policy, stdin=b"" if command.stdin is None else command.stdin)


def _all_of(process: Process, stream: int) -> bytes:
    parts: list[bytes] = []
    offset = 0
    while offset < process.output.end:
        part = process.output.read_stream(stream, offset)
        parts.append(part.data)
        offset = part.end
    return b"".join(parts)


def _warnings(process: Process, status: ExitStatus) -> Iterator[str]:
    yield from process.warnings
    log = process.output
    if status.cause is Cause.OUTPUT_LIMIT and log.full:
        yield f"stopped at its output limit of {log.policy.capacity} bytes; raise it, or send the output to a file"
    if log.dropped:
        yield f"{log.dropped} bytes in the middle of the output were dropped, as its policy says"
    if log.refused:
        reasons = {gap.reason for gap in log.gaps()} or {"the disk took no more"}
        yield f"{log.refused} bytes of the output could not be kept: {', '.join(sorted(reasons))}"
    for left in process.survivors:
        yield f"could not be ended: pid {left.pid} ({left.command})"

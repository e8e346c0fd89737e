"""`tether wait`: until a process ends, writes, says something, falls silent or asks."""

import click

from tether.cli.keeper_session import with_named
from tether.cli.options import process_argument, seconds
from tether.cli.record_json import json_text, record
from tether.cli.remarks import remarks, tell
from tether.keeper.client import KeeperClient
from tether.keeper.kept_process import KeptProcess
from tether.process.waiting import Exit, Until, Waited, parse_until, wait_for

_TIMED_OUT = 124


@click.command(name="wait", short_help="Wait until a process ends, writes or asks.")
@click.option(
    "--for",
    "condition",
    default="exit",
    metavar="CONDITION",
    show_default=True,
    help="exit, output, idle:MS (silent that long), prompt (waits for input) or text:REGEX.",
)
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    metavar="BYTE",
    help="Where output and text begin to look (default: output from now on, text everywhere).",
)
@click.option("--timeout", callback=seconds, metavar="SECONDS", help="Wait no longer; exit code 124.")
@click.option("--json", "as_json", is_flag=True, help="Print the process, whether it was met, and the offset then.")
@process_argument
def command(*, process_id: str, condition: str, offset: int | None, timeout: float | None, as_json: bool) -> int:
    """Wait until something is true of a process; the process itself is not touched.

    Exit code: with `--for exit` that of the command (124 on timeout, 128+n when signal n ended it), like a
    shell's `wait`. Otherwise 0 when met, 1 when the process ended first, 124 when the time was up.

    \b
    Examples:
      tether wait 3f2a                                  its exit code
      tether wait 3f2a --for text:'listening on' --timeout 30
      tether wait 3f2a --for prompt && tether send 3f2a yes
      tether wait 3f2a --for idle:2000 --json
    """
    parse_until(condition)

    async def wait(keeper: KeeperClient) -> int:
        process = await keeper.find(process_id)
        beginning = process.end if offset is None and condition == "output" else offset or 0
        until = parse_until(condition, offset=beginning)
        waited = await wait_for(process, until, timeout=timeout)
        if as_json:
            found = {"met": waited.met, "offset": waited.offset, "match": waited.match}
            click.echo(json_text({**found, **record(process)}), nl=False)
        return _code(process, until, waited)

    return with_named(process_id, wait)


def _code(process: KeptProcess, until: Until, waited: Waited) -> int:
    ended = process.exit_status
    if isinstance(until, Exit):
        if ended is None:
            return _TIMED_OUT
        for message in remarks(process, ended):
            tell(message)
        return ended.shell_code
    if waited.met:
        return 0
    return _TIMED_OUT if ended is None else 1

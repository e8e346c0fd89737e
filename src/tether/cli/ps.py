"""`tether ps`: which processes there are."""

import time
from collections.abc import Sequence

import click

from tether.cli.keeper_session import with_kept
from tether.cli.record_json import json_text, record
from tether.cli.table import Cell, Column, print_lines, render, size_words, terminal_width, time_words, wants_colour
from tether.keeper.client import KeeperClient
from tether.keeper.kept_process import KeptProcess
from tether.process.command import Pty, display
from tether.process.exit_status import Status
from tether.process.text import visible

_SHORTEST_ID = 8
_COLUMNS = (
    Column("ID"),
    Column("STATUS"),
    Column("STDIO", expendable=3),
    Column("TIME", expendable=1, right=True),
    Column("OUTPUT", expendable=2, right=True),
    Column("COMMAND"),
)
_RED, _GREEN, _YELLOW, _DIM = "31", "32", "33", "2"
_COLOURS = {Status.RUNNING: _GREEN, Status.COMPLETED: _DIM, Status.LOST: _YELLOW}


@click.command(name="ps", short_help="List processes.")
@click.option("-a", "--all", "ended_too", is_flag=True, help="Also those that have ended.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array of objects.")
def command(*, ended_too: bool, as_json: bool) -> int:
    """List the processes that run, whoever started them.

    STATUS is running, completed, failed (did not start), timed_out, killed or lost, with the exit code or
    signal; TIME is how long it has run, or ran. "rest runs" says that something it left in the background still
    writes to its output; `tether stop` ends that too. A name given with `run --name` stands before the command.

    \b
    Examples:
      tether ps                 what runs now
      tether ps --all           and what has ended
      tether ps --json | jq -r '.[] | select(.pty) | .id'
    """
    everything = with_kept(_all_processes, [])
    wanted = [
        process for process in everything if ended_too or process.exit_status is None or process.record.output_held
    ]
    if as_json:
        click.echo(json_text([record(process) for process in wanted]), nl=False)
    elif wanted:
        shortened = shortest_ids([process.id for process in everything])
        print_lines(_lines([(shortened[process.id], process) for process in wanted]))
    elif everything:
        click.echo(f"Nothing is running; `tether ps --all` lists {len(everything)} that ended.", err=True)
    else:
        click.echo("Nothing is running; start something with `tether run -- COMMAND`.", err=True)
    return 0


def shortest_ids(ids: Sequence[str]) -> dict[str, str]:
    """For each id as much of its beginning as tells it from all others, but no less than 8 characters."""
    ordered = sorted(ids)
    shortened: dict[str, str] = {}
    for before, current, after in zip(["", *ordered], ordered, [*ordered[1:], ""], strict=False):
        shared = max(_shared(before, current), _shared(current, after))
        shortened[current] = current[: max(_SHORTEST_ID, shared + 1)]
    return shortened


def _shared(one: str, other: str) -> int:
    length = 0
    for length, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return length
    return min(len(one), len(other))


async def _all_processes(keeper: KeeperClient) -> list[KeptProcess]:
    return await keeper.processes()


def _lines(processes: Sequence[tuple[str, KeptProcess]]) -> list[str]:
    now = time.time()
    rows = [_row(short, process, now) for short, process in processes]
    return render(_COLUMNS, rows, width=terminal_width(), colour=wants_colour())


def _row(short: str, process: KeptProcess, now: float) -> list[Cell]:
    ended_at = process.ended_at
    took = (now if ended_at is None else ended_at) - process.started_at
    return [
        Cell(short, "1"),
        status_cell(process),
        Cell(f"{process.stdio.cols}x{process.stdio.rows}" if isinstance(process.stdio, Pty) else "pipes"),
        Cell(time_words(took)),
        Cell(size_words(process.end)),
        Cell(label(process)),
    ]


def label(process: KeptProcess) -> str:
    """Its name and command on one line, with nothing invisible left in it."""
    name = visible(process.name, keep="")
    words = display(process.command.argv)
    return f"{name}: {words}" if name else words


def status_cell(process: KeptProcess) -> Cell:
    """The word for where it is in its life, and how it ended."""
    ended, status = process.exit_status, process.status
    if ended is None:
        return Cell(str(status), _GREEN)
    detail = ended.signal or ("" if ended.code is None or ended.cause.name == "TIMED_OUT" else str(ended.code))
    colour = _RED if status is Status.COMPLETED and ended.code else _COLOURS.get(status, _RED)
    rest = " (rest runs)" if process.record.output_held else ""
    return Cell(f"{status} {detail}".rstrip() + rest, colour)

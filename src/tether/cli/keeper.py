"""`tether keeper`: the service that keeps processes."""

import os
import shutil
import sys
from dataclasses import asdict

import click

from tether.cli.keeper_session import with_running_keeper
from tether.cli.ps import label, shortest_ids
from tether.cli.record_json import json_text, timestamp
from tether.cli.table import print_lines, size_words
from tether.errors import KeeperVersionError
from tether.keeper.client import KeeperClient, KeeperStatus
from tether.keeper.home import Home


@click.group(name="keeper", invoke_without_command=True, short_help="The service that keeps processes.")
@click.option("--stdio", is_flag=True, help="Be a bridge from stdin and stdout to the keeper, for ssh.")
@click.pass_context
def command(context: click.Context, *, stdio: bool) -> None:
    """The keeper: a small service of your own that owns processes, so that they outlive their starters.

    It starts by itself when it is first needed and ends when there is nothing left to keep. There is one per
    user and TETHER_HOME.

    \b
    Examples:
      tether keeper status
      tether keeper stop             end everything it keeps, then the keeper
      tether keeper upgrade          go on with the tether that is installed now
      ssh host tether keeper --stdio
    """
    if stdio:
        if context.invoked_subcommand is not None:
            raise click.UsageError("--stdio goes without a command.", context)
        import asyncio

        from tether.keeper.stdio import serve

        asyncio.run(serve(Home.of()))
    elif context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command(name="status", short_help="Whether one runs, and what it keeps.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(*, as_json: bool) -> int:
    """Say whether a keeper runs and what it keeps; never starts one, and both answers have exit code 0.

    \b
    Examples:
      tether keeper status
      tether keeper status --json | jq .alive
    """

    async def ask(keeper: KeeperClient) -> KeeperStatus | None:
        return await keeper.status()

    found = with_running_keeper(ask, None)
    if as_json:
        click.echo(json_text(_as_json(found)), nl=False)
    elif found is None:
        click.echo(f"No keeper runs for {Home.of().path}; the next `tether run` starts one.")
    else:
        print_lines(_as_lines(found))
    return 0


@command.command(name="stop", short_help="End every process, then the keeper.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask, even at a terminal.")
def stop(*, yes: bool) -> int:
    """End every process that is kept, then the keeper. What they wrote stays.

    At a terminal it asks first when something runs.

    \b
    Examples:
      tether keeper stop
      tether keeper stop --yes
    """

    async def shut_down(keeper: KeeperClient) -> int | None:
        return await keeper.shut_down()

    ended = with_running_keeper(_running, [])
    if ended and not yes and sys.stdin.isatty():
        print_lines(["These run:", *ended], sys.stderr)
        if not click.confirm("End them all?", err=True):
            click.echo("Nothing was ended.", err=True)
            return 1
    count = with_running_keeper(shut_down, None)
    if count is None:
        click.echo("No keeper runs.", err=True)
        return 0
    print_lines([f"Ended {count} {'process' if count == 1 else 'processes'} and the keeper.", *ended])
    return 0


@command.command(name="upgrade", short_help="Replace the keeper, not what it keeps.")
@click.option("--python", metavar="PATH", help="The Python to run the new one with (default: that of this tether).")
def upgrade(*, python: str | None) -> int:
    """Let a newer keeper take over from the one that runs; processes and their output are not touched.

    The new one must first show that it can read what the old one knows, else everything stays as it is.

    \b
    Examples:
      tether keeper upgrade
      tether keeper upgrade --python ~/tether-next/bin/python
    """
    # The keeper is in another directory, and has another PATH.
    program = shutil.which(python or sys.executable)
    if program is None:
        raise click.UsageError(f"No program {python!r} to run the new keeper with.")
    absolute = os.path.abspath(program)

    async def replace(keeper: KeeperClient) -> str | None:
        return await keeper.upgrade(absolute)

    version = with_running_keeper(replace, None)
    if version is None:
        click.echo("No keeper runs; the next one is started by the tether that needs it.", err=True)
    else:
        click.echo(f"The keeper now runs version {version}.")
    return 0


async def _running(keeper: KeeperClient) -> list[str]:
    """A line about every process that runs."""
    try:
        processes = await keeper.processes(ended=False)
    except KeeperVersionError:
        count = (await keeper.status()).running
        return [f"  {count} that only another version of tether can list"] if count else []
    shortened = shortest_ids([process.id for process in processes])
    return [f"  {shortened[process.id]}  {label(process)}" for process in processes]


def _as_json(found: KeeperStatus | None) -> dict[str, object]:
    if found is None:
        return {"alive": False, "home": Home.of().path}
    return {"alive": True, **asdict(found), "started_at": timestamp(found.started_at)}


def _as_lines(found: KeeperStatus) -> list[str]:
    rows = {
        "pid": str(found.pid),
        "version": f"{found.version} (protocol {found.protocol})",
        "home": found.home,
        "socket": found.socket,
        "started": timestamp(found.started_at),
        "processes": f"{found.running} running, {found.ended} ended",
        "output": f"{size_words(found.log_bytes)} kept",
        "connections": str(found.connections),
        "screens": "none rendered" if found.screen_pid is None else f"rendered by pid {found.screen_pid}",
    }
    return [f"{name + ':':13}{value}" for name, value in rows.items()]

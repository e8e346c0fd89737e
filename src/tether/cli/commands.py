"""All commands of `tether`, and what becomes of their errors."""

import importlib
import os
import sys

import click

from tether.errors import TetherError

# Each command lives in a module of its own, loaded only when it is asked for.
_COMMANDS = {"exec": "tether.cli.exec"}


class _Commands(click.Group):
    """Loads a command's module when it is first needed, so that `tether` starts quickly."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return [*super().list_commands(ctx), *_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name not in _COMMANDS:
            raise click.UsageError(f"No such command {cmd_name!r}; there is {', '.join(_COMMANDS)}.", ctx)
        command = importlib.import_module(_COMMANDS[cmd_name]).command
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="tether", prog_name="tether")
@click.pass_context
def tether(context: click.Context) -> None:
    """The terminal runtime for coding agents.

    Runs commands and terminals, and keeps every byte and exit code.

    \b
    Examples:
      tether exec -- git status --short      run once, pass everything through
      tether exec --timeout 600 -- make test stop the whole tree after ten minutes
      tether exec --json -- npm test         the result as one JSON object
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def run() -> None:
    """Do what the command line says; what goes wrong is one line on stderr, exit code 2 for bad usage."""
    try:
        sys.exit(tether(standalone_mode=False))
    except click.Abort:
        sys.exit(130)
    except click.UsageError as error:
        place = error.ctx.command_path if error.ctx is not None else "tether"
        _fail(f"{error.format_message()} See `{place} --help`.", 2)
    except click.ClickException as error:
        _fail(error.format_message(), 2)
    except TetherError as error:
        _fail(str(error), 2)
    except OSError as error:
        _fail(error.strerror or str(error), 1)


def _fail(message: str, code: int) -> None:
    click.echo(f"tether: {message}", err=True)
    # What stdout did not take would be tried, and complained about, once more.
    os._exit(code)

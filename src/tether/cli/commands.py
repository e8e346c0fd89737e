"""All commands of `tether`, and what becomes of their errors."""

import importlib
import os
import re
import sys

import click
from click.shell_completion import CompletionItem

from tether.errors import (
    AmbiguousProcessError,
    InvalidCommandError,
    TetherError,
    UnknownKeyError,
    UnknownProcessError,
    WorkingDirectoryError,
)
from tether.version import VERSION

# Each command lives in a module of its own, loaded only when it is asked for; the words are those of its help.
_COMMANDS = {
    "exec": "Run a command once, to its end.",
    "run": "Start a command that outlives this terminal.",
    "ps": "List processes.",
    "logs": "Show what a process wrote.",
    "attach": "Take over the terminal of a process.",
    "send": "Type into a process.",
    "wait": "Wait until a process ends, writes or asks.",
    "stop": "End processes politely, then by force.",
    "kill": "End processes at once.",
    "resize": "Give a terminal another size.",
    "forget": "Remove ended processes and their output.",
    "keeper": "The service that keeps processes.",
    "completion": "Let your shell complete commands and ids.",
}
_BAD_NAMES = (InvalidCommandError, UnknownKeyError, UnknownProcessError, WorkingDirectoryError)
_LINE_BREAK = re.compile(r"\s*\n\s*")


class _Commands(click.Group):
    """Loads a command's module when it is first needed, so that `tether` starts quickly."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return [*super().list_commands(ctx), *_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name not in _COMMANDS:
            if ctx.resilient_parsing:  # a shell asks how this could go on
                return None
            raise click.UsageError(f"No such command {cmd_name!r}; there is {', '.join(_COMMANDS)}.", ctx)
        command = importlib.import_module(f"tether.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the commands without loading one."""
        found = [CompletionItem(name, help=words) for name, words in _COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(version=VERSION, prog_name="tether")
@click.pass_context
def tether(context: click.Context) -> None:
    """The terminal runtime for coding agents.

    Runs commands and terminals, and keeps every byte and exit code.

    \b
    Examples:
      tether exec -- git status --short      run once, pass everything through
      tether exec --timeout 600 -- make test stop the whole tree after ten minutes
      tether run --detach -- npm run dev     start it, print its id, come back later
      tether run --pty -- vim notes.txt      a terminal you can detach from
      tether ps                              what runs now
      tether logs -f 3f2a                    follow one, by the beginning of its id
      tether stop 3f2a                       end it and everything it started
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def run() -> None:
    """Do what the command line says; what goes wrong is one line on stderr, exit code 2 for bad usage or names."""
    try:
        sys.exit(tether(standalone_mode=False))
    except click.Abort:
        sys.exit(130)
    except click.UsageError as error:
        place = error.ctx.command_path if error.ctx is not None else "tether"
        _fail(f"{error.format_message()} See `{place} --help`.", 2)
    except click.ClickException as error:
        _fail(error.format_message(), 2)
    except AmbiguousProcessError as error:
        _fail(str(error), 2)
    except UnknownProcessError as error:
        _fail(f"no process {error.process_id!r}; `tether ps --all` lists what there is", 2)
    except TetherError as error:
        _fail(str(error), 2 if isinstance(error, _BAD_NAMES) else 1)
    except OSError as error:
        _fail(error.strerror or str(error), 1)


def _fail(message: str, code: int) -> None:
    click.echo(f"tether: {_LINE_BREAK.sub(' ', message)}", err=True)
    # What stdout did not take would be tried, and complained about, once more.
    os._exit(code)

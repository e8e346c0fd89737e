"""`tether attach`: a real terminal on a process that runs."""

import os
import sys

import click

from tether.cli.attach_keys import DetachKey
from tether.cli.keeper_session import with_named
from tether.cli.options import process_argument
from tether.cli.terminal import at_terminal
from tether.errors import ProcessEndedError
from tether.keeper.client import KeeperClient
from tether.process.command import COOKIE
from tether.process.exit_status import Cause, ExitStatus
from tether.process.place import PlacedProcess

DEFAULT_KEY = "C-]"


@click.command(name="attach", short_help="Take over the terminal of a process.")
@process_argument
@click.option(
    "--detach-key",
    "key_name",
    default=DEFAULT_KEY,
    metavar="KEY",
    show_default=True,
    help="The key that detaches, as tmux names it (C-a, C-\\), or none.",
)
@click.option("--read-only", is_flag=True, help="Only look: type nothing, and leave its size as it is.")
def command(*, process_id: str, key_name: str, read_only: bool) -> None:
    """Sit at a process's terminal; it runs on when you detach.

    What it shows now is drawn first, then everything as it comes; what you type goes to it as it is. Several
    people may be attached at once and see the same; its size is that of whoever typed last, and on a terminal of
    another size what fits is drawn. A process without a terminal shows its output and gets the lines you type.

    The exit code is 0 when you detach, and the process's own when it ends.

    \b
    Examples:
      tether attach 3f2a
      tether attach --read-only web
      tether attach --detach-key C-a 3f2a
    """
    key = DetachKey.named(key_name)
    require_terminal()

    async def attach(keeper: KeeperClient) -> int:
        process = await keeper.find(process_id)
        if process.exit_status is not None:
            raise ProcessEndedError(
                f"process {process.id} {_ended(process.exit_status)}; `tether logs {process.id}` shows what it wrote"
            )
        _require_outside(process.id)
        return await attach_to(process, key, read_only=read_only)

    code = with_named(process_id, attach)
    # A writer stuck on a terminal that takes nothing must not keep us from ending.
    os._exit(code)


def _ended(status: ExitStatus) -> str:
    if status.cause is Cause.LOST:
        return "was lost with its keeper, and nobody knows how it ended"
    return f"has ended with exit code {status.shell_code}"


def _require_outside(process_id: str) -> None:
    """Refuse to show a process on its own terminal: what it shows would be its output again, without end."""
    if process_id in os.environ.get(COOKIE, "").split():
        raise click.ClickException(
            f"you are inside this process; attach to {process_id} from a terminal that it does not run"
        )


def require_terminal() -> None:
    """Refuse to go on without a terminal to sit at.

    Raises:
        click.UsageError: our input or output is none.
    """
    if sys.platform == "win32":
        raise click.UsageError("There is no attaching on Windows yet; use `tether logs -f` and `tether send`.")
    if not at_terminal():
        raise click.UsageError(
            "Both input and output must be a terminal; without one use `tether logs -f` and `tether send`."
        )


async def attach_to(process: PlacedProcess, key: DetachKey, *, read_only: bool = False) -> int:
    """Put our terminal on a process until it ends or the person detaches; returns the exit code to end with.

    Raises:
        KeeperLostError: whoever keeps it is gone; our terminal is as before.
    """
    from tether.cli.attach_process import Attachment  # needs a terminal that Windows does not have

    return await Attachment(process, key, read_only=read_only).run()

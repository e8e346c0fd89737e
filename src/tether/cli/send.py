"""`tether send`: typing into a process."""

import os
import sys
from collections.abc import Mapping
from enum import Enum

import click

from tether.cli.keeper_session import with_named
from tether.cli.options import process_argument
from tether.cli.own_stdin import copy_stdin
from tether.keeper.client import KeeperClient
from tether.keeper.kept_process import KeptProcess
from tether.process.command import Pty
from tether.process.place import Stamp


class _Kind(Enum):
    SUBMIT = "TEXT"
    KEYS = "--keys"
    PASTE = "--paste"
    WRITE = "--write"
    EOF = "--eof"


@click.command(name="send", short_help="Type into a process.")
@click.option("--keys", is_flag=True, help="Press keys by name: C-c, Enter, Up, F5, M-x, a.")
@click.option("--paste", is_flag=True, help="Paste the text, bracketed if the program asked for that.")
@click.option("--write", is_flag=True, help="Send the text exactly as it is; - sends our stdin.")
@click.option("--eof", is_flag=True, help="End the input: closes a pipe, presses Ctrl+D on a terminal.")
@click.option("--writer", metavar="NAME", help="With --write or --eof: who sends this piece.")
@click.option(
    "--number", type=click.IntRange(min=1), metavar="N", help="Which piece of that writer it is: 1, 2, 3..."
)
@process_argument
@click.argument("words", nargs=-1, metavar="[TEXT|KEY...]")
def command(
    *,
    process_id: str,
    words: tuple[str, ...],
    keys: bool,
    paste: bool,
    write: bool,
    eof: bool,
    writer: str | None,
    number: int | None,
) -> int:
    """Type into a process: a line and Enter, or one of the options below.

    Text that begins with a dash goes behind --. With --writer and --number a piece that was sent before is not
    sent again: a script that does not know whether its last try arrived simply repeats it.

    \b
    Examples:
      tether send 3f2a 'git push'            the text, then Enter
      tether send 3f2a ''                    Enter alone
      tether send 3f2a --keys C-c            Ctrl+C, also without a terminal; names as tmux has them
      tether send 3f2a --keys Down Down Enter
      tether send 3f2a --paste "$(cat fix.py)"
      tether send 3f2a --write - <data.bin
      tether send 3f2a --eof
      tether send 3f2a --writer deploy --number 7 --write 'next'
    """
    kind = _kind({_Kind.KEYS: keys, _Kind.PASTE: paste, _Kind.WRITE: write, _Kind.EOF: eof})
    _check_words(kind, words)
    stamp = _stamp(kind, writer, number)

    async def send(keeper: KeeperClient) -> int:
        await _send(await keeper.find(process_id), kind, words, stamp)
        return 0

    return with_named(process_id, send)


async def _send(process: KeptProcess, kind: _Kind, words: tuple[str, ...], stamp: Stamp | None) -> None:
    match kind:
        case _Kind.SUBMIT:
            await process.submit(words[0])
        case _Kind.KEYS if words == ("C-c",) and not isinstance(process.stdio, Pty):
            await process.interrupt()  # without a terminal the key itself would mean nothing
        case _Kind.KEYS:
            await process.send_keys(words)
        case _Kind.PASTE:
            await process.paste(words[0])
        case _Kind.WRITE if words[0] == "-":
            await _send_stdin(process, stamp)
        case _Kind.WRITE:
            await process.write(os.fsencode(words[0]), stamp)
        case _Kind.EOF:
            await process.end_input(stamp)


async def _send_stdin(process: KeptProcess, stamp: Stamp | None) -> None:
    if stamp is None:
        await copy_stdin(process)
    else:
        # One number stands for one piece, however large: it is sent whole or not at all.
        await process.write(sys.stdin.buffer.read(), stamp)


def _kind(given: Mapping[_Kind, bool]) -> _Kind:
    kinds = [kind for kind, is_given in given.items() if is_given]
    if len(kinds) > 1:
        raise click.UsageError(
            f"{' and '.join(kind.value for kind in kinds)} exclude each other; send one at a time."
        )
    return kinds[0] if kinds else _Kind.SUBMIT


def _check_words(kind: _Kind, words: tuple[str, ...]) -> None:
    if kind is _Kind.EOF:
        if words:
            raise click.UsageError("--eof takes no text; send the text first.")
    elif not words:
        raise click.UsageError("Nothing to send; give a text, or '' for Enter alone.")
    elif len(words) > 1 and kind is not _Kind.KEYS:
        raise click.UsageError(f"One text at a time, but {len(words)} words were given; quote them.")


def _stamp(kind: _Kind, writer: str | None, number: int | None) -> Stamp | None:
    if writer is None and number is None:
        return None
    if not writer or number is None:
        raise click.UsageError("--writer NAME and --number N go together.")
    if kind not in (_Kind.WRITE, _Kind.EOF):
        raise click.UsageError("Only --write and --eof can be numbered.")
    return Stamp(writer, number)

"""`tether exec`: the command reads our stdin, or what a person types at our terminal."""

import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import tether as library
from tests.cli.running import BOUND, TETHER, in_shell, tether

BASH = ("bash", "--noprofile", "--norc", "-i")


@asynccontextmanager
async def at_terminal(*argv: str) -> AsyncGenerator[library.Process, None]:
    """A program on a real terminal, ended with the block."""
    async with library.open_process(library.Command(argv=argv, stdio=library.Pty())) as process:
        yield process


async def seen(process: library.Process, pattern: str, since: int = 0) -> int:
    """Wait until the terminal has shown `pattern` behind offset `since`; returns where its output ends then."""
    waited = await library.wait_for(process, library.Text(re.compile(pattern), since), timeout=BOUND)
    assert waited.met, process.output.read(0).data
    return waited.offset


@pytest.mark.requirement("design:cli:exec-stdin")
@pytest.mark.parametrize("mode", [(), ("--direct",)], ids=["shell", "direct"])
def test_what_is_piped_in_reaches_the_command_byte_for_byte(mode: tuple[str, ...]) -> None:
    content = os.urandom(3_000_000)
    finished = tether("exec", *mode, "--", "cat", stdin=content)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, content, b"")


@pytest.mark.requirement("design:cli:exec-stdin")
def test_echo_into_a_pipe_reaches_cat() -> None:
    assert in_shell('echo hi | "$0" exec -- cat').stdout == b"hi\n"


@pytest.mark.requirement("design:cli:exec-stdin")
def test_what_the_command_does_not_read_is_left_for_the_next(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("first\nsecond\n", encoding="utf-8")
    script = '{ "$0" exec --direct -- sh -c "read line; echo got \\$line"; cat; } <"$1"'
    assert in_shell(script, str(tmp_path / "lines")).stdout == b"got first\nsecond\n"


@pytest.mark.requirement("design:cli:exec-stdin")
@pytest.mark.parametrize("closed", ["<&-", "</dev/null"])
def test_a_closed_or_empty_stdin_ends_a_reader_at_once(closed: str) -> None:
    finished = in_shell(f'"$0" exec --direct -- cat {closed}')
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, b"", b"")


@pytest.mark.requirement("design:start:no-foreign-descriptors")
def test_the_command_gets_three_streams_and_nothing_of_ours() -> None:
    code = "import os; print(sorted(int(name) for name in os.listdir('/proc/self/fd'))[:-1])"
    for closed in ("", "<&-", "2>&-", "<&- 2>&-"):
        finished = in_shell(f'"$0" exec --direct -- "$1" -c "$2" {closed}', sys.executable, code)
        assert finished.stdout == b"[0, 1, 2]\n"


@pytest.mark.requirement("design:cli:exec-stdin")
def test_a_command_that_never_reads_does_not_care_for_a_stdin_that_stays_open() -> None:
    reading, writing = os.pipe()
    try:
        finished = subprocess.run(
            (TETHER, "exec", "--", "echo", "x"), stdin=reading, capture_output=True, timeout=BOUND, check=False
        )
    finally:
        os.close(reading)
        os.close(writing)
    assert (finished.returncode, finished.stdout) == (0, b"x\n")


@pytest.mark.requirement("design:cli:exec-stdin")
async def test_typed_lines_reach_the_command_and_ctrl_d_ends_its_input() -> None:
    async with at_terminal(TETHER, "exec", "--", "cat") as process:
        await process.submit("hello there")
        # Once as the terminal's echo, once from cat.
        offset = await seen(process, r"hello there\n(?s:.*)hello there")
        await process.submit("again")
        await seen(process, r"again\n(?s:.*)again", offset)
        await process.end_input()
        assert (await process.wait()).code == 0


@pytest.mark.requirement("design:cli:exec-interrupted")
async def test_ctrl_c_reaches_the_command_which_may_end_as_it_likes() -> None:
    script = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 100 & wait; done"
    async with at_terminal(TETHER, "exec", "--direct", "--", "sh", "-c", script) as process:
        await seen(process, "ready")
        await process.interrupt()
        await seen(process, "caught")
        assert (await process.wait()).code == 7
        await process.stop()


@pytest.mark.requirement("design:cli:exec-interrupted")
async def test_ctrl_c_ends_a_command_that_does_nothing_about_it() -> None:
    async with at_terminal(TETHER, "exec", "--", "sh", "-c", "echo ready; exec sleep 100") as process:
        await seen(process, "ready")
        await process.interrupt()
        assert (await process.wait()).code == 130


@pytest.mark.requirement("design:cli:exec-interrupted")
async def test_a_second_ctrl_c_ends_a_command_that_goes_on_after_the_first() -> None:
    script = "trap 'echo going on' INT; echo ready; while :; do sleep 100 & wait; done"
    async with at_terminal(TETHER, "exec", "--direct", "--", "sh", "-c", script) as process:
        await seen(process, "ready")
        await process.interrupt()
        await seen(process, "going on")
        await process.interrupt()
        assert (await process.wait()).code == 130


@pytest.mark.requirement("design:cli:exec-stdin")
async def test_a_background_job_is_not_suspended_leaves_typing_to_the_shell_and_reads_once_in_front() -> None:
    async with at_terminal(*BASH) as shell:
        await library.wait_for(shell, library.Prompt(), timeout=BOUND)
        await shell.submit(f"{TETHER} exec --direct -- sh -c 'echo start''ed; exec cat' &")
        offset = await seen(shell, "started")
        await shell.submit("expr 6 '*' 7")
        offset = await seen(shell, r"\b42\b", offset)
        await shell.submit("jobs")
        offset = await seen(shell, "Running", offset)
        await shell.submit("fg")
        offset = await seen(shell, r"fg\n(?s:.*)exec cat", offset)
        await shell.submit("now to cat")
        offset = await seen(shell, r"now to cat\n(?s:.*)now to cat", offset)
        await shell.end_input()
        await shell.submit("expr $? + 43")
        await seen(shell, r"\b43\b", offset)


@pytest.mark.requirement("design:cli:exec-stdin")
async def test_a_job_moved_to_the_background_leaves_typing_to_the_shell() -> None:
    async with at_terminal(*BASH) as shell:
        await library.wait_for(shell, library.Prompt(), timeout=BOUND)
        await shell.submit(f"{TETHER} exec --direct -- sh -c 'echo start''ed; exec cat'")
        offset = await seen(shell, "started")
        await shell.send_keys(["C-z"])
        offset = await seen(shell, "Stopped", offset)
        await shell.submit("bg")
        offset = await seen(shell, "&\n", offset)
        await shell.submit("expr 6 '*' 7")
        offset = await seen(shell, r"\b42\b", offset)
        await shell.submit("jobs")
        offset = await seen(shell, "Running", offset)
        await shell.submit("kill %1; wait %1; expr $? + 100")
        await seen(shell, r"\b243\b", offset)

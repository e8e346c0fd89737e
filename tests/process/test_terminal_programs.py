"""Programs that need a terminal, driven by keys and read off the screen as a person would."""

import asyncio
import re
from pathlib import Path

import pytest

from tether.process.command import Command, Pty
from tether.process.process import Process
from tether.process.screen import Screen
from tether.process.table import open_process
from tether.process.waiting import Prompt, Text, wait_for

pytestmark = pytest.mark.requirement("design:process:programs")


async def shows(process: Process, pattern: str) -> Screen:
    """The first screen on which `pattern` can be read."""
    wanted = re.compile(pattern)
    while True:
        screen = await process.screen()
        if wanted.search(screen.text):
            return screen
        try:
            async with asyncio.timeout(10):
                await process.grown_or_ended(screen.offset)
        except TimeoutError:
            raise AssertionError(f"never showed {pattern!r}:\n{screen.text}") from None
        assert process.exit_status is None or process.output.end > screen.offset, screen.text


async def said(process: Process, pattern: str, since: int = 0) -> str:
    waited = await wait_for(process, Text(re.compile(pattern), since), timeout=10)
    assert waited.match is not None, process.output.read(0).data
    return waited.match


def on_terminal(*argv: str, root: str = "/", cols: int = 80, rows: int = 24) -> Command:
    return Command(argv=argv, stdio=Pty(cols, rows), root=root)


@pytest.mark.requirement("001:problem:interactive")
async def test_vim_edits_splits_resizes_and_quits(tmp_path: Path) -> None:
    async with open_process(on_terminal("vim", "-u", "NONE", "-N", "note.txt", root=str(tmp_path))) as vim:
        screen = await shows(vim, r'"note\.txt" \[New')
        assert screen.alternate_screen
        await vim.send_keys(["i"])
        await shows(vim, "-- INSERT --")
        await vim.write("first línea\rsecond".encode())
        await shows(vim, "(?m)^first línea\nsecond$")
        await vim.send_keys(["Escape"])
        await vim.write(b":set splitright | vsplit\r")
        await shows(vim, r"(?m)^first línea +.first línea")
        await vim.resize(100, 30)
        screen = await shows(vim, r"(?m)(^~ +.~\n){26}")
        assert (screen.cols, screen.rows) == (100, 30)
        await vim.write(b":wqa\r")
        assert (await vim.wait()).code == 0
        assert not (await vim.screen()).alternate_screen
    assert (tmp_path / "note.txt").read_text() == "first línea\nsecond\n"


@pytest.mark.requirement("001:test:vim-version")
async def test_vim_tells_its_version() -> None:
    async with open_process(Command.shell("vim --version | head -5", stdio=Pty())) as process:
        assert (await process.wait()).code == 0
        assert process.output.read(0).data.startswith(b"VIM - Vi IMproved")


@pytest.mark.requirement("001:problem:interactive")
async def test_less_searches_and_quits(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("".join(f"line {number}\n" for number in range(1, 501)))
    async with open_process(on_terminal("less", "lines", root=str(tmp_path))) as less:
        await shows(less, "(?m)^line 1\nline 2\n")
        await less.write(b"/line 321\r")
        await shows(less, "(?m)^line 321\nline 322\n")
        await less.send_keys(["G"])
        await shows(less, "(?m)^line 500\n")
        await less.send_keys(["q"])
        assert (await less.wait()).code == 0


@pytest.mark.parametrize("program", ["top", "htop"])
@pytest.mark.requirement("001:problem:interactive")
async def test_process_viewers_draw_and_quit(program: str) -> None:
    async with open_process(on_terminal(program, cols=100, rows=30)) as viewer:
        screen = await shows(viewer, r"PID +USER")
        assert re.search("(?i)load average", screen.text)
        await viewer.send_keys(["q"])
        assert (await viewer.wait()).code == 0


@pytest.mark.requirement("001:test:python-dialogue")
async def test_a_python_dialogue() -> None:
    async with open_process(on_terminal("python3", "-q")) as process:
        await said(process, ">>> ")
        await process.submit("6 * 7")
        await said(process, "(?m)^42$")
        await process.submit("import time; print('go'); time.sleep(100)")
        await said(process, "(?m)^go$")
        await process.interrupt()
        await said(process, "KeyboardInterrupt")
        assert (await wait_for(process, Prompt(), timeout=10)).met
        await process.end_input()
        # An interpreter that was interrupted once may end itself by that very signal.
        assert (await process.wait()).signal in (None, "SIGINT")


async def job_in_foreground(shell: Process) -> None:
    async with asyncio.timeout(30):
        while (probe := (await shell.look()).probe) and probe.foreground in ((), (shell.pid,)):  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.01)


@pytest.mark.requirement("design:process:control-keys")
@pytest.mark.requirement("design:start:job-control")
@pytest.mark.requirement("001:problem:control-characters")
async def test_job_control_in_bash() -> None:
    async with open_process(on_terminal("bash", "--norc", "--noprofile", "-i")) as bash:
        await said(bash, r"[$#] $")
        await bash.submit("sleep 1000")
        await job_in_foreground(bash)
        await bash.send_keys(["C-z"])
        await said(bash, r"\[1\]\+ +Stopped +sleep 1000")
        await bash.submit("jobs; fg")
        await said(bash, r"\[1\]\+ +Stopped +sleep 1000\n(.*\n)*sleep 1000\n", bash.output.end - 1)
        await job_in_foreground(bash)
        before = bash.output.end
        await bash.send_keys(["C-c"])
        await said(bash, r"\^C", before)
        await bash.submit("echo code $?")
        await said(bash, "(?m)^code 130$")
        await bash.submit("exit 0 & cat; echo cat ended")
        await said(bash, r"(?m)^\[1\] \d+", before)
        await job_in_foreground(bash)
        await bash.send_keys(["C-d"])
        await said(bash, r"(?s)\ncat ended\n.*[$#] $")
        await bash.send_keys(["C-d"])
        assert (await bash.wait()).code == 0


@pytest.mark.requirement("001:problem:colours")
@pytest.mark.requirement("000:process:output:ansi-kept")
async def test_colours_are_kept(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for script, coloured in (
        ("ls --color=auto", b"\x1b[01;34mfolder"),
        ("echo a needle here | grep --color=auto needle", b"\x1b[01;31m"),
    ):
        async with open_process(Command.shell(script, stdio=Pty(), root=str(tmp_path))) as process:
            assert (await process.wait()).code == 0
            assert coloured in process.output.read(0).data
        async with open_process(Command.shell(script, root=str(tmp_path))) as process:
            assert (await process.wait()).code == 0
            assert b"\x1b" not in process.output.read(0).data


@pytest.mark.requirement("design:screen:answers")
@pytest.mark.requirement("design:screen:answers-once")
async def test_a_query_of_the_terminal_is_answered_once() -> None:
    # Whatever else was answered would stand before the line that is typed in the end.
    script = r"""
        stty raw -echo
        printf 'ab\033[6n'; IFS= read -r -d R place
        printf '\033[c'; IFS= read -r -d c device
        printf ready; IFS= read -r -d . rest
        stty sane; printf '\n%q|%q|%q\n' "$place" "$device" "$rest"
    """
    async with open_process(Command(argv=("bash", "-c", script), stdio=Pty(80, 24))) as process:
        await said(process, "ready")
        assert "ready" in (await process.screen()).text
        assert "ready" in (await process.screen()).text
        await process.write(b"typed.")
        assert (await process.wait()).code == 0
        place, device, rest = process.output.read(0).data.decode().split("\n")[-2].strip().split("|")
    assert place == r"$'\E[1;3'"
    assert device.startswith(r"$'\E[?")
    assert rest == "typed"

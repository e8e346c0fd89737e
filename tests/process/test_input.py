"""Input: in order and whole to whoever reads, and refused with a reason where it cannot be delivered."""

import asyncio
import os
import re
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.helpers import python, wait_until
from tether.errors import InputBacklogError, InputRefusedError, LineTooLongError, ProcessEndedError
from tether.process.command import Command, OutputPolicy, Overflow, Pipes, Pty
from tether.process.exit_status import Cause, ExitStatus
from tether.process.log_reader import Resize
from tether.process.process import Process
from tether.process.table import open_process
from tether.process.waiting import Prompt, Text, wait_for

WHOLE = OutputPolicy(64 * 1024 * 1024, Overflow.STOP)
on_both_streams = pytest.mark.parametrize("stdio", [Pipes(), Pty()], ids=["pipes", "pty"])


async def said(process: Process, pattern: str, since: int = 0) -> str:
    waited = await wait_for(process, Text(re.compile(pattern), since), timeout=10)
    assert waited.match is not None, process.output.read(0).data
    return waited.match


def shell(script: str, stdio: Pipes | Pty = Pty()) -> Command:
    return Command(argv=("bash", "-c", script), stdio=stdio, output=WHOLE)


@on_both_streams
@pytest.mark.requirement("000:process:input")
@pytest.mark.requirement("000:process:input:multi-line")
@pytest.mark.requirement("001:pty:write")
@pytest.mark.requirement("design:handle:one")
@pytest.mark.requirement("design:input:acknowledged")
async def test_what_is_written_arrives_as_it_is(stdio: Pipes | Pty) -> None:
    async with open_process(shell("stty -echo 2>/dev/null; echo ready; exec cat", stdio)) as process:
        await said(process, "ready")
        assert await process.write("eins\nzwei é\n".encode())
        assert await process.write(b"three\n")
        await process.end_input()
        assert (await process.wait()).code == 0
        text = process.output.read(0).data.replace(b"\r\n", b"\n").decode()
        assert text == "ready\neins\nzwei é\nthree\n"


@on_both_streams
@pytest.mark.requirement("design:input:in-order")
@pytest.mark.requirement("design:input:never-blocks")
async def test_a_slow_reader_gets_everything_in_order(stdio: Pipes | Pty) -> None:
    script = (
        "stty -echo -opost 2>/dev/null; echo ready; read go; for i in 1 2 3; do sleep 0.05; head -c 5000; done; cat"
    )
    sent = b"".join(b"line %d\n" % number for number in range(40_000))
    async with open_process(shell(script, stdio)) as process:
        await said(process, "ready")
        await process.submit()
        assert await process.write(sent) is False
        assert await process.write(b"last\n") is False
        await process.end_input()
        assert (await process.wait()).code == 0
        assert process.output.read(0).data.removeprefix(b"ready\n") == sent + b"last\n"


async def type_until_full(process: Process, most: int = 1_000_000) -> int:
    """Type lines byte by byte until the terminal takes no more; how many bytes it took."""
    for taken in range(most):
        if not await process.write(b"\n" if taken % 100 == 99 else b"x"):
            return taken
        if taken % 50 == 0:
            await asyncio.sleep(0)
    return most


@pytest.mark.requirement("design:process:eof")
async def test_the_end_of_input_is_not_lost_on_a_full_terminal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    script = f"stty -echo -opost; echo ready; read go <{tmp_path}/go; exec wc -c"
    async with open_process(shell(script)) as process:
        await said(process, "ready")
        room = await type_until_full(process)
    for size in (room - 1, room, room + 1):
        async with open_process(shell(script)) as process:
            await said(process, "ready")
            await type_until_full(process, size)
            await process.end_input()
            (tmp_path / "go").write_text("now\n")
            assert (await asyncio.wait_for(process.wait(), 10)).code == 0
            assert process.output.read(0).data == b"ready\n%d\n" % size


@pytest.mark.requirement("design:process:interrupt")
async def test_an_interrupt_passes_a_full_terminal() -> None:
    async with open_process(shell("stty -echo; echo ready; exec sleep 100")) as process:
        await said(process, "ready")
        await type_until_full(process)
        await process.interrupt()
        assert (await asyncio.wait_for(process.wait(), 10)).signal == "SIGINT"


@on_both_streams
@pytest.mark.requirement("design:input:backlog")
@pytest.mark.requirement("design:input:never-blocks")
async def test_input_that_is_never_read_is_refused_beyond_a_limit(stdio: Pipes | Pty) -> None:
    async with open_process(shell("echo ready; exec sleep 100", stdio)) as process:
        await said(process, "ready")
        block = (b"x" * 1000 + b"\n") * 1000
        for _ in range(16):
            await process.write(block)
        with pytest.raises(InputBacklogError, match=r"\d+ bytes in \d+ pieces wait already .*wait until it reads"):
            await process.write(block * 2)


@pytest.mark.requirement("001:pty:write-refused")
async def test_a_child_that_closed_its_input_refuses_more_and_lives_on() -> None:
    async with open_process(shell("exec <&-; echo ready; exec sleep 100", Pipes())) as process:
        await said(process, "ready")
        for words in (b"nobody reads this\n", b"nor this\n"):
            with pytest.raises(InputRefusedError, match="closed its input"):
                await process.write(words)
        assert process.exit_status is None


@on_both_streams
@pytest.mark.requirement("design:process:eof")
async def test_an_open_line_is_delivered_before_the_end(stdio: Pipes | Pty) -> None:
    async with open_process(shell("stty -echo 2>/dev/null; echo ready; exec cat", stdio)) as process:
        await said(process, "ready")
        await process.write(b"no newline")
        await process.end_input()
        assert (await process.wait()).code == 0
        assert process.output.read(0).data.endswith(b"ready\nno newline") or isinstance(stdio, Pty)
        assert process.output.read(0).data.endswith(b"no newline")


@pytest.mark.requirement("design:process:eof")
async def test_an_ended_pipe_takes_no_more_but_a_terminal_does() -> None:
    async with open_process(shell("exec sleep 100", Pipes())) as process:
        await process.end_input()
        with pytest.raises(ProcessEndedError, match="input was ended"):
            await process.write(b"x")
    async with open_process(shell("cat; cat")) as process:
        await wait_for(process, Prompt(), timeout=10)
        await process.end_input()
        await process.write(b"still\r")
        await said(process, "still\n.*still")
        await process.end_input()
        assert (await process.wait()).code == 0


@on_both_streams
@pytest.mark.requirement("design:process:submit")
async def test_submit_ends_the_line_as_the_stream_wants_it(stdio: Pipes | Pty) -> None:
    script = "stty raw -echo 2>/dev/null; echo ready; head -c 6 | od -An -c; head -c 1 | od -An -c"
    async with open_process(shell(script, stdio)) as process:
        await said(process, "ready")
        await process.submit("hello")
        await process.submit()
        assert (await process.wait()).code == 0
        end = r"\r" if isinstance(stdio, Pty) else r"\n"
        assert process.output.read(0).data.decode().split()[1:] == [*"hello", end, end]


@pytest.mark.requirement("design:input:line-limit")
async def test_a_line_that_a_terminal_would_cut_is_refused_and_the_longest_is_not() -> None:
    async with open_process(shell("stty -echo; echo ready; wc -c; wc -c")) as process:
        await said(process, "ready")
        with pytest.raises(LineTooLongError, match="5000 bytes is longer than this terminal takes \\(4095 bytes"):
            await process.write(b"x" * 5000 + b"\r")
        await process.write(b"x" * 3000)
        with pytest.raises(LineTooLongError, match="6000 bytes"):
            await process.submit("x" * 3000)
        await process.write(b"x" * 1095 + b"\r")
        await process.end_input()
        await said(process, "\n4096\n")
        await process.end_input()
        assert (await process.wait()).code == 0


@pytest.mark.requirement("design:input:line-limit")
async def test_a_program_in_raw_mode_takes_a_line_of_any_length() -> None:
    async with open_process(shell("stty raw -echo; echo ready; head -c 50000 | tr -d x | wc -c")) as process:
        await said(process, "ready")
        await process.write(b"x" * 49_990)
        await process.write(b"y" * 10)
        assert (await process.wait()).code == 0
        assert process.output.read(0).data.split()[-1] == b"10"


@on_both_streams
@pytest.mark.requirement("design:process:interrupt")
@pytest.mark.requirement("000:process:input:special-characters")
@pytest.mark.requirement("001:problem:control-characters")
async def test_an_interrupt_is_what_ctrl_c_does(stdio: Pipes | Pty) -> None:
    async with open_process(Command(argv=("sh", "-c", "echo ready; exec sleep 100"), stdio=stdio)) as process:
        await said(process, "ready")
        await process.interrupt()
        assert await process.wait() == ExitStatus(None, "SIGINT", Cause.SIGNALLED)


@pytest.mark.requirement("design:process:interrupt")
async def test_an_interrupt_types_the_key_the_terminal_has_for_it() -> None:
    async with open_process(shell("stty intr ^G; echo ready; exec sleep 100")) as process:
        await said(process, "ready")
        await process.interrupt()
        assert (await process.wait()).signal == "SIGINT"


@on_both_streams
@pytest.mark.requirement("design:process:interrupt")
async def test_a_program_may_survive_an_interrupt(stdio: Pipes | Pty) -> None:
    code = """
        import time
        try:
            print("ready")
            time.sleep(100)
        except KeyboardInterrupt:
            print("caught")
    """
    async with open_process(Command(argv=python(code), stdio=stdio)) as process:
        await said(process, "ready")
        await process.interrupt()
        await said(process, "caught")
        assert (await process.wait()).code == 0


@pytest.mark.requirement("000:pty:resize")
@pytest.mark.requirement("001:pty:resize")
@pytest.mark.requirement("design:process:resize")
async def test_a_new_size_is_told_seen_and_recorded() -> None:
    script = "trap 'stty size; exit 3' WINCH; stty size; while :; do sleep 0.02; done"
    async with open_process(shell(script, Pty(90, 20))) as process:
        await said(process, "20 90")
        before = process.output.end
        await process.resize(133, 44)
        assert (await process.wait()).code == 3
        await said(process, "44 133", before)
        assert process.stdio == Pty(133, 44)
        assert process.output.resizes() == [Resize(before, 133, 44)]


@pytest.mark.requirement("design:screen:resize")
async def test_a_screen_follows_a_new_size_before_any_output() -> None:
    async with open_process(shell("printf '\\033[1mready'; exec sleep 100", Pty(90, 20))) as process:
        await said(process, "ready")
        assert (await process.screen()).cols == 90
        await process.resize(133, 44)
        screen = await process.screen()
        assert (screen.cols, screen.rows) == (133, 44)


@pytest.mark.requirement("design:handle:one")
async def test_pipes_have_no_size() -> None:
    async with open_process(shell("exec sleep 100", Pipes())) as process:
        with pytest.raises(InputRefusedError, match=r"runs on pipes and has no size; start it with a Pty"):
            await process.resize(10, 10)
        assert process.stdio == Pipes()
        assert process.output.resizes() == []


@pytest.mark.parametrize("asked", [True, False], ids=["asked", "not asked"])
@pytest.mark.requirement("design:keys:paste-bracketed")
async def test_a_paste_is_bracketed_only_when_the_program_asked(*, asked: bool) -> None:
    request = r"printf '\033[?2004h'; " if asked else r"printf '\033[1m'; "
    size = 17 if asked else 5
    script = f"stty raw -echo; {request} printf ready; head -c {size} | cat -v; exit 2"
    async with open_process(shell(script)) as process:
        await said(process, "ready")
        await process.paste("a\nb c")
        assert (await process.wait()).code == 2
        shown = process.output.read(0).data.decode().rpartition("ready")[2]
        assert shown.replace("^M", "\n") == ("^[[200~a\nb c^[[201~" if asked else "a\nb c")


@pytest.mark.requirement("design:process:control-keys")
@pytest.mark.requirement("design:keys:application-cursor")
async def test_keys_follow_the_mode_the_program_set() -> None:
    for mode, expected in ((r"\033[?1h", "^[OA^C"), (r"\033[?1l", "^[[A^C")):
        script = f"stty raw -echo; printf '{mode}'; printf ready; head -c 4 | cat -v; exit 2"
        async with open_process(shell(script)) as process:
            await said(process, "ready")
            await process.send_keys(["Up", "C-c"])
            assert (await process.wait()).code == 2
            assert process.output.read(0).data.decode().endswith("ready" + expected)


@on_both_streams
@pytest.mark.requirement("design:process:ended-refuses")
@pytest.mark.requirement("001:pty:write-refused")
async def test_an_ended_process_refuses_everything(stdio: Pipes | Pty) -> None:
    async with open_process(Command(argv=("true",), stdio=stdio)) as process:
        await process.wait()
        attempts: list[Callable[[], Awaitable[object]]] = [
            lambda: process.write(b"x"),
            process.end_input,
            lambda: process.resize(80, 24),
            process.interrupt,
            lambda: process.send_keys(["Enter"]),
            lambda: process.paste("x"),
            lambda: process.submit("x"),
        ]
        for attempt in attempts:
            with pytest.raises(ProcessEndedError, match=f"process {process.id} has ended \\(completed\\)"):
                await attempt()


@pytest.mark.requirement("design:input:never-blocks")
async def test_a_process_that_ends_with_input_waiting_leaves_nothing() -> None:
    async with open_process(shell("read line; exit 1", Pipes())) as process:
        assert await process.write(b"\n" + b"x" * 1_000_000) is False
        assert (await process.wait()).code == 1


@pytest.mark.requirement("000:pty:read-write")
async def test_binary_bytes_pass_a_raw_terminal_both_ways_unchanged() -> None:
    everything = bytes(range(256)) * 40 + struct.pack("<d", 1.5) + os.urandom(2000)
    script = f"stty raw -echo; printf ready; exec head -c {len(everything)}"
    async with open_process(shell(script)) as process:
        await said(process, "ready")
        await process.write(everything)
        await wait_until(lambda: process.exit_status is not None)
        assert process.output.read(5).data == everything

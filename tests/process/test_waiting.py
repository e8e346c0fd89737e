"""The one wait verb: met as soon as it can be, bounded, and never an error when time runs out."""

import asyncio
import os
import re
import signal
from typing import cast

import pytest

from tests.helpers import wait_until
from tether.errors import InvalidCommandError
from tether.process._census import entry
from tether.process.command import Command, Pipes, Pty
from tether.process.probe import Certainty, Probe, WaitingForInput
from tether.process.process import Process
from tether.process.table import open_process
from tether.process.waiting import Exit, Idle, Output, Prompt, Text, Until, Waited, parse_until, wait_for

on_both_streams = pytest.mark.parametrize("stdio", [Pipes(), Pty()], ids=["pipes", "pty"])


def shell(script: str, stdio: Pipes | Pty = Pty()) -> Command:
    return Command(argv=("bash", "--norc", "-c", script), stdio=stdio)


async def text_of(process: Process, pattern: str, since: int = 0) -> str:
    waited = await wait_for(process, Text(re.compile(pattern), since), timeout=10)
    assert waited.match is not None, process.output.read(0).data
    return waited.match


async def probe_of(process: Process) -> Probe:
    probe = (await process.look()).probe
    assert probe is not None
    return probe


@on_both_streams
@pytest.mark.requirement("design:wait:exit")
@pytest.mark.requirement("design:wait:until")
async def test_until_its_end(stdio: Pipes | Pty) -> None:
    async with open_process(shell("printf done", stdio)) as process:
        assert await wait_for(process, Exit(), timeout=10) == Waited(met=True, offset=4)
        assert await wait_for(process, Exit(), timeout=10) == Waited(met=True, offset=4)


@on_both_streams
@pytest.mark.requirement("design:wait:output")
async def test_until_output(stdio: Pipes | Pty) -> None:
    script = "stty -echo 2>/dev/null; printf a; read x; printf b; exec >&- 2>&-; read x"
    async with open_process(shell(script, stdio)) as process:
        assert await wait_for(process, Output(0), timeout=10) == Waited(met=True, offset=1)
        assert await wait_for(process, Output(0)) == Waited(met=True, offset=1)
        assert not (await wait_for(process, Output(1), timeout=0.1)).met
        await process.submit()
        assert (await wait_for(process, Output(1), timeout=10)).met
        await process.kill()
        end = process.output.end
        assert await wait_for(process, Output(end), timeout=10) == Waited(met=False, offset=end)


@pytest.mark.requirement("design:wait:text")
async def test_until_text_across_chunks_and_escapes() -> None:
    script = r"""
        for part in 'ERR' '\033[3' '1mOR' '\033[0m:' ' caf\303' '\251' ' ok\n' 'an' 'other\n' 'line'; do
            printf "$part"; sleep 0.03
        done; read x
    """
    async with open_process(shell(script)) as process:
        assert await text_of(process, "ERROR: café ok\n") == "ERROR: café ok\n"
        assert await text_of(process, "(?s)^ERROR.*another\nline$") == "ERROR: café ok\nanother\nline"
        assert await text_of(process, "café") == "café"  # what is there already is found at once
        end = process.output.end
        assert not (await wait_for(process, Text(re.compile("café"), end), timeout=0.1)).met


@pytest.mark.requirement("design:wait:text")
async def test_text_is_searched_as_a_person_would_read_it() -> None:
    async with open_process(shell(r"printf 'progress 10%%\rprogress 99%%\n\033]0;title\007done'; read x")) as process:
        assert await text_of(process, r"(?m)^progress 99%$") == "progress 99%"
        assert await text_of(process, "(?m)^done") == "done"


@pytest.mark.requirement("design:wait:idle")
async def test_until_it_is_quiet() -> None:
    loop = asyncio.get_running_loop()
    async with open_process(shell("for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done; read x")) as process:
        began = loop.time()
        assert (await wait_for(process, Idle(0.4), timeout=20)).met
        assert loop.time() - began >= 0.8
        assert process.output.read(0).data.endswith(b"6\r\n")


@pytest.mark.parametrize("until", [Output(1 << 40), Text(re.compile("never")), Idle(60), Prompt()])
@pytest.mark.requirement("design:wait:ended")
async def test_every_wait_ends_with_the_process(until: Until) -> None:
    loop = asyncio.get_running_loop()
    async with open_process(shell("sleep 0.3; exit 1", Pipes())) as process:
        began = loop.time()
        assert await wait_for(process, until, timeout=30) == Waited(met=False, offset=0)
        assert loop.time() - began < 5
        assert await wait_for(process, until, timeout=30) == Waited(met=False, offset=0)


@pytest.mark.parametrize("until", [Exit(), Output(1 << 40), Text(re.compile("never")), Idle(60), Prompt()])
@pytest.mark.requirement("design:wait:bounded")
async def test_running_out_of_time_is_a_result(until: Until) -> None:
    async with open_process(shell("while :; do :; done")) as process:
        assert await wait_for(process, until, timeout=0.1) == Waited(met=False, offset=0)
        assert await wait_for(process, until, timeout=0) == Waited(met=False, offset=0)
        assert process.exit_status is None


@pytest.mark.parametrize("until", [Exit(), Output(1 << 40), Text(re.compile("never")), Idle(60), Prompt()])
@pytest.mark.requirement("design:wait:bounded")
@pytest.mark.requirement("design:no-leaks")
async def test_a_cancelled_wait_leaves_nothing(until: Until) -> None:
    async with open_process(shell("while :; do :; done")) as process:
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(wait_for(process, until)) for _ in range(3)]
            await asyncio.sleep(0.05)
            for wait in waits:
                wait.cancel()
        assert all(wait.cancelled() for wait in waits)
        assert process.exit_status is None
    assert (await process.wait()).signal is not None


@pytest.mark.parametrize(
    ("script", "waiting"),
    [
        ("read -p 'Name? ' x", WaitingForInput.YES),
        ("cat", WaitingForInput.YES),
        ("sh -c 'cat | cat'", WaitingForInput.YES),
        ("read -s -p 'Password: ' x", WaitingForInput.PASSWORD),
        ("stty -echo; read x </dev/tty", WaitingForInput.PASSWORD),
    ],
)
@pytest.mark.requirement("design:wait:prompt")
@pytest.mark.requirement("design:probe:certain")
@pytest.mark.requirement("design:probe:password")
async def test_a_program_that_reads_is_waiting_for_certain(script: str, waiting: WaitingForInput) -> None:
    async with open_process(shell(script)) as process:
        assert (await wait_for(process, Prompt(), timeout=10)).met
        assert (await process.look()).waiting is waiting


@pytest.mark.requirement("design:wait:prompt")
async def test_a_program_that_reads_from_a_pipe_is_waiting() -> None:
    async with open_process(shell("sleep 0.1; cat; read x </dev/null; sleep 100", Pipes())) as process:
        assert (await wait_for(process, Prompt(), timeout=10)).met
        assert (await process.look()).waiting is WaitingForInput.YES
        await process.end_input()
        async with asyncio.timeout(10):
            while (await process.look()).waiting is not WaitingForInput.NO:  # noqa: ASYNC110 - the kernel tells nobody
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("program", [("python3", "-q"), ("bash", "--norc", "-i")])
@pytest.mark.requirement("design:wait:prompt")
async def test_an_interpreter_is_at_its_prompt(program: tuple[str, ...]) -> None:
    async with open_process(Command(argv=program, stdio=Pty())) as process:
        assert (await wait_for(process, Prompt(), timeout=20)).met
        before = process.output.end
        await process.submit("echo=40+2" if program[0] == "python3" else "echo=42")
        await process.submit("print(echo)" if program[0] == "python3" else "echo $echo")
        await text_of(process, "(?m)^42$", before)
        assert (await wait_for(process, Prompt(), timeout=20)).met


@pytest.mark.parametrize("script", ["sleep 100", "while :; do :; done", "sleep 100 | cat >/dev/null"])
@pytest.mark.requirement("design:wait:prompt")
@pytest.mark.requirement("design:probe:certain")
async def test_a_program_that_works_is_not_waiting(script: str) -> None:
    async with open_process(shell(script)) as process:
        assert not (await wait_for(process, Prompt(), timeout=1)).met
        assert (await process.look()).waiting is WaitingForInput.NO


@pytest.mark.requirement("design:probe:certain")
async def test_a_program_in_poll_is_only_likely_to_wait() -> None:
    code = "import select, sys; print('> ', end='', flush=True); select.select([sys.stdin], [], [])"
    async with open_process(Command(argv=("python3", "-c", code), stdio=Pty())) as process:
        await text_of(process, "> ")
        assert (await wait_for(process, Prompt(), timeout=10)).met
        look = await process.look()
        assert look.probe is not None
        assert look.probe.reading is Certainty.UNKNOWN
        assert look.waiting is WaitingForInput.LIKELY
        await process.kill()
        await process.wait()
        assert (await process.look()).waiting is WaitingForInput.NO


@pytest.mark.requirement("design:probe:tty")
async def test_a_probe_tells_modes_and_foreground() -> None:
    async with open_process(shell("set -m; stty raw -echo -isig; (echo ready; exec sleep 100); :")) as process:
        await text_of(process, "ready")
        probe = await probe_of(process)
        assert (probe.line_mode, probe.echo, probe.signals) == (False, False, False)
        assert process.pid not in probe.foreground
        assert len(probe.foreground) == 1
    async with open_process(shell("echo ready; sleep 100; :")) as process:
        await text_of(process, "ready")
        probe = await probe_of(process)
        assert (probe.line_mode, probe.echo, probe.signals) == (True, True, True)
        assert process.pid in probe.foreground


@pytest.mark.requirement("design:probe:certain")
def test_what_a_look_means() -> None:
    def look(reading: Certainty, *, echo: bool = True, line_mode: bool = True) -> Probe:
        return Probe(line_mode=line_mode, echo=echo, signals=True, foreground=(), reading=reading)

    assert look(Certainty.YES).waiting(quiet=False) is WaitingForInput.YES
    assert look(Certainty.YES, echo=False).waiting(quiet=False) is WaitingForInput.PASSWORD
    assert look(Certainty.YES, echo=False, line_mode=False).waiting(quiet=False) is WaitingForInput.YES
    assert look(Certainty.UNKNOWN).waiting(quiet=True) is WaitingForInput.LIKELY
    assert look(Certainty.UNKNOWN).waiting(quiet=False) is WaitingForInput.NO
    assert look(Certainty.NO).waiting(quiet=True) is WaitingForInput.NO


@pytest.mark.requirement("design:wait:until")
def test_the_notation_of_the_doors() -> None:
    assert parse_until("exit") == Exit()
    assert parse_until("output", offset=7) == Output(7)
    assert parse_until("prompt") == Prompt()
    assert parse_until("idle:250") == Idle(0.25)
    assert parse_until("text:a:b+", offset=3) == Text(re.compile("a:b+"), 3)


@pytest.mark.parametrize(
    "words", ["", "exits", "exit:1", "idle", "idle:soon", "idle:-1", "idle:inf", "text:(", "EXIT"]
)
@pytest.mark.requirement("design:wait:until")
@pytest.mark.requirement("design:errors:one-tree")
def test_a_condition_nobody_knows_is_refused_with_those_that_are(words: str) -> None:
    with pytest.raises(InvalidCommandError, match="use exit, output, idle:MS, prompt or text:REGEX") as caught:
        parse_until(words)
    assert repr(words) in str(caught.value)


@pytest.mark.requirement("design:wait:prompt")
async def test_a_prompt_comes_with_its_text_and_is_a_new_one_after_an_answer() -> None:
    script = "printf 'A? '; read a; printf 'B? '; read b; printf 'C? '; read c"
    async with open_process(Command(argv=("sh", "-c", script), stdio=Pty())) as process:
        for question in (b"A? ", b"B? ", b"C? "):
            waited = await wait_for(process, Prompt(), timeout=10)
            assert waited.met
            assert process.output.read(0, waited.offset).data.endswith(question)
            await process.write(b"x\n")


@pytest.mark.parametrize("until", ["abc", None, Exit, Text(cast("str", b"abc")), Text("(")], ids=repr)
@pytest.mark.requirement("design:wait:until")
async def test_what_is_no_condition_is_refused(until: object) -> None:
    async with open_process(Command(argv=("cat",))) as process:
        with pytest.raises(InvalidCommandError, match=r"cannot (wait|look) for"):
            await wait_for(process, cast("Until", until), timeout=5)


@pytest.mark.requirement("design:wait:text")
async def test_a_pattern_may_be_plain_text() -> None:
    async with open_process(Command(argv=("echo", "abc"))) as process:
        assert (await wait_for(process, Text("b."), timeout=10)).match == "bc"


@pytest.mark.requirement("design:wait:prompt")
async def test_who_has_not_read_its_answer_yet_is_not_asking_again() -> None:
    async with open_process(Command(argv=("cat",), stdio=Pty())) as process:
        assert (await wait_for(process, Prompt(), timeout=10)).met
        os.kill(process.pid, signal.SIGSTOP)  # as if the system let it wait for its turn
        await wait_until(lambda: (found := entry(process.pid)) is not None and found.state == "T")
        assert (await probe_of(process)).reading is Certainty.YES
        await process.write(b"x\n")
        assert (await probe_of(process)).reading is Certainty.NO
        os.kill(process.pid, signal.SIGCONT)
        await text_of(process, r"x\nx\n")

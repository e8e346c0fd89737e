"""What a place promises about waiting: every condition, met as soon as it holds, over when the process is."""

import asyncio
import re

import pytest

from tests.helpers import python
from tests.keeper.places import BOUND, on_both_streams, said, shell
from tether.process.command import Command, Pipes, Pty
from tether.process.exit_status import Cause, ExitStatus
from tether.process.place import Place
from tether.process.probe import Certainty, WaitingForInput
from tether.process.waiting import Exit, Idle, Output, Prompt, Text, Until, Waited, wait_for


@on_both_streams
@pytest.mark.requirement("design:place:wait")
async def test_until_its_end(place: Place, stdio: Pipes | Pty) -> None:
    process = await place.start(shell("printf done", stdio))
    assert await wait_for(process, Exit(), timeout=BOUND) == Waited(met=True, offset=4)
    assert await wait_for(process, Exit(), timeout=BOUND) == Waited(met=True, offset=4)


@pytest.mark.requirement("design:place:wait")
async def test_everybody_who_waits_is_told(place: Place) -> None:
    process = await place.start(shell("read go; exit 5"))
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(process.wait()) for _ in range(20)]
        await process.submit()
    assert {wait.result() for wait in waits} == {ExitStatus(5, None, Cause.EXITED)}


@pytest.mark.requirement("design:place:wait")
async def test_no_end_is_missed_however_soon_it_comes(place: Place) -> None:
    for _ in range(30):
        process = await place.start(Command(argv=("true",)))
        assert (await asyncio.wait_for(process.wait(), BOUND)).code == 0


@on_both_streams
@pytest.mark.requirement("design:place:wait")
async def test_until_output(place: Place, stdio: Pipes | Pty) -> None:
    script = "stty -echo 2>/dev/null; printf a; read x; printf b; exec >&- 2>&-; read x"
    process = await place.start(shell(script, stdio))
    assert await wait_for(process, Output(0), timeout=BOUND) == Waited(met=True, offset=1)
    assert await wait_for(process, Output(0)) == Waited(met=True, offset=1)
    assert not (await wait_for(process, Output(1), timeout=0.1)).met
    await process.submit()
    assert (await wait_for(process, Output(1), timeout=BOUND)).met
    await process.kill()
    await process.wait()
    end = process.end
    assert await wait_for(process, Output(end), timeout=BOUND) == Waited(met=False, offset=end)


@pytest.mark.requirement("design:place:wait")
async def test_until_text_across_pieces_and_escapes(place: Place) -> None:
    script = r"""
        for part in 'ERR' '\033[3' '1mOR' '\033[0m:' ' caf\303' '\251' ' ok\n' 'an' 'other\n' 'line'; do
            printf "$part"; sleep 0.03
        done; read x
    """
    process = await place.start(shell(script, Pty()))
    assert await said(process, "ERROR: café ok\n") == "ERROR: café ok\n"
    assert await said(process, "(?s)^ERROR.*another\nline$") == "ERROR: café ok\nanother\nline"
    waited = await wait_for(process, Text("caf."), timeout=BOUND)  # what is there already is found at once
    assert waited == Waited(met=True, offset=process.end, match="café")
    assert not (await wait_for(process, Text(re.compile("café"), process.end), timeout=0.1)).met


@pytest.mark.requirement("design:place:wait")
async def test_until_it_is_quiet(place: Place) -> None:
    loop = asyncio.get_running_loop()
    process = await place.start(shell("for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done; read x"))
    began = loop.time()
    assert await wait_for(process, Idle(0.4), timeout=BOUND) == Waited(met=True, offset=12)
    assert loop.time() - began >= 0.8
    assert process.idle_seconds >= 0.4


@pytest.mark.parametrize("until", [Output(1 << 40), Text(re.compile("never")), Idle(60), Prompt()], ids=repr)
@pytest.mark.requirement("design:place:wait-ended")
async def test_every_wait_ends_with_the_process(place: Place, until: Until) -> None:
    process = await place.start(shell("sleep 0.2; exit 1"))
    for _ in range(2):
        assert await wait_for(process, until, timeout=BOUND) == Waited(met=False, offset=0)
        assert process.exit_status == ExitStatus(1, None, Cause.EXITED)


@pytest.mark.parametrize("until", [Exit(), Output(1 << 40), Text(re.compile("never")), Idle(60), Prompt()], ids=repr)
@pytest.mark.requirement("design:place:wait-bounded")
async def test_running_out_of_time_is_a_result(place: Place, until: Until) -> None:
    process = await place.start(shell("exec sleep 100"))
    assert await wait_for(process, until, timeout=0.1) == Waited(met=False, offset=0)
    assert await wait_for(process, until, timeout=0) == Waited(met=False, offset=0)
    assert process.exit_status is None


@pytest.mark.parametrize(
    ("script", "waiting"),
    [
        ("read -p 'Name? ' x", WaitingForInput.YES),
        ("read -s -p 'Password: ' x", WaitingForInput.PASSWORD),
    ],
    ids=["certain", "password"],
)
@pytest.mark.requirement("design:place:look")
async def test_a_program_that_reads_is_waiting_for_certain(
    place: Place, script: str, waiting: WaitingForInput
) -> None:
    process = await place.start(shell(script, Pty()))
    waited = await wait_for(process, Prompt(), timeout=BOUND)
    assert waited.met
    assert (await process.read(0, waited.offset)).data.endswith((b"Name? ", b"Password: "))
    look = await process.look()
    assert (look.waiting, look.end) == (waiting, waited.offset)
    assert look.probe is not None
    assert process.pid in look.probe.foreground


@pytest.mark.requirement("design:place:look")
async def test_a_program_in_poll_is_only_likely_to_wait(place: Place) -> None:
    code = "import select, sys; print('> ', end=''); select.select([sys.stdin], [], [])"
    process = await place.start(Command(argv=python(code), stdio=Pty()))
    await said(process, "> ")
    assert (await wait_for(process, Prompt(), timeout=BOUND)).met
    look = await process.look()
    assert look.probe is not None
    assert (look.probe.reading, look.waiting) == (Certainty.UNKNOWN, WaitingForInput.LIKELY)
    await process.kill()
    await process.wait()
    gone = await process.look()
    assert (gone.probe, gone.waiting, gone.end) == (None, WaitingForInput.NO, process.end)


@pytest.mark.requirement("design:place:look")
async def test_a_program_that_works_is_not_waiting(place: Place) -> None:
    process = await place.start(shell("while :; do :; done", Pty()))
    assert not (await wait_for(process, Prompt(), timeout=0.5)).met
    assert (await process.look()).waiting is WaitingForInput.NO


@pytest.mark.requirement("design:place:look")
async def test_each_question_of_a_dialogue_is_a_new_prompt(place: Place) -> None:
    script = "printf 'A? '; read a; printf 'B? '; read b; printf 'C? '; read c"
    process = await place.start(shell(script, Pty()))
    for question in (b"A? ", b"B? ", b"C? "):
        waited = await wait_for(process, Prompt(), timeout=BOUND)
        assert waited.met
        assert (await process.read(0, waited.offset)).data.endswith(question)
        await process.submit("x")
    assert (await process.wait()).code == 0

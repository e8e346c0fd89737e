"""Several clients of one keeper: they see the same processes, and none of them is needed for a process to live on."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.helpers import alive, wait_until
from tests.keeper.places import BOUND, RELAY, Door, everything, said, shell
from tether.errors import (
    AmbiguousProcessError,
    InvalidCommandError,
    KeeperLostError,
    ProcessEndedError,
    UnknownProcessError,
)
from tether.keeper.client import open_distant_keeper, open_keeper
from tether.keeper.home import Home, KeeperLock
from tether.keeper.kept_process import KeptProcess
from tether.process.command import Command, Pty
from tether.process.exit_status import Cause, ExitStatus, Status
from tether.process.place import Stamp
from tether.process.waiting import Prompt, wait_for


@pytest.mark.requirement("design:keeper:shared")
async def test_two_clients_see_the_same_process_and_both_type_into_it(door: Door) -> None:
    async with door.open() as one, door.open() as other:
        process = await one.start(shell("stty -echo; echo ready; exec cat", Pty(70, 9)), name="shared")
        seen = await other.find("shared")
        assert (seen.id, seen.pid, seen.stdio, seen.command) == (
            process.id,
            process.pid,
            process.stdio,
            process.command,
        )
        await said(seen, "ready")
        await process.submit("from one")
        await said(seen, "from one")
        await seen.submit("from other")
        await said(process, "from other")
        await seen.resize(100, 20)
        assert [found.stdio for found in await one.processes()] == [Pty(100, 20)]
        await other.ask("end_input", process.id)
        assert await asyncio.gather(process.wait(), seen.wait()) == [ExitStatus(0, None, Cause.EXITED)] * 2


@pytest.mark.requirement("design:keeper:outlives")
async def test_a_process_outlives_its_client_and_is_found_again(door: Door) -> None:
    async with door.open() as client:
        process_id = (await client.start(shell("read go; echo went $go; exit 9"), name="later")).id
    async with door.open() as client:
        assert [(found.id, found.name) for found in await client.processes()] == [(process_id, "later")]
        process = await client.find(process_id)
        await process.submit("on")
        assert (await process.wait()).code == 9
    async with door.open() as client:
        again = await client.find("later")
        assert (again.id, again.exit_status) == (process_id, ExitStatus(9, None, Cause.EXITED))
        assert await everything(again) == b"went on\n"
        assert await client.processes(ended=False) == []


@pytest.mark.requirement("design:keeper:input-once")
async def test_input_is_taken_once_whoever_sends_it_again(door: Door) -> None:
    async with door.open() as one, door.open() as other:
        process = await one.start(Command(argv=("cat",)))
        await process.write(b"once\n", Stamp("w", 1))
        again = await other.find(process.id)
        await again.write(b"once\n", Stamp("w", 1))
        assert await again.last_number("w") == 1
        await again.end_input(Stamp("w", 2))
        await process.wait()
        assert await everything(process) == b"once\n"


@pytest.mark.requirement("design:keeper:shared")
async def test_clients_type_side_by_side_without_losing_anything(door: Door) -> None:
    async with door.open() as one, door.open() as other:
        process = await one.start(Command(argv=("cat",)))
        seen = await other.find(process.id)

        async def type_lines(name: str, into: KeptProcess) -> None:
            for number in range(50):
                await into.submit(f"{name} {number}")

        async with asyncio.TaskGroup() as group:
            group.create_task(type_lines("one", process))
            group.create_task(type_lines("other", seen))
        await process.end_input()
        await process.wait()
        lines = (await everything(process)).decode().splitlines()
        for name in ("one", "other"):
            assert [line for line in lines if line.startswith(name + " ")] == [f"{name} {n}" for n in range(50)]


@pytest.mark.requirement("design:keeper:shared")
async def test_what_one_releases_the_other_does_not_find_any_more(door: Door) -> None:
    async with door.open() as one, door.open() as other:
        process = await one.start(Command(argv=("true",)))
        await process.wait()
        seen = await other.find(process.id)
        await process.release()
        with pytest.raises(UnknownProcessError, match=f"no process '{process.id}'"):
            await other.find(process.id)
        with pytest.raises((UnknownProcessError, ProcessEndedError)):
            await seen.write(b"x")


@pytest.mark.requirement("design:keeper:reconnects")
async def test_a_connection_that_is_cut_is_made_again_and_nothing_is_lost_or_doubled(
    home: Home, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    relay = ("sh", "-c", f'echo $$ >>{pids}; exec "$@"', "sh", *RELAY)
    async with open_distant_keeper(relay) as client:
        process = await client.start(Command(argv=("cat",)))
        for cut in range(3):
            async with asyncio.TaskGroup() as group:
                for number in range(20):
                    group.create_task(process.submit(f"{cut} {number}"))
                await asyncio.sleep(0)
                os.kill(int(pids.read_text(encoding="ascii").split()[-1]), signal.SIGKILL)
        await process.end_input()
        assert (await asyncio.wait_for(process.wait(), BOUND)).code == 0
        assert len(pids.read_text(encoding="ascii").split()) == 4
        lines = (await everything(process)).decode().splitlines()
        assert lines == [f"{cut} {number}" for cut in range(3) for number in range(20)]


@pytest.mark.requirement("design:keeper:lost")
async def test_whoever_waits_learns_that_the_keeper_died(home: Home) -> None:
    async with open_keeper(home) as client:
        process = await client.start(shell("exec sleep 100"))
        pid = (await client.status()).pid
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(asyncio.wait_for(process.wait(), BOUND))
            os.kill(pid, signal.SIGKILL)
        assert waiting.result().cause is Cause.LOST
        assert process.status is Status.LOST
        await wait_until(lambda: not alive(process.pid))
        assert (await client.status()).pid != pid


@pytest.mark.requirement("design:keeper:lost")
async def test_without_any_keeper_nobody_waits_in_vain(home: Home) -> None:
    async with open_keeper(home) as other:
        pid = (await other.status()).pid
    async with open_keeper(home, start=False) as client:
        process = await client.start(shell("exec sleep 100"))
        os.kill(pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(KeeperLostError, match="the keeper is gone, and no other answers"):
                await asyncio.wait_for(process.wait(), BOUND)
        with pytest.raises(KeeperLostError):
            await client.status()
    async with open_keeper(home) as client:
        assert (await client.find(process.id)).status is Status.LOST


@pytest.mark.requirement("design:keeper:lost")
async def test_an_answer_that_the_end_has_overtaken_does_not_bring_a_process_back(door: Door) -> None:
    async with door.open() as client:
        process = await client.start(shell("read go; echo over"))
        before = process.record
        await process.submit()
        await process.wait()
        process.told(before)
        assert (process.exit_status, process.end) == (ExitStatus(0, None, Cause.EXITED), 5)
        assert (await asyncio.wait_for(process.wait(), BOUND)).code == 0


@pytest.mark.requirement("design:keeper:shut-down")
async def test_nobody_who_is_connected_calls_for_another_keeper_when_one_is_shut_down(door: Door) -> None:
    async with door.open() as client, door.open() as other:
        pid = (await client.status()).pid
        process = await client.start(shell("exec sleep 100"))
        watched = await other.find(process.id)
        assert await client.shut_down() == 1
        # Everybody hears how everything ended before the keeper goes.
        for told in (process, watched):
            assert (await asyncio.wait_for(told.wait(), BOUND)).cause is Cause.STOPPED
        await wait_until(lambda: not alive(pid))
        assert KeeperLock.holder(door.home) is None
        assert not alive(process.pid)
        assert (await other.find(process.id)).status is Status.KILLED  # who asks gets a new one


@pytest.mark.requirement("design:keeper:find")
async def test_a_process_goes_by_the_beginning_of_its_id_and_by_its_name(door: Door) -> None:
    ids = ["aaaa0000-0000-4000-8000-000000000001", "aaaa0000-0000-4000-8000-000000000002"]
    async with door.open() as client:
        for process_id in ids:
            await client.start(shell("read go"), process_id=process_id, name=f"twin {process_id[-1]}")
        single = await client.start(Command(argv=("true",)), process_id="bbbb" + ids[0][4:], name="single")
        assert await client.find("bb") is single
        assert (await client.find("single")).id == single.id
        with pytest.raises(InvalidCommandError, match=f"process {ids[0]} runs under the name 'twin 1'"):
            await client.start(shell("read go"), name="twin 1")
        for words in ("aaaa", "aaaa0000-"):
            with pytest.raises(AmbiguousProcessError) as caught:
                await client.find(words)
            assert (caught.value.process_id, sorted(caught.value.known)) == (words, ids)
        with pytest.raises(UnknownProcessError) as unknown:
            await client.find("")
        assert type(unknown.value) is UnknownProcessError


@pytest.mark.requirement("design:keeper:shared")
async def test_a_dialogue_goes_on_while_others_come_and_go(door: Door) -> None:
    async with door.open() as client:
        process = await client.start(shell('for q in A B C; do read -p "$q? " x; done', Pty()))
        for question in (b"A? ", b"B? ", b"C? "):
            waited = await wait_for(process, Prompt(), timeout=BOUND)
            assert waited.met
            async with door.open() as visitor:
                part = await (await visitor.find(process.id)).read(0, waited.offset)
                assert part.data.endswith(question)
            await process.submit("x")
        assert (await process.wait()).code == 0

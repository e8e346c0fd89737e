"""Programs that use the keeper are killed at random moments: what they started, read and typed loses nothing."""

import asyncio
import random
import uuid
from pathlib import Path

import pytest

from tests.helpers import python, wait_until
from tests.keeper.campaign import (
    BOUND,
    Faces,
    everything,
    kill,
    open_descriptors,
    open_faces,
    standard_streams,
    text_of,
    until,
)
from tests.keeper.faces import send_line
from tether.keeper.client import KeeperClient, open_keeper
from tether.keeper.home import Home
from tether.keeper.kept_process import KeptProcess
from tether.process.command import Command, OutputPolicy, Pty
from tether.process.exit_status import Cause, ExitStatus

CAPACITY = 1 << 30
LONGEST_LIFE = 0.25
# Writes numbered lines until it is told to end, then says how many there were.
WRITES_LINES = """
    import os, sys, time
    number = 0
    while not os.path.exists(sys.argv[1]):
        for _ in range(20):
            print("line", number)
            number += 1
        sys.stdout.flush()
        time.sleep(0.002)
    print("end", number)
    sys.exit(7)
"""
# Notes what it reads, line by line, and says when it can.
NOTES_LINES = """
    import sys
    with open(sys.argv[1], "w") as notes:
        print("ready", flush=True)
        for line in sys.stdin:
            notes.write(line)
"""


Role = tuple[str, dict[str, object]]


class Campaign:
    """Keeps some faces alive at a time, and kills them one after the other at random moments of their lives."""

    def __init__(self, faces: Faces, home: Home, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kills = 0
        self._faces = faces
        self._home = home

    async def kill(self, times: int, roles: list[Role], side_by_side: int) -> None:
        """Have faces of these roles killed so many times."""
        async with asyncio.TaskGroup() as group:
            for position in range(side_by_side):
                share = times // side_by_side + (position < times % side_by_side)
                group.create_task(self._kill_one_by_one(share, roles[position % len(roles) :] + roles))

    async def _kill_one_by_one(self, times: int, roles: list[Role]) -> None:
        for number in range(times):
            while True:
                role, options = roles[number % len(roles)]
                pid = await self._faces.begin(role, self._home, **options)
                await asyncio.sleep(self.chance.uniform(0, LONGEST_LIFE))
                if kill(pid):
                    self.kills += 1
                    break


async def start_writer(keeper: KeeperClient, stop: Path, *, pty: bool) -> KeptProcess:
    argv = (*python(WRITES_LINES), str(stop))
    streams = standard_streams(pty=pty)
    return await keeper.start(Command(argv=argv, root="/", output=OutputPolicy(CAPACITY), stdio=streams))


def end_writers(stop: Path) -> None:
    stop.touch()


async def whole(process: KeptProcess) -> int:
    """How many lines a writer wrote, all of which must be there, once, in order."""
    *lines, last = (await everything(process)).decode().splitlines()
    expected = [f"line {number}" for number in range(len(lines))]
    assert lines == expected
    assert last == f"end {len(lines)}"
    assert await process.gaps() == []
    return len(lines)


async def check_all_connect(keeper: KeeperClient, faces: Faces, home: Home, roles: list[Role]) -> None:
    """Each of these faces really is one: it comes to the keeper and stays there until it is killed."""
    pids = [await faces.begin(role, home, **options) for role, options in roles]

    async def connected(number: int) -> bool:
        return (await keeper.status()).connections == 1 + number

    await until(lambda: connected(len(roles)))
    assert all(map(kill, pids))
    await until(lambda: connected(0))


async def kill_readers(home: Home, times: int, stop: Path) -> None:
    async with open_keeper(home) as keeper, open_faces() as faces:
        writers = [await start_writer(keeper, stop, pty=pty) for pty in (False, True, False, True)]
        descriptors = len(open_descriptors((await keeper.status()).pid))
        campaign = Campaign(faces, home, seed=times)
        roles: list[Role] = [("follow", {"process": process.id}) for process in writers]
        for process in writers:
            roles.append(("tether", {"words": ["logs", "--follow", process.id]}))
            if isinstance(process.stdio, Pty):
                roles.append(("attach", {"words": ["attach", process.id]}))
        await check_all_connect(keeper, faces, home, roles)
        campaign.chance.shuffle(roles)
        await campaign.kill(times, roles, side_by_side=5)
        end_writers(stop)
        for process in writers:
            assert await asyncio.wait_for(process.wait(), BOUND) == ExitStatus(7, None, Cause.EXITED)
            assert await whole(process) > 1000
        assert campaign.kills == times
        pid = (await keeper.status()).pid
        await wait_until(lambda: len(open_descriptors(pid)) <= descriptors)


@pytest.mark.requirement("design:keeper:faces-killed")
@pytest.mark.timeout(150)
async def test_no_line_is_lost_or_doubled_although_readers_are_killed_two_hundred_times(
    home: Home, tmp_path: Path
) -> None:
    await kill_readers(home, 200, tmp_path / "stop")


@pytest.mark.requirement("design:keeper:faces-killed")
@pytest.mark.parametrize("pty", [False, True], ids=["pipes", "terminal"])
async def test_a_process_whose_starter_is_killed_runs_to_its_end(home: Home, tmp_path: Path, *, pty: bool) -> None:
    stop, process_id = tmp_path / "stop", str(uuid.uuid4())
    async with open_keeper(home) as keeper, open_faces() as faces:
        argv = [*python(WRITES_LINES), str(stop)]
        face = await faces.begin("start", home, process=process_id, argv=argv, pty=pty)
        process = await found(keeper, process_id)
        await asyncio.wait_for(process.grown_or_ended(0), BOUND)
        assert kill(face)
        await asyncio.wait_for(process.grown_or_ended(process.end), BOUND)
        end_writers(stop)
        assert (await asyncio.wait_for(process.wait(), BOUND)).code == 7
        assert await whole(process)


async def found(keeper: KeeperClient, process_id: str) -> KeptProcess:
    """That process, once it is there."""
    async with asyncio.timeout(BOUND):
        while True:
            for process in await keeper.processes():
                if process.id == process_id:
                    return process


@pytest.mark.requirement("design:keeper:start-once")
@pytest.mark.timeout(120)
async def test_a_start_that_is_tried_again_after_a_kill_never_runs_the_command_twice(
    home: Home, tmp_path: Path
) -> None:
    chance = random.Random(1)
    journal: list[str] = []
    retried = 0
    async with open_keeper(home) as keeper, open_faces() as faces:

        async def start_with_kills(times: int) -> None:
            nonlocal retried
            for number in range(times):
                process_id = str(uuid.uuid4())
                journal.append(process_id)
                argv = ["/bin/sh", "-c", 'echo ran >>"$0"', str(tmp_path / process_id)]
                for _ in range(2):
                    face = await faces.begin("start", home, process=process_id, argv=argv)
                    if number % 3 == 1:
                        await asyncio.sleep(chance.uniform(0, 0.1))
                    elif number % 3 == 2:
                        await found(keeper, process_id)
                    kill(face)
                before = {process.id for process in await keeper.processes()}
                retried += process_id not in before
                process = await keeper.start(Command(argv=tuple(argv), root="/"), process_id=process_id)
                assert (await asyncio.wait_for(process.wait(), BOUND)).code == 0

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(start_with_kills(10))
        assert sorted(process.id for process in await keeper.processes()) == sorted(journal)
    assert [(tmp_path / process_id).read_text() for process_id in journal] == ["ran\n"] * len(journal)
    assert 0 < retried < len(journal)  # some were killed before, some after the command had begun


@pytest.mark.requirement("design:keeper:detached-start-killed")
async def test_tether_run_detached_and_killed_leaves_a_whole_process_or_none(home: Home, tmp_path: Path) -> None:
    chance = random.Random(2)
    async with open_keeper(home) as keeper, open_faces() as faces:

        async def run_and_kill(number: int) -> None:
            words = ["run", "--detach", "--name", f"n{number}", "--", "sh", "-c", 'echo ran >>"$0"; echo out; exit 7']
            face = await faces.begin("tether", home, words=[*words, str(tmp_path / f"ran-{number}")])
            await asyncio.sleep(chance.uniform(0, LONGEST_LIFE))
            kill(face)

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(run_and_kill(number))
        processes = await keeper.processes()
        names = {process.name for process in processes}
        assert len(names) == len(processes)
        for process in processes:
            assert (await asyncio.wait_for(process.wait(), BOUND)).code == 7
            assert await everything(process) == b"out\n"
        for number in range(20):
            ran = tmp_path / f"ran-{number}"
            assert (ran.read_text() if ran.exists() else "") == ("ran\n" if f"n{number}" in names else "")


@pytest.mark.requirement("design:keeper:typing-killed")
@pytest.mark.timeout(150)
async def test_what_is_typed_arrives_once_and_in_order_although_the_typist_is_killed_a_hundred_times(
    home: Home, tmp_path: Path
) -> None:
    async with open_keeper(home) as keeper, open_faces() as faces:

        async def type_with_kills(notes: Path, argv: tuple[str, ...], *, pty: bool) -> None:
            streams = standard_streams(pty=pty)
            process = await keeper.start(Command(argv=argv, root="/", output=OutputPolicy(CAPACITY), stdio=streams))
            campaign = Campaign(faces, home, seed=len(argv))
            await campaign.kill(50, [("feed", {"process": process.id, "writer": "w"})], side_by_side=1)
            assert campaign.kills == 50
            taken = await process.last_number("w")
            for number in range(taken + 1, taken + 11):
                await send_line(process.write, "w", number)
            await process.end_input()
            assert (await asyncio.wait_for(process.wait(), BOUND)).code == 0
            assert text_of(notes).splitlines() == [f"line {number}" for number in range(1, taken + 11)]
            assert taken > 100

        async with asyncio.TaskGroup() as group:
            pipe, terminal = tmp_path / "pipe", tmp_path / "terminal"
            group.create_task(type_with_kills(pipe, ("sh", "-c", 'cat >"$0"', str(pipe)), pty=False))
            group.create_task(type_with_kills(terminal, (*python(NOTES_LINES), str(terminal)), pty=True))

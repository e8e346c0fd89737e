"""What happens when the keeper itself ends: killed, told to, frozen, idle, or cut off from its socket."""

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers import alive, python, wait_until
from tests.keeper.campaign import (
    BOUND,
    everything,
    exists,
    keeper_pid,
    kill_keeper,
    members,
    standard_streams,
    start_driven,
)
from tether.errors import KeeperLostError, KeeperUnavailableError
from tether.keeper.client import KeeperClient, open_keeper
from tether.keeper.home import Home
from tether.keeper.kept_process import KeptProcess
from tether.keeper.lease import Owned
from tether.process.command import Command, Pty
from tether.process.exit_status import Cause, ExitStatus, Status
from tether.process.run import execute

LOST = ExitStatus(None, None, Cause.LOST)
SILENT = ("/bin/sh", "-c", "echo hello; exec sleep 1000")
# On a pipe as on a terminal, with a descendant in the background, and nobody of them ever writes again.
WITH_CHILD = ("/bin/sh", "-c", "echo hello; sleep 1000 & wait")


async def started(keeper: KeeperClient, argv: tuple[str, ...], *, pty: bool) -> KeptProcess:
    """A process that has said hello."""
    process = await keeper.start(Command(argv=argv, root="/", stdio=standard_streams(pty=pty)))
    await asyncio.wait_for(process.grown_or_ended(0), BOUND)
    return process


@pytest.mark.requirement("design:keeper:killed")
async def test_a_killed_keeper_leaves_nothing_running_and_every_log(home: Home) -> None:
    async with open_keeper(home) as keeper:
        terminal = await started(keeper, WITH_CHILD, pty=True)
        pipes = await started(keeper, WITH_CHILD, pty=False)
        ended = await started(keeper, ("/bin/sh", "-c", "echo hello; exit 7"), pty=False)
        assert (await asyncio.wait_for(ended.wait(), BOUND)).code == 7
    await kill_keeper(home)
    await wait_until(lambda: not alive(terminal.pid))  # nobody had to come for that
    assert alive(pipes.pid)
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        assert members(pipes.id) == []
        assert members(terminal.id) == []
        found = await keeper.processes(ended=True)
        assert [(one.id, one.status) for one in found] == [
            (terminal.id, Status.LOST),
            (pipes.id, Status.LOST),
            (ended.id, Status.COMPLETED),
        ]
        assert [await everything(one) for one in found] == [b"hello\r\n", b"hello\n", b"hello\n"]
        assert await keeper.processes(ended=False) == []
        assert all(one.survivors == () for one in found)


@pytest.mark.requirement("design:keeper:killed")
async def test_the_next_keeper_tells_the_same_of_what_had_ended(home: Home) -> None:
    async with open_keeper(home) as keeper:
        command = Command(argv=("/bin/sh", "-c", "echo hello; exit 7"), root="/", timeout=60, stdio=Pty(100, 20))
        process = await keeper.start(command, name="short", lease=Owned("nobody", 60), guest=True)
        await asyncio.wait_for(process.wait(), BOUND)
        before = process.record
    await kill_keeper(home)
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        after = (await keeper.find(process.id)).record
    assert replace(after, idle_seconds=0) == replace(before, idle_seconds=0)


@pytest.mark.requirement("design:keeper:client-finds-next")
async def test_a_client_goes_on_with_the_next_keeper_and_learns_what_was_lost(home: Home) -> None:
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        terminal = await started(keeper, SILENT, pty=True)
        pipes = await started(keeper, SILENT, pty=False)
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(one.wait()) for one in (terminal, pipes)]
            follows = [group.create_task(one.grown_or_ended(one.end)) for one in (terminal, pipes)]
            before = await kill_keeper(home)
        assert [wait.result() for wait in waits] == [LOST, LOST]
        assert all(follow.done() for follow in follows)
        assert (terminal.status, pipes.status) == (Status.LOST, Status.LOST)
        assert members(pipes.id) == []
        assert (await keeper.status()).pid not in (0, before)
        another = await started(keeper, ("/bin/sh", "-c", "echo hello; exit 5"), pty=False)
        assert (await another.wait()).code == 5
        assert await everything(pipes) == b"hello\n"


@pytest.mark.requirement("design:keeper:client-finds-next")
async def test_a_client_that_may_not_start_a_keeper_is_told_in_one_sentence(home: Home) -> None:
    with pytest.raises(KeeperUnavailableError, match=r"^no keeper runs for '.*'; start something with `tether run`$"):
        async with open_keeper(home, start=False):
            pass
    async with open_keeper(home) as keeper:
        mine = await started(keeper, SILENT, pty=True)
    async with asyncio.timeout(BOUND), open_keeper(home, start=False) as keeper:
        process = await keeper.find(mine.id)
        async with asyncio.TaskGroup() as group:
            wait = group.create_task(failure_of(process))
            await kill_keeper(home)
        for error in (wait.result(), await failure_of(process), await failure_of_asking(keeper)):
            assert "\n" not in error
            assert error.startswith("the keeper is gone, and no other answers: no keeper runs for ")
        assert await everything(process) == b"hello\r\n"
        assert not keeper_pid(home)


async def failure_of(process: KeptProcess) -> str:
    with pytest.raises(KeeperLostError) as raised:
        await process.wait()
    return str(raised.value)


async def failure_of_asking(keeper: KeeperClient) -> str:
    with pytest.raises(KeeperLostError) as raised:
        await keeper.status()
    return str(raised.value)


@pytest.mark.requirement("design:keeper:frozen")
async def test_a_keeper_that_stood_still_for_a_while_has_lost_nothing(home: Home) -> None:
    lines = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        quick = Command(argv=("/bin/sh", "-c", f"read go; {lines}; exit 7"), root="/")
        short = [await keeper.start(Command(argv=("/bin/sh", "-c", "read go; exit 9"), root="/")) for _ in range(10)]
        processes = [await keeper.start(quick), await keeper.start(Command(argv=quick.argv, root="/", stdio=Pty()))]
        pid = keeper_pid(home)
        for process in (*processes, *short):
            await process.write(b"go\n")
        os.kill(pid, signal.SIGSTOP)
        await wait_until(lambda: not any(alive(one.pid) for one in short))
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(keeper.status())
            waits = [group.create_task(one.wait()) for one in (*processes, *short)]
            await asyncio.sleep(0)
            assert not asked.done()
            os.kill(pid, signal.SIGCONT)
        assert asked.result().pid == pid
        assert [wait.result().code for wait in waits] == [7, 7, *[9] * 10]
        expected = [b"line %d" % number for number in range(20000)]
        for process in processes:
            assert [line for line in (await everything(process)).splitlines() if line != b"go"] == expected


@pytest.mark.requirement("design:keeper:told-to-end")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_keeper_that_is_told_to_end_ends_everything_and_writes_it_down(
    home: Home, number: signal.Signals
) -> None:
    async with open_keeper(home) as keeper:
        processes = [await started(keeper, WITH_CHILD, pty=pty) for pty in (False, True)]
        stubborn = await started(
            keeper, ("/bin/sh", "-c", "trap '' TERM HUP; echo hello; sleep 1000 & wait; wait"), pty=False
        )
        ended = await started(keeper, ("/bin/sh", "-c", "echo hello; exit 7"), pty=False)
        assert (await asyncio.wait_for(ended.wait(), BOUND)).code == 7
        pid = keeper_pid(home)
    os.kill(pid, number)
    await wait_until(lambda: not alive(pid))
    assert not exists(home.socket_name)
    assert [members(one.id) for one in (*processes, stubborn)] == [[], [], []]
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        found = {one.id: one for one in await keeper.processes()}
        assert found[ended.id].status is Status.COMPLETED
        for one in (*processes, stubborn):
            status = found[one.id].exit_status
            assert status is not None
            assert (found[one.id].status, status.cause) == (Status.KILLED, Cause.STOPPED)
            assert (await everything(found[one.id])).split() == [b"hello"]


@pytest.mark.requirement("design:keeper:idle")
async def test_a_keeper_that_nobody_needs_ends_and_the_next_one_knows_everything(home: Home) -> None:
    pid = await start_driven(home, idle=3.0)
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        stays = await started(keeper, ("/bin/sh", "-c", "echo hello; read line; exit 7"), pty=False)
    assert keeper_pid(home) == pid
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        process = await keeper.find(stays.id)
        assert process.status is Status.RUNNING  # somebody needs it: it had not ended
        await process.write(b"\n")
        assert (await process.wait()).code == 7
        assert (await keeper.status()).pid == pid
    await wait_until(lambda: not alive(pid))
    assert not exists(home.socket_name)
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        (found,) = await keeper.processes()
        assert (found.id, found.exit_status, await everything(found)) == (stays.id, process.exit_status, b"hello\n")
        assert (await keeper.status()).pid != pid


@pytest.mark.requirement("design:keeper:socket-removed")
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_removed_socket_is_bound_again_and_old_connections_live_on(home: Home, *, replaced: bool) -> None:
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        process = await started(keeper, SILENT, pty=False)
        pid = (await keeper.status()).pid
        path = home.socket_path
        before = os.stat(path).st_ino
        os.unlink(path)
        if replaced:
            leave_file(Path(path))
        assert (await keeper.status()).pid == pid
        async with open_keeper(home) as late:
            assert (await late.status()).pid == pid
            assert (await late.find(process.id)).status is Status.RUNNING
        await wait_until(lambda: os.path.exists(path) and os.stat(path).st_ino != before)
        assert os.stat(path).st_mode & 0o777 == 0o600
        assert (await keeper.status()).pid == pid


def leave_file(path: Path) -> None:
    path.write_text("not a socket")


OPENS = """
import asyncio, sys
from tether.keeper.client import open_keeper
from tether.keeper.home import Home
from tether.process.command import Command

async def main():
    async with open_keeper(Home.of(sys.argv[1])) as keeper:
        process = await keeper.start(Command(argv=("/bin/sh", "-c", "echo hello; exit 7"), root="/"))
        assert (await process.wait()).code == 7
        print((await keeper.status()).pid, process.id)

asyncio.run(main())
"""


@pytest.mark.requirement("design:keeper:one")
async def test_ten_programs_at_once_get_one_keeper(home: Home) -> None:
    programs = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", OPENS, home.path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(10)
    ]
    said = await asyncio.wait_for(asyncio.gather(*(program.communicate() for program in programs)), BOUND)
    assert [(program.returncode, errors) for program, (_, errors) in zip(programs, said, strict=True)] == [
        (0, b"")
    ] * 10
    pids, ids = zip(*(output.decode().split() for output, _ in said), strict=True)
    assert set(map(int, pids)) == {keeper_pid(home)}
    async with open_keeper(home) as keeper:
        assert sorted(one.id for one in await keeper.processes()) == sorted(ids)


FLOOD = """
import asyncio, os, signal
from tether.keeper.keeper import expect_many_signals

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, lambda: None)
    expect_many_signals()
    for _ in range(20_000):
        os.kill(os.getpid(), signal.SIGCHLD)

asyncio.run(main())
"""


@pytest.mark.requirement("design:keeper:told-to-end")
async def test_more_signals_than_the_loop_can_note_bring_no_complaint_from_within_their_handler() -> None:
    """That complaint takes a lock which the interrupted code may hold: the keeper would wait for itself."""
    result = await execute(Command(argv=python(FLOOD)))
    assert (result.exit_code, result.stderr) == (0, "")

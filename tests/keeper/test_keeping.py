"""What only a kept process has: a lease, a name, its starter's umask, and nobody it is a descendant of."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.helpers import alive, wait_until
from tests.keeper.places import BOUND, everything, said, shell
from tether.errors import AmbiguousProcessError, InvalidCommandError, UnknownProcessError
from tether.keeper.client import open_keeper
from tether.keeper.home import Home
from tether.keeper.kept_process import KeptProcess
from tether.keeper.lease import FOREVER, Owned
from tether.process.command import COOKIE, Command, Pipes
from tether.process.exit_status import Cause

SLEEP = Command(argv=("sleep", "1000"))


@pytest.mark.requirement("design:keeper:lease")
async def test_what_is_owned_ends_when_its_owner_leaves_and_the_rest_lives_on(home: Home) -> None:
    async with open_keeper(home, owners=["one", "two"]) as keeper:
        ours = await keeper.start(SLEEP, lease=Owned("one"))
        kept = await keeper.start(SLEEP, lease=Owned("one"))
        other = await keeper.start(SLEEP, lease=Owned("two"))
        forever = await keeper.start(SLEEP)
        await kept.keep(FOREVER)
        await keeper.leave("one")
        async with asyncio.timeout(BOUND):
            assert (await ours.wait()).cause is Cause.STOPPED
        assert [process.exit_status for process in (kept, other, forever)] == [None, None, None]
        assert all(alive(process.pid) for process in (kept, other, forever))


@pytest.mark.requirement("design:keeper:lease")
async def test_what_is_owned_ends_some_time_after_nobody_holds_its_owner(home: Home) -> None:
    async with open_keeper(home) as watcher:
        async with open_keeper(home, owners=["me"]) as keeper:
            short = (await keeper.start(SLEEP, lease=Owned("me", 1.0))).id
            long = (await keeper.start(SLEEP, lease=Owned("me", 900.0))).id
            watched = await watcher.find(short)
            # Held for longer than the lease lasts without a holder.
            assert not await ends_within(watched, 2.5)
        async with asyncio.timeout(BOUND):
            assert (await watched.wait()).cause is Cause.STOPPED
        assert (await watcher.find(long)).exit_status is None


async def ends_within(process: KeptProcess, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return False
    return True


@pytest.mark.requirement("design:keeper:find")
async def test_a_process_is_found_by_the_beginning_of_its_id_and_by_its_name(home: Home) -> None:
    async with open_keeper(home) as keeper:
        first = await keeper.start(SLEEP, process_id="aaaa1111-0000-4000-8000-000000000001", name="web")
        second = await keeper.start(SLEEP, process_id="aaaa2222-0000-4000-8000-000000000002", name="db")
        third = await keeper.start(SLEEP, process_id="bbbb0000-0000-4000-8000-000000000003", name="aaaa1")
        assert (await keeper.find("aaaa1")) is third  # what somebody called it comes before the beginning of an id
        assert (await keeper.find("aaaa11")) is first
        assert (await keeper.find("web")) is first
        assert (await keeper.find("b")) is third
        with pytest.raises(AmbiguousProcessError, match="'aaaa' stands for several"):
            await keeper.find("aaaa")
        with pytest.raises(AmbiguousProcessError, match=second.id):
            await keeper.find("aa")
        for name, reason in (("db", f"{second.id} runs under the name 'db'"), ("a\nb", "impossible name")):
            with pytest.raises(InvalidCommandError, match=reason):
                await keeper.start(SLEEP, name=name)
        for nobody in ("", "zzz", "../aaaa1"):
            with pytest.raises(UnknownProcessError, match=first.id):
                await keeper.find(nobody)
        await first.stop()
        assert (await keeper.find("web")).id == first.id


@pytest.mark.requirement("design:keeper:umask")
async def test_a_child_has_the_umask_of_its_starter(home: Home) -> None:
    before = os.umask(0o027)
    try:
        async with open_keeper(home) as keeper:
            process = await keeper.start(shell("umask"))
            await process.wait()
            assert await everything(process) == b"0027\n"
    finally:
        os.umask(before)


@pytest.mark.requirement("design:keeper:no-descendant")
async def test_what_is_started_from_within_a_kept_process_does_not_end_with_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_keeper(home) as keeper:
        outer = await keeper.start(SLEEP)
        monkeypatch.setenv(COOKIE, outer.id)
        inner = await keeper.start(shell(f"echo ${COOKIE}; sleep 1000"))
        await said(inner, f"(?m)^{inner.id}$")
        await outer.stop()
        assert alive(inner.pid)
        assert inner.exit_status is None


@pytest.mark.requirement("design:keeper:no-descendant")
async def test_a_kept_process_cannot_read_the_stdin_of_its_starter(home: Home) -> None:
    async with open_keeper(home) as keeper:
        with pytest.raises(InvalidCommandError, match="cannot read its starter's stdin"):
            await keeper.start(Command(argv=("cat",), stdio=Pipes(inherit_stdin=True)))
        assert await keeper.processes() == []


@pytest.mark.requirement("design:keeper:daemons")
async def test_a_daemon_that_holds_the_output_is_still_heard_after_the_end(home: Home, tmp_path: Path) -> None:
    fifo = f"{tmp_path}/go"
    os.mkfifo(fifo)
    async with open_keeper(home) as keeper:
        process = await keeper.start(shell(f"(read go <{fifo}; echo later) & echo now; exit 4"))
        async with asyncio.timeout(BOUND):
            assert (await process.wait()).code == 4
        assert (await process.read()).data == b"now\n"
        writing = await asyncio.to_thread(os.open, fifo, os.O_WRONLY)
        os.write(writing, b"go\n")
        os.close(writing)
        async with asyncio.timeout(BOUND):
            while (await process.read()).data != b"now\nlater\n":  # noqa: ASYNC110 - nobody tells of what comes after the end
                await asyncio.sleep(0.01)
        await wait_until(lambda: not os.path.exists(f"/proc/{process.pid}"))

"""The keeper is killed at every named point of its own book-keeping; the next one finds a world that makes sense."""

import asyncio
import os
import uuid
from pathlib import Path

import pytest

from tests.helpers import wait_until
from tests.keeper.campaign import (
    BOUND,
    driven,
    everything,
    exists,
    kill_keeper,
    members,
    standard_streams,
    start_driven,
    text_of,
    until,
)
from tether.errors import UnknownProcessError
from tether.keeper.client import KeeperClient, open_keeper
from tether.keeper.home import Home
from tether.keeper.kept_process import KeptProcess
from tether.keeper.launch import launch
from tether.process.command import Command, Pipes, Pty
from tether.process.exit_status import Cause, ExitStatus, Status

SAYS_AND_STAYS = ("/bin/sh", "-c", 'echo ran >>"$0"; echo hello; exec sleep 1000')
SAYS_AND_ENDS_WHEN_TOLD = ("/bin/sh", "-c", "echo hello; read line; echo bye; exit 7")
LOST = ExitStatus(None, None, Cause.LOST)
SEVEN = ExitStatus(7, None, Cause.EXITED)

KEEPING, TABLE = "tether.keeper.keeping", "tether.process.table"
FILES = "tether.process._log_format"
SHELF, SWEEP = "tether.keeper.retention:Shelf", "tether.keeper.sweep"

# Where a start can be cut off, and whether a start that is tried again runs the command.
STARTING = [
    (f"{KEEPING}:create_record", "before", True),
    ("os:mkdir", "after", True),
    (f"{FILES}:open_file", "after", True),
    (f"{FILES}:write_at", "half", True),
    (f"{FILES}:write_at", "after", False),
    (f"{KEEPING}:create_record", "after", False),
    (f"{TABLE}:OutputLog", "after", False),
    (f"{TABLE}:start_child", "before", False),
    (f"{TABLE}:start_child", "after", False),
    (f"{TABLE}:Process.begin", "before", False),
    (f"{TABLE}:Process.begin", "after", False),
    (f"{KEEPING}:ProcessTable.start", "after", False),
    (f"{KEEPING}:write_running", "before", False),
    (f"{KEEPING}:write_running", "after", False),
    ("tether.keeper.requests:Requests._start", "after", False),
]
# Where the end of a process can be cut off, and what is known of it afterwards.
ENDING = [
    (f"{KEEPING}:Keeping.ended", "before", LOST),
    (f"{KEEPING}:write_end", "before", LOST),
    (f"{KEEPING}:write_end", "after", SEVEN),
    (f"{KEEPING}:Keeping.ended", "after", SEVEN),
    (f"{KEEPING}:Keeping._settle", "before", SEVEN),
    (f"{TABLE}:ProcessTable.retire", "before", SEVEN),
    (f"{TABLE}:ProcessTable.retire", "after", SEVEN),
    (f"{SHELF}.add", "before", SEVEN),
    (f"{SHELF}.add", "after", SEVEN),
    (f"{KEEPING}:Keeping._settle", "after", SEVEN),
]
# Where forgetting can be cut off, and whether the process is known afterwards unless somebody asks again.
FORGETTING = [
    (f"{SHELF}.forget", "before"),
    (f"{SHELF}._drop", "after"),
    (f"{SHELF}._remove_rest", "before"),
    (f"{SHELF}._remove_rest", "after"),
    (f"{SHELF}.forget", "after"),
]
# Where the take-over by the next keeper can be cut off.
TAKING_OVER = [
    (f"{SHELF}.load", "after"),
    (f"{SWEEP}:end_trees", "before"),
    (f"{SWEEP}:end_trees", "after"),
    (f"{SWEEP}:write_end", "before"),
    (f"{SWEEP}:write_end", "after"),
    (f"{KEEPING}:end_runaways", "after"),
    (f"{SHELF}.add", "after"),
    (f"{SHELF}.sweep", "after"),
]


class CrashPoint:
    """One call at which a keeper is killed once it is armed."""

    def __init__(self, directory: Path, target: str, when: str) -> None:
        self._armed, self._crashed = directory / "armed", directory / "crashed"
        self.options = {"crash": target, "when": when, "armed": str(self._armed), "crashed": str(self._crashed)}

    def arm(self) -> None:
        self._armed.touch()

    @property
    def reached(self) -> bool:
        return self._crashed.exists()


def stdio_of(kind: str) -> Pipes | Pty:
    return standard_streams(pty=kind == "terminal")


async def is_another(keeper: KeeperClient, first: int) -> bool:
    """Whether the keeper that answers is not the first one any more."""
    return (await keeper.status()).pid != first


async def check_world(keeper: KeeperClient, tmp_path: Path, process: KeptProcess) -> None:
    """Whatever became of `process`: everybody is told the same, its log can be read, and the keeper keeps on."""
    listed = [one for one in await keeper.processes() if one.id == process.id]
    assert listed == [process]
    again = await keeper.start(process.command, process_id=process.id)
    assert (again.status, again.started_at, again.pid) == (process.status, process.started_at, process.pid)
    assert await keeper.find(process.id[:13]) is process
    assert b"hello\r\n".startswith((await everything(process)).replace(b"hello\n", b"hello\r\n")[:7])
    other = await keeper.start(Command(argv=("/bin/sh", "-c", "echo other; exit 3"), root="/"))
    assert (await asyncio.wait_for(other.wait(), BOUND)).code == 3
    assert await everything(other) == b"other\n"
    await other.release()
    if process.status is not Status.RUNNING:
        assert members(process.id) == []
        await process.release()
        assert await keeper.processes() == []
        assert not exists(process.directory)


@pytest.mark.requirement("design:keeper:crash-points")
@pytest.mark.parametrize("kind", ["pipes", "terminal"])
@pytest.mark.parametrize(("target", "when", "runs"), STARTING)
async def test_a_keeper_killed_while_it_starts_a_process(
    home: Home, tmp_path: Path, target: str, when: str, kind: str, *, runs: bool
) -> None:
    point, ran = CrashPoint(tmp_path, target, when), tmp_path / "ran"
    first = await start_driven(home, **point.options)
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        command = Command(argv=(*SAYS_AND_STAYS, str(ran)), root="/", stdio=stdio_of(kind))
        process_id = str(uuid.uuid4())
        point.arm()
        process = await keeper.start(command, process_id=process_id)
        await wait_until(lambda: point.reached)
        await until(lambda: is_another(keeper, first))
        assert process.id == process_id
        if runs:
            assert process.status is Status.RUNNING
            await wait_until(lambda: text_of(ran))
            assert process.pid in members(process_id)
        else:
            assert await process.wait() == LOST
            assert members(process_id) == []
        await check_world(keeper, tmp_path, process)
    assert text_of(ran) in ("ran\n", "" if not runs else None)


@pytest.mark.requirement("design:keeper:crash-points")
@pytest.mark.parametrize("kind", ["pipes", "terminal"])
@pytest.mark.parametrize(("target", "when", "expected"), ENDING)
async def test_a_keeper_killed_while_a_process_ends(
    home: Home, tmp_path: Path, target: str, when: str, kind: str, expected: ExitStatus
) -> None:
    point = CrashPoint(tmp_path, target, when)
    first = await start_driven(home, **point.options)
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        process = await keeper.start(Command(argv=SAYS_AND_ENDS_WHEN_TOLD, root="/", stdio=stdio_of(kind)))
        await process.grown_or_ended(0)
        point.arm()
        await process.write(b"\n")
        assert await process.wait() == expected
        await wait_until(lambda: point.reached)
        await until(lambda: is_another(keeper, first))
        assert (await everything(process)).split() == [b"hello", b"bye"]
        assert process.end == len(await everything(process))
        await check_world(keeper, tmp_path, process)


@pytest.mark.requirement("design:keeper:crash-points")
@pytest.mark.parametrize(("target", "when"), FORGETTING)
async def test_a_keeper_killed_while_it_forgets(home: Home, tmp_path: Path, target: str, when: str) -> None:
    point = CrashPoint(tmp_path, target, when)
    await start_driven(home, **point.options)
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        kept = await keeper.start(Command(argv=("/bin/sh", "-c", "echo kept; exit 3"), root="/"))
        process = await keeper.start(Command(argv=("/bin/sh", "-c", "echo hello; exit 7"), root="/"))
        assert (await kept.wait(), await process.wait()) == (ExitStatus(3, None, Cause.EXITED), SEVEN)
        point.arm()
        try:
            await process.release()
        except UnknownProcessError:  # the keeper that did it could not say so any more
            assert not exists(os.path.join(process.directory, "record"))
        assert point.reached
        assert [one.id for one in await keeper.processes()] == [kept.id]
        assert await everything(kept) == b"kept\n"
        assert (await keeper.find(kept.id)).exit_status == ExitStatus(3, None, Cause.EXITED)
        again = await keeper.start(Command(argv=("/bin/sh", "-c", "echo again"), root="/"), process_id=process.id)
        assert (await again.wait()).code == 0
        assert await everything(again) == b"again\n"


@pytest.mark.requirement("design:keeper:crash-points")
@pytest.mark.parametrize(("target", "when"), TAKING_OVER)
async def test_a_keeper_killed_while_it_takes_over_from_one_that_was_killed(
    home: Home, tmp_path: Path, target: str, when: str
) -> None:
    point, ran = CrashPoint(tmp_path, target, when), tmp_path / "ran"
    async with open_keeper(home) as keeper:
        process = await keeper.start(Command(argv=(*SAYS_AND_STAYS, str(ran)), root="/"))
        await asyncio.wait_for(process.grown_or_ended(0), BOUND)
    await kill_keeper(home)
    assert members(process.id) == [process.pid]
    point.arm()
    launch(home, driven(home, **point.options))
    await wait_until(lambda: point.reached)
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        found = await keeper.find(process.id)
        assert found.exit_status == LOST
        assert members(process.id) == []
        assert await everything(found) == b"hello\n"
        assert found.end == 6
        await check_world(keeper, tmp_path, found)


@pytest.mark.requirement("design:keeper:crash-points")
@pytest.mark.parametrize("kind", ["pipes", "terminal"])
async def test_a_keeper_killed_right_after_it_put_output_into_the_log(home: Home, tmp_path: Path, kind: str) -> None:
    point = CrashPoint(tmp_path, "tether.process.output:OutputLog.append", "after")
    await start_driven(home, **point.options)
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        process = await keeper.start(
            Command(
                argv=("/bin/sh", "-c", "echo hello; while read line; do echo $line; done"),
                root="/",
                stdio=stdio_of(kind),
            )
        )
        await process.grown_or_ended(0)
        told = process.end
        point.arm()
        await process.write(b"these words\n")
        assert await process.wait() == LOST
        assert point.reached
        output = await everything(process)
        assert len(output) > told
        assert b"hello" in output
        assert b"these words" in output
        await check_world(keeper, tmp_path, process)

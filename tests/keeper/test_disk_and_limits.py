"""The keeper where the system has nothing left to give: disk, descriptors, processes, or a clock one can trust."""

import asyncio
import contextlib
import itertools
import os
import re
import resource
import time
import uuid
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.helpers import alive, python, wait_until
from tests.keeper.campaign import (
    BOUND,
    everything,
    keeper_pid,
    kept_home,
    open_descriptors,
    standard_streams,
    start_driven,
    text_of,
    until,
)
from tests.process.test_output_full_disk import small_disk
from tether.errors import StartError, TooManyOpenFilesError, TooManyProcessesError
from tether.keeper.client import KeeperClient, open_keeper
from tether.keeper.home import Home
from tether.keeper.kept_process import KeptProcess
from tether.keeper.lease import Owned
from tether.process.command import Command, OutputPolicy, Pipes, Pty
from tether.process.exit_status import Cause, Status

MIB = 1024 * 1024
DAY = 24 * 3600
CAPACITY = 1 << 30
# Writes as many lines of 100 bytes as it is told to, and says so elsewhere once it has written them.
WRITES_WHEN_TOLD = """
    import sys
    at = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            sys.stdout.write(f"{at:099}\\n")
            at += 1
        sys.stdout.flush()
        with open(sys.argv[1], "w") as said:
            said.write(str(at))
    sys.exit(7)
"""
SHORT = Command(argv=("/bin/sh", "-c", "echo hello; exit 3"), root="/")
FAILURES = 20


async def start_writer(keeper: KeeperClient, said: Path) -> KeptProcess:
    return await keeper.start(
        Command(argv=(*python(WRITES_WHEN_TOLD), str(said)), root="/", output=OutputPolicy(CAPACITY))
    )


async def written(process: KeptProcess, said: Path, lines: int) -> None:
    """Have the process write so many more lines, and wait until it has got rid of them."""
    total = int(text_of(said) or 0) + lines
    await process.write(b"%d\n" % lines)
    await wait_until(lambda: text_of(said) == str(total))


async def check_served(keeper: KeeperClient) -> None:
    """Everything works."""
    for pty in (False, True):
        process = await keeper.start(Command(argv=SHORT.argv, root="/", stdio=standard_streams(pty=pty)))
        assert (await asyncio.wait_for(process.wait(), BOUND)).code == 3
        assert (await everything(process)).split() == [b"hello"]
        await process.release()


@contextlib.contextmanager
def filled_disk(directory: Path) -> Generator[Path]:
    with small_disk(directory, 4 * MIB) as disk:
        if disk is None:
            pytest.skip("only root may mount a disk that can be filled")
        yield disk


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)


@pytest.mark.requirement("design:keeper:full-disk")
@pytest.mark.timeout(120)
async def test_a_full_disk_costs_output_only_and_that_is_told(tmp_path: Path) -> None:
    with filled_disk(tmp_path / "disk") as disk, kept_home(disk / "home") as home:
        async with asyncio.timeout(90), open_keeper(home) as keeper:
            stays = await start_writer(keeper, tmp_path / "stays")
            ends = await start_writer(keeper, tmp_path / "ends")
            await written(stays, tmp_path / "stays", 1000)
            fill(disk)
            for process, said in ((stays, tmp_path / "stays"), (ends, tmp_path / "ends")):
                await written(process, said, 80_000)
                assert alive(process.pid)
            await ends.end_input()
            # How it ended is on record, although nothing else can be written.
            assert (await ends.wait()).code == 7
            assert (await keeper.find(stays.id)).record.missing > 0
            (disk / "filler").unlink()
            await written(stays, tmp_path / "stays", 10)
            await stays.end_input()
            assert (await stays.wait()).code == 7
            for process, lines in ((stays, 81_010), (ends, 80_000)):
                await all_told(keeper, process)
                await check_holes(process, lines)
            await check_served(keeper)


async def all_told(keeper: KeeperClient, process: KeptProcess) -> None:
    """Wait until what was held back for want of room is in the log, and the record says so."""

    async def told() -> bool:
        return (await keeper.find(process.id)).record.missing == sum(gap.missing for gap in await process.gaps())

    await until(told)


async def check_holes(process: KeptProcess, lines: int) -> None:
    """Everything that is there is right, and what is not there is counted."""
    gaps = await process.gaps()
    assert gaps
    assert all(gap.reason == "No space left on device" for gap in gaps)
    assert process.record.missing == sum(gap.missing for gap in gaps) > 0
    whole = b"".join(b"%099d\n" % number for number in range(lines))
    expected, at, taken = b"", 0, 0
    for gap in gaps:
        expected += whole[taken : taken + gap.offset - at]
        taken += gap.offset - at + gap.missing
        at = gap.offset
    expected += whole[taken:]
    parts: list[bytes] = []
    start = 0
    while (part := await process.read(start)).data:
        parts.append(part.data)
        start = part.end
    assert b"".join(parts) == expected


@pytest.mark.requirement("design:keeper:full-disk")
async def test_a_start_on_a_full_disk_fails_with_a_reason_and_leaves_nothing(tmp_path: Path) -> None:
    with filled_disk(tmp_path / "disk") as disk, kept_home(disk / "home") as home:
        async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
            pid = keeper_pid(home)
            fill(disk)
            descriptors = len(open_descriptors(pid))
            ran, process_id = tmp_path / "ran", str(uuid.uuid4())
            command = Command(argv=("/bin/sh", "-c", 'echo ran >>"$0"', str(ran)), root="/")
            for _ in range(FAILURES):
                with pytest.raises(StartError, match="No space left on device"):
                    await keeper.start(command, process_id=process_id)
            assert os.listdir(home.processes) == []
            assert await keeper.processes() == []
            assert len(open_descriptors(pid)) == descriptors
            (disk / "filler").unlink()
            process = await keeper.start(command, process_id=process_id)
            assert (await process.wait()).code == 0
            assert ran.read_text() == "ran\n"


@pytest.mark.requirement("design:keeper:full-disk")
async def test_a_keeper_can_be_had_on_a_disk_that_is_full_and_knows_what_is_there(tmp_path: Path) -> None:
    with filled_disk(tmp_path / "disk") as disk, kept_home(disk / "home") as home:
        async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
            before = await keeper.start(SHORT)
            assert (await before.wait()).code == 3
            pid = keeper_pid(home)
            await keeper.shut_down()
        await wait_until(lambda: not alive(pid))
        fill(disk)
        async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
            (found,) = await keeper.processes()
            assert (found.exit_status, await everything(found)) == (before.exit_status, b"hello\n")
            await found.release()
            assert os.listdir(home.processes) == []


@contextlib.contextmanager
def few_descriptors(pid: int, more: int) -> Generator[None]:
    """The process may open only so many descriptors more than it has; with 0 not even in place of closed ones."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    held = set(map(int, os.listdir(f"/proc/{pid}/fd")))
    free = (number for number in itertools.count() if number not in held)
    limit = next(itertools.islice(free, more, None)) if more else 0
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.requirement("design:keeper:no-descriptors")
@pytest.mark.parametrize("more", range(1, 12))
async def test_starts_without_enough_descriptors_fail_with_a_reason_and_leak_none(home: Home, more: int) -> None:
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        await check_served(keeper)
        pid = (await keeper.status()).pid
        before = sorted(open_descriptors(pid))
        with few_descriptors(pid, more):
            for stdio in (Pipes(), Pty(required=True)):
                command = Command(argv=SHORT.argv, root="/", stdio=stdio)
                for _ in range(3):
                    with contextlib.suppress(TooManyOpenFilesError):
                        process = await keeper.start(command)
                        assert (await process.wait()).code == 3
                        await process.release()
        assert os.listdir(home.processes) == []
        await check_served(keeper)
        await wait_until(lambda: sorted(open_descriptors(pid)) == before)


@pytest.mark.requirement("design:keeper:no-descriptors")
async def test_an_end_without_a_descriptor_to_write_it_with_is_told_when_there_is_one(home: Home) -> None:
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        process = await keeper.start(Command(argv=("/bin/sh", "-c", "echo hello; read line; exit 7"), root="/"))
        await process.grown_or_ended(0)
        pid = keeper_pid(home)
        log = Path(home.log_path)
        with few_descriptors(pid, 0):
            for _ in range(FAILURES):
                with pytest.raises(TooManyOpenFilesError):
                    await keeper.start(SHORT)
            await process.write(b"\n")
            await wait_until(lambda: "its end cannot be put on record" in log.read_text(), 5)
        assert (await process.wait()).code == 7
        assert await everything(process) == b"hello\n"
        await check_served(keeper)


@pytest.mark.requirement("design:keeper:no-descriptors")
async def test_growth_while_there_is_no_descriptor_is_told_at_the_latest_when_there_is_one(
    home: Home, tmp_path: Path
) -> None:
    said = [tmp_path / "one", tmp_path / "two"]
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        processes = [await start_writer(keeper, file) for file in said]
        with few_descriptors(keeper_pid(home), 0):
            for process, file in zip(processes, said, strict=True):
                await written(process, file, 1)
        for process in processes:
            await process.grown_or_ended(0)
            assert await everything(process) == b"%099d\n" % 0


@pytest.mark.requirement("design:keeper:no-descriptors")
async def test_who_comes_while_there_is_no_descriptor_is_served_when_there_is_one(home: Home) -> None:
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper, asyncio.TaskGroup() as group:
        pid = (await keeper.status()).pid
        with few_descriptors(pid, 0):
            late = group.create_task(status_through_another_client(home))
            await wait_until(lambda: "cannot let anybody in now" in Path(home.log_path).read_text())
            assert (await keeper.status()).connections == 1
        assert await late == pid


async def status_through_another_client(home: Home) -> int:
    async with open_keeper(home) as keeper:
        return (await keeper.status()).pid


@contextlib.contextmanager
def no_more_processes(pid: int) -> Generator[None]:
    """The process cannot fork: a limit of its user's, or of a control group where the user is root."""
    if os.geteuid() != 0:
        before = resource.prlimit(pid, resource.RLIMIT_NPROC)
        resource.prlimit(pid, resource.RLIMIT_NPROC, (0, before[1]))
        try:
            yield
        finally:
            resource.prlimit(pid, resource.RLIMIT_NPROC, before)
        return
    found = re.search(r"^\d+:pids:(.*)$", Path(f"/proc/{pid}/cgroup").read_text(), re.MULTILINE)
    if found is None:
        pytest.skip("root can be kept from forking only by a control group with pids.max, of which there is none")
    own = Path("/sys/fs/cgroup/pids" + found[1])
    group = own / f"tether-test-{uuid.uuid4()}"
    group.mkdir()
    try:
        (group / "pids.max").write_text("1")
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        (own / "cgroup.procs").write_text(str(pid))
        group.rmdir()


@pytest.mark.requirement("design:keeper:no-processes")
@pytest.mark.parametrize("kind", ["pipes", "terminal"])
async def test_starts_that_the_system_refuses_fail_with_a_reason_and_leak_nothing(home: Home, kind: str) -> None:
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        await check_served(keeper)
        pid = (await keeper.status()).pid
        before = sorted(open_descriptors(pid))
        command = Command(argv=SHORT.argv, root="/", stdio=standard_streams(pty=kind == "terminal"))
        with no_more_processes(pid):
            for _ in range(FAILURES):
                with pytest.raises(TooManyProcessesError):
                    await keeper.start(command)
            assert (await keeper.status()).running == 0
        assert os.listdir(home.processes) == []
        await wait_until(lambda: sorted(open_descriptors(pid)) == before)
        await check_served(keeper)


@pytest.mark.requirement("design:keeper:wall-clock")
@pytest.mark.parametrize("jump", [DAY + 60, -DAY], ids=["forward", "back"])
async def test_a_wall_clock_that_jumps_ends_nothing_early_or_late(home: Home, tmp_path: Path, jump: int) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    stays = Command(argv=("/bin/sh", "-c", "echo hello; exec sleep 1000"), root="/", timeout=3600)
    soon = Command(argv=stays.argv, root="/", timeout=1)
    await start_driven(home, clock=str(clock))
    async with asyncio.timeout(BOUND), open_keeper(home) as keeper:
        async with open_keeper(home, owners=["gone soon"]) as owner:
            kept = [
                await keeper.start(stays),
                await keeper.start(stays, lease=Owned("nobody", 3600)),
            ]
            short = await owner.start(Command(argv=stays.argv, root="/"), lease=Owned("gone soon", 1))
            began = time.monotonic()
            timed = await keeper.start(soon)
            clock.write_text(str(jump))
        assert (await timed.wait()).cause is Cause.TIMED_OUT
        assert time.monotonic() - began >= 1
        assert (await (await keeper.find(short.id)).wait()).cause is Cause.STOPPED
        assert time.monotonic() - began >= 1
        assert [(await keeper.find(one.id)).status for one in kept] == [Status.RUNNING, Status.RUNNING]
        clock.write_text("0")
        last = await keeper.start(soon)
        assert (await last.wait()).cause is Cause.TIMED_OUT
        assert [(await keeper.find(one.id)).status for one in kept] == [Status.RUNNING, Status.RUNNING]
        assert {one.id for one in await keeper.processes(ended=False)} == {one.id for one in kept}

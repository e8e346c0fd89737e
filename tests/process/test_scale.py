"""At the limits: a thousand terminals at once, and starts where descriptors or processes are short."""

import asyncio
import gc
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import alive, python, wait_until
from tether.process.command import Command, Pipes, Pty
from tether.process.process import Process
from tether.process.table import ProcessTable

COUNT = 1000
DESCRIPTORS_EACH = 6


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Room for every descriptor of the test, given back behind it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = COUNT * DESCRIPTORS_EACH + 1000
    if before[0] != resource.RLIM_INFINITY and before[0] < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(before[1], wanted)))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def echoed(process: Process, word: bytes) -> None:
    """The terminal's echo of the typed line, then the program's own."""
    async with asyncio.timeout(40):
        while process.output.read(0).data.count(word) < 2:
            await process.grown_or_ended(process.output.end)


@pytest.mark.requirement("design:scale:1000")
@pytest.mark.requirement("design:no-leaks")
@pytest.mark.requirement("000:performance:async:all")
async def test_a_thousand_terminals_at_once(many_descriptors: None, scratch: str) -> None:
    command = Command(argv=("cat",), stdio=Pty(), root="/")
    async with ProcessTable() as table:
        processes = [await table.start(command) for _ in range(COUNT)]
        assert all(alive(process.pid) for process in processes)
        assert len({process.pid for process in processes}) == len(table) == COUNT
        for number, process in enumerate(processes):
            await process.write(b"<%d>\n" % number)
        for number, process in enumerate(processes):
            await echoed(process, b"<%d>" % number)
        assert all(process.exit_status is None for process in processes)
    assert not any(alive(process.pid) for process in processes)
    assert all(process.exit_status is not None for process in processes)
    assert os.listdir(scratch) == []


@pytest.mark.requirement("000:performance:memory:bounded")
@pytest.mark.requirement("000:performance:cleanup:memory")
async def test_an_idle_process_costs_little_memory() -> None:
    async with ProcessTable() as table:
        command = Command(argv=("cat",), stdio=Pty(), root="/")
        for _ in range(20):
            await table.start(command)
        gc.collect()
        before = resident_bytes()
        for _ in range(200):
            await table.start(command)
        gc.collect()
        assert (resident_bytes() - before) / 200 < 16 * 1024


@pytest.mark.requirement("000:performance:async:interactive")
async def test_starting_many_leaves_the_loop_responsive() -> None:
    loop = asyncio.get_running_loop()
    longest = 0.0
    async with ProcessTable() as table:
        for number in range(100):
            began = loop.time()
            await table.start(Command(argv=("cat",), stdio=Pty() if number % 2 else Pipes(), root="/"))
            longest = max(longest, loop.time() - began)
            await asyncio.sleep(0)
    assert longest < 0.5
    await wait_until(lambda: len(table) == 0)


def in_python(code: str) -> str:
    """Run a scenario that would spoil this process in one of its own."""
    done = subprocess.run(python(code), capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


SCARCE_DESCRIPTORS = """
    import asyncio, os, resource
    from tether.errors import TooManyOpenFilesError
    from tether.process.command import Command, Pipes, Pty
    from tether.process.table import ProcessTable

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    def held():
        return sorted(map(int, os.listdir("/proc/self/fd")))[:-1]

    def children():
        try:
            return os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None

    async def start_within(table, stdio, limit):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            return await table.start(Command(argv=("echo", "hello"), stdio=stdio))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))

    async def main():
        for stdio in (Pipes(), Pty()):
            async with ProcessTable() as table:
                await (await start_within(table, stdio, 256)).release()
                before, refused = held(), 0
                for limit in range(max(before) + 1, max(before) + 16):
                    try:
                        process = await start_within(table, stdio, limit)
                    except TooManyOpenFilesError as error:
                        assert "ulimit -n" in str(error), error
                        refused += 1
                    else:
                        assert (await process.wait()).code == 0
                        assert process.output.read(0).data.strip() == b"hello", limit
                        await process.release()
                    assert (held(), children(), len(table)) == (before, None, 0), limit
                print(refused)

    asyncio.run(main())
"""


@pytest.mark.requirement("design:start:errors:too-many-files")
@pytest.mark.requirement("design:start:failure-leaks-nothing")
@pytest.mark.requirement("000:pty:no-descriptor-leak")
def test_every_open_of_a_start_may_fail_without_a_leak() -> None:
    on_pipes, on_terminal = map(int, in_python(SCARCE_DESCRIPTORS).split())
    assert on_pipes >= 7
    assert on_terminal >= 2


SCARCE_PROCESSES = """
    import asyncio, os, resource
    from tether.errors import TooManyProcessesError
    from tether.process.command import Command, Pipes, Pty
    from tether.process.table import ProcessTable

    async def main():
        async with ProcessTable() as table:
            before = os.listdir("/proc/self/fd")
            user = os.getuid()
            if user == 0:
                os.setresuid(65534, 65534, 0)
            resource.setrlimit(resource.RLIMIT_NPROC, (0, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
            for stdio in (Pipes(), Pty()):
                try:
                    await table.start(Command(argv=("true",), root="/", stdio=stdio))
                except TooManyProcessesError as error:
                    print(error)
            if user == 0:
                os.setresuid(0, 0, 0)
            assert os.listdir("/proc/self/fd") == before

    asyncio.run(main())
"""


@pytest.mark.requirement("design:start:typed-errors")
def test_a_limit_of_processes_is_told() -> None:
    told = in_python(SCARCE_PROCESSES).splitlines()
    assert len(told) == 2
    assert all("/true'" in line and line.endswith("end other processes or raise `ulimit -u`") for line in told)

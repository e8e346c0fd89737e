"""The table of processes: finds them, ends them, and leaves nothing behind however its block ends."""

import asyncio
import contextlib
import os
import uuid
from pathlib import Path

import pytest

from tests.helpers import alive, python, wait_until
from tether.errors import ScreenUnavailableError, UnknownProcessError
from tether.process._cleanup import to_the_end
from tether.process.command import Command, Pipes, Pty
from tether.process.exit_status import Cause, Status
from tether.process.table import ProcessTable, open_process

IGNORER = Command(argv=("sh", "-c", "trap '' TERM HUP; echo ready; sleep 1000 & wait"))


@pytest.mark.requirement("design:table:ids")
@pytest.mark.requirement("001:pty:id")
@pytest.mark.requirement("001:pty:record")
async def test_a_process_is_found_by_its_id_also_after_its_end() -> None:
    async with ProcessTable() as table:
        first = await table.start(Command(argv=("echo", "one")))
        second = await table.start(Command(argv=("sleep", "100"), stdio=Pty()))
        assert {str(uuid.UUID(process.id)) for process in table} == {first.id, second.id}
        await first.wait()
        assert table[first.id] is first
        assert (first.status, second.status) == (Status.COMPLETED, Status.RUNNING)
        assert first.output.read(0).data == b"one\n"
        assert first.started_at <= second.started_at
        await first.release()
        assert list(table) == [second]
        await first.release()


@pytest.mark.requirement("design:table:unknown")
@pytest.mark.requirement("001:pty:kill")
@pytest.mark.requirement("001:pty:write-refused")
async def test_an_unknown_id_is_refused_with_those_that_exist() -> None:
    async with ProcessTable() as table:
        with pytest.raises(UnknownProcessError, match=r"no process 'nobody' \(known: none\)"):
            table["nobody"]
        process = await table.start(Command(argv=("true",)))
        with pytest.raises(UnknownProcessError, match=f"known: {process.id}"):
            table["nobody"]


@pytest.mark.parametrize("stdio", [Pipes(), Pty()], ids=["pipes", "pty"])
@pytest.mark.requirement("design:no-leaks")
@pytest.mark.requirement("000:process:stop:resources-released")
async def test_leaving_the_block_ends_what_still_runs(stdio: Pipes | Pty, scratch: str) -> None:
    async with ProcessTable() as table:
        processes = [await table.start(Command(argv=("sleep", "100"), stdio=stdio)) for _ in range(5)]
        assert len(os.listdir(scratch)) == 1
    assert [process.pid for process in processes if alive(process.pid)] == []
    causes = [process.exit_status.cause for process in processes if process.exit_status is not None]
    assert causes == [Cause.STOPPED] * 5
    assert os.listdir(scratch) == []


class OwnError(Exception):
    """Raised by whoever uses a table."""


@pytest.mark.parametrize("alone", [True, False], ids=["process", "table"])
@pytest.mark.requirement("design:cleanup:on-error")
async def test_an_error_in_the_block_passes_through_as_it_is(*, alone: bool) -> None:
    pids: list[int] = []

    async def fail() -> None:
        command = Command(argv=("sleep", "100"), stdio=Pty())
        async with contextlib.AsyncExitStack() as stack:
            if alone:
                process = await stack.enter_async_context(open_process(command))
            else:
                process = await (await stack.enter_async_context(ProcessTable())).start(command)
            pids.append(process.pid)
            raise OwnError("as it is")

    with pytest.raises(OwnError, match="as it is") as caught:
        await fail()
    assert caught.value.__cause__ is None
    assert [pid for pid in pids if alive(pid)] == []


@pytest.mark.requirement("design:cleanup:second-cancellation")
async def test_cancelling_the_cleanup_again_and_again_leaves_no_child() -> None:
    pids: list[int] = []
    inside = asyncio.Event()

    async def use() -> None:
        async with ProcessTable() as table:
            process = await table.start(IGNORER)
            await process.grown_or_ended(0)
            pids.append(process.pid)
            inside.set()
            await asyncio.sleep(100)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(use())
        await inside.wait()
        cancellations = 0
        while not task.done():
            task.cancel()
            cancellations += 1
            await asyncio.sleep(0.1)
    assert task.cancelled()
    assert cancellations > 2
    assert not alive(pids[0])


@pytest.mark.requirement("design:cleanup:second-cancellation")
async def test_cleanup_goes_to_its_end_then_tells_its_failure_or_the_cancellation() -> None:
    done: list[str] = []

    async def work(*, fails: bool) -> None:
        await asyncio.sleep(0.1)
        done.append("done")
        if fails:
            raise ValueError("on the way")

    await to_the_end(work(fails=False))
    with pytest.raises(ValueError, match="on the way"):
        await to_the_end(work(fails=True))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(to_the_end(work(fails=False)))
        await asyncio.sleep(0)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.01)
    assert task.cancelled()
    assert done == ["done"] * 3


@pytest.mark.requirement("design:cleanup:second-cancellation")
async def test_a_cancelled_stop_ends_nothing_half() -> None:
    async with ProcessTable() as table:
        process = await table.start(IGNORER)
        await process.grown_or_ended(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await process.stop(grace=60)
        assert process.exit_status is None
        assert (await process.stop(grace=0)).survivors == ()


@pytest.mark.requirement("design:library:async")
async def test_a_process_lives_as_long_as_its_block() -> None:
    async with open_process(Command(argv=("cat",), stdio=Pty())) as process:
        assert alive(process.pid)
    assert not alive(process.pid)


@pytest.mark.requirement("design:no-leaks")
async def test_ten_tables_at_once_do_not_disturb_each_other() -> None:
    async def use(number: int) -> str:
        async with ProcessTable() as table:
            processes = [
                await table.start(Command(argv=("sh", "-c", f"read line; echo {number} $line"), stdio=stdio))
                for stdio in (Pipes(), Pty())
            ]
            await table.start(Command(argv=("sleep", "100")))
            for process in processes:
                await process.submit("word")
                assert (await process.wait()).code == 0
            return processes[0].output.read(0).data.decode()

    async with asyncio.TaskGroup() as group:
        uses = [group.create_task(use(number)) for number in range(10)]
    assert [each.result() for each in uses] == [f"{number} word\n" for number in range(10)]


@pytest.mark.requirement("design:table:ids")
async def test_a_given_directory_holds_the_logs_and_stays(tmp_path: Path) -> None:
    logs = tmp_path / "a" / "logs"
    async with ProcessTable(str(logs)) as table:
        process = await table.start(Command(argv=("echo", "kept")))
        await process.wait()
        assert os.listdir(logs) == [process.id]
        assert logs.stat().st_mode & 0o077 == 0
    assert logs.is_dir()


@pytest.mark.requirement("design:process:stop")
async def test_stopping_in_the_background_makes_nobody_wait() -> None:
    async with ProcessTable() as table:
        process = await table.start(Command(argv=("sleep", "100")))
        process.stop_soon()
        assert process.exit_status is None
        await table.settled()
        assert process.exit_status is not None
        assert process.exit_status.cause is Cause.STOPPED


@pytest.mark.requirement("design:errors:one-tree")
async def test_a_process_without_a_terminal_has_no_screen() -> None:
    async with open_process(Command(argv=("sleep", "100"))) as process:
        with pytest.raises(ScreenUnavailableError, match="start it with a Pty"):
            await process.screen()
        assert process.exit_status is None


@pytest.mark.requirement("000:performance:cleanup:long-running")
@pytest.mark.requirement("000:performance:cleanup:memory")
async def test_a_long_life_accumulates_nothing() -> None:
    async with ProcessTable() as table:
        before = os.listdir("/proc/self/fd")
        for number in range(60):
            stdio = Pty() if number % 2 else Pipes()
            process = await table.start(Command(argv=("echo", "x"), stdio=stdio))
            await process.wait()
            await process.release()
        assert os.listdir("/proc/self/fd") == before
        assert len(table) == 0
        assert len(asyncio.all_tasks()) == 1


@pytest.mark.requirement("design:no-leaks")
async def test_the_terminals_of_a_program_that_is_killed_end_with_it(tmp_path: Path) -> None:
    code = """
        import asyncio, os, sys
        from tether.process.command import Command, Pty
        from tether.process.table import ProcessTable

        async def main():
            async with ProcessTable(sys.argv[1], contain=False) as table:
                process = await table.start(Command(argv=("cat",), stdio=Pty()))
                print(process.pid)
                os.kill(os.getpid(), 9)

        asyncio.run(main())
    """
    async with open_process(Command(argv=(*python(code), str(tmp_path)))) as host:
        assert (await host.wait()).signal == "SIGKILL"
        inner = int(host.output.read(0).data)
        await wait_until(lambda: not alive(inner))

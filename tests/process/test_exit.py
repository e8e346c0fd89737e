"""The end of a child: how it ended, told at once and to everybody, whoever still holds its pipes."""

import asyncio
import os
import re
import resource
import signal
from pathlib import Path

import pytest

from tests.helpers import alive, python, wait_until
from tether.process.command import Command, OutputPolicy, Overflow, Pipes, Pty
from tether.process.exit_status import Cause, ExitStatus, Status, core_file, signal_name, signal_number
from tether.process.process import Process
from tether.process.table import ProcessTable, open_process
from tether.process.waiting import Text, wait_for

MEGABYTE = 1024 * 1024
on_both_streams = pytest.mark.parametrize("stdio", [Pipes(), Pty()], ids=["pipes", "pty"])


@pytest.fixture(params=["pidfd", "thread"])
def each_way_to_watch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with the kernel's handle on a child and with the thread for systems without it."""
    if request.param == "thread":
        monkeypatch.delattr(os, "pidfd_open")


async def said(process: Process, pattern: str) -> str:
    waited = await wait_for(process, Text(re.compile(pattern)), timeout=10)
    assert waited.match is not None, process.output.read(0).data
    return waited.match


@on_both_streams
@pytest.mark.parametrize("code", [0, 1, 3, 127, 255])
@pytest.mark.requirement("design:exit:status")
@pytest.mark.requirement("design:status:words")
@pytest.mark.requirement("000:process:status:exit-code")
@pytest.mark.requirement("001:pty:exit")
@pytest.mark.requirement("design:macos:fallbacks")
async def test_an_exit_code_is_told(stdio: Pipes | Pty, code: int, each_way_to_watch: None) -> None:
    async with open_process(Command(argv=("sh", "-c", f"exit {code}"), stdio=stdio)) as process:
        assert process.status in (Status.RUNNING, Status.COMPLETED)
        assert await process.wait() == ExitStatus(code, None, Cause.EXITED)
        assert (process.status, process.exit_status) == (Status.COMPLETED, ExitStatus(code, None, Cause.EXITED))
        assert process.ended_at is not None
        assert process.ended_at >= process.started_at


@on_both_streams
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, 35])
@pytest.mark.requirement("design:exit:status")
@pytest.mark.requirement("000:process:status:crash")
@pytest.mark.requirement("000:errors:crash:detected")
async def test_a_signal_is_told_by_its_name(stdio: Pipes | Pty, number: int, each_way_to_watch: None) -> None:
    async with open_process(Command(argv=("sh", "-c", f"kill -{int(number)} $$"), stdio=stdio)) as process:
        status = await process.wait()
        assert status == ExitStatus(None, "SIG35" if number == 35 else signal.Signals(number).name, Cause.SIGNALLED)
        assert (status.status, status.shell_code) == (Status.KILLED, 128 + number)


@pytest.mark.requirement("design:exit:status")
def test_signals_have_names_both_ways() -> None:
    for number in (signal.SIGSEGV, signal.SIGINT, 40):
        assert signal_number(signal_name(number)) == number


def cores_are_files() -> bool:
    """Whether a crash leaves a file here: allowed at all, and not handed to a program."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    return not pattern.startswith("|") and resource.getrlimit(resource.RLIMIT_CORE)[1] != 0


def first_bytes(path: str) -> bytes:
    return Path(path).read_bytes()[:4]


@pytest.mark.requirement("000:errors:crash:recorded")
@pytest.mark.requirement("000:errors:crash:host-lives")
async def test_the_core_file_of_a_crash_is_named(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    script = "ulimit -c unlimited; exec sh -c 'kill -SEGV $$'"
    command = Command(argv=("sh", "-c", script), root=str(tmp_path), cwd="work")
    async with open_process(command) as process:
        status = await process.wait()
    assert (status.signal, status.cause) == ("SIGSEGV", Cause.SIGNALLED)
    if cores_are_files():
        assert status.core_file is not None
        assert first_bytes(status.core_file) == b"\x7fELF"
        os.unlink(status.core_file)
    else:
        assert status.core_file is None


@pytest.mark.requirement("000:errors:crash:recorded")
def test_a_core_file_that_was_not_written_is_not_named(tmp_path: Path) -> None:
    assert core_file(1, "tool", str(tmp_path), signal.SIGSEGV) is None


@pytest.mark.requirement("design:tree:background-child")
@pytest.mark.requirement("design:exit:daemon-never-delays")
@pytest.mark.requirement("design:exit:drain-grace")
@pytest.mark.requirement("design:exit:late-output-logged")
async def test_a_daemon_delays_nothing_and_is_still_logged(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    script = f"(read line <{tmp_path}/go; echo late; exec sleep 100) & echo x; echo $!"
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with open_process(Command(argv=("sh", "-c", script))) as process:
        assert (await process.wait()).code == 0
        assert loop.time() - began < 2
        shown, daemon = process.output.read(0).data.split()
        assert shown == b"x"
        assert alive(int(daemon))
        (tmp_path / "go").write_text("now\n")
        async with asyncio.timeout(10):
            await process.output.wait_beyond(process.output.end)
        assert process.output.read(0).data.endswith(b"late\n")
        assert (await process.stop(grace=0)).survivors == ()
        await wait_until(lambda: not alive(int(daemon)))


@pytest.mark.requirement("design:exit:daemon-never-delays")
async def test_a_daemon_that_writes_without_end_delays_the_result_only_a_moment() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with open_process(Command(argv=("sh", "-c", "yes & exit 5"))) as process:
        assert (await process.wait()).code == 5
        assert loop.time() - began < 6
        await process.stop(grace=0)


def collect(pid: int) -> None:
    """What a host does that waits for any child."""
    os.waitid(os.P_PID, pid, os.WEXITED)


@pytest.mark.requirement("design:exit:own-pids-only")
async def test_a_child_that_the_host_collected_is_lost_and_those_of_the_host_are_left_alone() -> None:
    hosts = await asyncio.create_subprocess_exec("sh", "-c", "exit 6")
    async with open_process(Command(argv=("sh", "-c", "read line; exit 3"))) as process:
        await process.submit()
        collect(process.pid)
        assert await process.wait() == ExitStatus(None, None, Cause.LOST)
        assert process.status is Status.LOST
    assert await hosts.wait() == 6


@on_both_streams
@pytest.mark.requirement("design:process:timeout")
@pytest.mark.requirement("002:7.3")
@pytest.mark.requirement("000:process:stop:term")
async def test_over_its_time_it_is_stopped_and_its_output_kept(stdio: Pipes | Pty) -> None:
    script = "trap 'echo polite; exit 0' TERM HUP; echo begun; while :; do sleep 0.05; done"
    async with open_process(Command(argv=("sh", "-c", script), stdio=stdio, timeout=0.5)) as process:
        status = await process.wait()
        assert (status.cause, status.status, status.shell_code) == (Cause.TIMED_OUT, Status.TIMED_OUT, 124)
        words = process.output.read(0).data.split()
        assert (words[0], words[-1]) == (b"begun", b"polite")


@pytest.mark.requirement("000:process:stop:kill")
@pytest.mark.requirement("design:process:stop")
async def test_whoever_ignores_the_request_is_ended_by_force() -> None:
    async with open_process(Command(argv=("sh", "-c", "trap '' TERM; echo ready; exec sleep 100"))) as process:
        await said(process, "ready")
        stopped = await process.stop(grace=0.3)
        assert stopped.status == ExitStatus(None, "SIGKILL", Cause.STOPPED)
        assert stopped.survivors == ()


@pytest.mark.requirement("design:process:stop")
async def test_a_polite_end_keeps_its_own_code() -> None:
    script = "trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done"
    async with open_process(Command(argv=("sh", "-c", script))) as process:
        await said(process, "ready")
        assert (await process.stop()).status == ExitStatus(4, None, Cause.STOPPED)


@on_both_streams
@pytest.mark.requirement("design:process:stop")
async def test_a_suspended_process_wakes_to_end_politely(stdio: Pipes | Pty) -> None:
    script = "trap 'exit 6' TERM HUP; echo ready; kill -STOP $$; while :; do sleep 0.05; done"
    async with open_process(Command(argv=("sh", "-c", script), stdio=stdio)) as process:
        await said(process, "ready")
        await wait_until(lambda: suspended(process.pid))
        assert (await process.stop(grace=20)).status == ExitStatus(6, None, Cause.STOPPED)


def suspended(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@on_both_streams
@pytest.mark.requirement("design:process:kill")
@pytest.mark.requirement("001:pty:kill")
async def test_kill_ends_at_once(stdio: Pipes | Pty) -> None:
    async with open_process(Command(argv=("sh", "-c", "trap '' TERM HUP; sleep 100"), stdio=stdio)) as process:
        await process.kill()
        assert await process.wait() == ExitStatus(None, "SIGKILL", Cause.STOPPED)
        await process.kill()


@pytest.mark.requirement("design:process:kill")
async def test_an_end_of_its_own_is_not_blamed_on_a_stop_that_came_too_late() -> None:
    async with open_process(Command(argv=("sh", "-c", "exit 2"))) as process:
        await process.wait()
        assert (await process.stop()).status == ExitStatus(2, None, Cause.EXITED)


@on_both_streams
@pytest.mark.requirement("design:log:whole-or-stop-cap")
@pytest.mark.parametrize("script", ["exec yes", "trap '' TERM HUP; exec yes"], ids=["polite", "stubborn"])
async def test_whole_output_beyond_its_cap_stops_the_child(stdio: Pipes | Pty, script: str) -> None:
    policy = OutputPolicy(MEGABYTE, Overflow.STOP)
    async with ProcessTable() as table:
        process = await table.start(Command(argv=("sh", "-c", script), stdio=stdio, output=policy))
        status = await process.wait()
        assert (status.cause, status.status) == (Cause.OUTPUT_LIMIT, Status.KILLED)
        await table.settled()
        part = process.output.read(0)
        assert (part.start, part.dropped) == (0, 0)
        # The index counts to the cap as well.
        assert 0.9 * MEGABYTE <= len(part.data) < 2 * MEGABYTE


@on_both_streams
@pytest.mark.requirement("000:pty:closed")
@pytest.mark.requirement("000:pty:resources-released")
@pytest.mark.requirement("000:performance:cleanup:immediate")
@pytest.mark.requirement("000:errors:crash:resources-released")
@pytest.mark.requirement("design:process:release")
@pytest.mark.requirement("001:risk:leaks")
async def test_an_ended_process_holds_no_descriptor_and_a_released_one_no_file(
    stdio: Pipes | Pty, tmp_path: Path
) -> None:
    async with ProcessTable(str(tmp_path / "logs")) as table:
        before = os.listdir("/proc/self/fd")
        for script in ("echo x", "echo x; kill -ABRT $$", "echo x; kill -KILL $$"):
            process = await table.start(Command(argv=("sh", "-c", script), stdio=stdio))
            await process.wait()
            assert os.listdir("/proc/self/fd") == before
            assert process.output.read(0).data.strip() == b"x"
            await process.release()
            assert os.listdir(tmp_path / "logs") == []


@pytest.mark.requirement("design:process:release")
async def test_releasing_a_running_process_ends_it() -> None:
    async with ProcessTable() as table:
        process = await table.start(Command(argv=("sleep", "100"), stdio=Pty()))
        await process.release()
        assert not alive(process.pid)
        assert len(table) == 0


@pytest.mark.requirement("000:performance:async:main-thread")
@pytest.mark.requirement("002:2.4")
async def test_the_loop_is_never_blocked_by_a_child_that_floods() -> None:
    loop = asyncio.get_running_loop()
    longest = 0.0
    async with open_process(Command(argv=("yes",), stdio=Pty())) as process:
        until = loop.time() + 0.5
        while (began := loop.time()) < until:
            await asyncio.sleep(0)
            longest = max(longest, loop.time() - began)
        assert process.output.end > 0
    assert longest < 0.25


@pytest.mark.requirement("000:process:status:running")
async def test_everybody_who_waits_is_told() -> None:
    async with open_process(Command(argv=python("input()"))) as process:
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(process.wait()) for _ in range(3)]
            given_up = group.create_task(process.wait())
            await asyncio.sleep(0)
            given_up.cancel()
            await process.submit()
        assert [wait.result().code for wait in waits] == [0, 0, 0]

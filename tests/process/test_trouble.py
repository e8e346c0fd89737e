"""What must not happen when something around a process goes wrong."""

import asyncio
import errno
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.helpers import alive, python, wait_until
from tether.errors import InputBacklogError, StartError, WorkingDirectoryError
from tether.process._directory import open_directory
from tether.process.command import Command, OutputPolicy, Overflow, Pty
from tether.process.exit_status import Cause
from tether.process.output import OutputLog
from tether.process.table import ProcessTable, open_process
from tether.process.waiting import Text, wait_for


@pytest.mark.requirement("design:log:whole-or-stop")
@pytest.mark.parametrize("way", ["block", "stop", "timeout"])
async def test_nobody_waits_for_ever_for_room_that_nobody_makes(way: str) -> None:
    command = Command(
        argv=("sh", "-c", "head -c 100000 /dev/zero; exit 5"),
        output=OutputPolicy(1000, Overflow.WAIT),
        timeout=1 if way == "timeout" else None,
    )
    async with asyncio.timeout(20), open_process(command) as process:
        await wait_until(lambda: process.output.full)
        if way == "stop":
            await process.stop()
        if way == "timeout":
            await process.wait()
    assert process.exit_status is not None


@pytest.mark.requirement("design:log:whole-or-stop")
async def test_output_that_no_disk_takes_stops_the_process_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(log: OutputLog, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(OutputLog, "_write", full)
    monkeypatch.setattr("tether.process.process._GIVE_UP_SECONDS", 0.3)
    command = Command(argv=("sh", "-c", "echo x; exec sleep 1000"), output=OutputPolicy(1 << 20, Overflow.STOP))
    async with asyncio.timeout(20), open_process(command) as process:
        assert (await process.wait()).cause is Cause.OUTPUT_LIMIT
        (warning,) = process.warnings
        assert re.search(r"could not be kept in '.*' .* or TMPDIR", warning)
        assert process.output.held == 2


@pytest.mark.requirement("design:start:failure-leaks-nothing")
async def test_a_child_that_cannot_be_watched_is_ended_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ProcessTable() as table:
        loop = asyncio.get_running_loop()
        with monkeypatch.context() as patch:

            def no_more_watches(*_: object) -> None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            patch.setattr(loop, "add_reader", no_more_watches)
            with pytest.raises(StartError, match=r"cannot watch 'sleep': No space left on device"):
                await table.start(Command(argv=("sleep", "1000")))
        assert len(table) == 0


@pytest.mark.requirement("design:input:backlog")
async def test_many_small_pieces_of_input_count_for_what_they_cost() -> None:
    async with open_process(Command(argv=("sleep", "1000"))) as process:
        await process.write(bytes(1 << 20))

        async def press_keys() -> None:
            for _ in range(100_000):
                await process.write(b"x")

        with pytest.raises(InputBacklogError, match=r"bytes in \d+ pieces wait already"):
            await press_keys()
        for _ in range(1000):
            await process.write(b"")


@pytest.mark.requirement("design:screen:answers")
async def test_answers_do_not_depend_on_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    script = r"stty raw -echo; printf '\033[6n'; head -c 6 | od -c; echo done"
    command = Command(argv=("sh", "-c", script), stdio=Pty())
    async with open_process(command) as process:
        monkeypatch.setattr("time.time", lambda: 4e9)
        assert (await wait_for(process, Text("033.*R[^d]*done"), timeout=30)).met


IGNORES_CHILDREN = """
    import signal, tether
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    result = tether.run(["sh", "-c", "echo said; exit 3"])
    print(result.status.cause, result.stdout)
"""


@pytest.mark.requirement("design:exit:status")
def test_a_host_that_ignores_its_children_loses_codes_but_not_output() -> None:
    finished = subprocess.run(python(IGNORES_CHILDREN), capture_output=True, text=True, timeout=30, check=True)
    assert finished.stdout == "lost said\n\n"


ADOPTS_MANY = """
    import asyncio, os
    from tether.process.command import Command
    from tether.process.table import ProcessTable

    def zombies():
        states = os.popen("ps -o stat= --ppid %d" % os.getpid()).read().split()
        return sum(state.startswith("Z") for state in states)

    async def main():
        async with ProcessTable(adopt_orphans=True) as table:
            script = "for i in $(seq 60); do (true &); done; echo done; read x"
            process = await table.start(Command(argv=("sh", "-c", script)))
            async with asyncio.timeout(20):
                await process.output.wait_beyond(0)
                while zombies():
                    await asyncio.sleep(0.1)

    asyncio.run(main())
"""


@pytest.mark.requirement("design:tree:orphan")
def test_adopted_orphans_are_collected_while_the_command_runs() -> None:
    subprocess.run(python(ADOPTS_MANY), timeout=40, check=True)


@pytest.mark.requirement("design:start:errors:missing-cwd")
def test_a_directory_we_may_not_enter_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> bool:
        return False

    monkeypatch.setattr(os, "access", denied)
    with pytest.raises(WorkingDirectoryError, match=r"cannot be used: Permission denied"):
        open_directory(str(tmp_path), ".")


STOPS_WITHOUT_DESCRIPTORS = """
    import asyncio, os, resource
    from tether.process.command import Command
    from tether.process.table import ProcessTable

    async def main():
        async with ProcessTable() as table:
            processes = [await table.start(Command(argv=("sleep", "1000"))) for _ in range(2)]
            print(*(process.pid for process in processes), flush=True)
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            held = []
            try:
                while True:
                    held.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                pass
            await processes[0].stop()

    asyncio.run(main())
"""


@pytest.mark.requirement("design:tree:whole")
def test_a_host_without_descriptors_still_ends_its_processes() -> None:
    finished = subprocess.run(
        python(STOPS_WITHOUT_DESCRIPTORS), capture_output=True, text=True, timeout=40, check=False
    )
    pids = [int(word) for word in finished.stdout.split()]
    try:
        assert (finished.returncode, finished.stderr, len(pids)) == (0, "", 2)
        assert not [pid for pid in pids if alive(pid)]
    finally:
        for pid in pids:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)

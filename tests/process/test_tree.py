"""Ending a tree: everybody it started, nobody else, and whoever is left is named."""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers import alive, python, wait_until
from tether.process._census import Census, entry
from tether.process._child import Containment
from tether.process._stopping import Left, end_trees
from tether.process._tree import PosixTree, command_line, is_orphan, send
from tether.process.command import COOKIE, Command, Pipes, Pty
from tether.process.exit_status import Cause
from tether.process.process import Process
from tether.process.table import ProcessTable, open_process
from tether.process.waiting import Text, wait_for

# Each descendant notes its name and pid, then stays.
NOTES = """
stay='echo "$0 $$" >>"$PIDS"; exec sleep 1000'
read go
"""
FAMILY = {
    "child": 'sh -c "$stay" child &',
    "grandchild": '(sh -c "$stay" grandchild; :) &',
    "setsid": '(setsid sh -c "$stay" setsid; :) &',
    "orphan": '(setsid sh -c "$stay" orphan &)',
    "daemon": '(setsid sh -c \'(sh -c "$0" daemon </dev/null >/dev/null 2>&1 &)\' "$stay" &)',
    "ignorer": "sh -c \"trap '' TERM HUP INT; $stay\" ignorer &",
    "suspended": 'sh -c \'echo "$0 $$" >>"$PIDS"; kill -STOP $$; exec sleep 1000\' suspended &',
}
STRAY = '(env -i PIDS="$PIDS" setsid sh -c "$stay" stray &)'
on_both_streams = pytest.mark.parametrize("stdio", [Pipes(), Pty()], ids=["pipes", "pty"])


def noted(file: Path) -> dict[str, int]:
    """The descendants that have noted themselves, by name."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {name: int(pid) for name, pid in (line.split() for line in lines)}


def family_command(file: Path, *members: str, stdio: Pipes | Pty = Pipes(), timeout: float | None = None) -> Command:
    """A shell that starts `members` once it is told to, then waits."""
    script = NOTES + "\n".join(members) + "\necho ready\nwait\n"
    environment = {**os.environ, "PIDS": str(file)}
    return Command(argv=("sh", "-c", script), stdio=stdio, env=environment, timeout=timeout)


async def gathered(process: Process, file: Path, names: set[str]) -> dict[str, int]:
    """Tell the shell to begin; the pids of its family once all are there, adopted where they are orphans."""
    await process.submit("go")
    await wait_until(lambda: noted(file).keys() == names)
    pids = noted(file)
    for name in names & {"orphan", "daemon", "stray"}:
        await wait_until(lambda pid=pids[name]: _parent_is_gone(pid, process.pid))
    assert all(alive(pid) for pid in pids.values())
    return pids


def _parent_is_gone(pid: int, leader: int) -> bool:
    found = entry(pid)
    assert found is not None
    parent = entry(found.parent)
    return found.parent == 1 or parent is None or parent.session not in (leader, found.session)


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process of the same user and parent that belongs to nobody's tree."""
    popen = subprocess.Popen(("sleep", "1000"), start_new_session=True)
    yield popen.pid
    popen.kill()
    popen.wait()


@on_both_streams
@pytest.mark.parametrize("contain", [True, False], ids=["control group", "no control group"])
@pytest.mark.requirement("design:tree:whole")
@pytest.mark.requirement("design:tree:grandchild")
@pytest.mark.requirement("design:tree:term-ignorer")
@pytest.mark.requirement("design:tree:setsid")
@pytest.mark.requirement("design:tree:orphan")
@pytest.mark.requirement("design:tree:double-fork")
@pytest.mark.requirement("design:tree:cookie")
@pytest.mark.requirement("design:tree:spares-strangers")
@pytest.mark.requirement("003:5:timeout-tree")
async def test_after_a_timeout_nobody_of_the_tree_is_left(
    stdio: Pipes | Pty, tmp_path: Path, stranger: int, *, contain: bool
) -> None:
    file = tmp_path / "pids"
    async with ProcessTable(contain=contain) as table:
        process = await table.start(family_command(file, *FAMILY.values(), stdio=stdio, timeout=1))
        pids = await gathered(process, file, set(FAMILY))
        status = await process.wait()
        await table.settled()
        assert (status.cause, status.shell_code) == (Cause.TIMED_OUT, 124)
        assert process.survivors == ()
        assert [name for name, pid in pids.items() if alive(pid)] == []
    assert alive(stranger)


def _control_group(process_id: str) -> Path | None:
    """The directory of a process's control group."""
    return next(Path("/sys/fs/cgroup").rglob(f"tether-{process_id}"), None)


@pytest.mark.requirement("design:tree:cgroup")
@pytest.mark.requirement("design:tree:survivors")
async def test_a_descendant_without_cookie_and_parent_is_ended_in_its_control_group(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    async with ProcessTable() as table:
        process = await table.start(family_command(file, STRAY))
        group = _control_group(process.id)
        pids = await gathered(process, file, {"stray"})
        stopped = await process.stop(grace=0.5)
        if group is None:
            os.kill(pids["stray"], signal.SIGKILL)  # this system gives us no group: nobody could know it
        assert stopped.survivors == ()
        await wait_until(lambda: not alive(pids["stray"]))
    assert group is None or not group.exists()


@pytest.mark.requirement("design:tree:survivors")
async def test_a_descendant_without_cookie_and_parent_is_told_where_no_control_group_holds_it(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    async with ProcessTable(contain=False) as table:
        process = await table.start(replace(family_command(file, STRAY), root=str(tmp_path)))
        pids = await gathered(process, file, {"stray"})
        stopped = await process.stop(grace=0.5)
        try:
            told = [(left.pid, left.certain) for left in stopped.survivors]
            # Who is handed an orphan is up to the system; only its first process and systemd count as nobody.
            found = entry(pids["stray"])
            assert found is not None
            assert told == ([(pids["stray"], False)] if is_orphan(found) else [])
            assert alive(pids["stray"])
        finally:
            os.kill(pids["stray"], signal.SIGKILL)
        await wait_until(lambda: not alive(pids["stray"]))


ADOPTING = """
    import asyncio, os, sys
    from tether.process.command import Command
    from tether.process.table import ProcessTable

    script = "(env -i setsid sh -c 'echo $$; exec sleep 1000' &) ; sleep 1000"

    async def main():
        async with ProcessTable(contain=False, adopt_orphans=True) as table:
            process = await table.start(Command(argv=("sh", "-c", script)))
            await process.grown_or_ended(0)
            stray = int(process.output.read(0).data)
            stopped = await process.stop(grace=0.3)
            assert stopped.survivors == ()
            assert not os.path.exists(f"/proc/{stray}") or open(f"/proc/{stray}/stat").read().split()[2] == "Z"
        assert not os.path.exists(f"/proc/{stray}"), "an adopted orphan was not collected"

    asyncio.run(main())
"""


@pytest.mark.requirement("design:tree:orphan")
async def test_a_program_that_adopts_orphans_ends_and_collects_them() -> None:
    child = await asyncio.create_subprocess_exec(*python(ADOPTING))
    assert await child.wait() == 0


@pytest.mark.requirement("design:tree:spares-strangers")
async def test_a_stranger_with_a_reused_pid_is_never_touched(stranger: int) -> None:
    found = entry(stranger)
    assert found is not None
    send([replace(found, started="1")], signal.SIGKILL)
    # A tree whose leader was collected and whose number the stranger got.
    containment = Containment("nobody", "/nowhere", control_group=False, adopt_orphans=False)
    tree = PosixTree(stranger, containment, on_terminal=True)
    tree.leader_collected = True
    tree.since = 0.0
    assert tree.nearest() == []
    assert tree.members_in(Census()) == []
    tree.kill_at_once()
    assert await end_trees([tree], grace=0.05) == [Left([], [])]
    assert alive(stranger)
    # The same number with its own start is the one that was meant.
    send([found], signal.SIGKILL)
    await wait_until(lambda: not alive(stranger))


@pytest.mark.requirement("design:tree:spares-strangers")
async def test_a_tree_knows_that_the_number_of_its_leader_is_free_again() -> None:
    async with open_process(Command(argv=("cat",))) as process:
        assert isinstance(process.tree, PosixTree)
        assert not process.tree.leader_collected
        await process.end_input()
        await process.wait()
        assert process.tree.leader_collected


@pytest.mark.requirement("design:tree:survivors")
async def test_whoever_outlives_a_stop_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody_dies(members: object, number: int) -> None:
        """What happens where signals are not allowed, as to a program of another user."""

    def not_allowed(group: object) -> bool:
        return False

    async with open_process(Command(argv=("sleep", "1000"))) as process:
        with monkeypatch.context() as patch:
            patch.setattr("tether.process._tree.send", nobody_dies)
            patch.setattr("tether.process._cgroup.Cgroup.kill", not_allowed)
            patch.setattr("tether.process._stopping._FORCE_SECONDS", 0.1)
            left = await end_trees([process.tree], grace=0.1)
        assert [[member.pid for member in one.members] for one in left] == [[process.pid]]
        assert process.tree.describe(left[0].members[0]) == "sleep 1000"
    assert command_line(process.pid) == ""


@pytest.mark.requirement("design:tree:cookie")
async def test_the_cookie_names_every_process_that_a_descendant_belongs_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COOKIE, "outer")
    async with open_process(Command(argv=("sh", "-c", "echo $" + COOKIE + "; exec sleep 1000"))) as process:
        waited = await wait_for(process, Text(re.compile("outer .+\n")), timeout=10)
        assert waited.match == f"outer {process.id}\n"
        census = Census()
        for process_id in ("outer", process.id):
            assert [one.pid for one in census.belonging_to(None, process_id)] == [process.pid]
        assert census.belonging_to(None, "another") == []


@pytest.mark.requirement("design:tree:whole")
async def test_many_trees_end_together(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with ProcessTable() as table:
        script = "trap '' TERM; sleep 1000 & echo $!; wait"
        processes = [await table.start(Command(argv=("sh", "-c", script))) for _ in range(20)]
        for process in processes:
            await process.grown_or_ended(0)
        pids = [int(process.output.read(0).data) for process in processes]
        began = loop.time()
    assert loop.time() - began < 6  # one grace for all of them
    assert [pid for pid in pids if alive(pid)] == []


@pytest.mark.requirement("design:tree:whole")
async def test_a_tree_that_keeps_forking_is_ended() -> None:
    code = """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready")
        for _ in range(100000):
            if os.fork():
                os._exit(0)
            os.setsid()
            time.sleep(0.01)
    """
    async with ProcessTable() as table:
        process = await table.start(Command(argv=python(code)))
        await process.grown_or_ended(0)
        stopped = await process.stop(grace=0.2)
        assert stopped.survivors == ()
        assert Census().belonging_to(None, process.id) == []


@pytest.mark.requirement("design:macos:fallbacks")
async def test_a_table_of_processes_by_ps_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_process(Command(argv=("sh", "-c", "sleep 1000 & echo $!; wait"))) as process:
        await process.grown_or_ended(0)
        child = int(process.output.read(0).data)
        with monkeypatch.context() as patch:
            patch.setattr("tether.process._census.sys.platform", "darwin")
            census, found = Census(), entry(child)
        assert {process.pid, child} <= {one.pid for one in census.belonging_to(process.pid, "")}
        assert found is not None
        assert found.parent == process.pid

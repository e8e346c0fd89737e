"""Ending a tree spares keepers and whom they keep, although a member of the tree may have started them."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers import alive, python, wait_until
from tether.process._census import Census, is_keeper, kept_among
from tether.process._tree import PosixTree
from tether.process.command import COOKIE, Command
from tether.process.process import Process
from tether.process.table import ProcessTable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows a keeper anywhere in a tree")

# What is the same about every keeper: the lock that names it, and that it keeps somebody.
KEEPER = """
echo "$$ instance" >"$TETHER_KEEPER/keeper.lock"
sh -c 'echo "kept $$" >>"$PIDS"; exec sleep 1000' &
echo "keeper $$" >>"$PIDS"
wait
"""
AS_KEEPER = f'env -u {COOKIE} TETHER_KEEPER="$KEEPER_HOME" '
WAYS = {
    "in the same group": AS_KEEPER + 'sh -c "$KEEPER" &',
    "in a session of its own": AS_KEEPER + 'setsid sh -c "$KEEPER" &',
    "as an orphan": f'({AS_KEEPER} setsid sh -c "$KEEPER" &)',
    "with the cookie": 'TETHER_KEEPER="$KEEPER_HOME" setsid sh -c "$KEEPER" &',
}
MEMBER = 'sh -c \'echo "member $$" >>"$PIDS"; exec sleep 1000\' &'


@dataclass(frozen=True)
class Family:
    """A shell that starts a member and a keeper; each notes its pid."""

    file: Path
    home: Path

    def command(self, *lines: str) -> Command:
        environment = {**os.environ, "PIDS": str(self.file), "KEEPER_HOME": str(self.home), "KEEPER": KEEPER}
        return Command(argv=("sh", "-c", "\n".join((*lines, "wait"))), root=str(self.home.parent), env=environment)

    def pids(self) -> dict[str, int]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return {name: int(pid) for name, pid in (line.split() for line in lines)}

    async def gathered(self, *names: str) -> dict[str, int]:
        await wait_until(lambda: self.pids().keys() == set(names))
        return self.pids()

    def living(self) -> set[str]:
        return {name for name, pid in self.pids().items() if alive(pid)}


@pytest.fixture
async def family(tmp_path: Path) -> AsyncIterator[Family]:
    """A family of which nobody is left at the end."""
    home = tmp_path / "home"
    home.mkdir()
    family = Family(tmp_path / "pids", home)
    yield family
    for pid in family.pids().values():
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    await wait_until(lambda: not family.living())


async def stop(process: Process) -> None:
    """Politely, then by force."""
    assert (await process.stop(grace=0.2)).survivors == ()


async def kill(process: Process) -> None:
    """At once."""
    await process.kill()
    await process.wait()


@pytest.mark.parametrize("end", [stop, kill])
@pytest.mark.parametrize("contain", [True, False], ids=["control group", "no control group"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.requirement("design:tree:spares-keepers")
async def test_a_keeper_and_whom_it_keeps_outlive_the_tree_that_started_it(
    family: Family, way: str, end: Callable[[Process], Awaitable[None]], *, contain: bool
) -> None:
    async with ProcessTable(contain=contain) as table:
        process = await table.start(family.command(MEMBER, way))
        await family.gathered("member", "keeper", "kept")
        await end(process)
        await wait_until(lambda: "member" not in family.living())
        assert family.living() == {"keeper", "kept"}
    assert family.living() == {"keeper", "kept"}


PRETENDERS = {
    "no lock": ":",
    "a lock that names another": 'echo "1 instance" >"$TETHER_KEEPER/keeper.lock"',
    "an empty lock": ': >"$TETHER_KEEPER/keeper.lock"',
    "a link to a lock": 'echo "$$ instance" >"$TETHER_KEEPER/x"; ln -s x "$TETHER_KEEPER/keeper.lock"',
    "a pipe for a lock": 'mkfifo "$TETHER_KEEPER/keeper.lock"',
    "a directory for a lock": 'mkdir "$TETHER_KEEPER/keeper.lock"',
}


@pytest.mark.parametrize("pretence", PRETENDERS.values(), ids=PRETENDERS)
@pytest.mark.requirement("design:tree:spares-keepers")
async def test_who_only_says_that_it_is_a_keeper_ends_with_its_tree(family: Family, pretence: str) -> None:
    stay = 'echo "pretender $$" >>"$PIDS"; exec sleep 1000'
    line = f"TETHER_KEEPER=\"$KEEPER_HOME\" setsid sh -c '{pretence}; {stay}' &"
    async with ProcessTable() as table:
        process = await table.start(family.command(line))
        await family.gathered("pretender")
        await stop(process)
        assert family.living() == set()


@pytest.mark.requirement("design:tree:spares-keepers")
async def test_the_lock_of_another_user_makes_no_keeper(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ProcessTable(contain=False) as table:
        process = await table.start(family.command(WAYS["as an orphan"]))
        pids = await family.gathered("keeper", "kept")
        assert is_keeper(pids["keeper"])
        assert not is_keeper(pids["kept"])
        with monkeypatch.context() as patch:
            patch.setattr("tether.process._census.os.geteuid", lambda: os.getuid() + 1)
            assert not is_keeper(pids["keeper"])
        await stop(process)


@pytest.mark.requirement("design:tree:spares-keepers")
async def test_a_keeper_that_was_started_as_a_command_ends_with_whom_it_keeps(family: Family) -> None:
    async with ProcessTable() as table:
        process = await table.start(family.command('TETHER_KEEPER="$KEEPER_HOME" exec sh -c "$KEEPER"'))
        pids = await family.gathered("keeper", "kept")
        assert pids["keeper"] == process.pid
        assert is_keeper(process.pid)
        await stop(process)
        assert family.living() == set()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.requirement("design:tree:spares-keepers")
async def test_a_keeper_is_no_member_of_the_tree_while_that_runs(family: Family, way: str) -> None:
    async with ProcessTable() as table:
        process = await table.start(family.command(MEMBER, way))
        pids = await family.gathered("member", "keeper", "kept")
        expected = {process.pid, pids["member"]}
        assert {one.pid for one in Census().belonging_to(process.pid, process.id)} == expected
        assert {one.pid for one in process.tree.members_in(Census())} == expected
        assert {one.pid for one in process.tree.nearest()} == expected
        await stop(process)


@pytest.mark.requirement("design:tree:spares-keepers")
async def test_a_keeper_is_never_told_as_perhaps_ours(family: Family) -> None:
    async with ProcessTable(contain=False) as table:
        process = await table.start(family.command(WAYS["as an orphan"]))
        pids = await family.gathered("keeper", "kept")
        census = Census()
        assert pids["keeper"] not in {one.pid for one in census.uncookied()}
        assert census.kept(pids["kept"], process.pid)
        assert kept_among(pids.values(), process.pid) == set(pids.values())
        await stop(process)


ADOPTING = """
    import asyncio, os, sys
    from tether.process.command import Command
    from tether.process.table import ProcessTable
    from tests.process.test_tree_keeper import Family, WAYS, MEMBER, stop
    from tests.helpers import wait_until
    from pathlib import Path

    async def main():
        family = Family(Path(sys.argv[1]), Path(sys.argv[2]))
        async with ProcessTable(contain=False, adopt_orphans=True) as table:
            process = await table.start(family.command(MEMBER, WAYS["as an orphan"]))
            pids = await family.gathered("member", "keeper", "kept")
            parent = lambda: int(Path(f"/proc/{pids['keeper']}/stat").read_text().split()[3])
            await wait_until(lambda: parent() == os.getpid())
            await stop(process)
        assert family.living() == {"keeper", "kept"}, family.living()

    asyncio.run(main())
"""


@pytest.mark.requirement("design:tree:spares-keepers")
async def test_a_program_that_adopts_orphans_does_not_end_the_keeper_it_adopted(family: Family) -> None:
    child = await asyncio.create_subprocess_exec(*python(ADOPTING), str(family.file), str(family.home))
    assert await child.wait() == 0
    assert family.living() == {"keeper", "kept"}


# A keeper that is handed the orphans of the one it keeps, who ends a tree of its own.
KEEPING_US = """
    import os, subprocess, sys
    from pathlib import Path
    from tether.process._tree import become_reaper

    become_reaper()
    Path(os.environ["TETHER_KEEPER"], "keeper.lock").write_text(f"{os.getpid()} instance")
    environment = {name: value for name, value in os.environ.items() if name != "TETHER_KEEPER"}
    sys.exit(subprocess.run((sys.executable, "-c", sys.argv[1], *sys.argv[2:]), env=environment).returncode)
"""
KEPT = """
import asyncio, os, sys
from pathlib import Path
from tests.helpers import wait_until
from tests.process.test_tree_keeper import Family, stop
from tether.process._census import is_keeper
from tether.process.table import ProcessTable

async def main():
    assert is_keeper(os.getppid())
    family = Family(Path(sys.argv[1]), Path(sys.argv[2]))
    async with ProcessTable(contain=False) as table:
        process = await table.start(family.command("(setsid sh -c 'echo orphan $$ >>$PIDS; exec sleep 1000' &)"))
        pids = await family.gathered("orphan")
        parent = lambda: int(Path(f"/proc/{pids['orphan']}/stat").read_text().split()[3])
        await wait_until(lambda: parent() == os.getppid())
        await stop(process)
    assert family.living() == set()

asyncio.run(main())
"""


@pytest.mark.requirement("design:tree:spares-keepers")
@pytest.mark.requirement("design:tree:orphan")
async def test_a_kept_program_finds_its_own_orphans_with_the_keeper_that_keeps_it(family: Family) -> None:
    child = await asyncio.create_subprocess_exec(
        *python(KEEPING_US),
        KEPT,
        str(family.file),
        str(family.home),
        env={**os.environ, "TETHER_KEEPER": str(family.home)},
    )
    assert await child.wait() == 0


@pytest.mark.parametrize("contain", [True, False], ids=["control group", "no control group"])
@pytest.mark.requirement("design:tree:spares-keepers")
async def test_what_a_member_had_us_start_as_a_process_of_its_own_outlives_the_tree(
    family: Family, *, contain: bool
) -> None:
    inner = f'{COOKIE}="${COOKIE} another" setsid sh -c \'echo "inner $$" >>"$PIDS"; exec sleep 1000\' &'
    async with ProcessTable(contain=contain) as table:
        outer = await table.start(family.command(inner))
        await family.gathered("inner")
        environment = {**os.environ, COOKIE: outer.id}
        other = await table.start(Command(argv=("sleep", "1000"), env=environment))
        await wait_until(lambda: other.pid in {one.pid for one in Census().belonging_to(None, outer.id)})
        await stop(outer)
        assert family.living() == set()
        assert alive(other.pid)


@pytest.mark.requirement("design:tree:spares-keepers")
async def test_a_process_that_could_not_leave_the_group_is_not_ended_with_it(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ProcessTable() as table:
        process = await table.start(family.command(MEMBER))
        pids = await family.gathered("member")
        assert isinstance(process.tree, PosixTree)
        if process.tree.state()["control_group"] == "":
            pytest.skip("this system gives us no control group")
        with monkeypatch.context() as patch:
            # As if we were the member.
            patch.setattr("tether.process._tree.os.getpid", lambda: pids["member"])
            process.tree.kill(())
            await process.wait()
        assert family.living() == {"member"}

"""Many trees under one sub-reaper: whose orphan is whose, who collects it, and what children are born with."""

import asyncio
import os
import resource
import select
import sys
import textwrap
from pathlib import Path

import pytest

from tests.helpers import python, wait_until
from tether.errors import ProgramNotFoundError, ProgramNotRunnableError
from tether.process._child import Containment
from tether.process._child_posix import start_child
from tether.process.command import COOKIE, Command, Pty

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has sub-reapers and control groups")

# To become a sub-reaper is for good, so each of these is a program of its own.
BEGIN = textwrap.dedent("""
    import asyncio, atexit, os, signal, subprocess, sys
    from pathlib import Path
    from tests.helpers import alive, wait_until
    from tether.process._census import Census, children_of, entry
    import tether.process._reaper as reaping
    from tether.process._child import Containment
    from tether.process._child_posix import start_child
    from tether.process._reaper import Reaper
    from tether.process._stopping import end_trees
    from tether.process._tree import become_reaper
    from tether.process.command import COOKIE, Command

    directory = Path(sys.argv[1])

    @atexit.register
    def leave_nobody():  # when an assertion failed, even those whom no other test would recognise
        while left := children_of(os.getpid()):
            for pid in left:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def start(script, process_id, *, contain):
        command = Command(argv=("sh", "-c", script), root=str(directory))
        containment = Containment(
            process_id, command.root, control_group=contain, adopt_orphans=False, shared_reaper=True
        )
        return start_child(command, {**os.environ, COOKIE: process_id}, containment)[0]

    def noted(name):
        file = directory / name
        return int(file.read_text()) if file.exists() and file.read_text().endswith("\\n") else 0

    async def adopted(name):
        await wait_until(lambda: noted(name) and entry(noted(name)).parent == os.getpid())
        return noted(name)

    def orphan(name, how=""):
        return f"({how} setsid sh -c 'echo $$ >{name}; exec sleep 1000' &)\\n"

    def pids(members):
        return {member.pid for member in members}

    def finish(*children):
        for child in children:
            child.destroy()
            child.tree.leader_collected = True
            child._loop = asyncio.get_running_loop()
            child.close()
            child.tree.close()
""")


async def run(code: str, directory: Path) -> None:
    """Run a program of the test's; what it asserts must hold."""
    child = await asyncio.create_subprocess_exec(*python(BEGIN + textwrap.dedent(code)), str(directory))
    assert await child.wait() == 0


@only_linux
@pytest.mark.requirement("design:keeper:collects-orphans")
async def test_orphans_are_collected_and_children_of_ours_are_left_to_whoever_watches_them(tmp_path: Path) -> None:
    code = """
        async def main():
            ours = subprocess.Popen(("sh", "-c", "exit 7"))
            reaper = Reaper(asyncio.get_running_loop(), lambda pid: pid == ours.pid)
            await wait_until(lambda: not alive(ours.pid))
            for _ in range(3):
                for number in range(20):
                    subprocess.run(("sh", "-c", "(setsid sh -c 'exit 3' &)"), check=True)
                await wait_until(lambda: children_of(os.getpid()) == [ours.pid])
            assert ours.wait() == 7
            reaper.close()
            reaper.close()
            assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL

        asyncio.run(main())
    """
    await run(code, tmp_path)


@only_linux
@pytest.mark.requirement("design:keeper:collects-orphans")
async def test_an_orphan_that_ended_before_anybody_looked_is_collected(tmp_path: Path) -> None:
    code = """
        async def main():
            become_reaper()
            subprocess.run(("sh", "-c", "(setsid sh -c 'echo $$ >orphan' &)"), check=True, cwd=directory)
            await wait_until(lambda: noted("orphan") and not alive(noted("orphan")))
            assert children_of(os.getpid()) == [noted("orphan")]
            reaper = Reaper(asyncio.get_running_loop(), lambda pid: False)
            await wait_until(lambda: children_of(os.getpid()) == [])
            reaper.close()

        asyncio.run(main())
    """
    await run(code, tmp_path)


@only_linux
@pytest.mark.requirement("design:keeper:collects-orphans")
async def test_a_closed_reaper_collects_no_more(tmp_path: Path) -> None:
    code = """
        async def main():
            loop = asyncio.get_running_loop()
            reaper = Reaper(loop, lambda pid: False)
            script = "(setsid sh -c 'echo $$ >orphan; read go <fifo' &)"
            subprocess.run(("sh", "-c", script), check=True, cwd=directory)
            orphan = await adopted("orphan")
            os.kill(os.getpid(), signal.SIGCHLD)
            await wait_until(lambda: reaper._soon is not None)
            due = reaper._soon.when()
            reaper.close()
            (directory / "fifo").open("w").close()
            await wait_until(lambda: not alive(orphan) and loop.time() > due)
            assert children_of(os.getpid()) == [orphan]
            os.waitpid(orphan, 0)

        reaping._PAUSE_SECONDS = 0.5
        os.mkfifo(directory / "fifo")
        asyncio.run(main())
    """
    await run(code, tmp_path)


@only_linux
@pytest.mark.requirement("design:keeper:whose-orphan")
async def test_an_orphan_counts_to_a_tree_only_if_more_than_its_parent_says_so(tmp_path: Path) -> None:
    code = """
        async def main():
            reaper = Reaper(asyncio.get_running_loop(), lambda pid: pid in (one.pid, other.pid))
            one = start(orphan("marked") + orphan("unmarked", "env -i") + "sleep 1000", "one", contain=False)
            other = start("exec env -i sleep 1000", "other", contain=False)
            marked, unmarked = await adopted("marked"), await adopted("unmarked")
            helper = subprocess.Popen(("sleep", "1000"), env={"TETHER_KEEPER": "/home"}, cwd=directory)
            await wait_until(lambda: not Path(f"/proc/{other.pid}/environ").read_bytes())
            census = Census()
            members = pids(one.tree.members_in(census))
            assert {one.pid, marked} <= members, members
            assert not members & {unmarked, other.pid, helper.pid, os.getpid()}
            assert pids(other.tree.members_in(census)) == {other.pid}
            # Whose it is cannot be known, so both tell it and neither ends it.
            assert pids(one.tree.strays_in(census)) == pids(other.tree.strays_in(census)) == {unmarked}
            left = await end_trees([one.tree], grace=0)
            assert [pids(left[0].members), pids(left[0].strays)] == [set(), {unmarked}]
            assert alive(unmarked) and alive(other.pid) and alive(helper.pid)
            os.kill(unmarked, signal.SIGKILL)
            helper.kill()
            helper.wait()
            finish(one, other)
            await wait_until(lambda: children_of(os.getpid()) == [])
            reaper.close()

        asyncio.run(main())
    """
    await run(code, tmp_path)


@only_linux
@pytest.mark.requirement("design:keeper:whose-orphan")
@pytest.mark.requirement("design:tree:cgroup")
async def test_the_earliest_orphan_is_in_the_control_group_it_was_born_in(tmp_path: Path) -> None:
    code = """
        async def main():
            group = lambda pid: Path(f"/proc/{pid}/cgroup").read_text().splitlines()[-1]
            before = group(os.getpid())
            trees = []
            reaper = Reaper(asyncio.get_running_loop(), lambda pid: pid in {child.pid for child in trees})
            for number in range(8):
                script = orphan(f"early{number}", "env -i") + "sleep 1000"
                trees.append(start(script, f"early-{number}", contain=True))
            assert group(os.getpid()) == before
            for number, child in enumerate(trees):
                early = await adopted(f"early{number}")
                if child.tree.state()["control_group"]:
                    assert group(early) == group(child.pid) != before
                    assert {child.pid, early} <= pids(child.tree.nearest())
                    left = await end_trees([child.tree], grace=0)
                    assert not left[0].members and not left[0].strays
                    assert not alive(early)
                else:
                    os.kill(early, signal.SIGKILL)
            finish(*trees)
            await wait_until(lambda: children_of(os.getpid()) == [])
            reaper.close()

        asyncio.run(main())
    """
    await run(code, tmp_path)


def _own_group() -> str:
    return next((line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")), "")


@only_linux
@pytest.mark.requirement("design:keeper:whose-orphan")
@pytest.mark.parametrize("program", ["no-such-program", "./not-runnable"])
def test_a_start_that_fails_leaves_no_control_group_and_us_where_we_were(tmp_path: Path, program: str) -> None:
    (tmp_path / "not-runnable").write_text("#!/no/such/interpreter\n")
    (tmp_path / "not-runnable").chmod(0o755)
    before = _own_group()
    containment = Containment("failing", str(tmp_path), control_group=True, adopt_orphans=False, shared_reaper=True)
    with pytest.raises((ProgramNotFoundError, ProgramNotRunnableError)):
        start_child(Command(argv=(program,), root=str(tmp_path)), {"PATH": os.environ["PATH"]}, containment)
    assert _own_group() == before
    assert list(Path("/sys/fs/cgroup").rglob("tether-failing")) == []


@only_linux
@pytest.mark.requirement("design:keeper:whose-orphan")
def test_a_process_leaves_the_control_group_of_whoever_started_it(tmp_path: Path) -> None:
    code = """
        from tether.process._cgroup import leave_group, Cgroup
        own = lambda: Path("/proc/self/cgroup").read_text().splitlines()[-1]
        group = Cgroup.holding(os.getpid(), "left-by-test")
        if group is not None:
            inside = own()
            assert inside.endswith("/tether-left-by-test")
            # As a program that was started there: it has not looked where it is yet.
            os.execv(sys.executable, (sys.executable, "-c", sys.argv[2], group.path))
    """
    then = """
        import os, sys
        from pathlib import Path
        from tether.process._cgroup import leave_group, Cgroup
        own = lambda: Path("/proc/self/cgroup").read_text().splitlines()[-1]
        assert own().endswith("/tether-left-by-test")
        leave_group()
        assert "tether-" not in own()
        leave_group()
        Cgroup(sys.argv[1]).remove()
        assert not os.path.exists(sys.argv[1])
    """
    arguments = (*python(BEGIN + textwrap.dedent(code)), str(tmp_path), textwrap.dedent(then))
    assert os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(arguments[0], arguments, os.environ), 0)[1]) == 0


LIMITS = """
    import asyncio, os, resource, sys
    import tether.process._spawn_posix as spawning
    from tests.helpers import wait_until
    from tether.process._child import Containment
    from tether.process._child_posix import start_child
    from tether.process.command import COOKIE, Command, Pipes, Pty

    class Told:
        def __init__(self):
            self.data, self.code = b"", None
        def received(self, stream, data):
            self.data += data
        def stream_ended(self, stream):
            pass
        def exited(self, code, signal_number, *, core_dumped):
            self.code = code

    async def limit_of_a_child(stdio):
        command = Command(argv=("sh", "-c", "ulimit -Sn; ulimit -Hn; exec sleep 1000"), stdio=stdio)
        containment = Containment("limits", "/", control_group=False, adopt_orphans=False)
        child, _ = start_child(command, dict(os.environ), containment)
        told = Told()
        child.attach(asyncio.get_running_loop(), told)
        await wait_until(lambda: told.data.count(b"\\n") == 2)
        child.tree.kill_at_once()
        await wait_until(lambda: child.tree.leader_collected)
        child.close()
        return [int(word) for word in told.data.split()]

    async def main():
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        assert hard > 400 or hard == resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        assert spawning.children_open_files() is None
        spawning.raise_open_files()
        raised = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert raised[0] > 400, raised
        assert spawning.children_open_files() == 200
        # Our ends of the streams have numbers that the child may not even have.
        held = [os.open("/dev/null", os.O_RDONLY) for _ in range(300)]
        if sys.argv[1] == "fork":
            spawning._libc = object()
        for stdio in (Pipes(), Pty(required=True)):
            assert (await limit_of_a_child(stdio))[0] == 200, stdio
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == raised
        for descriptor in held:
            os.close(descriptor)
        # As the program that this process becomes next.
        spawning.raise_open_files(150)
        assert (await limit_of_a_child(Pipes()))[0] == 150
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == raised

    asyncio.run(main())
"""


@pytest.mark.parametrize("way", ["spawn", "fork"])
@pytest.mark.requirement("design:keeper:open-files")
async def test_a_process_that_may_open_many_files_gives_its_children_the_usual_limit(way: str) -> None:
    child = await asyncio.create_subprocess_exec(*python(LIMITS), way)
    assert await child.wait() == 0


@pytest.mark.requirement("design:keeper:open-files")
async def test_a_library_leaves_the_limit_as_it_is() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    containment = Containment("as-it-is", "/", control_group=False, adopt_orphans=False)
    command = Command(argv=("sh", "-c", "ulimit -Sn >&2; exec sleep 1000"), stdio=Pty())
    child, _ = start_child(command, {**os.environ, COOKIE: "as-it-is"}, containment)
    try:
        terminal = child.descriptors()[0]
        await wait_until(lambda: _readable(terminal))
        assert os.read(terminal, 100).split() == [str(before[0]).encode()]
    finally:
        child.destroy()
        for descriptor in child.descriptors():
            os.close(descriptor)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def _readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])

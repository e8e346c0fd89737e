"""A child goes on while the process that watches it becomes another program."""

import asyncio
import json
import os
import signal
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.helpers import python, wait_until
from tether.process._child import Containment
from tether.process._child_posix import PosixChild, restore_child, start_child
from tether.process.command import COOKIE, Command, Pipes, Pty

# A program that starts children, becomes itself again, and then tells what it still learns of them.
COMMON = textwrap.dedent("""
    import asyncio, json, os, select, signal, sys
    from pathlib import Path
    from tests.helpers import alive, wait_until
    from tether.process._child import Containment
    from tether.process._child_posix import restore_child, start_child
    from tether.process._tree import become_reaper
    from tether.process.command import COOKIE, Command, Pipes, Pty

    here = Path(sys.argv[1])

    class Told:
        def __init__(self):
            self.data, self.streams, self.end = {1: b"", 2: b""}, set(), None
        def received(self, stream, data):
            self.data[stream] += data
        def stream_ended(self, stream):
            self.streams.add(stream)
        def exited(self, code, signal_number, *, core_dumped):
            assert self.end is None
            self.end = (code, signal_number)

    def start(name, script, stdio, *, contain=False):
        containment = Containment(name, str(here), control_group=contain, adopt_orphans=False)
        command = Command(argv=("sh", "-c", script), stdio=stdio, root=str(here))
        return start_child(command, {**os.environ, COOKIE: name}, containment)[0]

    def watch(child):
        told = Told()
        child.attach(asyncio.get_running_loop(), told)
        return told

    def become(*children):
        (here / "state").write_text(json.dumps([child.state() for child in children]))
        for child in children:
            for descriptor in child.descriptors():
                os.set_inheritable(descriptor, True)
        os.execv(sys.executable, (sys.executable, "-c", sys.argv[2], str(here), str(os.getpid())))

    def restored():
        assert os.getpid() == int(sys.argv[2])
        return [restore_child(state) for state in json.loads((here / "state").read_text())]

    def close(*children):
        for child in children:
            child.close()
            child.close()
            child.tree.close()
""")


async def run(directory: Path, first: str, then: str) -> None:
    """Run `first`, which becomes `then`; what they assert must hold."""
    first, then = COMMON + textwrap.dedent(first), COMMON + textwrap.dedent(then)
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", first, str(directory), then)
    assert await child.wait() == 0


@pytest.mark.requirement("design:keeper:upgrade")
async def test_children_on_pipes_and_on_a_terminal_go_on_in_the_next_program(tmp_path: Path) -> None:
    first = """
        async def main():
            script = "echo early; read word; echo out $word; echo err >&2; exit "
            pipes, pty = start("pipes", script + "3", Pipes()), start("pty", script + "4", Pty(), contain=True)
            ended = start("ended", "echo last; exec kill -TERM $$", Pipes())
            told = [watch(child) for child in (pipes, pty)]
            await wait_until(lambda: all(b"early" in one.data[1] for one in told))
            await wait_until(lambda: not alive(ended.pid))  # but nobody has collected it
            become(pipes, pty, ended)

        asyncio.run(main())
    """
    then = """
        async def main():
            pipes, pty, ended = restored()
            assert [(one.pty, one.line_limit is None) for one in (pipes, pty, ended)] == [
                (False, True), (True, False), (False, True)
            ]
            told = [watch(child) for child in (pipes, pty, ended)]
            held = {descriptor for child in (pipes, pty, ended) for descriptor in child.descriptors()}
            assert not any(os.get_inheritable(descriptor) for descriptor in held)
            await wait_until(lambda: told[2].end == (None, signal.SIGTERM))
            await wait_until(lambda: told[2].data == {1: b"last\\n", 2: b""})
            assert pty.probe().line_mode
            pty.resize(91, 31)
            assert os.get_terminal_size(pty.descriptors()[0]) == (91, 31)
            assert [one.pid for one in pty.tree.nearest()][:1] == [pty.pid]
            assert (pipes.write(memoryview(b"a\\n")), pty.write(memoryview(b"b\\n"))) == (2, 2)
            await wait_until(lambda: told[0].end == (3, None) and told[1].end == (4, None))
            await wait_until(lambda: told[0].data == {1: b"out a\\n", 2: b"err\\n"})
            await wait_until(lambda: told[1].data[1].endswith(b"b\\r\\nout b\\r\\nerr\\r\\n"))
            await wait_until(lambda: all(one.streams for one in told))
            group = pty.tree.state()["control_group"]
            close(pipes, pty, ended)
            assert not group or not os.path.exists(group)

        asyncio.run(main())
    """
    await run(tmp_path, first, then)


@pytest.mark.requirement("design:keeper:upgrade")
async def test_a_child_that_ends_while_the_program_changes_is_seen_to_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    first = """
        async def main():
            ending = start("ending", "echo ready; read go <go; echo gone; exit 9", Pipes())
            told = watch(ending)
            await wait_until(lambda: told.data[1] == b"ready\\n")
            become(ending)

        asyncio.run(main())
    """
    then = """
        state = json.loads((here / "state").read_text())
        (here / "go").open("w").close()
        os.waitid(os.P_PID, state[0]["pid"], os.WEXITED | os.WNOWAIT)

        async def main():
            ending, = restored()
            told = watch(ending)
            await wait_until(lambda: told.end == (9, None) and told.data[1] == b"gone\\n" and told.streams == {1, 2})
            assert ending.tree.leader_collected
            close(ending)

        asyncio.run(main())
    """
    await run(tmp_path, first, then)


@pytest.mark.parametrize("stdio", ["Pipes()", "Pty()"])
@pytest.mark.requirement("design:keeper:upgrade")
async def test_the_output_of_an_ended_child_is_still_read_while_a_daemon_holds_it(tmp_path: Path, stdio: str) -> None:
    os.mkfifo(tmp_path / "go")
    first = f"""
        async def main():
            # On a terminal the daemon must outlive the hang-up.
            daemon = "(trap '' HUP; setsid sh -c 'echo $$ >daemon; read go <go; echo from the daemon' &)"
            leader = start("leader", daemon + "\\nwhile ! test -s daemon; do :; done; exit 5", {stdio})
            told = watch(leader)
            await wait_until(lambda: told.end == (5, None))
            assert leader.state()["tree"]["leader_collected"]
            become(leader)

        asyncio.run(main())
    """
    then = """
        async def main():
            leader, = restored()
            told = watch(leader)
            assert [one.pid for one in leader.tree.nearest()] == []
            leader.tree.kill_at_once()  # the number of the leader is nobody's any more
            (here / "go").open("w").close()
            await wait_until(lambda: told.streams)
            assert b"from the daemon" in told.data[1]
            assert told.end is None
            close(leader)

        asyncio.run(main())
    """
    await run(tmp_path, first, then)


@pytest.mark.requirement("design:keeper:upgrade")
async def test_a_child_whose_output_was_not_to_be_read_stays_unread(tmp_path: Path) -> None:
    first = """
        async def main():
            child = start("full", "echo one; read word; echo two; read word", Pipes())
            told = watch(child)
            await wait_until(lambda: told.data[1] == b"one\\n")
            child.pause()
            child.write(memoryview(b"go\\n"))
            become(child)

        asyncio.run(main())
    """
    then = """
        async def main():
            child, = restored()
            told = watch(child)
            output = child.state()["outputs"]["1"]
            await wait_until(lambda: select.select([output], [], [], 0)[0])
            for _ in range(3):
                await asyncio.sleep(0)  # whoever waits for it would read it now
            child.drain()
            assert told.data[1] == b""
            child.resume()
            await wait_until(lambda: told.data[1] == b"two\\n")
            child.end_input(line_open=False)
            await wait_until(lambda: told.end == (1, None) and told.streams == {1, 2})
            close(child)

        asyncio.run(main())
    """
    await run(tmp_path, first, then)


@dataclass
class Listener:
    """What a child told."""

    data: bytearray = field(default_factory=bytearray)
    ended: bool = False

    def received(self, stream: int, data: bytes) -> None:
        assert stream == 1
        self.data += data

    def stream_ended(self, stream: int) -> None:
        assert stream in (1, 2)

    def exited(self, code: int | None, signal_number: int | None, *, core_dumped: bool) -> None:
        assert (code, signal_number, core_dumped) == (None, signal.SIGKILL, False)
        self.ended = True


def started(process_id: str, stdio: Pipes | Pty, *, contain: bool = False) -> PosixChild:
    """A child that repeats what it is told."""
    containment = Containment(process_id, "/", control_group=contain, adopt_orphans=False)
    return start_child(Command(argv=("cat",), stdio=stdio), {**os.environ, COOKIE: process_id}, containment)[0]


@pytest.mark.parametrize("stdio", [Pipes(), Pty()], ids=["pipes", "pty"])
@pytest.mark.requirement("design:keeper:upgrade")
async def test_a_trial_in_another_process_touches_nothing(stdio: Pipes | Pty) -> None:
    child = started("trial", stdio, contain=True)
    listener = Listener()
    child.attach(asyncio.get_running_loop(), listener)
    try:
        saved = json.dumps(child.state())
        # The numbers of the descriptors mean something else there, and must stay what they are.
        code = """
            import gc, json, os, sys
            from tether.process._child_posix import restore_child
            state = json.loads(sys.argv[1])
            for number in sorted({state["input"], *state["outputs"].values()}):
                os.dup2(0, number, inheritable=True)
            child = restore_child(state)
            assert child.state() == state
            numbers = child.descriptors()
            del child
            gc.collect()
            assert all(os.get_inheritable(number) for number in numbers)
            assert all(os.fstat(number).st_rdev == os.stat("/dev/null").st_rdev for number in numbers)
        """
        trial = await asyncio.create_subprocess_exec(
            *python(code), saved, stdin=asyncio.subprocess.DEVNULL, env={**os.environ, "PYTHONDEVMODE": "1"}
        )
        assert await trial.wait() == 0
        assert child.write(memoryview(b"still here\n")) == 11
        await wait_until(lambda: b"still here" in listener.data)
        assert json.dumps(child.state()) == saved
    finally:
        child.tree.kill_at_once()
        await wait_until(lambda: listener.ended)
        child.close()
        child.tree.close()
    assert child.descriptors() == []


@pytest.mark.requirement("design:keeper:upgrade")
def test_a_state_that_is_no_state_is_refused_by_name() -> None:
    child = started("refused", Pipes())
    try:
        state = child.state()
        for broken, name in (
            ({**state, "pid": "7"}, "pid='7'"),
            ({**state, "outputs": [1, 2]}, "outputs="),
            ({**state, "outputs": {"1": None}}, "1=None"),
            ({name: value for name, value in state.items() if name != "tree"}, "tree=None"),
        ):
            with pytest.raises(ValueError, match=f"a saved state has {name}.*save it again"):
                restore_child(broken)
    finally:
        child.destroy()
        for descriptor in child.descriptors():
            os.close(descriptor)

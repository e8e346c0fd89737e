"""Launching a keeper: alone in the world, once, and reached by everybody who asked for it."""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TypedDict

import pytest

from tests.helpers import python, wait_until
from tether.errors import KeeperUnavailableError
from tether.keeper.home import Home, KeeperLock, Listener, bind, mounted_now
from tether.keeper.launch import (
    connect,
    keeper_argv,
    keeper_environment,
    launch,
    leave_control_group,
    scope_prefix,
)

LINUX = sys.platform == "linux"

# A keeper in small: has the lock, writes down how it was started, and tells everybody its pid.
KEEPER = """
    import json, os, signal, socket, sys
    from tether.keeper.home import Home, KeeperLock, bind
    home = Home.of(sys.argv[1])
    lock = KeeperLock.take(home, "scripted")
    if lock is None:
        sys.exit(0)
    umask = os.umask(0o077)
    facts = {"pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0), "cwd": os.getcwd(),
             "umask": umask, "environment": dict(os.environ), "open": {}}
    for name in os.listdir("/dev/fd"):
        try:
            facts["open"][name] = os.readlink("/dev/fd/" + name)
        except OSError:
            pass
    with open(os.path.join(home.path, "facts"), "w") as file:
        json.dump(facts, file)
    listener = bind(home)
    listener.socket.settimeout(None)
    while True:
        connection, _ = listener.socket.accept()
        connection.sendall(str(os.getpid()).encode())
        connection.close()
"""
FAILS = ("/bin/sh", "-c", "echo word one; echo no module named keeper >&2; exit 1")
NOTES_THAT_IT_RAN = ("/bin/sh", "-c", 'echo ran >>"$0"')
# Fails the first time, keeps the second.
FAILS_ONCE = """
    import os, sys
    try:
        os.close(os.open(os.path.join(sys.argv[1], "tried"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        os.execv(sys.executable, [sys.executable, "-c", sys.argv[2], sys.argv[1]])
"""


class Facts(TypedDict):
    """How the scripted keeper found itself."""

    pid: int
    parent: int
    session: int
    cwd: str
    umask: int
    environment: dict[str, str]
    open: dict[str, str]


def scripted(home: Home) -> tuple[str, ...]:
    return (*python(KEEPER), home.path)


def facts_of(home: Home) -> Facts:
    return json.loads(Path(home.path, "facts").read_text(encoding="utf-8"))


def kill_keepers(home: Home) -> list[int]:
    """Kill the keeper of `home`, and those that were launched and would follow it; who was there."""
    mark = f"TETHER_KEEPER={home.path}".encode()
    found: list[int] = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if LINUX else ():
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    holder = KeeperLock.holder(home)
    if not LINUX and holder is not None:
        found.append(holder.pid)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


async def answer(connection: socket.socket) -> bytes:
    """What the keeper says."""
    with connection:
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(connection, 100), 30)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    """A home whose keeper is ended with the test."""
    made = Home.of(str(tmp_path / "h"))
    yield made
    await wait_until(lambda: not kill_keepers(made))


@pytest.fixture
def lock(home: Home) -> KeeperLock:
    """The lock of the home, held by this process."""
    home.prepare()
    taken = KeeperLock.take(home, "mine")
    assert taken is not None
    return taken


@pytest.mark.requirement("design:keeper:auto-start")
@pytest.mark.requirement("design:keeper:detached")
async def test_a_keeper_is_launched_that_belongs_to_nobody(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETHER_PROCESS", "outer")
    monkeypatch.setenv("SECRET", "hunter2")
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETFD, 0)
    connection = await connect(home, start=True, argv=scripted(home))
    assert not connection.getblocking()
    assert not connection.get_inheritable()
    facts = facts_of(home)
    assert await answer(connection) == str(facts["pid"]).encode()
    os.close(theirs)
    assert os.read(ours, 1) == b""  # nobody else holds the other end
    os.close(ours)
    assert facts["parent"] != os.getpid()
    assert facts["session"] not in (os.getsid(0), facts["pid"])
    assert (facts["cwd"], facts["umask"]) == ("/", 0o077)
    assert facts["environment"]["TETHER_KEEPER"] == home.path
    assert not facts["environment"].keys() & {"TETHER_PROCESS", "SECRET", "TETHER_HOME"}
    if LINUX:
        assert [facts["open"][name] for name in "012"] == ["/dev/null", "/dev/null", home.log_path]


@pytest.mark.requirement("design:keeper:auto-start")
async def test_a_keeper_that_runs_is_used(home: Home, tmp_path: Path) -> None:
    first = await answer(await connect(home, start=True, argv=scripted(home)))
    ran = tmp_path / "ran"
    other = (*NOTES_THAT_IT_RAN, str(ran))
    assert await answer(await connect(home, start=True, argv=other)) == first
    assert await answer(await connect(home, start=False)) == first
    assert not ran.exists()


@pytest.mark.requirement("design:keeper:auto-start")
async def test_many_callers_at_once_reach_one_keeper(home: Home) -> None:
    callers = [connect(home, start=True, argv=scripted(home), seconds=30) for _ in range(10)]
    connections = await asyncio.gather(*callers)
    answers = {await answer(connection) for connection in connections}
    assert answers == {str(facts_of(home)["pid"]).encode()}


@pytest.mark.requirement("design:keeper:unavailable")
async def test_without_a_keeper_nothing_is_started_unasked(home: Home, tmp_path: Path) -> None:
    with pytest.raises(KeeperUnavailableError, match="no keeper runs for") as caught:
        await connect(home, start=False)
    assert repr(home.path) in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.requirement("design:keeper:unavailable")
async def test_a_socket_that_nobody_listens_on_any_more_is_no_keeper(home: Home) -> None:
    home.prepare()
    listener = bind(home)
    listener.socket.close()
    with pytest.raises(KeeperUnavailableError, match="no keeper runs for"):
        await connect(home, start=False)
    assert await answer(await connect(home, start=True, argv=scripted(home)))


@pytest.mark.requirement("design:keeper:unavailable")
async def test_what_a_keeper_said_before_it_failed_is_told(home: Home, tmp_path: Path) -> None:
    home.prepare()
    (tmp_path / "h" / "keeper.log").write_text("words of an earlier one\n", encoding="utf-8")
    with pytest.raises(KeeperUnavailableError, match=r"within 1 s; it said:\nno module named keeper$"):
        await connect(home, start=True, seconds=1, argv=FAILS)


@pytest.mark.requirement("design:keeper:unavailable")
async def test_only_the_last_of_many_words_are_told(home: Home) -> None:
    noise = 'n=0; while [ $n -lt 1000 ]; do echo "line $n is said to nobody" >&2; n=$((n + 1)); done'
    with pytest.raises(KeeperUnavailableError, match="line 999") as caught:
        await connect(home, start=True, seconds=1, argv=("/bin/sh", "-c", noise))
    assert len(str(caught.value).splitlines()) == 11
    assert "line 990" in str(caught.value)


@pytest.mark.requirement("design:keeper:unavailable")
async def test_a_keeper_that_leaves_no_word_is_told_with_its_log(home: Home) -> None:
    with pytest.raises(KeeperUnavailableError, match="it left no word in") as caught:
        await connect(home, start=True, seconds=0.2, argv=("true",))
    assert home.log_path in str(caught.value)


@pytest.mark.requirement("design:keeper:unavailable")
@pytest.mark.parametrize("start", [True, False])
async def test_a_keeper_that_does_not_answer_is_told_with_its_pid(
    home: Home, lock: KeeperLock, tmp_path: Path, *, start: bool
) -> None:
    ran = tmp_path / "ran"
    with pytest.raises(KeeperUnavailableError, match=rf"\(pid {os.getpid()}\) does not answer within 0\.2 s"):
        await connect(home, start=start, seconds=0.2, argv=(*NOTES_THAT_IT_RAN, str(ran)))
    lock.release()
    assert not ran.exists()


@pytest.mark.requirement("design:keeper:auto-start")
async def test_a_keeper_that_ends_while_it_is_called_is_followed_by_another(home: Home, lock: KeeperLock) -> None:
    asyncio.get_running_loop().call_later(0.1, lock.release)
    assert await answer(await connect(home, start=True, argv=scripted(home))) == str(facts_of(home)["pid"]).encode()


@pytest.mark.requirement("design:keeper:auto-start")
async def test_a_keeper_that_starts_or_binds_again_is_awaited(home: Home, lock: KeeperLock) -> None:
    bound: list[Listener] = []
    asyncio.get_running_loop().call_later(0.1, lambda: bound.append(bind(home)))
    connection = await connect(home, start=False)
    connection.close()
    bound[0].close(home)
    lock.release()


@pytest.mark.requirement("design:keeper:auto-start")
async def test_a_keeper_that_came_to_nothing_is_launched_again_after_a_while(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tether.keeper.launch._RELAUNCH_SECONDS", 0.2)
    argv = (*python(FAILS_ONCE), home.path, python(KEEPER)[-1])
    assert await answer(await connect(home, start=True, argv=argv)) == str(facts_of(home)["pid"]).encode()


@pytest.mark.requirement("design:keeper:auto-start")
async def test_a_keeper_is_not_launched_again_at_once(home: Home, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    with pytest.raises(KeeperUnavailableError):
        await connect(home, start=True, seconds=1, argv=(*NOTES_THAT_IT_RAN, str(ran)))
    assert ran.read_text(encoding="utf-8") == "ran\n"


@pytest.mark.requirement("design:keeper:auto-start")
async def test_a_keeper_with_too_many_callers_is_called_again(home: Home, lock: KeeperLock) -> None:
    listener = bind(home)
    listener.socket.listen(0)
    waiting: list[socket.socket] = []
    with contextlib.suppress(BlockingIOError):
        while len(waiting) < 100:
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].settimeout(0)
            waiting[-1].connect(home.socket_path)
    loop = asyncio.get_running_loop()
    accepted: list[socket.socket] = []

    def lets_everybody_in() -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                accepted.append(listener.socket.accept()[0])

    loop.call_later(0.1, lets_everybody_in)
    connection = await connect(home, start=False)
    for one in (connection, *waiting, *accepted):
        one.close()
    listener.close(home)
    lock.release()


@pytest.mark.requirement("design:keeper:peer-user")
async def test_a_listener_of_another_user_is_no_keeper(
    home: Home, lock: KeeperLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = bind(home)
    with monkeypatch.context() as patch:
        own = os.geteuid()
        patch.setattr(os, "geteuid", lambda: own + 1)
        with pytest.raises(KeeperUnavailableError, match=f"is user {own}, not you"):
            await connect(home, start=False)
    listener.close(home)
    lock.release()


@pytest.mark.requirement("design:keeper:unavailable")
async def test_a_home_that_cannot_be_one_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(KeeperUnavailableError, match="set TETHER_HOME"):
        await connect(Home.of(str(tmp_path / "file")), start=True)


@pytest.mark.requirement("design:keeper:unavailable")
def test_a_keeper_whose_log_cannot_be_written_is_not_launched(tmp_path: Path) -> None:
    home = Home.of(str(tmp_path / "h"))
    home.prepare()
    os.mkdir(home.log_path)
    with pytest.raises(KeeperUnavailableError, match=r"cannot launch a keeper .*keeper\.log"):
        launch(home, ("true",))


@pytest.mark.requirement("design:keeper:detached")
def test_a_keeper_knows_only_what_it_needs_of_its_starter() -> None:
    passed = {
        "PATH": "/bin",
        "LC_ALL": "C.UTF-8",
        "XDG_RUNTIME_DIR": "/run/user/1",
        "PYTHONPATH": os.pathsep.join(("src", "", "/lib")),
        "TMPDIR": "/tmp",
    }
    hidden = {"TETHER_PROCESS": "a b", "TETHER_HOME": "/x", "ANTHROPIC_API_KEY": "k", "MYPATH": "/", "PATHEXT": "x"}
    assert keeper_environment(Home("/h"), passed | hidden) == passed | {
        "PYTHONPATH": os.pathsep.join((os.path.abspath("src"), "/lib")),
        "TETHER_KEEPER": "/h",
    }


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system that systemd runs, whose systemd-run is the file given back."""
    monkeypatch.setattr("tether.keeper.launch._SYSTEMD", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere")
    return tmp_path / "systemd-run"


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.requirement("design:keeper:leaves-unit")
async def test_a_keeper_leaves_the_service_unit_of_its_starter(home: Home, systemd: Path, tmp_path: Path) -> None:
    run_as = 'echo "$@" >"$(dirname "$0")/args"; while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
    write_program(systemd, run_as)
    assert await answer(await connect(home, start=True, argv=scripted(home)))
    options = (tmp_path / "args").read_text(encoding="utf-8").partition(" -- ")[0].split()
    assert options[-1].startswith(f"--unit=keeper-of-tether-{home.fingerprint[:12]}-")
    whose = [] if os.geteuid() == 0 else ["--user"]
    assert options[:-1] == [*whose, "--scope", "--quiet", "--collect", "-p", "Delegate=yes"]
    # Without it the manager of the user cannot be reached.
    assert facts_of(home)["environment"]["DBUS_SESSION_BUS_ADDRESS"] == "unix:path=/nowhere"


@pytest.mark.requirement("design:keeper:leaves-unit")
@pytest.mark.parametrize("broken", ["echo no bus >&2; exit 1", "exec sleep 1000"])
async def test_where_the_unit_cannot_be_left_the_keeper_is_launched_all_the_same(
    home: Home, systemd: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tether.keeper.launch._LEAVING_SECONDS", 0.3)
    write_program(systemd, broken)
    assert await answer(await connect(home, start=True, argv=scripted(home)))
    assert "DBUS_SESSION_BUS_ADDRESS" not in facts_of(home)["environment"]


@pytest.mark.requirement("design:no-leaks")
async def test_a_caller_that_gives_up_leaves_no_child_behind(home: Home, systemd: Path, tmp_path: Path) -> None:
    write_program(systemd, f"touch {tmp_path}/runs; exec sleep 1000")
    async with asyncio.TaskGroup() as tasks:
        caller = tasks.create_task(connect(home, start=True, argv=scripted(home)))
        await wait_until(lambda: (tmp_path / "runs").exists())
        caller.cancel()


@pytest.mark.requirement("design:keeper:leaves-unit")
def test_the_unit_is_left_through_the_manager_of_the_user(
    systemd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(systemd, "exit 0")
    home = Home(str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    path = {"PATH": str(tmp_path)}
    assert scope_prefix(home, path) == ()
    assert scope_prefix(home, path | {"XDG_RUNTIME_DIR": str(tmp_path)}) == ()
    assert scope_prefix(home, path | {"DBUS_SESSION_BUS_ADDRESS": "unix:"})[:3] == (str(systemd), "--user", "--scope")
    (tmp_path / "systemd").mkdir()
    (tmp_path / "systemd" / "private").touch()
    assert scope_prefix(home, path | {"XDG_RUNTIME_DIR": str(tmp_path)})[:2] == (str(systemd), "--user")
    assert scope_prefix(home, {"PATH": "/nowhere"}) == ()
    monkeypatch.setattr("tether.keeper.launch._SYSTEMD", str(tmp_path / "not-there"))
    assert scope_prefix(home, path | {"DBUS_SESSION_BUS_ADDRESS": "unix:"}) == ()


@pytest.mark.requirement("design:keeper:detached")
def test_a_keeper_undoes_what_its_starter_did_to_signals() -> None:
    code = """
        import signal
        from tether.keeper.launch import restore_signals
        restore_signals()
        names = ("SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM", "SIGPIPE")
        print([str(getattr(signal.getsignal(getattr(signal, name)), "name", "handler")) for name in names])
        print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    """
    shell = 'trap "" INT QUIT HUP TERM; exec "$@"'
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    try:
        ran = subprocess.run(
            ("/bin/sh", "-c", shell, "sh", *python(code)), capture_output=True, text=True, check=True
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    assert ran.stdout == "['handler', 'SIG_DFL', 'SIG_DFL', 'SIG_DFL', 'SIG_IGN']\nset()\n"


LEAVES = """
    from tether.keeper.launch import leave_control_group
    leave_control_group()
    print(next((line[3:-1] for line in open("/proc/self/cgroup") if line.startswith("0::")), ""))
"""
ENTERS = 'echo $$ >"$0/cgroup.procs" || exit 1; exec "$@"'


def run_in(group: Path, argv: Sequence[str]) -> str:
    return subprocess.run(("/bin/sh", "-c", ENTERS, group, *argv), capture_output=True, text=True, check=True).stdout


@pytest.mark.requirement("design:keeper:leaves-group")
def test_a_keeper_leaves_the_control_group_of_a_process_it_was_started_in() -> None:
    tree = next((point for point, kind in mounted_now() if kind == "cgroup2"), "/nowhere")
    parent = Path(tree, f"test-{os.getpid()}")
    group, below = parent / "tether-some-process", parent / "tether-some-process" / "below"
    try:
        below.mkdir(parents=True)
    except OSError:
        leave_control_group()  # there are no groups here, which is no error
        return
    try:
        assert run_in(group, python(LEAVES)) == f"/{parent.name}\n"
        assert run_in(below, python(LEAVES)) == f"/{parent.name}\n"
        assert run_in(parent, python(LEAVES)) == f"/{parent.name}\n"
    finally:
        for made in (below, group, parent):
            made.rmdir()


@pytest.mark.requirement("design:keeper:leaves-group")
def test_a_keeper_that_cannot_leave_its_control_group_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, mounted = tmp_path / "cgroup", tmp_path / "mountinfo"
    told.write_text("1:cpu:/\n0::/a/tether-x\n", encoding="utf-8")
    mounted.write_text(f"1 0 0:1 / {tmp_path}/tree rw - cgroup2 none rw\n", encoding="utf-8")
    monkeypatch.setattr("tether.keeper.launch._CGROUP", str(told))
    monkeypatch.setattr("tether.keeper.home._MOUNTINFO", str(mounted))
    leave_control_group()
    assert sorted(os.listdir(tmp_path)) == ["cgroup", "mountinfo"]


@pytest.mark.requirement("design:keeper:auto-start")
def test_a_keeper_runs_in_the_python_of_its_starter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keeper_argv(Home("/h")) == [sys.executable, "-P", "-m", "tether.keeper", "--home", "/h"]
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(KeeperUnavailableError, match="does not say where its program is"):
        keeper_argv(Home("/h"))


@pytest.mark.requirement("design:keeper:auto-start")
async def test_the_keeper_itself_is_launched_and_answers(home: Home) -> None:
    connection = await connect(home, start=True, seconds=30)
    connection.close()
    holder = KeeperLock.holder(home)
    assert holder is not None
    assert holder.pid != os.getpid()

"""Who is served: the keeper's own user, but never a program that an agent started."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from tests.helpers import python
from tether.keeper.home import mounted_now
from tether.keeper.peer import Peer, peer_of, refusal

LINUX = sys.platform == "linux"

CALLS = """
    import socket, sys
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(sys.argv[1])
        caller.recv(1)
"""

# A keeper in small: adopts orphans, starts one process, and says of whoever connects whether it is served.
KEEPER = """
    import ctypes, json, os, signal, socket, subprocess, sys
    from tether.keeper.peer import peer_of, refusal
    told = json.loads(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(told["socket"])
        listener.listen()
        child = subprocess.Popen(told["argv"], env={**os.environ, **told["env"]})
        connection, _ = listener.accept()
        peer = peer_of(connection)
        if told["peer_ends_first"]:
            os.kill(peer.pid, signal.SIGKILL)
            child.wait()
        print(json.dumps(refusal(
            peer, own_uid=os.geteuid(), keeper_pid=os.getpid(), is_guest=lambda one: one in told["guests"],
            leaders={child.pid: told["leader"]} if told["leader"] else {}, guests_seen=told["guests_seen"])))
        connection.close()
        child.wait()
        try:
            while True:
                os.wait()
        except ChildProcessError:
            pass
"""
ORPHAN = """
    import os, sys
    parent = os.getpid()
    if os.fork() == 0:
        os.setsid()
        while os.getppid() == parent:
            os.sched_yield()
        os.execve(sys.argv[1], sys.argv[1:], {"PATH": os.environ["PATH"]})
"""


ENTERS_A_GROUP = 'echo $$ >"$0/cgroup.procs" && exec env -i "$@"'


def caller(path: str) -> tuple[str, ...]:
    return (*python(CALLS), path)


def without_environment(path: str) -> tuple[str, ...]:
    return ("/usr/bin/env", "-i", *caller(path))


def beneath_a_shell(path: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", 'env -i "$@"; true', "sh", *caller(path))


def orphan(path: str) -> tuple[str, ...]:
    return (*python(ORPHAN), *caller(path))


def verdict(
    path: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    leader: str = "",
    guests: Sequence[str] = (),
    guests_seen: bool = True,
    peer_ends_first: bool = False,
) -> str | None:
    """What a keeper answers whoever `argv` makes connect."""
    told = {
        "socket": path,
        "argv": argv,
        "env": env or {},
        "leader": leader,
        "guests": guests,
        "guests_seen": guests_seen,
        "peer_ends_first": peer_ends_first,
    }
    kept = subprocess.run(
        (*python(KEEPER), json.dumps(told)), capture_output=True, text=True, timeout=30, check=False
    )
    assert kept.returncode == 0, kept.stderr
    return json.loads(kept.stdout)


@pytest.fixture
def path() -> Iterator[str]:
    """A socket's path that is short and that other users can reach."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        yield f"{directory}/s"


@pytest.mark.requirement("design:keeper:peer")
def test_the_system_tells_who_connected(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        with subprocess.Popen(caller(path)) as child:
            connection, _ = listener.accept()
            with connection:
                assert peer_of(connection) == Peer(child.pid, os.geteuid())


@pytest.mark.requirement("design:keeper:peer-user")
@pytest.mark.parametrize(("own", "other"), [(1000, 0), (1000, 1001), (0, 1000)])
def test_another_user_is_refused_root_included(own: int, other: int) -> None:
    peer = Peer(os.getpid(), other)
    said = refusal(peer, own_uid=own, keeper_pid=1, is_guest=lambda _process_id: False, leaders={}, guests_seen=False)
    assert said == f"this keeper serves user {own} only, not user {other}; use a TETHER_HOME of your own"


@pytest.mark.requirement("design:keeper:peer-user")
def test_a_program_of_another_user_is_seen_as_such(path: str) -> None:
    user = 65534 if os.geteuid() == 0 else os.geteuid()
    # Without groups of its own it would keep ours.
    groups: list[int] | None = [] if os.geteuid() == 0 else None
    program = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.chmod(path, 0o666)
        listener.listen()
        argv = (program, *caller(path)[1:])
        with subprocess.Popen(argv, user=user, extra_groups=groups, cwd="/") as child:
            connection, _ = listener.accept()
            with connection:
                peer = peer_of(connection)
                said = refusal(
                    peer,
                    own_uid=os.geteuid(),
                    keeper_pid=os.getpid(),
                    is_guest=lambda _process_id: False,
                    leaders={child.pid: "mine"},
                    guests_seen=True,
                )
    assert peer == Peer(child.pid, user)
    assert (said is None) == (user == os.geteuid())


@pytest.mark.requirement("design:keeper:peer-guest")
@pytest.mark.skipif(not LINUX, reason="there is no environment of others to read")
@pytest.mark.parametrize("cookie", ["guest", "outer guest", "guest inner"])
def test_whoever_carries_the_cookie_of_a_guest_is_refused(path: str, cookie: str) -> None:
    said = verdict(path, caller(path), env={"TETHER_PROCESS": cookie}, leader="outer", guests=["guest"])
    assert said is not None
    assert "belongs to process guest, which an agent started" in said


@pytest.mark.requirement("design:keeper:peer-guest")
@pytest.mark.parametrize("how", [caller, without_environment, beneath_a_shell])
def test_whoever_descends_from_a_guest_is_refused_even_without_a_cookie(
    path: str, how: Callable[[str], Sequence[str]]
) -> None:
    said = verdict(path, how(path), leader="guest", guests=["guest"])
    assert said is not None
    assert "belongs to process guest, which an agent started" in said


@pytest.mark.requirement("design:keeper:peer-guest")
@pytest.mark.skipif(not LINUX, reason="orphans are adopted on Linux only")
def test_an_orphan_that_nobody_knows_is_refused_once_there_was_a_guest(path: str) -> None:
    said = verdict(path, orphan(path), leader="other", guests=["guest"])
    assert said is not None
    assert "left behind by a process that nobody knows any more" in said


@pytest.mark.requirement("design:keeper:peer-guest")
@pytest.mark.skipif(not LINUX, reason="orphans are adopted on Linux only")
def test_an_orphan_is_served_as_long_as_there_was_no_guest(path: str) -> None:
    assert verdict(path, orphan(path), leader="other", guests_seen=False) is None


@pytest.mark.requirement("design:keeper:peer-guest")
@pytest.mark.skipif(not LINUX, reason="there is no environment of others to read")
def test_the_child_of_one_that_carries_the_cookie_of_a_guest_is_refused(path: str) -> None:
    env = {"TETHER_PROCESS": "guest"}
    said = verdict(path, beneath_a_shell(path), env=env, leader="other", guests=["guest"])
    assert said is not None
    assert "belongs to process guest" in said


@pytest.fixture
def group() -> Iterator[str | None]:
    """The control group of a process called GUEST, where this system lets us make one."""
    tree = next((point for point, kind in mounted_now() if kind == "cgroup2"), "/nowhere")
    # Not beside the groups of real processes, whose leftovers are swept by whoever comes next.
    parent = f"{tree}/test-peer-{os.getpid()}"
    made = f"{parent}/tether-GUEST"
    try:
        os.makedirs(made)
    except OSError:
        yield None
        return
    yield made
    os.removedirs(made)


@pytest.mark.requirement("design:keeper:peer-guest")
@pytest.mark.parametrize("beneath", [False, True])
def test_whoever_is_in_the_control_group_of_a_guest_is_refused(
    path: str, group: str | None, *, beneath: bool
) -> None:
    if group is None:
        assert verdict(path, caller(path), leader="other") is None
        return
    place = f"{group}/below" if beneath else group
    os.makedirs(place, exist_ok=True)
    guest = os.path.basename(group).removeprefix("tether-")
    argv = ("/bin/sh", "-c", ENTERS_A_GROUP, place, *caller(path))
    said = verdict(path, argv, leader="other", guests=[guest])
    if beneath:
        os.rmdir(place)
    assert said is not None
    assert f"belongs to process {guest}, which an agent started" in said


@pytest.mark.requirement("design:keeper:peer-guest")
def test_whoever_vanished_is_refused_once_there_was_a_guest(path: str) -> None:
    said = verdict(path, caller(path), leader="mine", guests=["guest"], peer_ends_first=True)
    assert said is not None
    assert "an agent's program is not served" in said


@pytest.mark.requirement("design:keeper:peer")
def test_whoever_vanished_is_served_as_long_as_there_was_no_guest(path: str) -> None:
    assert verdict(path, caller(path), leader="mine", guests_seen=False, peer_ends_first=True) is None


@pytest.mark.requirement("design:keeper:peer")
def test_what_the_person_started_is_served_inside_the_keeper_and_outside(path: str) -> None:
    env = {"TETHER_PROCESS": "mine"}
    assert verdict(path, beneath_a_shell(path), env=env, leader="mine", guests=["guest"]) is None
    this = Peer(os.getpid(), os.geteuid())
    said = refusal(
        this, own_uid=os.geteuid(), keeper_pid=-1, is_guest=lambda _process_id: False, leaders={}, guests_seen=True
    )
    assert said is None


@pytest.mark.requirement("design:keeper:peer-guest")
def test_one_that_cannot_be_seen_from_here_is_refused_once_there_was_a_guest() -> None:
    # Zero is what the system tells of a peer in a world of processes that is not below ours.
    hidden = Peer(0, 1000)
    for guests_seen in (True, False):
        said = refusal(
            hidden, own_uid=1000, keeper_pid=5, is_guest=lambda _one: False, leaders={}, guests_seen=guests_seen
        )
        assert (said is not None) == (guests_seen and LINUX)

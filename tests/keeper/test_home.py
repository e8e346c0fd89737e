"""TETHER_HOME: where it is, whom it belongs to, and its one lock."""

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.helpers import python
from tether.errors import KeeperUnavailableError
from tether.keeper.home import Holder, Home, KeeperLock, file_system_type, mounts

HOLDS_THE_LOCK = """
    import sys
    from tether.keeper.home import Home, KeeperLock
    print(KeeperLock.take(Home(sys.argv[1]), "first") is not None, flush=True)
    sys.stdin.read()
"""
ADOPTS_THE_LOCK = """
    import os, sys
    from tether.keeper.home import KeeperLock
    lock = KeeperLock.adopt(int(sys.argv[1]))
    print(os.get_inheritable(lock.descriptor), flush=True)
    sys.stdin.read()
"""
MOUNTINFO = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:21 / /proc rw - proc proc rw
24 22 0:40 / /mnt/team\\040files rw,relatime shared:1 master:2 - nfs4 server:/export rw,vers=4.2
25 24 0:41 / /mnt/team\\040files/local rw - xfs /dev/sdb rw
26 22 0:42 / /mnt/box rw - ext4 /dev/sdc rw
27 22 0:43 / /mnt/box rw - fuse.sshfs somebody@host: rw
28 22 0:44 / /back\\134slash rw - cifs //server/share rw
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home.of(str(tmp_path / "h"))
    made.prepare()
    return made


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.requirement("design:keeper:home")
@pytest.mark.parametrize(
    ("given", "environ", "expected"),
    [
        ("/a/b/../c/", {"TETHER_HOME": "/ignored"}, "/a/c"),
        (None, {"TETHER_HOME": "/t//h/.", "XDG_STATE_HOME": "/ignored"}, "/t/h"),
        (None, {"TETHER_HOME": "relative"}, os.path.abspath("relative")),
    ],
)
def test_the_home_is_the_one_given_else_that_of_the_environment(
    given: str | None, environ: dict[str, str], expected: str
) -> None:
    assert Home.of(given, environ).path == expected


@pytest.mark.requirement("design:keeper:home")
@pytest.mark.parametrize("unset", [{}, {"TETHER_HOME": ""}])
def test_without_one_it_is_in_the_state_directory_of_the_platform(unset: dict[str, str]) -> None:
    user = {**unset, "HOME": "/home/someone"}
    if sys.platform == "darwin":
        assert Home.of(None, user).path == "/home/someone/Library/Application Support/tether"
        return
    assert Home.of(None, user).path == "/home/someone/.local/state/tether"
    assert Home.of(None, {**user, "XDG_STATE_HOME": "/state"}).path == "/state/tether"
    assert Home.of(None, {**user, "XDG_STATE_HOME": "state"}).path == "/home/someone/.local/state/tether"
    assert os.path.isabs(Home.of(None, unset).path)


@pytest.mark.requirement("design:keeper:home")
@pytest.mark.parametrize("nonsense", ["", "a\0b", "/x\ud800"])
def test_what_cannot_be_a_path_is_refused(nonsense: str) -> None:
    with pytest.raises(KeeperUnavailableError, match="TETHER_HOME") as caught:
        Home.of(nonsense)
    assert repr(nonsense) in str(caught.value)


@pytest.mark.requirement("design:keeper:home")
def test_a_relative_home_needs_a_current_directory(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = """
        import os
        os.rmdir(os.getcwd())
        from tether.errors import KeeperUnavailableError
        from tether.keeper.home import Home
        try:
            Home.of("here")
        except KeeperUnavailableError as error:
            print(error)
    """
    said = subprocess.run(python(code), cwd=gone, capture_output=True, text=True, check=True).stdout
    assert "'here'" in said
    assert "absolute path" in said


@pytest.mark.requirement("design:keeper:private")
def test_a_home_is_made_with_its_parents_for_its_owner_alone(tmp_path: Path) -> None:
    home = Home.of(str(tmp_path / "a" / "b"))
    home.prepare()
    home.prepare()
    assert [mode(path) for path in (tmp_path / "a", home.path, home.processes)] == [0o700] * 3
    assert [home.lock_path, home.log_path] == [f"{home.path}/keeper.lock", f"{home.path}/keeper.log"]


@pytest.mark.requirement("design:keeper:private")
def test_a_home_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    home = Home.of(str(tmp_path / "open"))
    os.makedirs(home.processes)
    for path in (home.path, home.processes):
        os.chmod(path, 0o755)
    home.prepare()
    assert (mode(home.path), mode(home.processes)) == (0o700, 0o700)


@pytest.mark.requirement("design:keeper:private")
def test_a_home_of_another_user_is_refused(tmp_path: Path) -> None:
    foreign = "/usr"
    if os.geteuid() == 0:
        foreign = str(tmp_path / "foreign")
        os.mkdir(foreign)
        os.chown(foreign, 65534, 65534)
    before = mode(foreign)
    with pytest.raises(KeeperUnavailableError, match=r"belongs to user \d+ and you are \d+; set TETHER_HOME"):
        Home.of(foreign).prepare()
    assert mode(foreign) == before


@pytest.mark.requirement("design:keeper:private")
def test_a_directory_shared_by_all_users_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(KeeperUnavailableError, match="inside it"):
        Home.of(str(shared)).prepare()
    assert mode(shared) == 0o1777


@pytest.mark.requirement("design:keeper:home-unusable")
def test_a_place_that_cannot_be_a_home_is_told_with_its_path_and_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    closed = "/proc/tether" if sys.platform == "linux" else "/System/tether"
    for path in (str(tmp_path / "file"), str(tmp_path / "file" / "x"), str(tmp_path / "dangling"), closed):
        with pytest.raises(KeeperUnavailableError, match="set TETHER_HOME to a directory you may write to") as caught:
            Home.of(path).prepare()
        assert repr(path) in str(caught.value)


@pytest.mark.requirement("design:keeper:home-unusable")
def test_a_full_or_read_only_disk_is_told_as_such(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_full(path: str, mode: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def is_read_only(path: str, mode: int, *, effective_ids: bool) -> bool:
        return not mode & os.W_OK

    for name, system, remedy in (("mkdir", is_full, "make room there"), ("access", is_read_only, "you may write to")):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, system)
            with pytest.raises(KeeperUnavailableError, match=remedy):
                home.prepare()


@pytest.mark.requirement("design:keeper:local-disk")
@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "afs", "fuse.sshfs"])
def test_a_home_on_a_network_file_system_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "mountinfo"
    point = os.path.realpath(tmp_path).replace(" ", r"\040")
    told.write_text(f"1 0 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 / {point} rw - {kind} there rw\n", encoding="utf-8")
    monkeypatch.setattr("tether.keeper.home._MOUNTINFO", str(told))
    home = Home.of(str(tmp_path / "new" / "home"))
    with pytest.raises(
        KeeperUnavailableError, match=rf"\({kind}\) and logs need a local file system; set TETHER_HOME"
    ):
        home.prepare()
    assert not os.path.exists(tmp_path / "new")


@pytest.mark.requirement("design:keeper:local-disk")
@pytest.mark.parametrize("told", ["1 0 0:1 / / rw - nfsd nfsd rw\n", "nonsense\n\n1 2 - \n", None])
def test_a_home_on_any_other_file_system_is_taken(
    told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mountinfo = tmp_path / "mountinfo"
    if told is not None:
        mountinfo.write_text(told, encoding="utf-8")
    monkeypatch.setattr("tether.keeper.home._MOUNTINFO", str(mountinfo))
    Home.of(str(tmp_path / "home")).prepare()


@pytest.mark.requirement("design:keeper:local-disk")
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/mnt/team files/home", "nfs4"),
        ("/mnt/team files", "nfs4"),
        ("/mnt/team files/local/home", "xfs"),
        ("/mnt/team files too", "ext4"),
        ("/mnt/box/home", "fuse.sshfs"),
        ("/back\\slash/home", "cifs"),
        ("/", "ext4"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_nearest_mount(path: str, kind: str) -> None:
    assert file_system_type(path, mounts(MOUNTINFO.splitlines(keepends=True))) == kind


@pytest.mark.requirement("design:keeper:one-per-home")
def test_only_one_holds_the_lock_and_everybody_can_tell_who(home: Home) -> None:
    assert KeeperLock.holder(home) is None
    lock = KeeperLock.take(home, "one")
    assert lock is not None
    assert KeeperLock.take(home, "two") is None
    assert KeeperLock.holder(home) == Holder(os.getpid(), "one")
    assert mode(home.lock_path) == 0o600
    lock.release()
    assert KeeperLock.holder(home) is None
    again = KeeperLock.take(home, "3")
    assert again is not None
    assert Path(home.lock_path).read_bytes() == f"{os.getpid()} 3\n".encode()
    again.release()


@pytest.mark.requirement("design:keeper:one-per-home")
def test_the_lock_of_a_killed_keeper_is_free_whatever_the_file_says(home: Home) -> None:
    with subprocess.Popen(
        (*python(HOLDS_THE_LOCK), home.path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert KeeperLock.take(home, "mine") is None
        assert KeeperLock.holder(home) == Holder(other.pid, "first")
        other.send_signal(signal.SIGKILL)
    assert Path(home.lock_path).read_text(encoding="ascii").endswith("first\n")
    assert KeeperLock.holder(home) is None
    lock = KeeperLock.take(home, "mine")
    assert lock is not None
    lock.release()


@pytest.mark.requirement("design:keeper:one-per-home")
def test_a_lock_file_that_is_replaced_while_it_is_taken_is_taken_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock
    removed: list[str] = []

    def removes_it_first(descriptor: int, operation: int) -> None:
        if not removed:
            os.unlink(home.lock_path)
            removed.append(home.lock_path)
        flock(descriptor, operation)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", removes_it_first)
        lock = KeeperLock.take(home, "mine")
    assert lock is not None
    assert os.path.samestat(os.fstat(lock.descriptor), os.stat(home.lock_path))
    assert KeeperLock.holder(home) == Holder(os.getpid(), "mine")
    lock.release()


@pytest.mark.requirement("design:keeper:one-per-home")
def test_whoever_asks_for_the_holder_does_not_keep_a_keeper_from_starting(home: Home) -> None:
    asked = 0
    done = threading.Event()

    def keeps_asking() -> None:
        nonlocal asked
        while not done.is_set():
            KeeperLock.holder(home)
            asked += 1

    asking = threading.Thread(target=keeps_asking)
    asking.start()
    try:
        for _ in range(100):
            lock = KeeperLock.take(home, "mine")
            assert lock is not None
            lock.release()
    finally:
        done.set()
        asking.join()
    assert asked > 0


@pytest.mark.requirement("design:keeper:one-per-home")
def test_a_keeper_takes_a_lock_that_was_only_shared_for_a_moment(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = os.open(home.lock_path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(asking, fcntl.LOCK_SH)

    def gives_it_back(_seconds: float) -> None:
        fcntl.flock(asking, fcntl.LOCK_UN)

    monkeypatch.setattr(time, "sleep", gives_it_back)
    lock = KeeperLock.take(home, "mine")
    os.close(asking)
    assert lock is not None
    lock.release()


@pytest.mark.requirement("design:keeper:one-per-home")
def test_the_name_of_a_keeper_that_has_just_taken_the_lock_is_awaited(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(("true",)) as ended:
        pass
    Path(home.lock_path).write_text(f"{ended.pid} forerunner\n", encoding="ascii")
    taken = os.open(home.lock_path, os.O_RDWR)
    fcntl.flock(taken, fcntl.LOCK_EX)

    def writes_its_name(_seconds: float) -> None:
        os.pwrite(taken, f"{os.getpid()} mine\n".encode(), 0)

    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", writes_its_name)
        assert KeeperLock.holder(home) == Holder(os.getpid(), "mine")
    os.ftruncate(taken, 0)
    assert KeeperLock.holder(home) == Holder(0, "")
    os.close(taken)


@pytest.mark.requirement("design:keeper:upgrade-in-place")
def test_a_lock_goes_over_to_the_program_that_replaces_its_holder(home: Home) -> None:
    lock = KeeperLock.take(home, "mine")
    assert lock is not None
    assert not os.get_inheritable(lock.descriptor)
    with subprocess.Popen(
        (*python(ADOPTS_THE_LOCK), str(lock.descriptor)),
        pass_fds=(lock.descriptor,),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as successor:
        assert successor.stdout is not None
        assert successor.stdout.readline() == "False\n"
        os.close(lock.descriptor)
        assert KeeperLock.take(home, "other") is None
    assert KeeperLock.holder(home) is None


@pytest.mark.requirement("design:keeper:upgrade-in-place")
def test_a_descriptor_that_does_not_hold_the_lock_is_not_adopted(home: Home) -> None:
    lock = KeeperLock.take(home, "mine")
    assert lock is not None
    other = os.open(home.lock_path, os.O_RDWR)
    with pytest.raises(KeeperUnavailableError, match="another keeper has it"):
        KeeperLock.adopt(other)
    os.close(other)
    with pytest.raises(KeeperUnavailableError, match="is no lock"):
        KeeperLock.adopt(other)
    lock.release()


@pytest.mark.requirement("design:keeper:home-unusable")
def test_a_home_without_room_for_a_lock_is_told(tmp_path: Path) -> None:
    with pytest.raises(KeeperUnavailableError, match="cannot keep anything in"):
        KeeperLock.take(Home(str(tmp_path / "missing")), "mine")

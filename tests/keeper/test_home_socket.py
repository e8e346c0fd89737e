"""The socket of a home: private, short enough, found by everybody who may find it."""

import fcntl
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tether.errors import KeeperUnavailableError
from tether.keeper.home import Home, Listener, bind, bound_here


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home.of(str(tmp_path / "h"))
    made.prepare()
    return made


@pytest.fixture
def long_home(tmp_path: Path) -> Home:
    made = Home.of(str(tmp_path / ("long" * 25) / "home"))
    made.prepare()
    return made


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A session's runtime directory with a short name."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        yield Path(directory)


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def connected(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        return client.connect_ex(path) == 0


@pytest.mark.requirement("design:keeper:socket")
def test_the_socket_is_in_the_home_and_private(home: Home) -> None:
    for left_by_a_killed_keeper in ("keeper.sock", "keeper.new"):
        Path(home.path, left_by_a_killed_keeper).touch()
    listener = bind(home)
    assert listener.path == home.socket_path == os.path.join(os.path.realpath(home.path), "keeper.sock")
    assert mode(home.socket_path) == 0o600
    assert not listener.socket.getblocking()
    assert not listener.socket.get_inheritable()
    assert connected(home.socket_path)
    listener.socket.accept()[0].close()
    assert bound_here(home, listener)
    listener.close(home)
    assert sorted(os.listdir(home.path)) == ["processes"]


@pytest.mark.requirement("design:keeper:rebinds")
def test_a_socket_path_that_vanished_or_was_replaced_is_noticed_and_bound_again(home: Home) -> None:
    first = bind(home)
    os.unlink(home.socket_path)
    assert not bound_here(home, first)
    second = bind(home)
    assert not bound_here(home, first)
    assert bound_here(home, second)
    first.close(home)
    assert connected(home.socket_path)
    second.close(home)
    assert not os.path.exists(home.socket_path)


@pytest.mark.requirement("design:keeper:upgrade-in-place")
def test_a_listener_goes_over_to_the_program_that_replaces_its_owner(home: Home) -> None:
    listener = bind(home)
    descriptor = os.dup(listener.socket.fileno())
    fcntl.fcntl(descriptor, fcntl.F_SETFD, 0)
    listener.socket.close()
    successor = Listener.inherited(descriptor, listener.path, listener.device, listener.inode)
    assert bound_here(home, successor)
    assert not successor.socket.get_inheritable()
    assert not successor.socket.getblocking()
    assert connected(home.socket_path)
    successor.socket.accept()[0].close()
    successor.close(home)


@pytest.mark.requirement("design:keeper:socket-short")
def test_a_socket_whose_name_would_be_too_long_is_in_the_runtime_directory(long_home: Home, runtime: Path) -> None:
    assert os.path.dirname(long_home.socket_path) == f"{runtime}/tether"
    assert not os.path.exists(f"{runtime}/tether")
    listener = bind(long_home)
    assert mode(runtime / "tether") == 0o700
    assert mode(listener.path) == 0o600
    assert connected(long_home.socket_path)
    assert bound_here(long_home, listener)
    listener.close(long_home)
    assert os.listdir(runtime / "tether") == []
    assert not os.path.lexists(long_home.socket_name)


@pytest.mark.requirement("design:keeper:socket-short")
def test_whoever_has_another_runtime_directory_finds_the_socket_all_the_same(
    long_home: Home, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = bind(long_home)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert long_home.socket_path == listener.path
    os.unlink(long_home.socket_name)
    assert not bound_here(long_home, listener)
    assert long_home.socket_path == f"/tmp/tether-{os.geteuid()}/{long_home.fingerprint}.sock"
    os.symlink("/somewhere/else.sock", long_home.socket_name)
    assert not bound_here(long_home, listener)
    assert os.path.dirname(long_home.socket_path) == f"/tmp/tether-{os.geteuid()}"
    os.unlink(listener.path)
    listener.socket.close()


@pytest.mark.requirement("design:keeper:rebinds")
def test_a_runtime_directory_that_went_with_the_session_is_replaced_by_another(
    long_home: Home, runtime: Path
) -> None:
    listener = bind(long_home)
    os.unlink(listener.path)
    (runtime / "tether").rmdir()
    runtime.rmdir()
    assert not bound_here(long_home, listener)
    listener.close(long_home)
    successor = bind(long_home)
    assert os.path.dirname(successor.path) == f"/tmp/tether-{os.geteuid()}"
    assert mode(os.path.dirname(successor.path)) == 0o700
    assert connected(long_home.socket_path)
    successor.close(long_home)


@pytest.mark.requirement("design:keeper:socket-short")
def test_homes_never_share_a_socket_and_links_to_one_lead_to_the_same(
    long_home: Home, tmp_path: Path, runtime: Path
) -> None:
    (tmp_path / "link").symlink_to(long_home.path)
    linked = Home.of(str(tmp_path / "link"))
    assert linked.socket_path == long_home.socket_path
    assert Home.of(long_home.path + "2").socket_path != long_home.socket_path


@pytest.mark.requirement("design:keeper:private")
@pytest.mark.parametrize("trap", ["open", "link", "file"])
def test_a_socket_directory_that_somebody_else_may_have_made_is_refused(
    trap: str, long_home: Home, runtime: Path, tmp_path: Path
) -> None:
    place = runtime / "tether"
    if trap == "open":
        place.mkdir()
        place.chmod(0o777)
    elif trap == "link":
        place.symlink_to(tmp_path)
    else:
        place.touch()
    for use in (lambda: long_home.socket_path, lambda: bind(long_home)):
        with pytest.raises(KeeperUnavailableError, match="not a directory for you alone"):
            use()


@pytest.mark.requirement("design:keeper:private")
def test_a_runtime_directory_that_is_open_to_others_is_not_used(long_home: Home, runtime: Path) -> None:
    runtime.chmod(0o755)
    assert os.path.dirname(long_home.socket_path) == f"/tmp/tether-{os.geteuid()}"


@pytest.mark.requirement("design:keeper:home-unusable")
def test_a_socket_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    home = Home(str(tmp_path / "h"))
    home.prepare()
    os.mkdir(home.socket_path)
    with pytest.raises(KeeperUnavailableError, match="cannot listen on"):
        bind(home)

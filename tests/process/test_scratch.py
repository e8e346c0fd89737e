"""Temporary directories: gone with their owner, or with the next one."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.helpers import python
from tether.process._scratch import Scratch

HOLDS_ONE = """
    import sys
    from tether.process._scratch import Scratch
    print(Scratch().path, flush=True)
    sys.stdin.read()
"""


def aged(path: Path) -> Path:
    """`path` as if it had been made some minutes ago."""
    earlier = time.time() - 600
    os.utime(path, (earlier, earlier))
    return path


@pytest.fixture
def unswept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not looked for leftovers yet."""
    monkeypatch.setattr("tether.process._scratch._swept", set[str]())


@pytest.mark.requirement("design:no-leaks")
def test_what_a_killed_owner_left_is_removed_by_the_next(unswept: None) -> None:
    with subprocess.Popen(python(HOLDS_ONE), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        left = aged(Path(owner.stdout.readline().strip()))
        (left / "log").write_bytes(b"output")
        aged(left)
        kept = Scratch()
        assert left.exists()  # its owner lives
        kept.remove()
        owner.send_signal(signal.SIGKILL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tether.process._scratch._swept", set[str]())
        Scratch().remove()
    assert not left.exists()


@pytest.mark.requirement("design:no-leaks")
def test_neither_strangers_nor_what_was_made_just_now_is_removed(unswept: None, scratch: str) -> None:
    place = Path(scratch)
    stranger = aged_directory(place / "tether-notes")
    fresh = place / "tether-fresh"
    fresh.mkdir()
    (fresh / "owner").touch()
    link = place / "tether-link"
    link.symlink_to(stranger)
    Scratch().remove()
    assert stranger.exists()
    assert fresh.exists()
    assert link.is_symlink()
    (fresh / "owner").unlink()
    for path in (stranger, fresh):
        path.rmdir()
    link.unlink()


def aged_directory(path: Path) -> Path:
    """An old directory that is no scratch directory: it has no owner file."""
    path.mkdir()
    return aged(path)

"""What the tests of the keeper share: a home with a keeper of its own, and the places of the contract."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kept import eventually_or_kill
from tests.helpers import alive
from tests.keeper.places import door, place
from tests.keeper.raw import RawClient
from tether.keeper.home import Home, KeeperLock

__all__ = ["door", "home", "place"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A TETHER_HOME that only this test knows; its keeper, if one was started, ends with the test."""
    made = Home.of(str(tmp_path / "home"))
    monkeypatch.setenv("TETHER_HOME", made.path)
    yield made
    holder = KeeperLock.holder(made)
    if holder is None:
        return
    with contextlib.suppress(OSError), RawClient(made) as client:  # it may be ending already
        client.hello()
        client.ask("shut_down")
    if alive(holder.pid):
        eventually_or_kill(holder.pid)

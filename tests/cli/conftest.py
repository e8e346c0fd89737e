"""What the tests of commands share: a home with a keeper of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kept import end_keeper


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A TETHER_HOME that only this test knows; its keeper, if one was started, ends with the test."""
    directory = tmp_path / "home"
    monkeypatch.setenv("TETHER_HOME", str(directory))
    yield directory
    end_keeper(directory)

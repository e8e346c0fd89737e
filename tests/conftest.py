"""Every test must leave nothing behind: no descriptor, child, thread, task or temporary file of ours."""

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.leaks import end_processes, holdings, left_behind, tasks_left

# The tests run programs as a person would, who is not inside a `make` of ours.
for _name in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS"):
    os.environ.pop(_name, None)


@pytest.fixture
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A directory of the test's own where temporary files go, beside `tmp_path` so that one stays empty."""
    directory = tempfile.mkdtemp(prefix="scratch-", dir=tmp_path_factory.getbasetemp())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", directory)
        patch.setattr(tempfile, "tempdir", directory)
        yield directory
    # What else a test put there is kept for whoever looks into a failure.
    with contextlib.suppress(OSError):
        os.rmdir(directory)


@pytest.fixture(autouse=True)
def nothing_left_behind(scratch: str) -> Iterator[None]:
    """Fail the test that leaves a descriptor, process, thread or temporary entry behind."""
    before = holdings(scratch)
    yield
    left = left_behind(before, scratch)
    if left:
        end_processes(left)
        _fail([held.description for held in left])


@pytest.fixture(autouse=True)
def no_task_left(nothing_left_behind: None, request: pytest.FixtureRequest) -> None:
    """Watch the tasks of asynchronous tests; others get no loop only to be watched."""
    if request.node.get_closest_marker("asyncio"):
        request.getfixturevalue("watched_tasks")


@pytest.fixture
async def watched_tasks() -> AsyncIterator[None]:
    """Fail the asynchronous test that leaves a task behind."""
    yield
    left = tasks_left()
    if left:
        _fail(left)


def _fail(left: list[str]) -> None:
    listed = "\n".join(f"  {description}" for description in left)
    pytest.fail(f"left behind by the test (close, end, join or remove it there):\n{listed}", pytrace=False)

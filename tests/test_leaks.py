"""The check for leaks names each kind of leak, and is on for every test."""

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from tests.helpers import alive, python
from tests.leaks import Holdings, end_processes, holdings, left_behind, tasks_left

pytestmark = pytest.mark.requirement("design:no-leaks")

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

STARTS_A_DAEMON = """
    import subprocess
    daemon = subprocess.Popen(["sleep", "60"], start_new_session=True, stdout=subprocess.DEVNULL)
    print(daemon.pid)
"""
LEAKY_TESTS = """
    import asyncio, os, pathlib, subprocess, tempfile, threading

    HELD = []

    def test_leaks():
        HELD.append(os.pipe())
        HELD.append(subprocess.Popen(["sleep", "60"]))
        HELD.append(threading.Thread(target=threading.Event().wait, args=(60,), name="dawdler", daemon=True))
        HELD[-1].start()
        tempfile.mkdtemp(prefix="tether-")

    async def test_leaks_asynchronously():
        HELD.append(asyncio.get_running_loop().create_task(asyncio.Event().wait(), name="straggler"))
        HELD.append(os.open("/dev/zero", os.O_RDONLY))

    def test_is_clean(tmp_path):
        assert list(tmp_path.iterdir()) == []
        subprocess.run(["true"], check=True)
        with open(tmp_path / "file", "w", encoding="utf-8"), tempfile.TemporaryDirectory(prefix="tether-"):
            pass

    async def test_is_clean_asynchronously():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.to_thread(os.getpid))
"""
LEAKS_NAMED = (
    "-> pipe:[",
    "child process ",
    "thread 'dawdler'",
    "temporary entry ",
    "task straggler",
    "-> /dev/zero",
)


def names(before: Holdings, scratch: str) -> str:
    return "\n".join(held.description for held in left_behind(before, scratch, settle=0))


def test_an_open_descriptor_is_named_with_its_target(scratch: str) -> None:
    before = holdings(scratch)
    descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        assert f"descriptor {descriptor} -> " in names(before, scratch)
    finally:
        os.close(descriptor)
    assert names(before, scratch) == ""


@on_linux
def test_a_running_child_is_named_with_its_command(scratch: str) -> None:
    before = holdings(scratch)
    with subprocess.Popen(("sleep", "60")) as child:
        left = names(before, scratch)
        child.kill()
    assert f"child process {child.pid} (state" in left
    assert "sleep 60" in left
    assert names(before, scratch) == ""


@on_linux
def test_a_zombie_is_named(scratch: str) -> None:
    before = holdings(scratch)
    with subprocess.Popen(("true",)) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not alive(child.pid)
        left = names(before, scratch)
    assert f"child process {child.pid} (state Z)" in left
    assert names(before, scratch) == ""


@on_linux
def test_a_daemon_without_a_parent_is_named_and_ended(scratch: str) -> None:
    before = holdings(scratch)
    started = subprocess.run(python(STARTS_A_DAEMON), stdout=subprocess.PIPE, text=True, timeout=20, check=True)
    daemon = int(started.stdout)
    assert alive(daemon)
    left = left_behind(before, scratch, settle=0)
    assert [held.kind for held in left] == ["heir"]
    assert left[0].description.startswith(f"detached process {daemon} (state ")
    end_processes(left)
    assert left_behind(before, scratch) == []
    assert not alive(daemon)


def test_a_thread_is_named(scratch: str) -> None:
    before = holdings(scratch)
    release = threading.Event()
    thread = threading.Thread(target=release.wait, args=(60,), name="dawdler")
    thread.start()
    try:
        assert "thread 'dawdler'" in names(before, scratch)
    finally:
        release.set()
        thread.join(10)
    assert left_behind(before, scratch) == []


def test_something_about_to_end_is_waited_for(scratch: str) -> None:
    before = holdings(scratch)
    release = threading.Event()
    thread = threading.Thread(target=release.wait, args=(60,))
    thread.start()
    timer = threading.Timer(0.05, release.set)
    timer.start()
    assert left_behind(before, scratch, settle=10) == []
    assert not thread.is_alive()
    assert not timer.is_alive()


def test_only_temporary_entries_of_our_own_are_named(scratch: str) -> None:
    before = holdings(scratch)
    ours, other = Path(scratch, "tether-log"), Path(scratch, "other")
    ours.mkdir()
    other.mkdir()
    assert names(before, scratch) == f"temporary entry {ours}"
    ours.rmdir()
    other.rmdir()


async def test_a_task_is_named() -> None:
    task = asyncio.get_running_loop().create_task(asyncio.Event().wait(), name="straggler")
    assert [description.partition(":")[0] for description in tasks_left()] == ["task straggler"]
    task.cancel()
    await asyncio.wait([task], timeout=10)
    assert tasks_left() == []


@on_linux
def test_the_check_fails_exactly_the_tests_that_leak(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent
    leaky = tmp_path / "test_leaky.py"
    leaky.write_text(textwrap.dedent(LEAKY_TESTS), encoding="utf-8")
    places = (
        "-c",
        f"{root / 'pyproject.toml'}",
        "--rootdir",
        f"{tmp_path}",
        "--basetemp",
        f"{tmp_path / 'base'}",
    )
    run = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-rE", "-p", "tests.conftest", *places, f"{leaky}"),
        cwd=root,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    summary = run.stdout + run.stderr
    failed = [line.split("::")[1].split()[0] for line in summary.splitlines() if line.startswith("ERROR ")]
    assert sorted(set(failed)) == ["test_leaks", "test_leaks_asynchronously"], summary
    assert [leak for leak in LEAKS_NAMED if leak not in summary] == []

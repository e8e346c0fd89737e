"""`tether stop`, `kill`, `resize` and `forget`: what is done to a process from outside."""

import os
from pathlib import Path

import pytest

from tests.cli.kept import detached, ended, error_of, listed, logs, record
from tests.cli.running import tether
from tests.helpers import alive

# A shell, a child that ignores TERM and one in a session of its own; each line of output is a pid.
TREE = (
    "sh -c 'trap \"\" TERM; echo $$; sleep 100 & wait; wait' & setsid sh -c 'echo $$; exec sleep 100' & echo $$; wait"
)


def tree() -> tuple[str, list[int]]:
    """A process with a tree, and the pids in it."""
    process_id = detached("sh", "-c", TREE)
    assert tether("wait", process_id, "--for", r"text:(\d+\n){3}", "--timeout", "30").returncode == 0
    return process_id, [int(word) for word in logs(process_id).split()]


@pytest.mark.requirement("design:cli:stop")
@pytest.mark.parametrize("words", [("stop", "--grace", "0.2"), ("kill",)], ids=["stop", "kill"])
def test_the_whole_tree_has_ended_when_it_returns_and_its_output_stays(home: Path, words: tuple[str, ...]) -> None:
    process_id, pids = tree()
    assert [alive(pid) for pid in pids] == [True, True, True]
    finished = tether(*words, process_id)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, b"", b"")
    assert record(process_id)["status"] == "killed"
    assert not any(alive(pid) for pid in pids)
    assert len(logs(process_id).split()) == 3


@pytest.mark.requirement("design:cli:stop")
def test_a_stopped_process_may_tidy_up_and_a_killed_one_may_not(home: Path) -> None:
    script = "trap 'echo tidied; exit 3' TERM; echo ready; sleep 100 & wait"
    for verb, said in (("stop", b"ready\ntidied\n"), ("kill", b"ready\n")):
        process_id = detached("sh", "-c", script)
        tether("wait", process_id, "--for", "text:ready")
        assert tether(verb, process_id).returncode == 0
        assert logs(process_id) == said


@pytest.mark.requirement("design:cli:stop")
def test_several_are_ended_at_once_and_none_when_one_is_unknown(home: Path) -> None:
    ids = [detached("sleep", "100", options=("--name", f"n{number}")) for number in range(3)]
    code, message = error_of(tether("stop", ids[0], "nobody", ids[1]))
    assert (code, "'nobody'" in message) == (2, True)
    assert len(listed()) == 3
    assert tether("stop", ids[0], "n0", "n1", ids[2][:8]).returncode == 0
    assert listed() == []


@pytest.mark.requirement("design:cli:stop")
@pytest.mark.parametrize("verb", ["stop", "kill"])
def test_one_that_has_ended_already_is_no_failure(home: Path, verb: str) -> None:
    process_id = ended("sh", "-c", "exit 3")
    finished = tether(verb, process_id)
    assert finished.returncode == 0
    assert finished.stderr.decode() == f"tether: process {process_id} has already ended (completed)\n"
    assert record(process_id)["exit_code"] == 3


@pytest.mark.requirement("design:cli:resize")
def test_a_terminal_gets_another_size_and_its_program_hears_of_it(home: Path) -> None:
    script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"
    process_id = detached("sh", "-c", script, options=("--pty",))
    tether("wait", process_id, "--for", "text:ready")
    assert tether("resize", process_id, "91x17").returncode == 0
    assert tether("wait", process_id, "--for", "text:17 91", "--timeout", "30").returncode == 0
    assert (record(process_id)["cols"], record(process_id)["rows"]) == (91, 17)


@pytest.mark.requirement("design:cli:resize")
def test_what_has_no_terminal_or_has_ended_is_not_resized(home: Path) -> None:
    assert "pipes" in error_of(tether("resize", detached("sleep", "100"), "80x24"))[1]
    code, message = error_of(tether("resize", ended("true", options=("--pty",)), "80x24"))
    assert (code, "ended" in message) == (1, True)


@pytest.mark.requirement("design:cli:forget")
def test_a_forgotten_process_leaves_nothing_on_the_disk(home: Path) -> None:
    process_id, other = ended("echo", "x"), ended("echo", "y")
    assert tether("forget", process_id).returncode == 0
    assert [found["id"] for found in listed("--all")] == [other]
    assert os.listdir(home / "processes") == [other]
    assert error_of(tether("logs", process_id))[0] == 2


@pytest.mark.requirement("design:cli:forget")
def test_a_running_one_is_forgotten_only_by_force_and_ended_first(home: Path) -> None:
    process_id, done = detached("sleep", "100"), ended("true")
    pid = listed()[0]["pid"]
    assert isinstance(pid, int)
    code, message = error_of(tether("forget", done, process_id))
    assert (code, process_id in message) == (2, True)
    assert len(listed("--all")) == 2
    assert tether("forget", "--force", process_id).returncode == 0
    assert not alive(pid)
    assert [found["id"] for found in listed("--all")] == [done]


@pytest.mark.requirement("design:cli:forget")
def test_all_means_all_that_have_ended(home: Path) -> None:
    assert tether("forget", "--all").returncode == 0
    running = detached("sleep", "100")
    for _ in range(3):
        ended("true")
    assert tether("forget", "--all").returncode == 0
    assert [found["id"] for found in listed("--all")] == [running]


@pytest.mark.requirement("design:cli:errors")
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("stop",), "No process given"),
        (("kill",), "No process given"),
        (("forget",), "No process given"),
        (("stop", ""), "''"),
        (("stop", "--grace", "-1", "x"), "'-1'"),
        (("forget", "--all", "x"), "--all"),
        (("resize", "x", "80"), "'80'"),
        (("resize", "x", "80x24x3"), "'80x24x3'"),
        (("resize", "x"), "COLSxROWS"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(home: Path, words: tuple[str, ...], named: str) -> None:
    code, message = error_of(tether(*words))
    assert code == 2
    assert named in message


@pytest.mark.requirement("design:cli:errors")
def test_an_impossible_size_is_bad_usage(home: Path) -> None:
    process_id = detached("sleep", "100", options=("--pty",))
    code, message = error_of(tether("resize", process_id, "0x24"))
    assert (code, "cols=0" in message) == (2, True)

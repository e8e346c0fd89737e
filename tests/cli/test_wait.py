"""`tether wait`: until a fact about a process, with an exit code scripts can use."""

import json
from pathlib import Path

import pytest

from tests.cli.kept import detached, ended, error_of
from tests.cli.running import tether


@pytest.mark.requirement("design:cli:wait")
@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 42", 42), ("kill -TERM $$", 143)])
def test_waiting_for_the_end_gives_the_commands_exit_code(home: Path, script: str, code: int) -> None:
    process_id = detached("sh", "-c", f"read line; {script}")
    assert tether("send", process_id, "").returncode == 0
    for words in ((), ("--for", "exit"), ("--timeout", "30")):
        finished = tether("wait", process_id, *words)
        assert (finished.returncode, finished.stdout, finished.stderr) == (code, b"", b"")


@pytest.mark.requirement("design:cli:wait")
@pytest.mark.parametrize("condition", ["exit", "output", "idle:60000", "prompt", "text:never"])
def test_when_the_time_is_up_the_exit_code_is_124_and_the_process_is_not_touched(home: Path, condition: str) -> None:
    process_id = detached("sleep", "100")
    finished = tether("wait", process_id, "--for", condition, "--timeout", "0.2")
    assert (finished.returncode, finished.stdout, finished.stderr) == (124, b"", b"")
    assert tether("ps").stdout.count(b"running") == 1


@pytest.mark.requirement("design:cli:wait")
@pytest.mark.parametrize("condition", ["output", "idle:60000", "prompt", "text:never"])
def test_an_end_that_comes_first_is_1(home: Path, condition: str) -> None:
    process_id = ended("sh", "-c", "exit 5")
    assert tether("wait", process_id, "--for", condition).returncode == 1


@pytest.mark.requirement("design:cli:wait")
def test_text_is_found_also_before_now_and_behind_an_offset(home: Path) -> None:
    process_id = detached("sh", "-c", "echo listening on 8080; sleep 100")
    assert tether("wait", process_id, "--for", r"text:listening on \d+").returncode == 0
    late = tether("wait", process_id, "--for", "text:listening", "--offset", "5", "--timeout", "0.2")
    assert late.returncode == 124


@pytest.mark.requirement("design:cli:wait")
def test_output_means_from_now_on_unless_an_offset_is_given(home: Path) -> None:
    process_id = detached("sh", "-c", "echo x; sleep 100")
    assert tether("wait", process_id, "--for", "output", "--offset", "0").returncode == 0
    assert tether("wait", process_id, "--for", "output", "--timeout", "0.2").returncode == 124


@pytest.mark.requirement("design:cli:wait")
@pytest.mark.parametrize("options", [(), ("--pty",)], ids=["pipes", "pty"])
def test_a_prompt_is_noticed_and_can_be_answered(home: Path, options: tuple[str, ...]) -> None:
    process_id = detached("sh", "-c", "printf 'name? '; read name; exit 6", options=options)
    assert tether("wait", process_id, "--for", "prompt", "--timeout", "30").returncode == 0
    assert tether("send", process_id, "me").returncode == 0
    assert tether("wait", process_id).returncode == 6


@pytest.mark.requirement("design:cli:wait")
def test_silence_is_noticed(home: Path) -> None:
    process_id = detached("sh", "-c", "echo x; sleep 100")
    assert tether("wait", process_id, "--for", "idle:100", "--timeout", "30").returncode == 0


@pytest.mark.requirement("design:cli:wait")
def test_json_tells_what_was_met_and_the_process(home: Path) -> None:
    process_id = detached("sh", "-c", "echo port 8080; sleep 100")
    finished = tether("wait", process_id, "--for", r"text:port \d+", "--json")
    found = json.loads(finished.stdout)
    assert (found["met"], found["match"], found["offset"]) == (True, "port 8080", 10)
    assert (found["id"], found["status"]) == (process_id, "running")
    late = tether("wait", process_id, "--timeout", "0.1", "--json")
    assert (late.returncode, json.loads(late.stdout)["met"]) == (124, False)


@pytest.mark.requirement("design:cli:wait")
def test_the_reason_of_an_end_by_timeout_is_told(home: Path) -> None:
    process_id = detached("sleep", "100", options=("--timeout", "0.3"))
    finished = tether("wait", process_id)
    assert finished.returncode == 124
    assert finished.stderr == b"tether: stopped after 0.3 s: sleep 100\n"


@pytest.mark.requirement("design:cli:errors")
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--for", "never"), "'never'"),
        (("--for", "idle:soon"), "'idle:soon'"),
        (("--for", "text:["), "'text:['"),
        (("--timeout", "0"), "'0'"),
        (("--offset", "-1"), "-1"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(home: Path, words: tuple[str, ...], named: str) -> None:
    code, message = error_of(tether("wait", "x", *words))
    assert code == 2
    assert named in message

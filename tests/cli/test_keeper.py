"""`tether keeper`: whether it runs, its end and its replacement."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.kept import at_terminal, detached, ended, error_of, keeper_pid, listed, logs, record, shown
from tests.cli.running import BOUND, eventually, read_line, started, tether
from tests.helpers import alive


@pytest.mark.requirement("design:cli:keeper-status")
def test_without_a_keeper_status_says_so_and_starts_none(home: Path) -> None:
    finished = tether("keeper", "status")
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert finished.stdout.decode() == f"No keeper runs for {home}; the next `tether run` starts one.\n"
    assert json.loads(tether("keeper", "status", "--json").stdout) == {"alive": False, "home": str(home)}
    assert not home.exists()


@pytest.mark.requirement("design:cli:keeper-status")
def test_status_says_what_is_kept(home: Path) -> None:
    detached("sleep", "100")
    ended("echo", "x")
    found = json.loads(tether("keeper", "status", "--json").stdout)
    assert (found["alive"], found["pid"], found["home"]) == (True, keeper_pid(home), str(home))
    assert (found["running"], found["ended"]) == (1, 1)
    assert set(found) >= {"version", "protocol", "socket", "started_at", "connections", "log_bytes", "screen_pid"}
    text = tether("keeper", "status").stdout.decode()
    assert "processes:   1 running, 1 ended\n" in text


@pytest.mark.requirement("design:cli:keeper-stop")
def test_stop_ends_everything_and_says_what(home: Path) -> None:
    process_id = detached("sleep", "100", options=("--name", "web"))
    pid, keeper = record(process_id)["pid"], keeper_pid(home)
    assert isinstance(pid, int)
    assert keeper is not None
    finished = tether("keeper", "stop")
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert finished.stdout.decode() == f"Ended 1 process and the keeper.\n  {process_id[:8]}  web: sleep 100\n"
    assert not alive(pid)
    eventually(lambda: not alive(keeper))
    again = tether("keeper", "stop")
    assert (again.returncode, again.stdout, again.stderr) == (0, b"", b"No keeper runs.\n")


@pytest.mark.requirement("design:cli:keeper-stop")
def test_what_was_written_before_a_stop_can_still_be_read(home: Path) -> None:
    process_id = detached("sh", "-c", "echo kept; sleep 100")
    tether("wait", process_id, "--for", "text:kept")
    tether("keeper", "stop")
    assert logs(process_id) == b"kept\n"
    assert record(process_id)["status"] == "killed"


@pytest.mark.requirement("design:cli:keeper-stop")
async def test_at_a_terminal_it_asks_first(home: Path) -> None:
    process_id = detached("sleep", "100")
    for answer, code in (("n", 1), ("y", 0)):
        async with at_terminal("keeper", "stop") as process:
            await shown(process, r"sleep 100\n(?s:.*)End them all\?")
            await process.submit(answer)
            assert (await process.wait()).code == code
        assert [found["id"] for found in listed()] == [process_id][:code]


@pytest.mark.requirement("design:cli:keeper-lost")
def test_a_lost_keeper_is_one_line_and_exit_code_1(home: Path) -> None:
    process_id = detached("sh", "-c", "echo x; exec sleep 100")
    with started("logs", "-f", process_id) as running:
        read_line(running)
        keeper = keeper_pid(home)
        assert keeper is not None
        os.kill(keeper, signal.SIGKILL)
        assert running.wait(BOUND) in (0, 1)
        assert running.stderr is not None
        said = running.stderr.read().decode()
    assert said.count("\n") <= 1
    assert "Traceback" not in said
    assert record(process_id)["status"] == "lost"
    assert tether("wait", process_id).returncode == 1


@pytest.mark.requirement("design:cli:keeper-upgrade")
def test_an_upgrade_keeps_what_runs(home: Path) -> None:
    process_id = detached("cat")
    before = record(process_id)
    finished = tether("keeper", "upgrade")
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert finished.stdout.startswith(b"The keeper now runs version ")
    assert record(process_id) == before
    tether("send", process_id, "still there")
    tether("send", process_id, "--eof")
    assert tether("wait", process_id).returncode == 0
    assert logs(process_id) == b"still there\n"


@pytest.mark.requirement("design:cli:keeper-upgrade")
def test_an_upgrade_that_cannot_be_is_refused_and_changes_nothing(home: Path) -> None:
    process_id = detached("sleep", "100")
    code, message = error_of(tether("keeper", "upgrade", "--python", "/bin/false"))
    assert code == 1
    assert message
    assert listed()[0]["id"] == process_id
    without = tether("keeper", "upgrade", "--python", sys.executable)
    assert without.returncode == 0


@pytest.mark.requirement("design:cli:keeper-upgrade")
def test_without_a_keeper_there_is_nothing_to_upgrade(home: Path) -> None:
    finished = tether("keeper", "upgrade")
    assert (finished.returncode, finished.stdout) == (0, b"")
    assert finished.stderr.startswith(b"No keeper runs;")
    assert keeper_pid(home) is None


@pytest.mark.requirement("design:cli:errors")
@pytest.mark.parametrize("words", [("bogus",), ("--stdio", "status"), ("status", "--bogus")])
def test_bad_usage_is_one_line_and_exit_code_2(home: Path, words: tuple[str, ...]) -> None:
    assert error_of(tether("keeper", *words))[0] == 2


@pytest.mark.requirement("design:cli:version")
def test_alone_it_explains_itself(home: Path) -> None:
    finished = tether("keeper")
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert b"tether keeper status" in finished.stdout

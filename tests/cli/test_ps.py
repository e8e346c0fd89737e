"""`tether ps`: people get a table that fits, programs get JSON."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.kept import at_terminal, detached, ended, keeper_pid, listed, record
from tests.cli.running import in_shell, tether
from tether.cli.ps import shortest_ids

FIELDS = {
    "id", "name", "command", "cwd", "status", "exit_code", "signal", "core_file", "pid", "pty", "cols", "rows",
    "started_at", "ended_at", "output_bytes", "missing_bytes", "output_held", "lease", "guest", "warnings",
    "survivors",
}  # fmt: skip


@pytest.mark.requirement("design:cli:ps")
def test_in_a_new_home_there_is_nothing_and_no_keeper_is_started_to_say_so(home: Path) -> None:
    for words in (("ps",), ("ps", "--all")):
        finished = tether(*words)
        assert (finished.returncode, finished.stdout) == (0, b"")
        assert finished.stderr == b"Nothing is running; start something with `tether run -- COMMAND`.\n"
    assert tether("ps", "--json").stdout == b"[]\n"
    assert keeper_pid(home) is None
    assert not home.exists()


@pytest.mark.requirement("design:cli:ps")
def test_running_ones_are_listed_and_ended_ones_only_with_all(home: Path) -> None:
    done = ended("sh", "-c", "echo 12345; exit 3")
    finished = tether("ps")
    assert (finished.stdout, finished.stderr) == (b"", b"Nothing is running; `tether ps --all` lists 1 that ended.\n")
    running = detached("sleep", "100", options=("--name", "web", "--pty"))
    heading, only = tether("ps").stdout.decode().splitlines()
    assert heading.split() == ["ID", "STATUS", "STDIO", "TIME", "OUTPUT", "COMMAND"]
    assert re.fullmatch(rf"{running[:8]}  running  120x30 +\d+s +0 B  web: sleep 100", only)
    both = tether("ps", "--all").stdout.decode().splitlines()[1:]
    assert [line.split()[0] for line in both] == [done[:8], running[:8]]
    assert re.fullmatch(rf"{done[:8]}  completed 3  pipes +\d+s +6 B  sh -c 'echo 12345; exit 3'", both[0])


@pytest.mark.requirement("design:cli:ps-json")
def test_json_has_every_field_of_a_running_one(home: Path, tmp_path: Path) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    process_id = detached("sh", "-c", "echo hello; sleep 100", options=("--cwd", str(tmp_path), "--name", "n"))
    tether("wait", process_id, "--for", "text:hello")
    (found,) = listed()
    assert set(found) == FIELDS
    started = datetime.fromisoformat(str(found.pop("started_at")))
    assert before <= started <= datetime.now(UTC)
    assert isinstance(found.pop("pid"), int)
    assert found == {
        "id": process_id,
        "name": "n",
        "command": ["sh", "-c", "echo hello; sleep 100"],
        "cwd": str(tmp_path),
        "status": "running",
        "exit_code": None,
        "signal": None,
        "core_file": None,
        "pty": False,
        "cols": None,
        "rows": None,
        "ended_at": None,
        "output_bytes": 6,
        "missing_bytes": 0,
        "lease": {"kind": "forever"},
        "guest": False,
        "warnings": [],
        "output_held": False,
        "survivors": [],
    }


@pytest.mark.requirement("design:cli:ps-json")
@pytest.mark.parametrize(
    ("script", "status", "code", "signal"),
    [
        ("exit 0", "completed", 0, None),
        ("exit 7", "completed", 7, None),
        ("kill -KILL $$", "killed", None, "SIGKILL"),
        ("kill -TERM $$", "killed", None, "SIGTERM"),
    ],
)
def test_json_says_how_one_ended(home: Path, script: str, status: str, code: int | None, signal: str | None) -> None:
    found = record(ended("sh", "-c", script))
    assert (found["status"], found["exit_code"], found["signal"]) == (status, code, signal)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(found["ended_at"]))
    assert listed() == []


@pytest.mark.requirement("design:cli:ps-json")
def test_json_stays_valid_with_arguments_that_are_no_text(home: Path) -> None:
    finished = tether("run", "--detach", "--name", "böse", "--", "sh", "-c", ":", b"\xff\x1b\n", "ü")
    assert finished.returncode == 0
    found = json.loads(tether("ps", "--all", "--json").stdout)[0]
    assert found["command"] == ["sh", "-c", ":", "\udcff\x1b\n", "ü"]
    assert found["name"] == "böse"


@pytest.mark.requirement("design:cli:ps")
def test_control_characters_are_made_visible(home: Path) -> None:
    assert tether("run", "--detach", "--name", "a\x1b[2Jb", "--", "true").returncode == 2
    assert tether("run", "--detach", "--name", "ab", "--", "sh", "-c", ":", "x\x1b]0;evil\x07\ny").returncode == 0
    text = tether("ps", "--all").stdout.decode()
    assert text.count("\n") == 2
    assert "\x1b" not in text
    assert r"ab: sh -c : $'x\e]0;evil\x07\ny'" in text


@pytest.mark.requirement("design:cli:ps")
def test_what_the_locale_cannot_spell_is_escaped(home: Path) -> None:
    ended("true", "grün日")
    finished = tether("ps", "--all", env={"PYTHONIOENCODING": "latin-1"})
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert "true 'grün\\u65e5'".encode("latin-1") in finished.stdout


@pytest.mark.requirement("design:cli:ps")
async def test_at_a_terminal_it_fits_and_is_coloured_unless_nobody_wants_that(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process_id = detached("sleep", "100", "1" * 300)
    async with at_terminal("ps", cols=70) as process:
        assert (await process.wait()).code == 0
        data = (await process.read(0)).data
    assert b"\x1b[32mrunning\x1b[0m" in data
    (row,) = [line for line in re.sub(rb"\x1b\[\d*m", b"", data).decode().splitlines() if process_id[:8] in line]
    assert len(row) == 70
    assert row.endswith("1…")
    monkeypatch.setenv("NO_COLOR", "1")
    async with at_terminal("ps", cols=70) as process:
        await process.wait()
        assert b"\x1b" not in (await process.read(0)).data


@pytest.mark.requirement("design:cli:ps")
def test_a_reader_that_goes_away_is_no_error(home: Path) -> None:
    ended("true")
    finished = in_shell('"$0" ps --all --json | true; "$0" ps --all | true')
    assert finished.stderr == b""


@pytest.mark.requirement("design:cli:ids")
def test_shown_ids_are_as_long_as_they_must_be() -> None:
    one, other, third = "0123456789abcdef", "0123456789ab0000", "f" * 16
    assert shortest_ids([one, third, other]) == {one: "0123456789abc", other: "0123456789ab0", third: "f" * 8}
    assert shortest_ids(["short"]) == {"short": "short"}
    assert shortest_ids([]) == {}


@pytest.mark.requirement("design:cli:ids")
@pytest.mark.parametrize("verb", ["logs", "wait", "stop", "kill", "forget"])
def test_a_process_is_found_by_id_beginning_or_name(home: Path, verb: str) -> None:
    for length in (36, 6, 0):
        process_id = ended("true", options=("--name", "the name"))
        assert tether(verb, process_id[:length] or "the name").returncode == 0
        assert tether("forget", "--all").returncode == 0


@pytest.mark.requirement("design:cli:ids")
@pytest.mark.parametrize("verb", ["logs", "wait", "stop", "kill", "forget"])
def test_an_unknown_one_is_one_line_and_exit_code_2_with_and_without_a_keeper(home: Path, verb: str) -> None:
    finished = tether(verb, "nobody")
    told = b"tether: no process 'nobody'; `tether ps --all` lists what there is\n"
    assert (finished.returncode, finished.stderr) == (2, told)
    assert keeper_pid(home) is None
    ended("true")
    finished = tether(verb, "nobody")
    assert (finished.returncode, finished.stderr) == (2, told)


@pytest.mark.requirement("design:cli:ids")
def test_a_name_means_the_one_that_runs_else_the_last_that_did(home: Path) -> None:
    for word in ("first", "second"):
        ended("echo", word, options=("--name", "twin"))
    assert tether("logs", "twin").stdout == b"second\n"
    process_id = detached("sleep", "100", options=("--name", "twin"))
    assert tether("logs", "twin").stdout == b""
    finished = tether("run", "--detach", "--name", "twin", "--", "true")
    assert (finished.returncode, finished.stdout) == (2, b"")
    assert f"process {process_id} runs under the name 'twin'" in finished.stderr.decode()

"""The `tether` command itself: it teaches, and what goes wrong is one line."""

import importlib.metadata
import os
import subprocess

import pytest

from tests.cli.running import BOUND, TETHER, in_shell, one_line, tether

HEAVY = {"mcp", "pydantic", "pydantic_core", "starlette", "uvicorn", "pyghostty", "msgspec", "acp", "numpy"}


def imported_by(*words: str) -> set[str]:
    """The modules that `tether` with these words loads."""
    environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    finished = subprocess.run(
        (TETHER, *words), env=environment, capture_output=True, text=True, timeout=BOUND, check=True
    )
    lines = [line for line in finished.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


@pytest.mark.requirement("design:cli:version")
@pytest.mark.parametrize("words", [("--help",), ("-h",), ()], ids=str)
def test_help_teaches_by_example_and_names_every_command(words: tuple[str, ...]) -> None:
    finished = tether(*words)
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert b"tether exec -- git status --short" in finished.stdout
    for line in (b"exec        Run a command once, to its end.", b"keeper      The service that keeps processes."):
        assert b"\n  " + line + b"\n" in finished.stdout


@pytest.mark.requirement("design:cli:version")
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_help_of_exec_shows_examples_options_and_exit_codes(option: str) -> None:
    finished = tether("exec", option)
    assert (finished.returncode, finished.stderr) == (0, b"")
    for word in (b"tether exec --cwd web", b"--cwd", b"--timeout", b"--direct", b"--json", b"124", b"127", b"128+n"):
        assert word in finished.stdout


@pytest.mark.requirement("design:cli:version")
def test_the_version_is_that_of_the_installed_package() -> None:
    finished = tether("--version")
    assert finished.stdout.decode() == f"tether, version {importlib.metadata.version('tether')}\n"
    assert (finished.returncode, finished.stderr) == (0, b"")


@pytest.mark.requirement("design:cli:errors")
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("exec",), "No command given"),
        (("exec", "--"), "No command given"),
        (("exec", "--bogus", "--", "true"), "--bogus"),
        (("exec", "--timeout", "soon", "--", "true"), "'soon'"),
        (("exec", "--timeout", "0", "--", "true"), "'0'"),
        (("exec", "--timeout", "-1", "--", "true"), "'-1'"),
        (("exec", "--timeout", "nan", "--", "true"), "'nan'"),
        (("exec", "--timeout", "inf", "--", "true"), "'inf'"),
        (("exec", "--timeout", "1\n2", "--", "true"), "'1\\n2'"),
        (("exec", "--timeout"), "--timeout"),
        (("exec", "--max-output-chars", "-1", "--", "true"), "-1"),
        (("exec", "--max-output-chars", "many", "--", "true"), "'many'"),
        (("exec", "--json=yes", "--", "true"), "--json"),
        (("exec", "--cwd", "", "--", "true"), "--cwd"),
        (("exec", "--", ""), "no program"),
        (("exec", "--direct", "--", ""), "no program"),
        (("bogus",), "'bogus'"),
        (("--bogus",), "--bogus"),
    ],
)
def test_bad_usage_is_one_line_that_names_it_and_exit_code_2(words: tuple[str, ...], named: str) -> None:
    finished = tether(*words)
    assert (finished.returncode, finished.stdout) == (2, b"")
    assert named in one_line(finished)


@pytest.mark.requirement("design:cli:errors")
def test_help_that_cannot_be_written_is_told_in_one_line() -> None:
    finished = in_shell('exec "$0" --help >/dev/full')
    assert finished.returncode == 1
    assert "No space left on device" in one_line(finished)


@pytest.mark.requirement("design:cli:errors")
def test_help_whose_reader_is_gone_says_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        finished = subprocess.run(
            (TETHER, "--help"), stdout=writing, stderr=subprocess.PIPE, timeout=BOUND, check=False
        )
    finally:
        os.close(writing)
    assert finished.returncode != 0
    assert finished.stderr == b""


@pytest.mark.requirement("design:library:light")
def test_exec_loads_nothing_heavy() -> None:
    loaded = imported_by("exec", "--direct", "--", "true")
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()
    assert "importlib.metadata" not in loaded


@pytest.mark.requirement("design:library:light")
def test_the_version_is_told_without_loading_what_runs_commands() -> None:
    assert imported_by("--version") & {"asyncio", "ctypes", "tether.process.table"} == set()

"""`tether completion`: shells complete commands, options, ids and names, quickly and without side effects."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.kept import detached, ended, error_of, keeper_pid
from tests.cli.running import BOUND, TETHER, tether
from tests.cli.test_main import imported_by


def completed(*words: str) -> dict[str, str]:
    """What a shell that asks how the last word could go on is told: the words, and their descriptions."""
    asked = {"COMP_WORDS": " ".join(("tether", *words)), "COMP_CWORD": words[-1], "_TETHER_COMPLETE": "fish_complete"}
    finished = tether(env=asked)
    assert (finished.returncode, finished.stderr) == (0, b"")
    lines = [line.removeprefix("plain,").partition("\t") for line in finished.stdout.decode().split("\n") if line]
    return {word: description for word, _, description in lines}


@pytest.mark.requirement("design:cli:completion")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_its_shell_can_read(shell: str) -> None:
    finished = tether("completion", shell)
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert b"_TETHER_COMPLETE" in finished.stdout
    if shutil.which(shell) is not None:
        checked = subprocess.run(
            (shell, "-n"), input=finished.stdout, capture_output=True, timeout=BOUND, check=False
        )
        assert (checked.returncode, checked.stderr) == (0, b"")


@pytest.mark.requirement("design:cli:completion")
def test_bash_completes_with_it(home: Path) -> None:
    process_id = detached("sleep", "100")
    script = """
eval "$("$0" completion bash)"
COMP_WORDS=(tether stop "$1") COMP_CWORD=2
_tether_completion "$0"
echo "${COMPREPLY[@]}"
"""
    finished = subprocess.run(
        ("bash", "--norc", "-c", script, TETHER, process_id[:3]), capture_output=True, timeout=BOUND, check=False
    )
    assert (finished.stdout.decode(), finished.stderr) == (f"{process_id[:8]}\n", b"")


@pytest.mark.requirement("design:cli:completion")
def test_commands_and_options_are_completed_with_descriptions(home: Path) -> None:
    assert completed("re") == {"resize": "Give a terminal another size."}
    assert set(completed("logs", "--vi")) == {"--view"}
    assert set(completed("logs", "--view", "s")) == {"screen"}
    assert set(completed("keeper", "st")) == {"status", "stop"}
    assert completed("nonsense", "x") == {}


@pytest.mark.requirement("design:cli:completion")
def test_ids_and_names_are_completed_with_what_they_are(home: Path) -> None:
    running = detached("sleep", "100", options=("--name", "web"))
    done = ended("true", options=("--name", "odd; name"))
    assert completed("stop", "") == {running[:8]: "running: web: sleep 100", "web": "running: web: sleep 100"}
    assert completed("stop", "we") == {"web": "running: web: sleep 100"}
    assert completed("stop", running[:10]) == {running: "running: web: sleep 100"}
    assert set(completed("logs", "")) == {running[:8], "web", done[:8]}
    assert completed("wait", done[:4]) == {done[:8]: "completed 0: odd; name: true"}


@pytest.mark.requirement("design:cli:completion")
def test_without_a_keeper_nothing_is_completed_and_none_is_started(home: Path) -> None:
    assert completed("stop", "") == {}
    assert keeper_pid(home) is None
    assert not home.exists()


@pytest.mark.requirement("design:library:light")
def test_help_loads_no_command() -> None:
    loaded = imported_by("--help")
    assert {name for name in loaded if name.startswith(("tether.keeper", "tether.process"))} == set()
    assert "asyncio" not in loaded


@pytest.mark.requirement("design:cli:errors")
@pytest.mark.parametrize("words", [(), ("tcsh",), ("bash", "zsh")])
def test_bad_usage_is_one_line_and_exit_code_2(words: tuple[str, ...]) -> None:
    assert error_of(tether("completion", *words))[0] == 2

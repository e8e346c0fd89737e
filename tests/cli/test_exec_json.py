"""`tether exec --json`: the result of exec_command as one object on one line."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.cli.running import Finished, one_line, tether


def result(finished: Finished) -> dict[str, object]:
    """The one object on stdout."""
    assert finished.stdout.count(b"\n") == 1
    return json.loads(finished.stdout)


@pytest.mark.requirement("design:cli:exec-json")
def test_json_prints_exactly_the_nine_fields(tmp_path: Path) -> None:
    words = ["sh", "-c", "echo out; echo err >&2; exit 3"]
    finished = tether("exec", "--json", "--cwd", str(tmp_path), "--", *words)
    found = result(finished)
    duration = found.pop("duration_ms")
    assert isinstance(duration, int)
    assert duration >= 0
    assert found == {
        "cwd": str(tmp_path),
        "command": words,
        "exit_code": 3,
        "stdout": "out\n",
        "stderr": "err\n",
        "stdout_truncated": False,
        "stderr_truncated": False,
        "timed_out": False,
    }
    assert (finished.returncode, finished.stderr) == (3, b"")


@pytest.mark.requirement("design:cli:exec-json")
def test_cwd_is_returned_absolute_as_given_and_relative_made_absolute(tmp_path: Path) -> None:
    given = f"{tmp_path}/./"
    assert result(tether("exec", "--json", "--direct", "--cwd", given, "--", "true"))["cwd"] == given
    (tmp_path / "in").mkdir()
    relative = tether("exec", "--json", "--direct", "--cwd", "in", "--", "true", cwd=tmp_path)
    assert result(relative)["cwd"] == str(tmp_path / "in")


@pytest.mark.requirement("design:text:clip")
def test_each_stream_keeps_its_first_characters_and_says_whether_there_were_more() -> None:
    script = "printf 'héllo wörld'; printf 'abc' >&2"
    found = result(tether("exec", "--json", "--direct", "--max-output-chars", "3", "--", "sh", "-c", script))
    assert (found["stdout"], found["stdout_truncated"]) == ("hél", True)
    assert (found["stderr"], found["stderr_truncated"]) == ("abc", False)


@pytest.mark.requirement("design:text:clip")
def test_200000_characters_are_kept_unless_told_otherwise_and_more_cost_no_memory() -> None:
    code = "import sys; sys.stdout.write('é' * 200_000); sys.stderr.write('x' * 30_000_000)"
    found = result(tether("exec", "--json", "--direct", "--", sys.executable, "-c", code))
    assert (found["stdout"], found["stdout_truncated"]) == ("é" * 200_000, False)
    assert (found["stderr"], found["stderr_truncated"]) == ("x" * 200_000, True)


@pytest.mark.requirement("design:text:clip")
def test_no_characters_can_be_asked_for() -> None:
    found = result(tether("exec", "--json", "--direct", "--max-output-chars", "0", "--", "echo", "x"))
    assert (found["stdout"], found["stdout_truncated"], found["stderr_truncated"]) == ("", True, False)


@pytest.mark.requirement("design:text:utf8-never-split")
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_output_is_text_in_utf8_whatever_the_locale_and_bytes_that_are_none_are_replaced(locale: str) -> None:
    environment = {"LC_ALL": locale, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    code = r"import os; os.write(1, b'a\xffb\xe6\xbc\xa2\x00\xe6'); os.write(2, b'\x1b[31mred\r\n')"
    finished = tether("exec", "--json", "--direct", "--", sys.executable, "-c", code, env=environment)
    found = result(finished)
    assert found["stdout"] == "a\ufffdb漢\0\ufffd"
    assert found["stderr"] == "\x1b[31mred\r\n"
    assert "漢".encode() in finished.stdout


@pytest.mark.requirement("design:cli:exec-json")
def test_an_argument_that_is_no_text_comes_back_as_python_spells_it() -> None:
    finished = tether("exec", "--json", "--direct", "--", "printf", b"\xff%%")
    assert result(finished)["command"] == ["printf", os.fsdecode(b"\xff%%")]
    assert result(finished)["stdout"] == "\ufffd%"


@pytest.mark.requirement("design:cli:exec-timeout")
def test_a_timeout_is_124_with_the_output_so_far() -> None:
    script = "echo begun; echo trouble >&2; exec sleep 100"
    finished = tether("exec", "--json", "--direct", "--timeout", "2", "--", "sh", "-c", script)
    found = result(finished)
    assert (found["timed_out"], found["exit_code"], finished.returncode) == (True, 124, 124)
    assert (found["stdout"], found["stderr"]) == ("begun\n", "trouble\n")
    assert one_line(finished).startswith("stopped after 2 s: sh -c ")


@pytest.mark.requirement("design:cli:exec-json")
def test_a_program_that_is_not_found_is_an_error_object_and_a_line() -> None:
    finished = tether("exec", "--json", "--direct", "--", "no-such-program-here")
    message = one_line(finished)
    assert result(finished) == {"error": {"code": "COMMAND_NOT_FOUND", "message": message}}
    assert "'no-such-program-here'" in message
    assert finished.returncode == 127


@pytest.mark.requirement("design:cli:exec-json")
@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_cwd_that_is_no_directory_is_an_error_object_and_a_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finished = tether("exec", "--json", "--cwd", str(tmp_path / name), "--", "true")
    assert result(finished) == {"error": {"code": "NOT_DIRECTORY", "message": one_line(finished)}}
    assert finished.returncode == 2


@pytest.mark.requirement("design:cli:exec-json")
@pytest.mark.parametrize("words", [("--cwd", "", "--", "true"), ("--", "")], ids=["cwd", "program"])
def test_an_empty_cwd_or_program_is_an_error_object_and_a_line(words: tuple[str, ...]) -> None:
    finished = tether("exec", "--json", *words)
    assert result(finished) == {"error": {"code": "INVALID_ARGUMENT", "message": one_line(finished)}}
    assert finished.returncode == 2

"""`tether exec`: words in, exit code out, and where the command runs."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.running import in_shell, kill, one_line, tether
from tests.helpers import alive

SHOW_WORDS = "import json, sys; json.dump(sys.argv[1:], sys.stdout)"
AWKWARD = (
    "", " ", "a b", "'", '"', "'\"'\"'", "$HOME", "${x}", "$(id)", "`id`", "*", "?", "[a]", "~", "\\", "\\n",
    "a\nb", "\n", "\t", "-n", "--", "--json", "-", "#", "a=b", ";", "|", "&", ">x", "!x", "é漢", "\x1b[0m",
)  # fmt: skip


@pytest.mark.requirement("design:cli:exec")
def test_both_streams_pass_through_and_the_exit_code_is_the_commands() -> None:
    finished = tether("exec", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (finished.returncode, finished.stdout, finished.stderr) == (3, b"out\n", b"err\n")


@pytest.mark.requirement("design:start:tokens-quoted")
@pytest.mark.parametrize("mode", [(), ("--direct",)], ids=["shell", "direct"])
def test_every_word_reaches_the_program_as_it_was_given(mode: tuple[str, ...]) -> None:
    finished = tether("exec", *mode, "--", sys.executable, "-c", SHOW_WORDS, *AWKWARD)
    assert finished.stderr == b""
    assert json.loads(finished.stdout) == list(AWKWARD)


@pytest.mark.requirement("design:start:tokens-quoted")
@pytest.mark.parametrize("mode", [(), ("--direct",)], ids=["shell", "direct"])
def test_a_word_that_is_no_text_reaches_the_program_byte_for_byte(mode: tuple[str, ...]) -> None:
    finished = tether("exec", *mode, "--", "printf", "%s", b"\xff\xfe")
    assert finished.stdout == b"\xff\xfe"


@pytest.mark.requirement("design:cli:exec")
def test_options_end_where_the_command_begins() -> None:
    finished = tether("exec", "--direct", "printf", "%s ", "--json", "--cwd", "/")
    assert finished.stdout == b"--json --cwd / "


@pytest.mark.requirement("design:cli:exec-direct")
def test_by_default_a_login_shell_runs_the_command_and_with_direct_none_does(tmp_path: Path) -> None:
    for name in (".bash_profile", ".profile"):
        (tmp_path / name).write_text("export FROM_PROFILE=yes\n", encoding="utf-8")
    environment = {"HOME": str(tmp_path)}
    command = ("--", "printenv", "FROM_PROFILE")
    assert tether("exec", *command, env=environment).stdout == b"yes\n"
    assert tether("exec", "--direct", *command, env=environment).returncode == 1


@pytest.mark.requirement("design:cli:exec-exit-codes")
@pytest.mark.parametrize("code", [0, 1, 2, 124, 255])
def test_the_exit_code_is_the_commands_own(code: int) -> None:
    assert tether("exec", "--direct", "--", "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.requirement("design:cli:exec-exit-codes")
@pytest.mark.parametrize("mode", [(), ("--direct",)], ids=["shell", "direct"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_command_that_dies_by_a_signal_gives_128_and_its_number(
    number: signal.Signals, mode: tuple[str, ...]
) -> None:
    finished = tether("exec", *mode, "--", "sh", "-c", f"kill -{int(number)} $$")
    assert finished.returncode == 128 + number


@pytest.mark.requirement("design:start:not-found-helps")
def test_a_program_that_is_not_found_is_named_with_the_places_searched_and_a_remedy(tmp_path: Path) -> None:
    finished = tether("exec", "--direct", "--", "claude", env={"PATH": str(tmp_path)})
    assert finished.returncode == 127
    assert finished.stdout == b""
    message = one_line(finished)
    assert message.startswith("command not found: 'claude' (looked in ")
    assert str(tmp_path) in message
    assert "npm install -g @anthropic-ai/claude-code" in message


@pytest.mark.requirement("design:cli:exec-exit-codes")
def test_a_program_that_the_shell_does_not_find_gives_127() -> None:
    finished = tether("exec", "--", "no-such-program-here")
    assert finished.returncode == 127
    assert b"no-such-program-here" in finished.stderr


@pytest.mark.requirement("design:start:errors:no-permission")
@pytest.mark.parametrize("mode", [(), ("--direct",)], ids=["shell", "direct"])
def test_a_file_that_is_not_executable_gives_126(mode: tuple[str, ...], tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("echo never\n", encoding="utf-8")
    finished = tether("exec", *mode, "--", str(plain))
    assert (finished.returncode, finished.stdout) == (126, b"")
    assert b"plain" in finished.stderr


@pytest.mark.requirement("design:start:errors:no-permission")
def test_the_refusal_of_a_file_that_is_not_executable_says_what_to_do(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    assert "chmod +x" in one_line(tether("exec", "--direct", "--", str(plain)))


@pytest.mark.requirement("design:cli:exec-cwd")
def test_the_command_runs_here_unless_told_otherwise(tmp_path: Path) -> None:
    finished = tether("exec", "--direct", "--", "pwd", "-P", cwd=tmp_path)
    assert finished.stdout == os.fsencode(tmp_path.resolve()) + b"\n"


@pytest.mark.requirement("design:cli:exec-cwd")
@pytest.mark.parametrize("mode", [(), ("--direct",)], ids=["shell", "direct"])
def test_cwd_is_taken_relative_to_here_or_absolute(mode: tuple[str, ...], tmp_path: Path) -> None:
    inner = tmp_path / "a dir" / "é"
    inner.mkdir(parents=True)
    expected = os.fsencode(inner.resolve()) + b"\n"
    relative = tether("exec", *mode, "--cwd", "a dir/../a dir/é", "--", "pwd", "-P", cwd=tmp_path)
    absolute = tether("exec", *mode, "--cwd", str(inner), "--", "pwd", "-P")
    assert (relative.stdout, absolute.stdout) == (expected, expected)


@pytest.mark.requirement("design:start:errors:missing-cwd")
@pytest.mark.parametrize("name", ["missing", "file", ""])
def test_a_cwd_that_is_no_directory_is_refused_by_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finished = tether("exec", "--cwd", name, "--", "echo", "never", cwd=tmp_path)
    assert (finished.returncode, finished.stdout) == (2, b"")
    assert repr(str(tmp_path / name)) in one_line(finished) or not name


@pytest.mark.requirement("design:start:errors:missing-cwd")
def test_a_current_directory_that_is_gone_is_told_and_another_can_be_named(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 60)
    deep.mkdir(parents=True)
    script = 'cd "$1" && rm -r "$2" && shift 2 && exec "$0" exec "$@"'
    top = str(tmp_path / "d")
    gone = in_shell(script, str(deep), top, "--", "echo", "never")
    assert (gone.returncode, gone.stdout) == (2, b"")
    assert "current directory is gone" in one_line(gone)
    deep.mkdir(parents=True)
    elsewhere = in_shell(script, str(deep), top, "--direct", "--cwd", "/", "--", "pwd")
    assert (elsewhere.returncode, elsewhere.stdout, elsewhere.stderr) == (0, b"/\n", b"")


@pytest.mark.requirement("design:cli:exec-cwd")
def test_a_directory_removed_under_the_command_changes_nothing(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    finished = tether("exec", "--direct", "--cwd", str(inner), "--", "sh", "-c", 'rmdir "$PWD" && echo done; exit 4')
    assert (finished.returncode, finished.stdout) == (4, b"done\n")
    assert not inner.exists()


@pytest.mark.requirement("design:start:environment-whole")
def test_the_command_gets_our_environment_however_large() -> None:
    large = {f"LARGE_{number}": "x" * 100_000 for number in range(8)}
    code = "import os; print(sum(len(os.environ[f'LARGE_{number}']) for number in range(8)))"
    finished = tether("exec", "--", sys.executable, "-c", code, env=large)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, b"800000\n", b"")


@pytest.mark.requirement("design:start:tokens-quoted")
def test_as_many_and_as_long_words_as_the_system_takes_reach_the_program() -> None:
    code = "import sys; print(sum(map(len, sys.argv[1:])))"
    finished = tether("exec", "--direct", "--", sys.executable, "-c", code, *["x" * 100_000] * 10)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, b"1000000\n", b"")


@pytest.mark.requirement("design:tree:background-child")
def test_a_child_left_in_the_background_delays_nothing_and_ends_with_the_output_it_holds() -> None:
    finished = tether("exec", "--", "sh", "-c", "sleep 100 & echo x; echo $! >&2")
    assert (finished.returncode, finished.stdout) == (0, b"x\n")
    assert not alive(int(finished.stderr))


@pytest.mark.requirement("design:tree:background-child")
def test_a_child_that_has_output_of_its_own_lives_on() -> None:
    finished = tether("exec", "--", "sh", "-c", "sleep 100 </dev/null >/dev/null 2>&1 & echo $!")
    left = int(finished.stdout)
    try:
        assert finished.returncode == 0
        assert alive(left)
    finally:
        kill(left)

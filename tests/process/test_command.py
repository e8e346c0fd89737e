"""A command is valid by construction, and its child's environment is exact."""

import dataclasses
import math
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.errors import InvalidCommandError, WorkingDirectoryError
from tether.process.command import (
    COOKIE,
    MOST_COOKIE_IDS,
    Command,
    CommandOptions,
    OutputPolicy,
    Overflow,
    Pipes,
    Pty,
    child_environment,
    display,
)
from tether.process.shell import script_argv

LONE_SURROGATE = "\ud800"


@pytest.mark.requirement("design:start:argv-or-shell")
def test_command_has_the_documented_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = Command(argv=("ls",))
    assert command == Command(
        argv=("ls",),
        root=str(tmp_path),
        cwd=".",
        env=None,
        stdin=None,
        stdio=Pipes(inherit_stdin=False),
        output=OutputPolicy(10485760, Overflow.DROP),
        timeout=None,
    )
    assert hash(command) == hash(Command(argv=("ls",)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        command.argv = ("rm",)  # pyright: ignore[reportAttributeAccessIssue] - that is what the test is about


@pytest.mark.requirement("001:pty:size")
def test_terminal_without_a_given_size_has_120_columns_and_30_rows() -> None:
    assert Pty() == Pty(120, 30)
    assert Pty(1, 10_000) == Pty(cols=1, rows=10_000)


@pytest.mark.requirement("design:start:typed-errors")
@pytest.mark.parametrize("size", [(0, 30), (-1, 30), (120, 0), (10_001, 30), (120, 65_536), (True, 30), (1.5, 30)])
def test_impossible_terminal_size_is_refused_by_value(size: tuple[int, int]) -> None:
    wrong = size[0] if size[1] == 30 else size[1]
    with pytest.raises(InvalidCommandError, match=f"={wrong!r};"):
        Pty(*size)


@pytest.mark.requirement("002:4.1")
@pytest.mark.parametrize("capacity", [0, -1, True, 1.0])
def test_impossible_capacity_is_refused_by_value(capacity: int) -> None:
    assert OutputPolicy().capacity == 10 * 1024 * 1024
    with pytest.raises(InvalidCommandError, match=repr(capacity)):
        OutputPolicy(capacity)


@pytest.mark.requirement("design:start:typed-errors")
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "no program in"),
        (("",), "no program in"),
        (("", "x"), "no program in"),
        (("ls", 3), "argument 3 is of type 'int'"),
        (("ls", b"x"), "argument b'x' is of type 'bytes'"),
        ((None,), "argument None"),
        ("ls -l", "argv is 'ls -l', not a tuple"),
        (None, "argv is None"),
        (("ls", f"a{LONE_SURROGATE}"), "cannot be encoded as utf-8; remove the character at index 1"),
    ],
)
def test_impossible_argv_is_refused_by_value(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidCommandError, match=message):
        Command(argv=argv)


@pytest.mark.requirement("design:start:typed-errors")
def test_refusal_of_a_huge_argument_is_short() -> None:
    with pytest.raises(InvalidCommandError) as caught:
        Command(argv=("ls", "x" * 1_000_000 + "\0"))
    assert len(str(caught.value)) < 400


@pytest.mark.requirement("design:start:errors:nul")
@pytest.mark.parametrize(
    "options",
    [
        CommandOptions(root="/a\0b"),
        CommandOptions(cwd="a\0b"),
        CommandOptions(env={"A\0": "b"}),
        CommandOptions(env={"A": "b\0"}),
    ],
)
def test_nul_is_refused_wherever_it_stands(options: CommandOptions) -> None:
    with pytest.raises(InvalidCommandError, match="contains a NUL"):
        Command(argv=("ls",), **options)
    with pytest.raises(InvalidCommandError, match="contains a NUL"):
        Command(argv=("ls", "a\0b"))
    with pytest.raises(InvalidCommandError, match="contains a NUL"):
        Command.shell("echo \0")


@pytest.mark.requirement("design:start:environment-whole")
@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"=A": "x"}, {3: "x"}, {LONE_SURROGATE: "x"}])
def test_impossible_environment_name_is_refused(env: Mapping[str, str]) -> None:
    with pytest.raises(InvalidCommandError, match="environment name"):
        Command(argv=("ls",), env=env)


@pytest.mark.requirement("design:start:environment-whole")
@pytest.mark.parametrize("value", ["secret\0", f"secret{LONE_SURROGATE}", b"secret"])
def test_refused_environment_value_is_named_but_not_shown(value: str) -> None:
    with pytest.raises(InvalidCommandError, match="environment value of 'TOKEN'") as caught:
        Command(argv=("ls",), env={"TOKEN": value})
    assert "secret" not in str(caught.value)


@pytest.mark.requirement("design:start:environment-whole")
def test_command_keeps_its_own_copy_of_the_environment_and_shows_no_secret() -> None:
    env = {"TOKEN": "secret"}
    command = Command(argv=("ls",), env=env, stdin=b"secret")
    env["TOKEN"] = "changed"
    assert command.env == {"TOKEN": "secret"}
    assert "secret" not in repr(command)


@pytest.mark.requirement("design:start:cwd-beneath-root")
@pytest.mark.parametrize("cwd", ["..", "../a", "a/../..", "a/../../b", "./..", "/", "/tmp", "", "a//../.."])
def test_cwd_that_leaves_the_root_is_refused_by_value(cwd: str) -> None:
    with pytest.raises(InvalidCommandError, match=f"cwd {cwd!r} "):
        Command(argv=("ls",), cwd=cwd)


@pytest.mark.requirement("design:start:cwd-beneath-root")
@pytest.mark.parametrize("cwd", [".", "a", "a/..", "a/../b", "...", "..a", "a//b/", "./a", os.fsdecode(b"\xff")])
def test_cwd_beneath_the_root_is_kept_as_written(cwd: str) -> None:
    assert Command(argv=("ls",), cwd=cwd).cwd == cwd


@pytest.mark.requirement("design:start:cwd-beneath-root")
@pytest.mark.parametrize("root", ["", ".", "a/b"])
def test_root_must_be_absolute(root: str) -> None:
    with pytest.raises(InvalidCommandError, match="not an absolute path"):
        Command(argv=("ls",), root=root)


@pytest.mark.requirement("design:start:errors:missing-cwd")
def test_vanished_current_directory_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(WorkingDirectoryError, match="pass an absolute root"):
        Command(argv=("ls",))
    assert Command(argv=("ls",), root=str(tmp_path)).root == str(tmp_path)


@pytest.mark.requirement("design:start:typed-errors")
@pytest.mark.parametrize("timeout", [-1, -0.001, math.nan, math.inf, -math.inf, True, "5"])
def test_impossible_timeout_is_refused_by_value(timeout: float) -> None:
    with pytest.raises(InvalidCommandError, match=f"timeout {timeout!r}"):
        Command(argv=("ls",), timeout=timeout)


@pytest.mark.requirement("design:start:typed-errors")
@pytest.mark.parametrize("timeout", [None, 0.5, 1800])
def test_possible_timeout_is_kept(timeout: float | None) -> None:
    assert Command(argv=("ls",), timeout=timeout).timeout == timeout


@pytest.mark.requirement("design:start:stdin-data")
def test_stdin_is_bytes_and_excludes_the_starters_own() -> None:
    assert Command(argv=("cat",), stdin=b"").stdin == b""
    assert Command(argv=("cat",), stdin=b"x", stdio=Pty()).stdin == b"x"
    text: dict[str, object] = {"stdin": "text"}
    with pytest.raises(InvalidCommandError, match="encode it first"):
        Command(argv=("cat",), **text)  # pyright: ignore[reportArgumentType] - that is what the test is about
    with pytest.raises(InvalidCommandError, match="choose one"):
        Command(argv=("cat",), stdin=b"x", stdio=Pipes(inherit_stdin=True))


@pytest.mark.requirement("design:start:argv-or-shell")
def test_shell_command_takes_the_same_options() -> None:
    command = Command.shell("echo $((1+1)) | cat", cwd="sub", root="/", stdio=Pty(80, 24), timeout=3)
    argv = script_argv("echo $((1+1)) | cat")
    assert command == Command(argv=argv, cwd="sub", root="/", stdio=Pty(80, 24), timeout=3)
    done = subprocess.run(command.argv, capture_output=True, timeout=30, check=True)
    assert done.stdout == b"2\n"


@pytest.mark.requirement("design:start:argv-or-shell")
def test_display_is_what_a_person_would_type() -> None:
    assert display(("ls", "-l", "a b", "", "it's")) == """ls -l 'a b' '' 'it'"'"'s'"""
    assert display(("a\nb'\\\x1b[31m\u202e\x7f", os.fsdecode(b"\xff"))) == (r"$'a\nb\'\\\e[31m\u202e\x7f' $'\xff'")
    assert display(("\U000e0001", LONE_SURROGATE)) == r"$'\U000e0001' $'\ud800'"


@pytest.mark.requirement("design:start:tokens-quoted")
@settings(max_examples=40, deadline=None, database=None)
@given(
    words=st.lists(
        st.one_of(
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
            st.binary(max_size=8).map(lambda data: os.fsdecode(data.replace(b"\0", b""))),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_displayed_words_are_printable_and_mean_the_same_to_bash(words: list[str]) -> None:
    shown = display(words)
    assert shown.isprintable()
    done = subprocess.run(
        ("bash", "-c", f"printf '%s\\0' {shown}"),
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]] == words


@pytest.mark.requirement("design:start:environment-whole")
def test_child_on_pipes_gets_the_inherited_environment_and_the_cookie() -> None:
    inherited = {"PATH": "/bin", "TERM": "dumb", "LINES": "5", "COLUMNS": "9"}
    environment = child_environment(Command(argv=("ls",)), "p1", inherited)
    assert environment == {**inherited, COOKIE: "p1"}
    assert COOKIE not in inherited
    assert child_environment(Command(argv=("ls",)), "p1", {}) == {COOKIE: "p1"}


@pytest.mark.requirement("design:start:environment-whole")
def test_given_environment_replaces_the_inherited_one() -> None:
    command = Command(argv=("ls",), env={"ONLY": "this"})
    assert child_environment(command, "p1", {"PATH": "/bin", COOKIE: "outer"}) == {
        "ONLY": "this",
        COOKIE: "p1",
    }
    assert command.env == {"ONLY": "this"}
    assert child_environment(Command(argv=("ls",), env={}), "p1", {"PATH": "/bin"}) == {COOKIE: "p1"}


@pytest.mark.requirement("001:pty:terminal-name")
def test_child_on_a_pty_is_told_its_terminal_and_no_stale_size() -> None:
    inherited = {"PATH": "/bin", "TERM": "dumb", "LINES": "5", "COLUMNS": "9"}
    environment = child_environment(Command(argv=("vi",), stdio=Pty()), "p1", inherited)
    assert environment == {"PATH": "/bin", "TERM": "xterm-256color", "COLORTERM": "truecolor", COOKIE: "p1"}


@pytest.mark.requirement("001:pty:terminal-name")
@pytest.mark.parametrize(("given_term", "term"), [({}, "xterm-256color"), ({"TERM": "vt100"}, "vt100")])
def test_given_environment_keeps_its_own_terminal_name_and_size(given_term: dict[str, str], term: str) -> None:
    command = Command(argv=("vi",), stdio=Pty(), env={**given_term, "LINES": "5"})
    assert child_environment(command, "p1", {}) == {"TERM": term, "LINES": "5", COOKIE: "p1"}


@pytest.mark.requirement("design:tree:cookie")
def test_nested_child_carries_the_ids_of_its_outer_owners() -> None:
    command = Command(argv=("ls",))
    environment: dict[str, str] = {}
    for number in range(MOST_COOKIE_IDS + 8):
        environment = child_environment(command, f"p{number}", environment)
    assert environment[COOKIE].split(" ") == [f"p{number}" for number in range(8, MOST_COOKIE_IDS + 8)]
    assert child_environment(Command(argv=("ls",), env={COOKIE: "a b"}), "c", {})[COOKIE] == "a b c"

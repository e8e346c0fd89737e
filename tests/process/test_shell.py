"""Shell arguments: the shape on every system, and on this one what the shell really passes on."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tether.errors import InvalidCommandError
from tether.process.shell import Which, command_line_argv, script_argv

EXIT_AS_LAST_COMMAND = "if ($?) { exit 0 } elseif ($LASTEXITCODE) { exit $LASTEXITCODE } else { exit 1 }"
AWKWARD_TOKENS = (
    "-n",
    "a b",
    "",
    "it's",
    '"',
    "'",
    "''",
    "$HOME",
    "$(id)",
    "`id`",
    "two\nlines",
    "=ls",
    "~",
    "~root",
    "*",
    "?",
    "[a-z]",
    "{a,b}",
    "!!",
    "^a^b",
    "#",
    ";",
    "&&",
    "|",
    ">x",
    "\\",
    "\\\n",
    "%1",
    "\t",
    "\x1b[31m",
    "名前",
    "\u2018\u2019\u201a\u201b",
    os.fsdecode(b"\xff\xfe'"),
)
TOKEN = st.one_of(
    st.sampled_from(AWKWARD_TOKENS),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30),
    st.text("'\"$`\\!~={}*?#&;|<>()[] \n-", max_size=12),
    st.binary(max_size=12).map(lambda data: os.fsdecode(data.replace(b"\0", b""))),
)


def finds(*names: str) -> Which:
    """A search that finds these shells in /bin and no others."""
    return lambda name: f"/bin/{name}" if name in names else None


def run(argv: Sequence[str], home: Path) -> subprocess.CompletedProcess[bytes]:
    environment = {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    return subprocess.run(argv, env=environment, cwd=home, capture_output=True, timeout=30, check=False)


@pytest.mark.requirement("001:pty:shell")
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_script_runs_in_bash_or_else_in_sh(platform: str) -> None:
    script = "echo 'a b' | cat; exit 3"
    assert script_argv(script, platform=platform, which=finds("bash", "zsh", "sh")) == (
        "/bin/bash",
        "-c",
        script,
    )
    assert script_argv(script, platform=platform, which=finds("zsh", "sh")) == ("/bin/sh", "-c", script)
    assert script_argv(script, platform=platform, which=finds()) == ("sh", "-c", script)


@pytest.mark.requirement("001:pty:shell")
def test_script_on_windows_runs_in_powershell_and_passes_its_exit_code_on() -> None:
    expected = (
        "powershell.exe",
        "-NoLogo",
        "-NoProfile",
        "-NonInteractive",
        "-Command",
        f"cmd /c exit 3 # three\n{EXIT_AS_LAST_COMMAND}",
    )
    assert script_argv("cmd /c exit 3 # three", platform="win32", which=finds()) == expected
    located = script_argv("x", platform="win32", which=finds("powershell.exe"))
    assert located[0] == "/bin/powershell.exe"


@pytest.mark.requirement("design:start:shell-builders")
@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.parametrize(
    ("script", "code", "output"),
    [
        ("printf %s out; exit 3", 3, b"out"),
        ("-n; printf %s off; exit 5", 5, b"off"),
        ("+x; printf %s on; exit 4", 4, b"on"),
        ("", 0, b""),
        ("cat <<end\n$((1+1))\nend\n# comment", 0, b"2\n"),
    ],
)
def test_script_is_run_as_written_even_when_it_looks_like_an_option(
    shell: str, script: str, code: int, output: bytes, tmp_path: Path
) -> None:
    argv = script_argv(script, platform="linux", which=finds(shell))
    done = run(argv, tmp_path)
    assert (done.returncode, done.stdout) == (code, output)


@pytest.mark.requirement("design:start:shell-builders")
def test_script_shell_reads_no_login_profile(tmp_path: Path) -> None:
    (tmp_path / ".profile").write_text("echo profile\n", encoding="utf-8")
    assert run(script_argv("echo script"), tmp_path).stdout == b"script\n"


@pytest.mark.requirement("003:5:shell-default")
@pytest.mark.parametrize(
    ("platform", "present", "shell"),
    [
        ("linux", ("bash", "zsh", "sh"), "/bin/bash"),
        ("linux", ("zsh", "sh"), "/bin/sh"),
        ("linux", (), "sh"),
        ("darwin", ("bash", "zsh", "sh"), "/bin/zsh"),
        ("darwin", ("bash", "sh"), "/bin/sh"),
    ],
)
def test_tokens_run_in_the_login_shell_of_a_posix_system(platform: str, present: tuple[str, ...], shell: str) -> None:
    argv = command_line_argv(("echo", "=ls", "it's"), platform=platform, which=finds(*present))
    assert argv == (shell, "-lc", """'echo' '=ls' 'it'"'"'s'""")


@pytest.mark.requirement("003:5:shell-default")
def test_tokens_run_in_powershell_on_windows() -> None:
    argv = command_line_argv(
        ("C:\\Program Files\\it's.exe", "", "$env:X", "\u2018a\u2019", 'say "hi"', "`n", "-n"),
        platform="win32",
        which=finds(),
    )
    assert argv == (
        "pwsh.exe",
        "-NoLogo",
        "-NoProfile",
        "-Command",
        "& 'C:\\Program Files\\it''s.exe' '' '$env:X' '\u2018\u2018a\u2019\u2019' 'say \"hi\"' '`n' '-n'; "
        + EXIT_AS_LAST_COMMAND,
    )
    assert command_line_argv(("x",), platform="win32", which=finds("pwsh.exe"))[0] == "/bin/pwsh.exe"


@pytest.mark.requirement("design:start:tokens-quoted")
@settings(deadline=None, database=None)
@given(tokens=st.lists(TOKEN, max_size=8))
def test_powershell_string_holds_exactly_the_token(tokens: list[str]) -> None:
    argv = command_line_argv(("program", *tokens), platform="win32", which=finds())
    assert powershell_words(argv[-1].removeprefix("& ")) == ["program", *tokens]


@pytest.mark.requirement("design:start:tokens-quoted")
@pytest.mark.parametrize("shell", ["bash", "sh"])
@settings(
    max_examples=40,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(tokens=st.lists(TOKEN, min_size=1, max_size=40))
def test_every_token_reaches_the_program_unread(shell: str, tokens: list[str], tmp_path: Path) -> None:
    argv = command_line_argv(("/usr/bin/printf", "%s\\0", *tokens), platform="linux", which=finds(shell))
    assert received(run(argv, tmp_path)) == tokens


@pytest.mark.requirement("design:start:tokens-quoted")
@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_awkward_tokens_reach_the_program_unread(shell: str, tmp_path: Path) -> None:
    argv = command_line_argv(("printf", "%s\\0", *AWKWARD_TOKENS), platform="linux", which=finds(shell))
    assert received(run(argv, tmp_path)) == list(AWKWARD_TOKENS)


@pytest.mark.requirement("design:start:tokens-quoted")
@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.parametrize("name", ["if", "time", "A=1", "=ls", "a b", "-n", "~", "!", "{", "[[", "$x", "it's"])
def test_first_token_is_a_program_whatever_the_shell_makes_of_such_a_word(
    shell: str, name: str, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / name
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\0" ran "$@"\nexit 7\n', encoding="utf-8")
    program.chmod(0o755)
    (tmp_path / ".profile").write_text('PATH="$HOME/bin:$PATH"\n', encoding="utf-8")
    done = run(command_line_argv((name, "$1"), platform="linux", which=finds(shell)), tmp_path)
    assert (done.returncode, received(done)) == (7, ["ran", "$1"])


@pytest.mark.requirement("design:start:shell-builders")
@pytest.mark.parametrize("tokens", [(), ("",), ("", "x")])
def test_tokens_without_a_program_are_refused(tokens: tuple[str, ...]) -> None:
    with pytest.raises(InvalidCommandError, match="no program in"):
        command_line_argv(tokens)


def received(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.stderr == b""
    return [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]


def powershell_words(line: str) -> list[str]:
    """Read the quoted words before the semicolon as PowerShell's tokenizer does."""
    quotes = "'\u2018\u2019\u201a\u201b"
    words: list[str] = []
    at = 0
    while line[at] in quotes:
        at += 1
        word = ""
        while line[at] not in quotes or line[at + 1] in quotes:
            at += 1 if line[at] not in quotes else 2
            word += line[at - 1]
        words.append(word)
        at += 1
        if line[at] == ";":
            return words
        assert line[at] == " "
        at += 1
    raise AssertionError(f"a bare word in {line!r}")


@pytest.mark.requirement("design:start:tokens-quoted")
@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_more_words_than_one_argument_can_hold_arrive_unchanged(shell: str, tmp_path: Path) -> None:
    tokens = [f"$HOME `{number}` \U0001f600" for number in range(20_000)]
    argv = command_line_argv(("printf", "%s\\0", *tokens), platform="linux", which=finds(shell))
    done = run(argv, tmp_path)
    assert (done.returncode, done.stdout.decode().split("\0")[:-1]) == (0, tokens)

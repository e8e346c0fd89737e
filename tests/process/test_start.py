"""Starting a child: what it gets, what it does not get, and how each refusal is told without a leak."""

import asyncio
import errno
import fcntl
import itertools
import logging
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import python
from tether.errors import (
    InvalidCommandError,
    LineTooLongError,
    ProgramNotFoundError,
    ProgramNotRunnableError,
    PtyUnavailableError,
    TetherError,
    WorkingDirectoryError,
)
from tether.process._directory import open_directory
from tether.process.command import COOKIE, Command, Pipes, Pty
from tether.process.exit_status import ExitStatus
from tether.process.log_reader import STDERR, STDOUT
from tether.process.table import ProcessTable, open_process

on_both_streams = pytest.mark.parametrize("stdio", [Pipes(), Pty()], ids=["pipes", "pty"])


@pytest.fixture(params=["posix_spawn", "fork"])
def each_way_to_spawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test on both paths; a C library without `addfchdir` is what makes us fork."""
    if request.param == "fork":
        monkeypatch.setattr("tether.process._spawn_posix._libc", object())


async def outcome(command: Command) -> tuple[ExitStatus, str]:
    """How the command ends and what it wrote."""
    async with open_process(command) as process:
        status = await process.wait()
        return status, process.output.read(0).data.decode()


async def written(*argv: str, stdio: Pipes | Pty = Pipes(), root: str = "/", cwd: str = ".") -> str:
    """What a command writes that must end well."""
    status, text = await outcome(Command(argv=argv, stdio=stdio, root=root, cwd=cwd))
    assert status.code == 0, text
    return text.replace("\r\n", "\n")


@pytest.mark.requirement("design:start:argv-or-shell")
@pytest.mark.requirement("000:process:start")
async def test_arguments_are_taken_as_they_are_and_a_script_is_read_by_a_shell(each_way_to_spawn: None) -> None:
    assert await written("printf", "%s|", "$HOME", "a b", "*") == "$HOME|a b|*|"
    status, text = await outcome(Command.shell("printf '%s' \"$WORD\"; exit 3", env={**os.environ, "WORD": "a b"}))
    assert (status.code, text) == (3, "a b")


@on_both_streams
@pytest.mark.requirement("design:start:environment-whole")
@pytest.mark.requirement("000:process:start:env-and-cwd")
async def test_a_given_environment_is_the_whole_environment(stdio: Pipes | Pty, each_way_to_spawn: None) -> None:
    async with open_process(Command(argv=("/usr/bin/env",), env={"A": "1", "B": "=é"}, stdio=stdio)) as process:
        await process.wait()
        lines = set(process.output.read(0).data.decode().split())
        expected = {"A=1", "B==é", f"{COOKIE}={process.id}"}
        assert lines == (expected if isinstance(stdio, Pipes) else expected | {"TERM=xterm-256color"})


@pytest.mark.requirement("001:pty:terminal-name")
@pytest.mark.requirement("003:3.1:environment")
async def test_the_starters_environment_is_inherited_and_a_terminal_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "yes")
    monkeypatch.setenv("COLUMNS", "3")
    script = 'echo "$INHERITED $TERM ${COLUMNS-unset}"'
    assert await written("sh", "-c", script, stdio=Pty()) == "yes xterm-256color unset\n"
    assert (await written("sh", "-c", script)).split()[::2] == ["yes", "3"]


@pytest.mark.requirement("001:pty:workdir")
@pytest.mark.requirement("design:start:cwd-beneath-root")
async def test_it_runs_in_the_directory_beneath_its_root(tmp_path: Path, each_way_to_spawn: None) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b")
    for cwd, place in (("a/../a/b", "a/b"), ("link", "a/b"), (".", ".")):
        seen = await written("/bin/pwd", "-P", root=str(tmp_path), cwd=cwd)
        assert seen.strip() == str((tmp_path / place).resolve())
    status, text = await outcome(Command(argv=("/bin/pwd", "-P")))
    assert (status.code, text.strip()) == (0, str(Path.cwd().resolve()))


@pytest.mark.requirement("design:start:cwd-beneath-root")
async def test_a_link_out_of_the_root_is_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "out").symlink_to(outside)
    (root / "up").symlink_to("..")
    (root / "magic").symlink_to("/proc/self/cwd")
    async with ProcessTable() as table:
        for cwd in ("out", "up", "magic", "out/../../outside"):
            with pytest.raises(TetherError, match=r"leads outside its root|climbs out of root"):
                await table.start(Command(argv=("true",), root=str(root), cwd=cwd))
        assert len(table) == 0


@pytest.fixture(params=["openat2", "walk"])
def each_way_to_open(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with the kernel's own border and with the walk for systems without it."""
    if request.param == "walk":
        monkeypatch.setattr("tether.process._directory._OPENAT2", 100_000)  # no such call: ENOSYS


@pytest.mark.requirement("design:start:cwd-beneath-root")
@pytest.mark.requirement("design:macos:fallbacks")
def test_a_link_swapped_during_the_start_never_leads_outside(tmp_path: Path, each_way_to_open: None) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "inside" / "deep").mkdir(parents=True)
    (outside / "deep").mkdir(parents=True)
    over = threading.Event()

    def swap() -> None:
        for target in itertools.cycle(("inside", str(outside))):
            os.symlink(target, root / "next")
            os.replace(root / "next", root / "door")
            if over.is_set():
                return

    swapper = threading.Thread(target=swap)
    swapper.start()
    allowed = (root / "inside" / "deep").stat().st_ino
    try:
        for _ in range(2000):
            try:
                descriptor = open_directory(str(root), "door/deep")
            except WorkingDirectoryError:
                continue
            try:
                assert os.fstat(descriptor).st_ino == allowed
            finally:
                os.close(descriptor)
    finally:
        over.set()
        swapper.join()
    descriptor = open_directory(str(root), "inside/../inside/./deep")
    assert os.fstat(descriptor).st_ino == allowed
    os.close(descriptor)


@on_both_streams
@pytest.mark.requirement("design:start:no-foreign-descriptors")
async def test_no_descriptor_of_ours_reaches_the_child(stdio: Pipes | Pty, each_way_to_spawn: None) -> None:
    inheritable = fcntl.fcntl(0, fcntl.F_DUPFD, 3)
    try:
        # ls itself has the listed directory open as its first free descriptor.
        assert (await written("ls", "/proc/self/fd", stdio=stdio)).split() == ["0", "1", "2", "3"]
    finally:
        os.close(inheritable)


@pytest.mark.requirement("design:start:signals-default")
async def test_signals_are_as_a_fresh_program_expects_them(each_way_to_spawn: None) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
    try:
        text = await written("cat", "/proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    found = {int(mask, 16) for mask in re.findall(r"^Sig(?:Blk|Ign|Cgt):\t(.*)$", text, re.MULTILINE)}
    # Signals 32 and 33 are the C library's own: its posix_spawn leaves them ignored.
    assert {mask & ~(1 << 31 | 1 << 32) for mask in found} == {0}


@pytest.mark.requirement("design:start:controlling-terminal")
@pytest.mark.requirement("design:start:window-size")
@pytest.mark.requirement("000:process:start:stdio-on-pty")
@pytest.mark.requirement("000:pty:create")
@pytest.mark.requirement("000:pty:linux")
@pytest.mark.requirement("002:3.1")
@pytest.mark.requirement("002:3.3")
async def test_a_terminal_controls_its_child_and_has_the_given_size(each_way_to_spawn: None) -> None:
    script = "stty size; tty; ps -o pid=,pgid=,sid=,tpgid= -p $$; echo opened >/dev/tty"
    size, name, ids, opened = (await written("sh", "-c", script, stdio=Pty(77, 19))).splitlines()
    assert size == "19 77"
    assert name.startswith("/dev/pts/")
    assert len(set(ids.split())) == 1
    assert opened == "opened"


@pytest.mark.requirement("001:pty:size")
async def test_a_terminal_without_a_given_size_has_120_columns_and_30_rows() -> None:
    assert await written("stty", "size", stdio=Pty()) == "30 120\n"


@pytest.mark.requirement("design:start:job-control")
async def test_an_interactive_shell_has_job_control(each_way_to_spawn: None) -> None:
    command = Command(argv=("bash", "--norc", "-i"), stdio=Pty(), stdin=b"sleep 0 & wait; fg; exit 5\n")
    status, text = await outcome(command)
    assert status.code == 5
    assert "[1]" in text
    assert "no job control" not in text
    assert "cannot set terminal process group" not in text


@pytest.mark.requirement("001:pty:shell")
async def test_a_script_runs_through_bash() -> None:
    status, text = await outcome(Command.shell("echo $BASH_VERSION", stdio=Pty()))
    assert status.code == 0
    assert text[0].isdecimal()


@pytest.mark.requirement("design:start:stdin-data")
@on_both_streams
@pytest.mark.parametrize("data", [b"", b"one\ntwo\n", b"open line", b"one\nopen line"])
async def test_given_input_is_followed_by_its_end(stdio: Pipes | Pty, data: bytes) -> None:
    script = "stty -echo 2>/dev/null; exec cat"
    async with open_process(Command(argv=("sh", "-c", script), stdio=stdio, stdin=data)) as process:
        assert (await process.wait()).code == 0
        # The terminal echoes what is typed before the script has told it not to.
        assert process.output.read(0).data.replace(b"\r\n", b"\n").endswith(data)


@pytest.mark.requirement("design:start:stdin-data")
async def test_large_input_arrives_whole() -> None:
    status, text = await outcome(Command(argv=("wc", "-c"), stdin=b"x" * 5_000_000))
    assert (status.code, text.strip()) == (0, "5000000")


@pytest.mark.requirement("design:input:line-limit")
@pytest.mark.requirement("design:start:failure-leaks-nothing")
async def test_given_input_that_a_terminal_would_cut_is_refused_before_the_start() -> None:
    async with ProcessTable() as table:
        with pytest.raises(LineTooLongError, match="5000 bytes"):
            await table.start(Command(argv=("cat",), stdio=Pty(), stdin=b"short\n" + b"x" * 5000 + b"\n"))
        assert len(table) == 0


def _missing(_: Path) -> str:
    return "no-such-program"


def _missing_path(place: Path) -> str:
    return str(place / "absent")


def _not_executable(place: Path) -> str:
    (place / "tool").write_text("#!/bin/sh\n")
    return str(place / "tool")


def _no_interpreter(place: Path) -> str:
    (place / "tool").write_text("#!/nowhere/interpreter\n")
    (place / "tool").chmod(0o755)
    return str(place / "tool")


def _no_program(place: Path) -> str:
    (place / "tool").write_bytes(b"\x00\x01 no program")
    (place / "tool").chmod(0o755)
    return str(place / "tool")


@on_both_streams
@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (_missing, ProgramNotFoundError, r"'no-such-program' \(looked in .*/bin.*; "),
        (_missing_path, ProgramNotFoundError, r"absent' \(looked in "),
        (_not_executable, ProgramNotRunnableError, r"chmod \+x"),
        (_no_interpreter, ProgramNotRunnableError, r"interpreter in its first line \(#!\) does not exist"),
        (_no_program, ProgramNotRunnableError, "not a program for this machine"),
        (str, ProgramNotRunnableError, "director|Permission|chmod"),
    ],
    ids=["missing", "missing-path", "not-executable", "no-interpreter", "no-program", "directory"],
)
@pytest.mark.requirement("design:start:typed-errors")
@pytest.mark.requirement("design:start:errors:missing-program")
@pytest.mark.requirement("design:start:errors:no-permission")
@pytest.mark.requirement("design:start:failure-leaks-nothing")
@pytest.mark.requirement("000:errors:start:caught")
@pytest.mark.requirement("000:errors:start:diagnosis")
@pytest.mark.requirement("000:errors:start:remedy")
async def test_a_program_that_cannot_run_is_told_and_leaves_nothing(
    stdio: Pipes | Pty,
    make: Callable[[Path], str],
    kind: type[TetherError],
    words: str,
    tmp_path: Path,
    each_way_to_spawn: None,
) -> None:
    async with ProcessTable() as table:
        with pytest.raises(kind, match=words):
            await table.start(Command(argv=(make(tmp_path),), stdio=stdio))
        assert len(table) == 0
        assert (await (await table.start(Command(argv=("true",)))).wait()).code == 0


@pytest.mark.requirement("design:start:errors:missing-cwd")
async def test_a_working_directory_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with ProcessTable() as table:
        with pytest.raises(WorkingDirectoryError, match=r"absent' does not exist; create it"):
            await table.start(Command(argv=("true",), root=str(tmp_path), cwd="absent"))
        with pytest.raises(WorkingDirectoryError, match=r"file' is not a directory"):
            await table.start(Command(argv=("true",), root=str(tmp_path), cwd="file"))
        with pytest.raises(WorkingDirectoryError, match=r"absent' does not exist"):
            await table.start(Command(argv=("true",), root=str(tmp_path / "absent")))


@pytest.mark.requirement("design:start:errors:nul")
@pytest.mark.requirement("design:start:typed-errors")
async def test_arguments_the_system_cannot_take_are_refused(each_way_to_spawn: None) -> None:
    with pytest.raises(InvalidCommandError, match=r"'a\\x00b' contains a NUL"):
        Command(argv=("echo", "a\0b"))
    async with ProcessTable() as table:
        with pytest.raises(InvalidCommandError, match="too long for this system; pass data by stdin or a file"):
            await table.start(Command(argv=("true", "x" * 3_000_000)))


def without_terminals(monkeypatch: pytest.MonkeyPatch, reason: int) -> None:
    """From now on the system has no pseudo-terminal to give, for this reason."""
    real_open = os.open

    def refusing(path: str, *arguments: int, **named: int) -> int:
        if path == "/dev/ptmx":
            raise OSError(reason, os.strerror(reason))
        return real_open(path, *arguments, **named)

    monkeypatch.setattr(os, "open", refusing)


@pytest.mark.requirement("design:start:errors:no-pty")
async def test_a_terminal_that_is_required_and_not_to_be_had_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    without_terminals(monkeypatch, errno.ENOENT)
    with pytest.raises(PtyUnavailableError, match=r"no pseudo-terminal to be had: No such file .* on pipes"):
        async with open_process(Command(argv=("true",), stdio=Pty(required=True))):
            pass


@pytest.mark.requirement("design:start:pty-fallback-warns")
@pytest.mark.requirement("002:3.4")
@pytest.mark.requirement("002:7.1")
@pytest.mark.requirement("000:errors:pty:logged")
@pytest.mark.requirement("000:errors:pty:message")
@pytest.mark.requirement("000:errors:pty:isolated")
async def test_without_a_terminal_it_runs_on_pipes_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without_terminals(monkeypatch, errno.ENOSPC)
    script = "exec >&-; read line; echo got $line >&2; head -c 200000 /dev/zero >&2; exit 4"
    async with open_process(Command(argv=("sh", "-c", script), stdio=Pty())) as process:
        await process.submit("hello")
        assert (await asyncio.wait_for(process.wait(), 10)).code == 4
        assert process.output.read_stream(STDERR).data == b"got hello\n" + bytes(200000)
        assert process.output.read_stream(STDOUT).data == b""
        assert process.stdio == Pipes()
        (warning,) = process.warnings
    assert warning.startswith("no terminal, running on pipes instead: no pseudo-terminal to be had: No space left")
    assert "/proc/sys/kernel/pty/max" in warning
    assert [record.levelno for record in caplog.records if "no pseudo-terminal" in record.message] == [
        logging.WARNING
    ]


def in_python(code: str, given: str = "") -> str:
    """Run a scenario that would spoil this process in one of its own."""
    done = subprocess.run(python(code), input=given, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


WITHOUT_STREAMS = """
    import asyncio, os, sys
    from tether.process.command import Command, Pipes, Pty
    from tether.process.table import ProcessTable
    import tether.process._spawn_posix as spawning

    answer = os.dup(1)
    os.closerange(0, 3)

    async def main():
        async with ProcessTable() as table:
            for stdio in (Pipes(), Pty()):
                process = await table.start(Command(argv=("sh", "-c", "pwd -P; cat"), root="/usr/bin", stdio=stdio))
                await process.write(b"typed\\n")
                await process.end_input()
                await process.wait()
                lines = process.output.read(0).data.decode().split()
                assert sorted(set(lines)) == [os.path.realpath("/usr/bin"), "typed"], lines

    asyncio.run(main())
    spawning._libc = object()
    asyncio.run(main())
    os.write(answer, b"done")
"""


@pytest.mark.requirement("000:process:start")
def test_a_starter_without_standard_streams_starts_children_like_any_other() -> None:
    assert in_python(WITHOUT_STREAMS) == "done"


GIVING_INPUT_ON = """
    import asyncio
    from tether.process.command import Command, Pipes
    from tether.process.table import open_process

    async def main():
        async with open_process(Command(argv=("cat",), stdio=Pipes(inherit_stdin=True))) as process:
            await process.wait()
            print(process.output.read(0).data.decode(), end="")

    asyncio.run(main())
"""


@pytest.mark.requirement("design:start:stdin-data")
def test_a_child_may_be_given_the_starters_own_input() -> None:
    assert in_python(GIVING_INPUT_ON, given="from outside") == "from outside"

"""One command from start to end: synchronous with `run`, asynchronous with `execute`."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.helpers import alive, python
from tether.errors import InvalidCommandError, ProgramNotFoundError, WorkingDirectoryError
from tether.process.command import Command, OutputPolicy, Overflow, Pty
from tether.process.exit_status import Cause, ExitStatus
from tether.process.run import Result, execute, run

BOUND = 40.0


@pytest.mark.requirement("design:library:sync")
def test_a_string_is_a_shell_script() -> None:
    result = run("echo out; echo err >&2; exit 3")
    assert result == Result(ExitStatus(3, None, Cause.EXITED), "out\n", "err\n", result.duration)
    assert (result.exit_code, result.timed_out) == (3, False)
    assert result.duration > 0


@pytest.mark.requirement("design:library:sync")
def test_a_sequence_is_a_program_and_its_arguments() -> None:
    for words in (["printf", "%s|", "a b", "$HOME", "*"], ("printf", "%s|", "a b", "$HOME", "*")):
        assert run(words).stdout == "a b|$HOME|*|"


@pytest.mark.requirement("design:library:async")
async def test_execute_runs_a_command_without_blocking_the_loop() -> None:
    result = await execute(Command.shell("cat; exit 4", stdin=b"given"))
    assert (result.exit_code, result.stdout) == (4, "given")


@pytest.mark.requirement("design:library:sync")
async def test_run_inside_a_loop_is_refused_and_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"await tether\.execute"):
        run("true")


@pytest.mark.requirement("design:start:stdin-absent")
def test_the_input_is_empty_unless_given() -> None:
    assert (run(("cat",)).stdout, run(("cat",)).exit_code) == ("", 0)
    assert run(("cat",), stdin=b"x" * 1_000_000).stdout == "x" * 1_000_000


@pytest.mark.requirement("design:library:sync")
def test_options_are_those_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    environment = {"PATH": os.environ["PATH"], "ONLY": "this"}
    result = run("pwd -P; echo $ONLY", root=str(tmp_path), cwd="in", env=environment)
    assert result.stdout == f"{(tmp_path / 'in').resolve()}\nthis\n"


@pytest.mark.requirement("design:log:whole-or-stop")
def test_all_of_30_mb_is_returned() -> None:
    result = run(python("import sys; sys.stdout.write('0123456789' * 3_000_000); sys.stderr.write('é' * 1000)"))
    assert result.stdout == "0123456789" * 3_000_000
    assert (result.stderr, result.warnings) == ("é" * 1000, ())


@pytest.mark.requirement("design:text:utf8-never-split")
def test_bytes_that_are_no_text_are_replaced() -> None:
    assert run(python(r"import os; os.write(1, b'a\xffb\xe6\xbc\xa2')")).stdout == "a\ufffdb漢"


@pytest.mark.requirement("design:process:timeout")
def test_a_timeout_is_a_result_with_the_output_so_far_and_nobody_left(tmp_path: Path) -> None:
    script = "echo begun; setsid sh -c 'trap \"\" TERM; echo $$ >pid; sleep 100' & wait"
    result = run(script, timeout=2, root=str(tmp_path))
    assert (result.exit_code, result.timed_out, result.stdout) == (124, True, "begun\n")
    assert not alive(int((tmp_path / "pid").read_text(encoding="ascii")))


@pytest.mark.requirement("design:exit:status")
def test_a_death_by_signal_gives_128_and_its_number() -> None:
    result = run("kill -9 $$")
    assert (result.exit_code, result.status.signal) == (137, "SIGKILL")


@pytest.mark.requirement("design:log:whole-or-stop-cap")
@pytest.mark.parametrize("overflow", [Overflow.STOP, Overflow.WAIT])
def test_a_limit_of_ones_own_stops_the_command_and_says_so(overflow: Overflow) -> None:
    result = run(("yes",), output=OutputPolicy(200_000, overflow))
    assert result.status.cause is Cause.OUTPUT_LIMIT
    assert set(result.stdout) == {"y", "\n"}
    assert len(result.stdout) >= 200_000
    assert ["200000 bytes" in warning for warning in result.warnings] == [True]


@pytest.mark.requirement("design:log:head-kept")
def test_a_policy_that_drops_keeps_beginning_and_end_and_says_how_much_is_gone() -> None:
    result = run(("seq", "1000000"), output=OutputPolicy(200_000, Overflow.DROP))
    assert result.exit_code == 0
    assert result.stdout.startswith("1\n2\n3\n")
    assert result.stdout.endswith("999999\n1000000\n")
    whole = sum(len(str(number)) + 1 for number in range(1, 1_000_001))
    assert [f"{whole - len(result.stdout)} bytes" in warning for warning in result.warnings] == [True]


@pytest.mark.requirement("design:start:typed-errors")
def test_a_command_that_cannot_be_started_raises_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ProgramNotFoundError, match="no-such-program-here"):
        run(("no-such-program-here",))
    with pytest.raises(WorkingDirectoryError, match="missing"):
        run("true", root=str(tmp_path / "missing"))
    with pytest.raises(InvalidCommandError, match="no program"):
        run(())


@pytest.mark.requirement("design:library:sync")
def test_a_command_can_have_a_terminal() -> None:
    assert run("stty size; tty", stdio=Pty(cols=77, rows=33)).stdout.splitlines()[0] == "33 77"


@pytest.mark.requirement("design:cleanup:on-error")
def test_an_interrupt_ends_the_command_and_passes_on() -> None:
    program = python(
        """
        import signal, tether
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            tether.run(("sh", "-c", "echo $$ >/proc/$PPID/fd/1; exec sleep 100"))
        except KeyboardInterrupt:
            print("passed on")
        """
    )
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as running:
        try:
            assert running.stdout is not None
            pid = int(running.stdout.readline())
            assert alive(pid)
            running.send_signal(signal.SIGINT)
            stdout, stderr = running.communicate(timeout=BOUND)
            assert (stdout, stderr, running.returncode) == (b"passed on\n", b"", 0)
            assert not alive(pid)
        finally:
            running.kill()

"""What a place promises about starting: the child gets what its starter meant, once, or nothing is left behind."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.helpers import python
from tests.keeper.places import BOUND, everything, on_both_streams, outcome, shell
from tether.errors import (
    LineTooLongError,
    ProgramNotFoundError,
    ProgramNotRunnableError,
    TetherError,
    WorkingDirectoryError,
)
from tether.process.command import COOKIE, Command, Pipes, Pty
from tether.process.exit_status import Cause, ExitStatus, Status
from tether.process.log_reader import STDERR, STDOUT
from tether.process.place import Place
from tether.process.waiting import Exit, wait_for

ID = "00000000-0000-4000-8000-00000000000a"


@pytest.mark.requirement("design:place:exit-and-streams")
async def test_the_exit_code_and_both_streams_are_told(place: Place) -> None:
    process = await place.start(shell("echo out; read go; echo err >&2; exit 7"), name="both")
    assert (process.status, process.exit_status, process.ended_at) == (Status.RUNNING, None, None)
    await process.submit()
    assert await process.wait() == ExitStatus(7, None, Cause.EXITED)
    assert (await process.read()).data == b"out\nerr\n"
    assert (await process.read(stream=STDOUT)).data == b"out\n"
    assert (await process.read(stream=STDERR)).data == b"err\n"
    assert (process.status, process.exit_status) == (Status.COMPLETED, ExitStatus(7, None, Cause.EXITED))
    assert (process.name, process.stdio, process.end, list(process.warnings)) == ("both", Pipes(), 8, [])
    assert process.ended_at is not None
    assert process.ended_at >= process.started_at


@pytest.mark.requirement("design:place:exit-and-streams")
async def test_a_signal_is_told_by_its_name(place: Place) -> None:
    process = await place.start(shell("kill -SEGV $$"))
    status = await process.wait()
    assert (status.code, status.signal, status.cause) == (None, "SIGSEGV", Cause.SIGNALLED)


@pytest.mark.requirement("design:place:exit-and-streams")
async def test_a_terminal_is_one_stream(place: Place) -> None:
    process = await place.start(shell("test -t 0 -a -t 1 -a -t 2 && echo out && echo err >&2", Pty(90, 20)))
    assert (await process.wait()).code == 0
    assert (await process.read()).data == b"out\r\nerr\r\n"
    assert process.stdio == Pty(90, 20)


@pytest.mark.requirement("design:place:start-once")
async def test_a_command_with_one_id_runs_once(place: Place, tmp_path: Path) -> None:
    command = shell(f"echo ran >>{tmp_path}/runs; read go")
    first, second = await asyncio.gather(
        place.start(command, process_id=ID), place.start(command, process_id=ID, name="other")
    )
    third = await place.start(shell("echo something else"), process_id=ID)
    assert [found.id for found in (first, second, third)] == [ID] * 3
    assert first.pid == second.pid == third.pid
    await third.submit()
    assert (await first.wait()).code == 0
    again = await place.start(command, process_id=ID)
    assert again.exit_status == ExitStatus(0, None, Cause.EXITED)
    assert (tmp_path / "runs").read_text() == "ran\n"
    assert [process.id for process in await place.processes()] == [ID]


@pytest.mark.requirement("design:place:environment")
async def test_the_starters_environment_is_meant_and_not_the_places_own(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SET_LATER", "wide \udcff é")
    monkeypatch.delenv("HOME", raising=False)
    process = await place.start(Command(argv=("env", "-0")))
    assert (await process.wait()).code == 0
    seen = dict(entry.split(b"=", 1) for entry in (await everything(process)).split(b"\0") if entry)
    ours = dict(os.environb)
    cookie = seen.pop(COOKIE.encode())
    ours.pop(COOKIE.encode(), None)
    assert cookie.decode().split()[-1].endswith(process.id)
    assert seen == ours


@on_both_streams
@pytest.mark.requirement("design:place:environment")
async def test_a_given_environment_is_the_whole_one(place: Place, stdio: Pipes | Pty) -> None:
    process = await place.start(Command(argv=("/usr/bin/env",), env={"A": "1", "B": "=é"}, stdio=stdio))
    assert (await process.wait()).code == 0
    expected = {"A=1", "B==é", f"{COOKIE}={process.id}"}
    if isinstance(stdio, Pty):
        expected.add("TERM=xterm-256color")
    assert set((await everything(process)).decode().split()) == expected


@on_both_streams
@pytest.mark.requirement("design:place:given-input")
async def test_given_input_is_fed_and_ended(place: Place, stdio: Pipes | Pty) -> None:
    command = Command(argv=("wc", "-c"), stdin=b"some input\n", stdio=stdio)
    code, text = await outcome(place, command)
    assert (code, text.split()[-1]) == (0, "11")
    assert (await outcome(place, Command(argv=("wc", "-c"), stdin=b"")))[1].split() == ["0"]


@pytest.mark.requirement("design:place:directory")
async def test_it_runs_in_the_directory_beneath_its_root(place: Place, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "out").symlink_to("/")
    code, text = await outcome(place, Command(argv=("/bin/pwd", "-P"), root=str(tmp_path), cwd="a/b"))
    assert (code, text.strip()) == (0, str((tmp_path / "a" / "b").resolve()))
    with pytest.raises(WorkingDirectoryError, match="leads outside its root"):
        await place.start(Command(argv=("true",), root=str(tmp_path), cwd="out"))


@pytest.mark.requirement("design:place:start-errors")
async def test_a_program_that_is_not_there_is_told_with_where_it_was_sought(place: Place, tmp_path: Path) -> None:
    (tmp_path / "nothing-here").mkdir()
    searched = str(tmp_path / "nothing-here")
    with pytest.raises(ProgramNotFoundError) as caught:
        await place.start(Command(argv=("no-such-program",), env={"PATH": searched}), process_id=ID)
    error = caught.value
    assert (error.program, error.searched) == ("no-such-program", (searched,))
    assert error.remedy
    assert str(error) == f"command not found: 'no-such-program' (looked in {searched}; {error.remedy})"
    assert await place.processes() == []
    # The id was not used up by a start that came to nothing.
    process = await place.start(Command(argv=("true",)), process_id=ID)
    assert (await process.wait()).code == 0


@pytest.mark.parametrize(
    ("command", "kind", "sentence"),
    [
        (Command(argv=("true",), root="/", cwd="no/such"), WorkingDirectoryError, "no/such"),
        (Command(argv=("/etc/passwd",), root="/"), ProgramNotRunnableError, "/etc/passwd"),
        (Command(argv=("cat",), root="/", stdio=Pty(), stdin=b"x" * 9000), LineTooLongError, "9000 bytes"),
    ],
    ids=["directory", "not-runnable", "line"],
)
@pytest.mark.requirement("design:place:start-errors")
async def test_every_refusal_is_of_its_kind_and_leaves_nothing(
    place: Place, command: Command, kind: type[TetherError], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence) as caught:
        await place.start(command)
    assert type(caught.value) is kind
    assert await place.processes() == []


@pytest.mark.requirement("design:place:bytes")
async def test_arguments_are_bytes_wherever_it_runs(place: Place) -> None:
    words = ("é", "\udcff\udc80", "日本語", "\N{GRINNING FACE}", "a\nb", "", "'\"$HOME")
    process = await place.start(Command(argv=("printf", "%s|", *words)))
    assert (await process.wait()).code == 0
    assert (await process.read()).data == b"".join(os.fsencode(word) + b"|" for word in words)
    assert process.command.argv == ("printf", "%s|", *words)


@pytest.mark.requirement("design:place:many")
async def test_many_run_side_by_side(place: Place) -> None:
    script = "read go; echo $go; exit $go"
    processes = await asyncio.gather(*(place.start(shell(script)) for _ in range(50)))
    for number, process in enumerate(processes):
        await process.submit(str(number))
    for number, process in enumerate(processes):
        assert (await wait_for(process, Exit(), timeout=BOUND)).met
        assert (process.exit_status, (await process.read()).data) == (
            ExitStatus(number, None, Cause.EXITED),
            b"%d\n" % number,
        )
    assert {process.id for process in await place.processes()} == {process.id for process in processes}


@pytest.mark.requirement("design:place:timeout")
async def test_a_process_ends_when_its_time_is_over(place: Place) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_DFL); time.sleep(100)"
    process = await place.start(Command(argv=python(code), timeout=0.3))
    status = await process.wait()
    assert (status.cause, status.status, process.status) == (Cause.TIMED_OUT, Status.TIMED_OUT, Status.TIMED_OUT)

"""What a place promises about ends: nobody of a tree is left, and what is released is forgotten."""

import os

import pytest

from tests.helpers import alive, python, wait_until
from tests.keeper.places import everything, on_both_streams, said, shell
from tether.errors import ScreenUnavailableError, UnknownProcessError
from tether.process.command import Command, Pipes, Pty
from tether.process.exit_status import Cause, ExitStatus, Status
from tether.process.place import Place

UNKNOWN = "ffffffff-ffff-4fff-8fff-ffffffffffff"


@on_both_streams
@pytest.mark.requirement("design:place:stop")
async def test_stop_ends_the_whole_tree_and_names_how_it_ended(place: Place, stdio: Pipes | Pty) -> None:
    script = "sh -c 'echo near $$; exec sleep 100' & setsid sh -c 'echo far $$; exec sleep 100' & wait"
    process = await place.start(shell(script, stdio))
    pids = [int((await said(process, rf"{who} \d+\n")).split()[1]) for who in ("near", "far")]
    assert os.getsid(pids[1]) == pids[1]
    stopped = await process.stop()
    assert stopped.status is not None
    assert (stopped.status.cause, stopped.status.status, stopped.survivors) == (Cause.STOPPED, Status.KILLED, ())
    assert (process.exit_status, process.status) == (stopped.status, Status.KILLED)
    assert [pid for pid in [process.pid, *pids] if alive(pid)] == []


@pytest.mark.requirement("design:place:stop")
async def test_who_ignores_a_polite_word_is_ended_by_force(place: Place) -> None:
    process = await place.start(shell("trap '' TERM HUP; echo ready; while :; do sleep 0.1; done"))
    await said(process, "ready")
    stopped = await process.stop(grace=0.2)
    assert stopped.status == ExitStatus(None, "SIGKILL", Cause.STOPPED)
    assert not alive(process.pid)


@pytest.mark.requirement("design:place:stop")
async def test_a_polite_end_is_the_processs_own(place: Place) -> None:
    code = """
        import signal, sys
        def end(*_):
            print("bye")
            sys.exit(3)
        signal.signal(signal.SIGTERM, end)
        print("ready")
        signal.pause()
    """
    process = await place.start(Command(argv=python(code)))
    await said(process, "ready\n")
    stopped = await process.stop(grace=10)
    assert stopped.status == ExitStatus(3, None, Cause.STOPPED)
    assert await everything(process) == b"ready\nbye\n"


@on_both_streams
@pytest.mark.requirement("design:place:kill")
async def test_kill_ends_everybody_at_once(place: Place, stdio: Pipes | Pty) -> None:
    process = await place.start(shell("trap '' TERM HUP INT; sleep 100 & echo pid $!; wait", stdio))
    pid = int((await said(process, r"pid \d+")).split()[1])
    await process.kill()
    assert await process.wait() == ExitStatus(None, "SIGKILL", Cause.STOPPED)
    await wait_until(lambda: not alive(pid))


@pytest.mark.requirement("design:place:find")
async def test_processes_are_found_by_id_and_listed_in_their_order(place: Place) -> None:
    assert await place.processes() == []
    first = await place.start(shell("exec sleep 100"), name="first")
    second = await place.start(shell("exit 4"), name="second")
    await second.wait()
    assert [process.id for process in await place.processes()] == [first.id, second.id]
    found = await place.find(second.id)
    assert (found.id, found.name, found.pid, found.exit_status) == (
        second.id,
        "second",
        second.pid,
        ExitStatus(4, None, Cause.EXITED),
    )
    assert found.command.argv == second.command.argv
    with pytest.raises(UnknownProcessError) as caught:
        await place.find(UNKNOWN)
    assert (caught.value.process_id, set(caught.value.known)) == (UNKNOWN, {first.id, second.id})
    for process_id in (UNKNOWN, first.id, second.id):
        assert process_id in str(caught.value)


@on_both_streams
@pytest.mark.requirement("design:place:release")
async def test_what_is_released_is_forgotten(place: Place, stdio: Pipes | Pty) -> None:
    ended = await place.start(Command(argv=("true",), stdio=stdio))
    await ended.wait()
    running = await place.start(shell("setsid sleep 100 & echo pid $!; wait", stdio))
    pid = int((await said(running, r"pid \d+")).split()[1])
    kept = await place.start(shell("exec sleep 100", stdio))
    for process in (ended, running):
        await process.release()
        with pytest.raises(UnknownProcessError) as caught:
            await place.find(process.id)
        assert process.id not in caught.value.known
        assert kept.id in caught.value.known
    assert not alive(running.pid)
    assert not alive(pid)
    assert [process.id for process in await place.processes()] == [kept.id]


@pytest.mark.requirement("design:place:screen")
async def test_pipes_have_no_screen(place: Place) -> None:
    process = await place.start(shell("read go"))
    no_screen = rf"process {process.id} ha[sd] no terminal, so it has no screen"
    for over in (False, True):
        if over:
            await process.end_input()
            await process.wait()
        for view in (process.screen(), process.styled_screen(), process.vt_snapshot()):
            with pytest.raises(ScreenUnavailableError, match=no_screen):
                await view


@pytest.mark.requirement("design:place:exit-and-streams")
async def test_who_holds_the_output_does_not_delay_the_end(place: Place) -> None:
    process = await place.start(shell("sleep 100 & echo pid $!; exit 6", Pipes()))
    assert await process.wait() == ExitStatus(6, None, Cause.EXITED)
    assert alive(int((await said(process, r"pid \d+")).split()[1]))
    await process.stop()


@pytest.mark.requirement("design:place:exit-and-streams")
async def test_the_last_words_on_a_terminal_are_there_with_the_end(place: Place) -> None:
    for number in range(10):
        process = await place.start(shell(f"echo last words {number}", Pty()))
        await process.wait()
        assert await everything(process) == b"last words %d\r\n" % number

"""What a place promises about input: in order, whole, once, and refused with a reason where it cannot arrive."""

import asyncio
import hashlib
import re

import pytest

from tests.helpers import python
from tests.keeper.places import BOUND, WHOLE, everything, on_both_streams, said, shell
from tether.errors import (
    InputBacklogError,
    InputGapError,
    InputRefusedError,
    InvalidCommandError,
    LineTooLongError,
    ProcessEndedError,
    UnknownKeyError,
)
from tether.process.command import Command, Pipes, Pty
from tether.process.exit_status import Cause, ExitStatus
from tether.process.log_reader import Resize
from tether.process.place import Place, PlacedProcess, Stamp
from tether.process.waiting import Prompt, wait_for

COUNT_AND_HASH = """
    import hashlib, os, sys, tty
    size = int(sys.argv[1])
    if os.isatty(0):
        tty.setraw(0)
    print("ready")
    seen = b""
    while len(seen) < size and (data := os.read(0, 65536)):
        seen += data
    print(len(seen), hashlib.sha256(seen).hexdigest())
"""


async def digest(process: PlacedProcess) -> tuple[int, str]:
    """How much the program has read, and what."""
    found = re.fullmatch(r"(\d+) ([0-9a-f]{64})", await said(process, r"\d+ [0-9a-f]{64}"))
    assert found is not None
    return int(found[1]), found[2]


@on_both_streams
@pytest.mark.requirement("design:place:write")
async def test_what_is_written_arrives_as_it_is(place: Place, stdio: Pipes | Pty) -> None:
    process = await place.start(shell("stty -echo 2>/dev/null; echo ready; exec cat", stdio))
    await said(process, "ready")
    assert await process.write("eins\nzwei é\n".encode())
    await process.write(b"three\n")
    await process.end_input()
    assert (await process.wait()).code == 0
    assert (await everything(process)).replace(b"\r\n", b"\n").decode() == "ready\neins\nzwei é\nthree\n"


@on_both_streams
@pytest.mark.requirement("design:place:submit")
async def test_submit_ends_the_line_as_the_stream_wants_it(place: Place, stdio: Pipes | Pty) -> None:
    script = "stty raw -echo 2>/dev/null; echo ready; head -c 6 | od -An -c; head -c 1 | od -An -c"
    process = await place.start(shell(script, stdio))
    await said(process, "ready")
    await process.submit("hello")
    await process.submit()
    assert (await process.wait()).code == 0
    end = r"\r" if isinstance(stdio, Pty) else r"\n"
    assert (await everything(process)).decode().split()[1:] == [*"hello", end, end]


@pytest.mark.requirement("design:place:keys")
async def test_keys_are_encoded_as_the_program_wants_them(place: Place) -> None:
    script = r"stty raw -echo; printf '\033[?1hready'; head -c 6 | od -An -c"
    process = await place.start(shell(script, Pty()))
    await said(process, "ready")
    await process.send_keys(["Up", "a", "C-c", "Enter"])
    assert (await process.wait()).code == 0
    assert (await everything(process)).decode().split()[1:] == ["033", "O", "A", "a", "003", r"\r"]


@pytest.mark.requirement("design:place:keys")
async def test_of_keys_with_an_unknown_one_none_is_pressed(place: Place) -> None:
    process = await place.start(shell("stty -echo; echo ready; read line; echo got:$line", Pty()))
    await said(process, "ready")
    with pytest.raises(UnknownKeyError, match="C-NoSuch"):
        await process.send_keys(["a", "C-NoSuch"])
    await process.submit("b")
    assert await said(process, "got:.*") == "got:b"


@pytest.mark.parametrize("bracketed", [True, False], ids=["bracketed", "plain"])
@pytest.mark.requirement("design:place:paste")
async def test_a_paste_is_bracketed_only_for_who_asked_for_it(place: Place, *, bracketed: bool) -> None:
    mode = r"\033[?2004h" if bracketed else ""
    expected = b"\x1b[200~two\rlines\x1b[201~" if bracketed else b"two\rlines"
    script = f"stty raw -echo; printf '{mode}ready'; head -c {len(expected)} | od -An -tx1"
    process = await place.start(shell(script, Pty()))
    await said(process, "ready")
    await process.paste("two\nlines")
    assert (await process.wait()).code == 0
    shown = (await everything(process)).decode().partition("ready")[2]
    assert bytes.fromhex("".join(shown.split())) == expected


@pytest.mark.requirement("design:place:large-input")
async def test_a_large_paste_arrives_whole(place: Place) -> None:
    text = "".join(f"{number:07}," for number in range(131_072))
    process = await place.start(Command(argv=(*python(COUNT_AND_HASH), str(len(text))), stdio=Pty()))
    await said(process, "ready")
    await process.paste(text)
    assert await digest(process) == (1_048_576, hashlib.sha256(text.encode()).hexdigest())


@pytest.mark.requirement("design:place:large-input")
async def test_a_large_write_arrives_whole(place: Place) -> None:
    data = b"".join(b"line %d\n" % number for number in range(400_000))[: 4 * 1024 * 1024]
    process = await place.start(Command(argv=(*python(COUNT_AND_HASH), str(len(data) + 5))))
    await said(process, "ready")
    assert await process.write(data) is False
    await process.write(b"last\n")
    assert await digest(process) == (len(data) + 5, hashlib.sha256(data + b"last\n").hexdigest())


@pytest.mark.requirement("design:place:large-input")
async def test_much_goes_both_ways_at_once(place: Place) -> None:
    writer = await place.start(Command(argv=("seq", "300000"), output=WHOLE))
    await writer.wait()
    readers = [await place.start(Command(argv=("wc", "-c"))) for _ in range(4)]
    data = bytes(4 * 1024 * 1024)
    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        reads = [group.create_task(writer.read(0, 200_000)) for _ in range(60)]
        for reader in readers:
            group.create_task(reader.write(data))
        reads += [group.create_task(writer.read(0, 200_000)) for _ in range(60)]
    assert {len(read.result().data) for read in reads} == {200_000}
    for reader in readers:
        await reader.end_input()
        assert (await reader.wait()).code == 0
        assert (await everything(reader)).split() == [b"%d" % len(data)]


@pytest.mark.requirement("design:place:input-once")
async def test_a_piece_is_taken_once_however_often_it_is_sent(place: Place) -> None:
    process = await place.start(Command(argv=("cat",)))
    assert await process.last_number("w") == 0
    for number, word in ((1, b"one\n"), (1, b"one\n"), (2, b"two\n"), (1, b"one\n"), (2, b"two\n")):
        await process.write(word, Stamp("w", number))
    await process.write(b"other\n", Stamp("x", 1))
    assert (await process.last_number("w"), await process.last_number("x")) == (2, 1)
    await process.end_input(Stamp("w", 3))
    assert (await process.wait()).code == 0
    # Who never heard the answer sends it again, also when everything is over by then.
    await process.write(b"two\n", Stamp("w", 2))
    await process.end_input(Stamp("w", 3))
    with pytest.raises(ProcessEndedError):
        await process.write(b"four\n", Stamp("w", 4))
    assert await everything(process) == b"one\ntwo\nother\n"


@pytest.mark.requirement("design:place:input-gap")
async def test_a_piece_before_its_turn_is_refused_with_what_is_missing(place: Place) -> None:
    process = await place.start(Command(argv=("cat",)))
    await process.write(b"one\n", Stamp("w", 1))
    for attempt in (process.write(b"three\n", Stamp("w", 3)), process.interrupt(Stamp("w", 3))):
        with pytest.raises(InputGapError) as caught:
            await attempt
        assert (caught.value.writer, caught.value.number, caught.value.expected) == ("w", 3, 2)
        assert str(caught.value) == "input 3 of writer 'w' came before input 2; send that one first"
    assert await process.last_number("w") == 1
    await process.write(b"two\n", Stamp("w", 2))
    await said(process, "one\ntwo\n")


@pytest.mark.requirement("design:place:input-once")
async def test_a_write_that_was_given_up_does_not_swallow_the_next(place: Place) -> None:
    process = await place.start(Command(argv=("cat",)))
    for number in range(5):
        async with asyncio.TaskGroup() as group:
            given_up = group.create_task(process.write(b"maybe %d\n" % number))
            await asyncio.sleep(0)
            given_up.cancel()
        await process.write(b"surely %d\n" % number)
    await process.end_input()
    assert (await process.wait()).code == 0
    sure = [line for line in (await everything(process)).decode().splitlines() if line.startswith("surely")]
    assert sure == [f"surely {number}" for number in range(5)]


@pytest.mark.requirement("design:place:input-once")
async def test_who_finds_a_process_again_is_not_taken_for_whoever_wrote_before(place: Place) -> None:
    process_id = (await place.start(Command(argv=("cat",)))).id
    for word in (b"one\n", b"two\n", b"three\n"):
        await (await place.find(process_id)).write(word)
    process = await place.find(process_id)
    await process.end_input()
    await process.wait()
    assert await everything(process) == b"one\ntwo\nthree\n"


@pytest.mark.requirement("design:place:input-refused")
async def test_a_line_the_terminal_would_cut_is_refused(place: Place) -> None:
    process = await place.start(shell("stty -echo; echo ready; wc -c", Pty()))
    await said(process, "ready")
    with pytest.raises(LineTooLongError) as caught:
        await process.write(b"x" * 5000 + b"\r")
    assert (caught.value.length, caught.value.limit) == (5000, 4095)
    await process.submit("x" * 4095)
    await process.end_input()
    await said(process, "\n4096\n")


@pytest.mark.requirement("design:place:input-refused")
async def test_input_that_is_never_read_is_refused_beyond_a_limit(place: Place) -> None:
    process = await place.start(shell("echo ready; exec sleep 100"))
    await said(process, "ready")
    block = b"x" * 4_000_000
    for _ in range(4):
        await process.write(block)
    with pytest.raises(InputBacklogError, match=r"\d+ bytes in \d+ pieces wait already .*wait until it reads"):
        await process.write(block)
    assert process.exit_status is None


@pytest.mark.requirement("design:place:input-refused")
async def test_a_child_that_closed_its_input_refuses_more_and_lives_on(place: Place) -> None:
    process = await place.start(shell("exec <&-; echo ready; exec sleep 100"))
    await said(process, "ready")
    for words in (b"nobody reads this\n", b"nor this\n"):
        with pytest.raises(InputRefusedError, match="closed its input"):
            await process.write(words)
    assert process.exit_status is None


@pytest.mark.requirement("design:place:end-input")
async def test_an_ended_pipe_takes_no_more_but_a_terminal_does(place: Place) -> None:
    piped = await place.start(shell("exec sleep 100"))
    await piped.end_input()
    with pytest.raises(ProcessEndedError, match="input was ended"):
        await piped.write(b"x")
    process = await place.start(shell("cat; cat", Pty()))
    await wait_for(process, Prompt(), timeout=BOUND)
    await process.end_input()
    await process.write(b"still\r")
    await said(process, "still\n.*still")
    await process.end_input()
    assert (await process.wait()).code == 0


@on_both_streams
@pytest.mark.requirement("design:place:interrupt")
async def test_an_interrupt_is_what_ctrl_c_does(place: Place, stdio: Pipes | Pty) -> None:
    process = await place.start(shell("echo ready; exec sleep 100", stdio))
    await said(process, "ready")
    await process.interrupt()
    assert await process.wait() == ExitStatus(None, "SIGINT", Cause.SIGNALLED)


@pytest.mark.requirement("design:place:resize")
async def test_a_new_size_is_told_seen_and_recorded(place: Place) -> None:
    script = "trap 'stty size; exit 3' WINCH; stty size; while :; do sleep 0.02; done"
    process = await place.start(shell(script, Pty(90, 20)))
    await said(process, "20 90\n")
    before = process.end
    await process.resize(133, 44)
    assert process.stdio == Pty(133, 44)
    assert (await process.wait()).code == 3
    await said(process, "44 133", before)
    assert await process.resizes() == [Resize(before, 133, 44)]
    assert await process.resizes(before + 1) == []


@pytest.mark.requirement("design:place:resize")
async def test_an_impossible_size_is_refused(place: Place) -> None:
    process = await place.start(shell("exec sleep 100", Pty()))
    with pytest.raises(InvalidCommandError, match="impossible terminal size cols=0"):
        await process.resize(0, 10)
    assert (process.stdio, await process.resizes()) == (Pty(), [])
    with pytest.raises(InputRefusedError, match="runs on pipes and has no size"):
        await (await place.start(shell("exec sleep 100"))).resize(80, 24)


@on_both_streams
@pytest.mark.requirement("design:place:ended-refuses")
async def test_an_ended_process_takes_nothing_any_more(place: Place, stdio: Pipes | Pty) -> None:
    process = await place.start(shell("exit 0", stdio))
    await process.wait()
    for attempt in (
        process.write(b"x"),
        process.submit("x"),
        process.paste("x"),
        process.end_input(),
        process.interrupt(),
        process.send_keys(["Enter"]),
        process.resize(80, 24),
    ):
        with pytest.raises(ProcessEndedError, match=rf"process {process.id} has ended \(completed\); start another"):
            await attempt
    await process.kill()
    assert (await process.stop()).status == ExitStatus(0, None, Cause.EXITED)

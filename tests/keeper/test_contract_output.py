"""What a place promises about output: every byte at its offset, however it is asked for and however much there is."""

import pytest

from tests.helpers import python
from tests.keeper.places import BOUND, everything, said, shell
from tether.process.command import Command, OutputPolicy, Overflow, Pipes, Pty
from tether.process.exit_status import Cause
from tether.process.log_reader import STDERR, STDOUT, Chunk, Lines, OutputSlice
from tether.process.place import Place
from tether.process.waiting import Idle, Output, wait_for

LINES = 131_072
NUMBERED = "import sys; sys.stdout.writelines(f'{number:07}\\n' for number in range(int(sys.argv[1])))"


def numbered(count: int, output: OutputPolicy) -> Command:
    """A program that writes that many lines of eight bytes, which say where they are."""
    return Command(argv=(*python(NUMBERED), str(count)), output=output)


def numbers(first: int, last: int) -> bytes:
    """Lines `first` to `last` of such a program."""
    return b"".join(b"%07d\n" % number for number in range(first, last))


@pytest.mark.requirement("design:place:read")
async def test_output_is_read_by_offset_and_limit(place: Place) -> None:
    process = await place.start(shell("printf 0123456789"))
    await process.wait()
    assert await process.read() == OutputSlice(0, b"0123456789", 10)
    assert await process.read(4) == OutputSlice(4, b"456789", 10)
    assert await process.read(4, 3) == OutputSlice(4, b"456", 7)
    assert await process.read(4, 0) == OutputSlice(4, b"", 4)
    assert (await process.read(10)).data == b""
    assert (await process.read(99)).data == b""
    assert (await process.read(8, stream=STDOUT)).data == b"89"
    assert (await process.read(0, stream=STDERR)).data == b""


@pytest.mark.requirement("design:place:read")
async def test_a_read_never_waits(place: Place) -> None:
    process = await place.start(shell("read go; echo $go"))
    assert (await process.read()).data == b""
    assert (process.end, await process.gaps(), await process.chunks()) == (0, [], [])
    await process.submit("gone")
    await process.wait()
    assert (await process.read()).data == b"gone\n"


@pytest.mark.requirement("design:place:read-streams")
async def test_the_order_of_the_streams_and_their_times_are_kept(place: Place) -> None:
    process = await place.start(shell("echo out; read go; echo error >&2; read go; echo again"))
    for word in ("out", "error"):
        await said(process, word)
        await process.submit()
    await process.wait()
    chunks = await process.chunks()
    assert [(chunk.start, chunk.end, chunk.stream) for chunk in chunks] == [
        (0, 4, STDOUT),
        (4, 10, STDERR),
        (10, 16, STDOUT),
    ]
    assert [chunk.time_us for chunk in chunks] == sorted(chunk.time_us for chunk in chunks)
    assert await process.chunks(4, 10) == chunks[1:2]
    assert isinstance(chunks[0], Chunk)
    assert await everything(process, stream=STDOUT) == b"out\nagain\n"
    assert await everything(process, stream=STDERR) == b"error\n"


@pytest.mark.requirement("design:place:read-lines")
async def test_lines_are_read_by_number(place: Place) -> None:
    process = await place.start(shell("printf 'one\\ntwo\\n\\nfour'"))
    await process.wait()
    assert await process.read_lines(0, 2) == Lines(0, [b"one", b"two"], 4, 0)
    assert await process.read_lines(1, 10) == Lines(1, [b"two", b"", b"four"], 4, 0)
    assert (await process.read_lines(4, 10)).lines == []


@pytest.mark.requirement("design:place:read")
async def test_everything_is_kept_and_read_in_pieces(place: Place) -> None:
    process = await place.start(numbered(LINES, OutputPolicy(64 * 1024 * 1024, Overflow.STOP)))
    assert (await process.wait()).code == 0
    assert process.end == 8 * LINES
    assert await everything(process) == numbers(0, LINES)
    assert (await process.read(8 * 100_000, 16)).data == numbers(100_000, 100_002)
    assert await process.gaps() == []


@pytest.mark.requirement("design:place:drop")
async def test_of_too_much_output_head_and_tail_are_kept(place: Place) -> None:
    process = await place.start(numbered(LINES, OutputPolicy(256 * 1024)))
    assert (await process.wait()).code == 0
    head = await process.read(0)
    assert head.data
    assert head.data == numbers(0, LINES)[: head.end]
    behind = await process.read(head.end)
    assert behind.dropped == behind.start - head.end > 0
    tail = await everything(process, behind.start)
    assert tail == numbers(0, LINES)[behind.start :]
    assert len(tail) > 64 * 1024
    assert (process.end, await process.gaps()) == (8 * LINES, [])
    lines = await process.read_lines(LINES - 2, 10)
    assert lines.lines == [b"%07d" % (LINES - 2), b"%07d" % (LINES - 1)]


@pytest.mark.requirement("design:place:stop-at-cap")
async def test_a_process_that_writes_beyond_its_cap_is_stopped_where_nothing_may_be_lost(place: Place) -> None:
    process = await place.start(numbered(LINES, OutputPolicy(256 * 1024, Overflow.STOP)))
    assert (await process.wait()).cause is Cause.OUTPUT_LIMIT
    kept = await everything(process)
    assert len(kept) > 192 * 1024
    assert kept == numbers(0, LINES)[: len(kept)]


@pytest.mark.requirement("design:place:wait-for-room")
async def test_a_full_log_makes_the_process_wait_until_a_consumer_has_taken_some(place: Place) -> None:
    capacity = 256 * 1024
    process = await place.start(numbered(LINES, OutputPolicy(capacity, Overflow.WAIT)))
    assert (await wait_for(process, Output(capacity // 2), timeout=BOUND)).met
    assert (await wait_for(process, Idle(0.5), timeout=BOUND)).met
    assert process.exit_status is None
    assert process.end < 2 * capacity
    taken = bytearray()
    over = False
    while not over:
        over = process.exit_status is not None
        while (part := await process.read(len(taken), 65_536)).data:
            assert (part.start, part.dropped) == (len(taken), 0)
            taken += part.data
            await process.discard_before(len(taken))
        if not over:
            await process.grown_or_ended(len(taken))
    assert (await process.wait()).code == 0
    assert bytes(taken) == numbers(0, LINES)


@pytest.mark.parametrize("stdio", [Pipes(), Pty()], ids=["pipes", "pty"])
@pytest.mark.requirement("design:place:follow")
async def test_who_follows_misses_nothing_and_reads_nothing_twice(place: Place, stdio: Pipes | Pty) -> None:
    script = "stty -opost 2>/dev/null; for ((i = 0; i < 3000; i++)); do echo line $i; done"
    process = await place.start(shell(script, stdio))
    seen, at, over = b"", 0, False
    while not over:
        over = process.exit_status is not None
        if not over:
            await process.grown_or_ended(at)
        while (part := await process.read(at)).data:
            seen, at = seen + part.data, part.end
    assert seen == b"".join(b"line %d\n" % number for number in range(3000))


@pytest.mark.requirement("design:place:screen")
async def test_the_screen_is_what_a_person_would_see(place: Place) -> None:
    script = r"printf 'top\r\n\033[1;31mred\033[0m plain\033]2;a title\007'; read go; printf '\033[2J\033[Hend'"
    process = await place.start(shell("stty -echo;" + script, Pty(40, 5)))
    await said(process, "plain")
    screen = await process.screen()
    assert screen.text.splitlines()[:2] == ["top", "red plain"]
    assert (screen.cols, screen.rows, screen.title, screen.exact) == (40, 5, "a title", True)
    assert (screen.cursor.x, screen.cursor.y, screen.offset) == (9, 1, process.end)
    red = (await process.styled_screen())[1][0]
    assert (red.text, red.fg, red.flags) == ("red", 1, ("bold",))
    snapshot = await process.vt_snapshot()
    assert b"red" in snapshot.data
    assert (snapshot.offset, snapshot.exact) == (process.end, True)
    await process.resize(60, 6)
    assert ((await process.screen()).cols, (await process.screen()).rows) == (60, 6)
    await process.submit()
    assert (await process.wait()).code == 0
    left = await process.screen()
    assert (left.text.split(), left.cols, left.offset) == (["end"], 60, process.end)
    assert (await process.styled_screen())[0][0].text == "end"
    assert b"end" in (await process.vt_snapshot()).data

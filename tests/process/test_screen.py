"""The screen helper as its own process: screens, answers, replay and checkpoints."""

import asyncio
import os
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.process.screen_table import Table, kill
from tether.errors import ScreenUnavailableError
from tether.process._emulator import Emulator
from tether.process._styled_run import StyledRun
from tether.process.command import OutputPolicy, Overflow
from tether.process.keys import KeyModes
from tether.process.log_reader import STDOUT
from tether.process.output import OutputLog
from tether.process.screen import Cursor, Screen, styled_screen_from, vt_snapshot_from

DATA = Path(__file__).parents[1] / "data"
PROMPT = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[Table]:
    made = Table(tmp_path)
    yield made
    await made.close()


def recording(name: str) -> bytes:
    return (DATA / f"{name}-tui-120x30.ansi").read_bytes()


def checkpoints(log: OutputLog) -> list[int]:
    return [int(path.name[7:27]) for path in Path(log.directory).glob("screen-*.state")]


@pytest.mark.requirement("design:screen:text")
@pytest.mark.requirement("design:screen:helper")
async def test_a_screen_says_everything_a_person_would_see(table: Table) -> None:
    table.start(cols=20, rows=4)
    table.write("$ top\r\n\x1b[?1049h\x1b[?1h\x1b]2;tóp\x07\x1b[2;3H你好 \x1b[31m!\x1b[?1003h".encode())
    assert await table.screen() == Screen(
        text="\n  你好 !\n\n",
        cols=20,
        rows=4,
        cursor=Cursor(8, 1, visible=True),
        title="tóp",
        alternate_screen=True,
        modes=KeyModes(application_cursor=True),
        mode_names=("application_cursor", "autowrap", "mouse_motion"),
        offset=table.logs["p"].end,
        exact=True,
    )
    assert table.helper.pid not in (None, os.getpid())
    cells = styled_screen_from(await table.helper.view("p", table.logs["p"].end, "cells"))
    assert cells == [[], [StyledRun("  你好 "), StyledRun("!", fg=1)], [], []]


@pytest.mark.requirement("design:screen:text")
async def test_the_keyboard_modes_follow_the_program(table: Table) -> None:
    table.start()
    for data, expected in (
        (b"\x1b[?1h", KeyModes(application_cursor=True)),
        (b"\x1b[?1l\x1b=", KeyModes(application_keypad=True)),
        (b"\x1b>\x1b[?2004h", KeyModes(bracketed_paste=True)),
        (b"\x1b[?2004l\x1b[>13u", KeyModes(kitty_flags=13)),
        (b"\x1b[<u", KeyModes()),
    ):
        table.write(data)
        assert (await table.screen()).modes == expected


@pytest.mark.requirement("design:screen:recordings")
async def test_the_recorded_claude_session_looks_as_it_did(table: Table) -> None:
    data = recording("claude")
    table.start(cols=120, rows=30)
    table.write(data[:23_500])
    dialog = await table.screen()
    lines = dialog.text.replace("\xa0", " ").split("\n")
    assert lines[5:10] == [
        "● Update(hello.py)",
        "  ⎿  Added 1 line, removed 1 line",
        "      1 -print('hello')",
        "      1 +print('héllo ✓')",
        "      2  print('world')",
    ]
    assert lines[16] == "─" * 120
    assert lines[17:21] == [" Bash command", " Run and fail", "╌" * 120, " python3 hello.py && exit 3"]
    assert lines[24:26] == [
        " Do you want to proceed?",
        " \N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT} 1. Yes",
    ]
    assert lines[26].startswith(
        "   2. Yes, and don't ask again for python3 hello.py and exit 3 commands in /home/dev"
    )
    assert lines[29] == " Esc to cancel · Tab to amend"
    assert (dialog.title, dialog.alternate_screen) == ("✳ Claude Code", True)
    assert dialog.modes == KeyModes(bracketed_paste=True)
    assert {"mouse_sgr", "mouse_motion"} <= set(dialog.mode_names)
    cells = styled_screen_from(await table.helper.view("p", 23_500, "cells"))
    assert cells[8][1] == StyledRun(" 1 +", fg="#50c850", bg="#022800")
    table.write(data[23_500:])
    ended = await table.screen()
    assert ended.text.strip().split("\n") == [
        "Resume this session with:",
        "claude --model claude-sonnet-4-5 --resume 4b90993f-037b-4e8d-958e-4ec71cbe48a7",
    ]
    assert (ended.title, ended.alternate_screen, ended.modes) == ("", False, KeyModes())
    assert ended.cursor == Cursor(0, 3, visible=True)


@pytest.mark.requirement("design:screen:recordings")
async def test_the_recorded_codex_session_looks_as_it_did(table: Table) -> None:
    data = recording("codex")
    frames = [frame.end() for frame in re.finditer(rb"\x1b\[\?2026l", data)]
    table.start(cols=120, rows=30)
    table.write(data[: frames[0]])
    first = (await table.screen()).text.split("\n")
    assert first[1] == "  >_ OpenAI Codex (v0.166.0)"
    assert first[6] == " " * 55 + "⣀⣤⣤⣤⣀⣀"
    assert first[22] == " " * 58 + "⠈⠙⠛⠿⠿⠿⠿⠛⠉"
    table.write(data[frames[0] :])
    last = await table.screen()
    lines = last.text.split("\n")
    assert lines[:4] == [
        PROMPT + " Create hello.py, fix it and run it",
        "• Edited hello.py (+1 -1)",
        "    1 -print('hello')",
        "    1 +print('héllo ✓')",
    ]
    assert lines[8:12] == ["$ python3 hello.py && exit 3", "héllo ✓", "world", "✗ (3) • 0ms"]
    assert lines[26] == PROMPT + " Ask Codex to do anything"
    assert lines[28] == "  gpt-5.4 default · /home/dev/projects/wd-codex.YPlv"
    assert last.cursor == Cursor(2, 26, visible=True)
    assert (last.title, last.alternate_screen) == ("wd-codex.YPlv", True)
    assert last.modes == KeyModes(bracketed_paste=True, kitty_flags=7)


@pytest.mark.requirement("design:screen:recordings")
@pytest.mark.requirement("design:screen:answers")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude", [b"\x1b[?62;22c", b"\x1bP>|libghostty\x1b\\", b"\x1b[?0u"]),
        ("codex", [b"\x1b[3;1R", b"\x1b[?62;22c", b"\x1b[?7u", b"\x1b]10;rgb:", b"\x1b]11;rgb:"]),
    ],
)
async def test_the_queries_of_the_recorded_programs_are_answered(
    table: Table, name: str, expected: list[bytes]
) -> None:
    table.start(cols=120, rows=30)
    table.write(recording(name))
    await table.screen()
    replies = b"".join(data for _, _, data in table.answers)
    for reply in expected:
        assert reply in replies


@pytest.mark.requirement("design:screen:resize")
async def test_sizes_apply_at_the_offsets_where_they_were_recorded(table: Table) -> None:
    log = table.start(cols=10, rows=4)
    table.write(b"0123456789ab\r\n")
    log.resized(20, 5)
    table.write(b"0123456789ab\x1b[1;20Hx")
    grown = await table.screen()
    assert (grown.cols, grown.rows) == (20, 5)
    assert grown.text == "0123456789ab       x\n0123456789ab\n\n\n"
    log.resized(30, 2)
    shrunk = await table.screen()
    assert (shrunk.cols, shrunk.rows, shrunk.offset) == (30, 2, log.end)
    kill(table)
    assert await table.screen() == shrunk


@pytest.mark.requirement("design:screen:vt-snapshot")
async def test_a_snapshot_and_the_log_behind_it_continue_each_other(table: Table) -> None:
    data = recording("codex")
    table.start(cols=120, rows=30)
    chance = random.Random(11)
    cuts = sorted(chance.sample(range(1, len(data)), 20))
    for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
        table.write(data[start:stop])
        shown = await table.screen()
        snapshot = vt_snapshot_from(await table.helper.view("p", stop, "vt"))
        assert (snapshot.offset, snapshot.exact) == (stop, True)
        copy = Emulator(120, 30)
        copy.feed(snapshot.data)
        assert (copy.text(), copy.cursor[:2]) == (shown.text, (shown.cursor.x, shown.cursor.y)), stop
        copy.feed(data[stop:])
        whole = Emulator(120, 30)
        whole.feed(data)
        assert (copy.text(), copy.cursor) == (whole.text(), whole.cursor), stop


@pytest.mark.requirement("design:screen:answers-once")
async def test_a_query_is_answered_once_with_its_offset_however_it_is_cut(table: Table) -> None:
    table.start()
    for piece in (b"ab\r\n\x1b", b"[", b"6", b"n"):
        table.write(piece)
        await table.screen()
    assert table.answers == [("p", 8, b"\x1b[2;1R")]
    table.write(b"more")
    await table.screen()
    assert len(table.answers) == 1


@pytest.mark.requirement("design:screen:replay")
@pytest.mark.requirement("design:screen:replay-silent")
async def test_another_table_replays_the_log_in_silence(table: Table) -> None:
    log = table.start()
    table.write(b"hello \x1b[6n\x1b[c\x1b]2;t\x07")
    before = await table.screen()
    await table.helper.aclose()
    second = table.restarted()
    try:
        second.helper.open("p", log.directory, 80, 24, answered=log.end)
        assert await second.screen() == before
        assert second.answers == []
    finally:
        await second.helper.aclose()


@pytest.mark.requirement("design:screen:replay-silent")
async def test_replay_is_silent_exactly_up_to_the_answered_offset(table: Table) -> None:
    log = OutputLog(str(table.directory / "p"))
    table.logs["p"] = log
    log.append(STDOUT, b"\x1b[5n" * 3)
    table.helper.open("p", log.directory, 80, 24, answered=6)
    table.helper.grown("p", log.end)
    await table.screen()
    assert table.answers == [("p", 12, b"\x1b[0n" * 2)]


@pytest.mark.requirement("design:screen:checkpoint")
async def test_a_log_that_dropped_its_beginning_goes_on_from_the_checkpoint(table: Table) -> None:
    log = table.start(policy=OutputPolicy(512 * 1024, Overflow.DROP))
    table.write(b"\x1b[?1049h\x1b[?2004h\x1b]2;kept\x07\x1b[1;1Hset at the very beginning\x1b[3;20r\x1b[20;1H")
    shown = await table.screen()
    for number in range(40):
        table.write((b"%03d %s\r\n" % (number, b"x" * 60)) * 500)
        shown = await table.screen()
    assert log.dropped > 0
    assert shown.text.startswith("set at the very beginning\n")
    assert shown.exact
    assert len(checkpoints(log)) == 1
    kill(table)
    assert await table.screen() == shown
    await table.helper.aclose()
    second = table.restarted()
    try:
        second.helper.open("p", log.directory, 80, 24, answered=log.end)
        assert await second.screen() == shown
    finally:
        await second.helper.aclose()


@pytest.mark.requirement("design:screen:checkpoint")
async def test_without_a_checkpoint_a_dropped_beginning_is_admitted(table: Table) -> None:
    log = OutputLog(str(table.directory / "p"), OutputPolicy(64 * 1024, Overflow.DROP))
    table.logs["p"] = log
    for number in range(4_000):
        log.append(STDOUT, b"line %d \x1b[31mred\x1b[0m\r\n" % number)
    table.helper.open("p", log.directory, 80, 24, answered=log.end)
    shown = await table.screen()
    assert not shown.exact
    assert shown.text.split("\n")[-2] == "line 3999 red"


@pytest.mark.requirement("design:screen:checkpoint")
async def test_a_checkpoint_is_written_on_demand_outside_of_any_sequence(table: Table) -> None:
    log = table.start()
    table.write(b"text\r\n\x1b[3")
    await table.screen()
    table.helper.checkpoint("p")
    await table.screen()
    assert checkpoints(log) == []
    table.write(b"1m")
    await table.screen()
    assert checkpoints(log) == [log.end]


@pytest.mark.requirement("design:screen:helper")
async def test_many_processes_share_one_helper(table: Table) -> None:
    names = [f"p{number}" for number in range(50)]
    for name in names:
        table.start(name)
        table.write(f"I am {name}\x1b[5n".encode(), name)
    screens = await asyncio.gather(*(table.screen(name) for name in names))
    assert [screen.text.split("\n")[0] for screen in screens] == [f"I am {name}" for name in names]
    assert sorted(name for name, _, _ in table.answers) == sorted(names)


@pytest.mark.requirement("design:screen:text")
async def test_a_process_that_is_not_open_has_no_screen(table: Table) -> None:
    with pytest.raises(ScreenUnavailableError, match="'nobody' has no screen"):
        await table.helper.view("nobody", 0, "screen")
    table.start()
    waiting = asyncio.gather(table.screen(), return_exceptions=True)
    await asyncio.sleep(0)
    table.helper.close("p")
    assert "'p' was released" in str((await waiting)[0])

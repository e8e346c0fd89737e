"""The emulator behind the screen helper: what it shows, what it replies, and that chunks do not matter."""

import contextlib
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tether.process._emulator import Emulator, EmulatorError
from tether.process._styled_run import StyledRun
from tether.process.keys import KeyModes

DATA = Path(__file__).parents[1] / "data"
MIXED = (
    "plain \x1b[1;31mbold red\x1b[0m 你好 👍🏽 e\u0301 \x1b[38;2;1;2;3mrgb\x1b[48:5:4m col\x1b[m\r\n"
    "\x1b]2;títle\x07\x1b[?2004h\x1b[?1h\x1b=\x1b[>5u\x1b[3;10Hmoved\x1b[2K\x1b(0lqk\x1b(B\x1b7\x1b[5;1H"
    "long line that wraps around the right margin of a narrow terminal\x1b8\x1b[?25l"
    "\x1b[4:3mcurly\x1b[24m\x1bP$qm\x1b\\\x1b]8;;http://a.example\x1b\\link\x1b]8;;\x1b\\\x1b[2;6r\x1b[6;1H\r\n\n\x1b[T"
).encode()


def recording(name: str) -> bytes:
    return (DATA / f"{name}-tui-120x30.ansi").read_bytes()


def fed(data: bytes, cols: int = 80, rows: int = 24) -> Emulator:
    emulator = Emulator(cols, rows)
    emulator.feed(data)
    return emulator


def seen(emulator: Emulator) -> tuple[object, ...]:
    return (
        emulator.text(),
        emulator.cursor,
        emulator.size,
        emulator.title,
        emulator.alternate_screen,
        emulator.key_modes,
        emulator.mode_names,
    )


def looks(emulator: Emulator) -> list[list[tuple[str, StyledRun]]]:
    """Every cell with its style, as far as an eye can tell: blanks have no foreground."""
    rows: list[list[tuple[str, StyledRun]]] = []
    for row in emulator.cells():
        cells = [(character, replace(run, text="")) for run in row for character in run.text]
        rows.append([(c, StyledRun("", bg=s.bg, underline=s.underline) if c == " " else s) for c, s in cells])
        while rows[-1] and rows[-1][-1] == (" ", StyledRun("")):
            rows[-1].pop()
    return rows


@pytest.mark.requirement("design:screen:text")
def test_an_editor_like_program_is_drawn_with_cursor_title_and_modes() -> None:
    emulator = fed(
        b"$ vi x\r\n\x1b[?1049h\x1b[?1h\x1b=\x1b[?2004h\x1b]0;x - VI\x07\x1b[1;24r\x1b[H\x1b[2J"
        b"one\r\ntwo\r\nthree\x1b[2;1H\x1b[L\x1b[Kinserted\x1b[4;1H\x1b[1M\x1b[24;1H\x1b[7m-- INSERT --\x1b[m"
        b"\x1b[2;9H\x1b[?25h"
    )
    lines = emulator.text().split("\n")
    assert lines[:4] == ["one", "inserted", "two", ""]
    assert lines[23] == "-- INSERT --"
    assert emulator.cursor == (8, 1, True)
    assert emulator.title == "x - VI"
    assert emulator.alternate_screen
    assert emulator.key_modes == KeyModes(application_cursor=True, application_keypad=True, bracketed_paste=True)
    emulator.feed(b"\x1b[?1049l\x1b[?1l\x1b>\x1b[?2004l")
    assert emulator.text().split("\n")[:2] == ["$ vi x", ""]
    assert not emulator.alternate_screen
    assert emulator.key_modes == KeyModes()


@pytest.mark.requirement("design:screen:text")
def test_kitty_flags_and_mouse_modes_are_told() -> None:
    emulator = fed(b"\x1b[>5u\x1b[?1002h\x1b[?1006h\x1b[?1004h\x1b[?25l")
    assert emulator.key_modes.kitty_flags == 5
    assert {"mouse_drag", "mouse_sgr", "focus_events"} <= set(emulator.mode_names)
    assert not emulator.cursor[2]
    emulator.feed(b"\x1b[<u")
    assert emulator.key_modes.kitty_flags == 0


@pytest.mark.requirement("design:screen:text")
def test_wide_and_combined_characters_take_their_cells() -> None:
    emulator = fed("你好e\u0301x👍\r\n12345678\r你".encode(), cols=8, rows=3)
    assert emulator.text() == "你好e\u0301x👍\n你345678\n"
    assert emulator.cursor == (2, 1, True)
    assert fed("1234567你".encode(), cols=8, rows=3).text() == "1234567\n你\n"


@pytest.mark.requirement("design:screen:cells")
def test_cells_come_as_runs_of_one_style() -> None:
    emulator = fed(
        "a\x1b[1;3;31mb\x1b[0;7mc\x1b[0;48;2;1;2;3md你\x1b[0;4:3;38;5;200me\x1b[0;44m\x1b[K".encode(), 10, 2
    )
    assert emulator.cells() == [
        [
            StyledRun("a"),
            StyledRun("b", fg=1, flags=("bold", "italic")),
            StyledRun("c", flags=("inverse",)),
            StyledRun("d你", bg="#010203"),
            StyledRun("e", fg=200, underline=3),
            StyledRun("   ", bg=4),
        ],
        [],
    ]


@pytest.mark.requirement("design:screen:resize")
def test_lines_reflow_when_the_width_changes() -> None:
    emulator = fed(b"0123456789abcdef\r\nnext", cols=10, rows=5)
    emulator.resize(20, 5)
    assert emulator.text() == "0123456789abcdef\nnext\n\n\n"
    emulator.resize(8, 5)
    assert emulator.text() == "01234567\n89abcdef\nnext\n\n"


@pytest.mark.parametrize("origin", [b"", b"\x1b[?6h"])
@pytest.mark.parametrize("margins", [b"", b"\x1b[2;4r"])
@pytest.mark.requirement("design:screen:vt-snapshot")
def test_margins_behind_the_alternate_screen_do_not_cut_it(origin: bytes, margins: bytes) -> None:
    behind = b"top\r\n\x1b[5;10rbelow\r\n  here"
    emulator = fed(behind + b"\x1b[?1049h" + margins + origin + b"abc\r\ndef\r\nghi", cols=40, rows=12)
    copy = fed(emulator.vt(), cols=40, rows=12)
    assert (copy.text(), copy.cursor, copy.mode_names) == (emulator.text(), emulator.cursor, emulator.mode_names)
    for terminal in (emulator, copy):
        terminal.feed(b"\x1b[?6l\x1b[?1049l")
    assert (copy.text(), copy.cursor) == (emulator.text(), emulator.cursor)


ANSWERED = {
    b"\x1b[c": rb"\x1b\[\?62;22c",
    b"\x1b[>c": rb"\x1b\[>\d+;\d+;\d+c",
    b"\x1b[=c": rb"\x1bP!\|[0-9A-F]{8}\x1b\\",
    b"\x1b[5n": rb"\x1b\[0n",
    b"\x1b[4;7H\x1b[6n": rb"\x1b\[4;7R",
    b"\x1b[?2004h\x1b[?2004$p": rb"\x1b\[\?2004;1\$y",
    b"\x1b[4$p": rb"\x1b\[4;2\$y",
    b"\x1b[?9999$p": rb"\x1b\[\?9999;0\$y",
    b"\x1b[>0q": rb"\x1bP>\|libghostty\x1b\\",
    b"\x1b[?u": rb"\x1b\[\?0u",
    b"\x1b]10;?\x07": rb"\x1b\]10;rgb:d8d8/d8d8/d8d8\x07",
    b"\x1b]11;?\x1b\\": rb"\x1b\]11;rgb:1010/1010/1010\x1b\\",
    b"\x1b]4;1;?;2;?\x07": rb"\x1b\]4;1;rgb:[0-9a-f/]{14}\x07\x1b\]4;2;rgb:[0-9a-f/]{14}\x07",
    b"\x1bP$qm\x1b\\": rb"\x1bP1\$r0m\x1b\\",
    b"\x1bP$q q\x1b\\": rb"\x1bP1\$r\d q\x1b\\",
    b"\x1bP$qz\x1b\\": rb"\x1bP0\$r\x1b\\",
}


@pytest.mark.requirement("design:screen:answers")
@pytest.mark.parametrize("query", ANSWERED, ids=repr)
def test_queries_are_answered(query: bytes) -> None:
    assert re.fullmatch(ANSWERED[query], Emulator(80, 24).feed(query))
    emulator = Emulator(80, 24)
    assert re.fullmatch(ANSWERED[query], b"".join(emulator.feed(bytes([byte])) for byte in query))


@pytest.mark.requirement("design:screen:answers")
@pytest.mark.parametrize(
    "query",
    [
        b"\x1b]2;rm -rf\x07\x1b[21t",
        b"\x1b]1;rm -rf\x07\x1b[20t",
        b"\x1bP$qrm -rf\x1b\\",
        b"\x1b]52;c;cm0gLXJm\x07\x1b]52;c;?\x07",
        b"\x1b]5522;type=read:id=rm;Lg==\x1b\\",
        b"\x05",
        b"\x1bP+q544e\x1b\\",
        b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\",
        b"\x1b_Gi=1,a=q,t=t,f=24,s=1,v=1;L2V0Yy9wYXNzd2Q=\x1b\\",
        b"\x1b]99;i=rm:p=?;\x1b\\",
        b"\x1b]7;file://h/rm\x07\x1b]7;?\x07",
        b"\x1b]50;?\x07",
    ],
    ids=repr,
)
def test_nothing_that_could_carry_a_text_of_the_program_is_answered(query: bytes) -> None:
    assert Emulator(80, 24).feed(query) == b""


@pytest.mark.requirement("design:screen:answers")
def test_a_flood_of_queries_is_answered_up_to_a_bound() -> None:
    assert 0 < len(Emulator(80, 24).feed(b"\x1b[c" * 100_000)) <= 64 * 1024


@pytest.mark.requirement("design:screen:vt-snapshot")
def test_scrollback_is_not_cut_at_the_libraries_own_cap() -> None:
    snapshot = fed(b"".join(b"line %d of many\r\n" % number for number in range(1_500))).vt()
    assert b"line 0 of many" in snapshot
    assert b"line 1499 of many" in snapshot


@pytest.mark.requirement("design:screen:vt-snapshot")
@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_snapshot_re_creates_the_terminal_wherever_it_is_cut(name: str) -> None:
    data = recording(name)
    whole = seen(fed(data, 120, 30))
    chance = random.Random(7)
    for cut in (chance.randrange(len(data)) for _ in range(40)):
        original = fed(data[:cut], 120, 30)
        copy = fed(original.vt(), 120, 30)
        assert seen(copy) == seen(original), cut
        assert looks(copy) == looks(original), cut
        copy.feed(data[cut:])
        assert seen(copy) == whole, cut


@pytest.mark.requirement("design:screen:vt-snapshot")
@pytest.mark.parametrize(
    "data",
    [
        b"shell text\r\n\x1b7\x1b[31m\x1b[?1049h\x1b[2;3Halternate",
        b"\x1b[?47hold alternate",
        b"\x1b[?7l" + b"cut off at the right margin " * 4,
        b"\x1b[2;4r\x1b[?6h\x1b[2;3Hwithin margins",
        b"\x1b[4hinserting",
        b"\x1b[44m\x1b[2Jblue to the bottom",
        b"scrolled\r\n" * 50,
        b"x" * 80,
        b"half a sequence \x1b[3",
        b"half a character \xe4\xbd",
        b"half a title \x1b]2;ti",
        b"\x1b(0lqqk",
        b"\x1b[3g\x1b[5G\x1bH\r",
        MIXED,
        b"",
    ],
    ids=lambda data: repr(data[:24]),
)
def test_a_snapshot_re_creates_odd_states(data: bytes) -> None:
    original = fed(data)
    copy = fed(original.vt())
    assert (seen(copy), looks(copy)) == (seen(original), looks(original))
    for rest in (b"2m\ttail", b"\xa0\x07on\r\nand on", b"\x1b[?1047l\x1b[?47lback\n\n"):
        original.feed(rest)
        copy.feed(rest)
        assert (seen(copy), looks(copy)) == (seen(original), looks(original))


@pytest.mark.requirement("design:screen:checkpoint")
@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_saved_state_goes_on_like_the_original(name: str) -> None:
    data = recording(name)
    whole = fed(data, 120, 30)
    chance = random.Random(8)
    for cut in (chance.randrange(len(data)) for _ in range(40)):
        original = fed(data[:cut], 120, 30)
        restored = Emulator(0, 0, state=original.save())
        assert (seen(restored), looks(restored)) == (seen(original), looks(original)), cut
        restored.feed(data[cut:])
        assert (seen(restored), looks(restored)) == (seen(whole), looks(whole)), cut


@pytest.mark.requirement("design:text:chunking-invariant")
def test_ten_thousand_ways_to_cut_the_bytes_give_one_screen_and_one_set_of_replies() -> None:
    data = MIXED + b"\x1b[6n\x1b[c"
    whole = Emulator(40, 10)
    replies = whole.feed(data)
    expected = (whole.text(), whole.cursor, whole.title, whole.key_modes)
    chance = random.Random(9)
    for _ in range(10_000):
        emulator = Emulator(40, 10)
        cuts = sorted(chance.sample(range(len(data)), chance.randrange(1, 12)))
        parts = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert b"".join([emulator.feed(part) for part in parts]) == replies, cuts
        assert (emulator.text(), emulator.cursor, emulator.title, emulator.key_modes) == expected, cuts


@pytest.mark.requirement("design:screen:crash")
def test_fuzzed_bytes_never_raise() -> None:
    chance = random.Random(10)
    pieces = [b"\x1b[", b"\x1b]", b"\x1bP", b"\x1b_", b"\x1b\\", b"\x07", b"?", b";", b"999999999", b"h", b"m", b"S"]
    pieces += [b"\xf0\x9f\x91", b"\x8d", "你".encode(), b"\r\n", b"\x1b[?1049h", b"\x1b[?69h", b"\x9b", b"\x00", b"J"]
    emulator = Emulator(80, 24)
    for turn in range(1_500):
        noise = b"".join(chance.choice([*pieces, chance.randbytes(3)]) for _ in range(60))
        emulator.feed(noise)
        if turn % 10 == 0:
            emulator.resize(chance.randrange(1, 200), chance.randrange(1, 60))
            assert emulator.text() is not None
            assert emulator.cells() is not None
            assert emulator.vt() is not None
            with contextlib.suppress(EmulatorError):
                emulator = Emulator(0, 0, state=emulator.save())

"""What a terminal would answer never reaches it; everything else does, byte for byte."""

import itertools
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tether.process._emulator import Emulator
from tether.process.queries import HELD_BYTES, QueryFilter

pytestmark = pytest.mark.requirement("design:queries:removed")
patient = settings(deadline=None)

QUERIES = {
    "DA1": b"\x1b[c",
    "DA1 with a number": b"\x1b[0c",
    "DA2": b"\x1b[>c",
    "DA2 with a number": b"\x1b[>0c",
    "DA3": b"\x1b[=c",
    "status": b"\x1b[5n",
    "cursor": b"\x1b[6n",
    "cursor and page": b"\x1b[?6n",
    "printer": b"\x1b[?15n",
    "colour scheme": b"\x1b[?996n",
    "ANSI mode": b"\x1b[20$p",
    "private mode": b"\x1b[?2026$p",
    "version": b"\x1b[>q",
    "version with a number": b"\x1b[>0q",
    "kitty keyboard": b"\x1b[?u",
    "modifier keys": b"\x1b[?4m",
    "parameters": b"\x1b[x",
    "parameters with a number": b"\x1b[1x",
    "graphics": b"\x1b[?1;1;0S",
    "checksum": b"\x1b[1;1;1;1;10;10*y",
    "locator": b"\x1b[1'|",
    "presentation state": b"\x1b[1$w",
    "window state": b"\x1b[11t",
    "window place": b"\x1b[13;2t",
    "window pixels": b"\x1b[14t",
    "screen pixels": b"\x1b[15t",
    "cell pixels": b"\x1b[16t",
    "text cells": b"\x1b[18t",
    "screen cells": b"\x1b[19t",
    "icon label": b"\x1b[20t",
    "title": b"\x1b[21t",
    "a number with zeros": b"\x1b[0018t",
    "resize reports": b"\x1b[?2048h",
    "DECRQSS": b"\x1bP$qm\x1b\\",
    "XTGETTCAP": b"\x1bP+q544e\x1b\\",
    "resources": b"\x1bP+Q6162\x1b\\",
    "kitty command": b'\x1bP@kitty-cmd{"cmd":"ls"}\x1b\\',
    "palette": b"\x1b]4;1;?\x1b\\",
    "palette among settings": b"\x1b]4;1;red;2;?\x07",
    "special colour": b"\x1b]5;0;?\x07",
    "foreground": b"\x1b]10;?\x07",
    "background": b"\x1b]11;?\x1b\\",
    "several colours": b"\x1b]10;?;?;?\x07",
    "highlight": b"\x1b]19;?\x07",
    "kitty colours": b"\x1b]21;foreground=?\x1b\\",
    "pointer": b"\x1b]22;?__current__\x1b\\",
    "font": b"\x1b]50;?\x07",
    "clipboard": b"\x1b]52;c;?\x07",
    "any clipboard": b"\x1b]52;;?\x1b\\",
    "allowed features": b"\x1b]60\x1b\\",
    "disallowed features": b"\x1b]61;allowTitleOps\x1b\\",
    "notifications": b"\x1b]99;i=1:p=?;\x1b\\",
    "kitty clipboard": b"\x1b]5522;type=read;dGV4dA==\x1b\\",
    "iTerm2 cell": b"\x1b]1337;ReportCellSize\x07",
    "iTerm2 variable": b"\x1b]1337;ReportVariable=bmFtZQ==\x07",
    "nobody's number": b"\x1b]7501;?\x07",
    "kitty graphics": b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\",
    "a numbered picture": b"\x1b_Ga=T,f=24,s=1,v=1,i=7;AAAA\x1b\\",
    "ENQ": b"\x05",
    "DECID": b"\x1bZ",
    "8-bit CSI": b"\x9b6n",
    "8-bit DCS and ST": b"\x90$qm\x9c",
    "8-bit OSC": b"\x9d11;?\x07",
    "8-bit DECID": b"\x9a",
    "8-bit controls as UTF-8": b"\xc2\x9b6n\xc2\x9d11;?\xc2\x9c\xc2\x9a",
    "a malformed one": b"\x1b[6?n",
    "wrapped for tmux": b"\x1bPtmux;\x1b\x1b[6n\x1b\\",
}
SHOWN = {
    "text": b"plain text\r\n\ttab \x07bell\x7f",
    "UTF-8 with the bytes of controls": "ě → ś 𝛛 日本 ʛ\x85".encode(),
    "Latin-1": b"caf\xe9 \xa0\xff\xfe",
    "half a character": b"\xe2\x9b6n",
    "colours and cursor": b"\x1b[1;38;2;1;2;3mx\x1b[m\x1b[5;6H\x1b[2J\x1b[K\x1b[3 q\x1b[1\"q",
    "modes": b"\x1b[?1049h\x1b[?25l\x1b[?1;1000;1006h\x1b[?2026h\x1b[4h\x1b[?2048l",
    "kitty keyboard": b"\x1b[>1u\x1b[<u\x1b[=5;1u\x1b[u",
    "modifier keys": b"\x1b[>4;2m\x1b[>4n",
    "title stack and sizes": b"\x1b[22;0t\x1b[23;0t\x1b[8;24;80t\x1b[t\x1b[30t",
    "rectangles": b"\x1b[1;1;2;2$z\x1b[2*x\x1b[32;1;1;5;5$x",
    "soft reset, mode setting": b"\x1b[!p\x1b[61\"p\x1b[?1s\x1b[?1r",
    "titles that ask": b"\x1b]0;really?\x07\x1b]2;?\x1b\\\x1b]1;?\x07",
    "links and places": b"\x1b]8;;http://x/?q=1\x1b\\x\x1b]8;;\x07\x1b]7;file://h/a?b\x07",
    "colours set": b"\x1b]4;1;rgb:ff/00/00\x07\x1b]11;#000000\x1b\\\x1b]104\x07\x1b]110\x07",
    "clipboard set": b"\x1b]52;c;aGVsbG8=\x07",
    "notification": b"\x1b]9;done?\x07\x1b]99;i=1;ready?\x1b\\\x1b]777;notify;a;b?\x07",
    "marks": b"\x1b]133;A\x07\x1b]133;D;0\x1b\\\x1b]1337;CurrentDir=/?\x07",
    "a picture": b"\x1bP0;0;8q\"1;1;8;6#0;2;0;0;0#0!8~-\x1b\\",
    "a silent picture": b"\x1b_Ga=T,q=2,i=7;AAAA\x1b\\\x1b_Ga=T;AAAA\x1b\\",
    "other strings": b"\x1bXsos?\x1b\\\x1b^pm?\x1b\\\x1b_apc?\x1b\\\x1bP=1s\x1b\\\x1b]linux\x07\x1b];x\x07\x1b]\x07",
    "passed through tmux": b"\x1bPtmux;\x1b\x1b]2;title\x07\x1b\\",
    "charsets and keypad": b"\x1b(0\x1b)B\x0e\x0f\x1b=\x1b>\x1b7\x1b8\x1b#8\x1b%G\x1bM\x1bc\x1b\\",
    "broken off": b"\x1b[12\x18n\x1b[6\x1an\x1b]11;\x1b[31m\x1b\x1b[32m\x1b[1\x1b[33m",
    "8-bit controls that ask nothing": b"\x9b31mred\x9bm \x9d2;t\x9c\x90q~\x9c\x98s\x9c\x84\x9c",
}  # fmt: skip

pieces = st.one_of(
    st.sampled_from([*QUERIES.values(), *SHOWN.values()]),
    st.binary(max_size=8),
    st.text(max_size=8).map(str.encode),
    st.lists(
        st.sampled_from([bytes([byte]) for byte in b"\x05\x07\x18\x1b\\[]P_^Xq?>;$+0124nctxuZG=\x9b\x9c\x9d\xc2\xe2"])
    ).map(b"".join),
)
streams = st.lists(pieces, max_size=12).map(b"".join)


def filtered(data: bytes) -> bytes:
    queries = QueryFilter()
    return queries.feed(data) + queries.flush()


def in_chunks(data: bytes, cuts: list[int]) -> bytes:
    queries = QueryFilter()
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return b"".join(queries.feed(data[start:end]) for start, end in itertools.pairwise(places)) + queries.flush()


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_query_is_removed_and_nothing_around_it(query: bytes) -> None:
    assert filtered(query) == b""
    assert filtered(b"before" + query + b"behind") == b"beforebehind"
    assert filtered("ě".encode() + query + query + b"\x1b[31m") == "ě".encode() + b"\x1b[31m"


@pytest.mark.requirement("design:queries:rest-unchanged")
@pytest.mark.parametrize("data", SHOWN.values(), ids=SHOWN)
def test_what_asks_nothing_passes_unchanged(data: bytes) -> None:
    assert filtered(data) == data
    assert filtered(data + b"behind\x1b[0m") == data + b"behind\x1b[0m"


@pytest.mark.requirement("design:queries:rest-unchanged")
@patient
@given(st.text(alphabet=st.characters(blacklist_characters="\x05\x1b\x90\x98\x9a\x9b\x9c\x9d\x9e\x9f")))
def test_any_text_passes_unchanged_and_at_once(text: str) -> None:
    assert QueryFilter().feed(text.encode()) == text.encode()


@pytest.mark.requirement("design:queries:chunks")
@patient
@given(streams, st.lists(st.integers(min_value=0, max_value=400), max_size=6))
@example(b"\x1b]11;?\x1b\\x", [1, 2, 3, 4, 5, 6, 7])
@example(b"\x1bP$q\x1bm\x1b\\", [5, 6])
def test_chunks_do_not_change_the_result(data: bytes, cuts: list[int]) -> None:
    whole = filtered(data)
    assert in_chunks(data, cuts) == whole
    assert in_chunks(data, list(range(len(data)))) == whole


@patient
@given(streams)
def test_what_was_filtered_has_no_query_left(data: bytes) -> None:
    once = filtered(data)
    assert filtered(once) == once


@patient
@given(st.lists(st.sampled_from([*QUERIES.values(), *SHOWN.values()]), max_size=12).map(b"".join))
def test_an_emulator_stays_silent(data: bytes) -> None:
    terminal = Emulator(80, 24)
    assert terminal.feed(filtered(data)) == b""


# Our emulator takes 8-bit controls for text, and what is wrapped for tmux for a string that is broken off.
BOTH_SEE_ALIKE = [data for name, data in {**QUERIES, **SHOWN}.items() if "8-bit" not in name and "tmux" not in name]


@pytest.mark.requirement("design:queries:rest-unchanged")
@patient
@given(st.lists(st.sampled_from(BOTH_SEE_ALIKE), max_size=12).map(b"".join))
def test_an_emulator_shows_the_same(data: bytes) -> None:
    with_queries, without = Emulator(80, 24), Emulator(80, 24)
    with_queries.feed(data)
    without.feed(filtered(data))
    assert without.text() == with_queries.text()
    assert without.cursor == with_queries.cursor


def test_a_mode_that_reports_at_once_is_taken_out_of_its_list() -> None:
    assert filtered(b"\x1b[?1049;2048;25h") == b"\x1b[?1049;25h"
    assert filtered(b"\x9b?02048;1h") == b"\x1b[?1h"


def test_controls_inside_a_query_are_kept() -> None:
    assert filtered(b"\x1b[\r\n6\x05\bn") == b"\r\n\b"
    assert filtered(b"\x1b\r[6n") == b"\r"
    assert filtered(b"\x1b\tZ") == b"\t"


def test_an_enquiry_inside_anything_is_removed() -> None:
    assert filtered(b"\x1b[3\x051m\x1b]2;a\x05b\x07\x1b(\x05B") == b"\x1b[31m\x1b]2;ab\x07\x1b(B"


def test_a_query_that_breaks_off_a_sequence_still_breaks_it_off() -> None:
    for unfinished in (b"\x1b]2;title", b"\x1bPq~", b"\x1b[31"):
        assert filtered(unfinished + b"\x1b[6ntext") == unfinished + b"\x1b\x18text"
        shown = Emulator(80, 24)
        shown.feed(filtered(unfinished + b"\x1b[6ntext"))
        assert shown.text().startswith("text")


def test_a_string_that_asks_ends_where_a_sequence_begins() -> None:
    assert filtered(b"\x1b]11;?\x1b[31mred") == b"\x1b[31mred"
    assert filtered(b"\x1b]11;?\x18text") == b"text"
    assert filtered(b"\x1bP$qm\x9b31mred") == b"\x9b31mred"


@pytest.mark.requirement("design:queries:bounded")
@pytest.mark.parametrize(
    ("head", "tail"),
    [
        (b"\x1b[" + b"0" * HELD_BYTES, b"6n"),
        (b"\x1b]4;" + b"1;red;" * HELD_BYTES, b"2;?\x07"),
        (b"\x1b]" + b"0" * HELD_BYTES, b"11;?\x1b\\"),
        (b"\x1bP" + b"0" * HELD_BYTES, b"$qm\x1b\\"),
        (b"\x1bPtmux;" + b"x" * HELD_BYTES, b"\x1b\x1b[6n\x1b\\"),
        (b"\x1b_G" + b"f=24," * HELD_BYTES, b"a=q;\x1b\\"),
        (b"\x1b" + b"\x00" * HELD_BYTES, b"\x1b[6n"),
    ],
    ids=["CSI", "OSC", "number", "DCS", "tmux", "APC", "ESC"],
)
def test_a_query_does_not_pass_by_being_long(head: bytes, tail: bytes) -> None:
    data = head + tail + b"\x1b[0mbehind"
    for result in (filtered(data), in_chunks(data, list(range(0, len(data), 7)))):
        assert result.endswith(b"\x1b[0mbehind")
        assert not re.search(rb"[?6nqm]", result.removesuffix(b"\x1b[0mbehind"))
    queries = QueryFilter()
    queries.feed(head)
    assert queries.held < HELD_BYTES


@pytest.mark.requirement("design:queries:bounded")
def test_long_strings_that_ask_nothing_flow_through() -> None:
    for head in (b"\x1b]52;c;", b"\x1bPq", b"\x1b]1337;File=inline=1:", b"\x1b_Gm=1;", b"\x1b]2;"):
        queries = QueryFilter()
        data = head + b"A" * (2 * HELD_BYTES)
        assert queries.feed(data) == data
        assert queries.feed(b"B?\x1b\\text") == b"B?\x1b\\text"


@pytest.mark.requirement("design:queries:bounded")
def test_text_behind_a_lone_escape_is_late_but_not_lost() -> None:
    text = "日本語".encode() * HELD_BYTES
    assert filtered(b"\x1b" + text) == text
    assert filtered(b"\x1b[" + text + b"6n.") == text + b"."


def test_the_end_gives_what_was_held_unless_it_asks() -> None:
    for unfinished in (b"\x1b", b"\x1b[6", b"\x1b[?", "日".encode()[:2], b"\x1b]1", b"\x1b]11;#00", b"\x1b]2;x"):
        assert filtered(b"text" + unfinished) == b"text" + unfinished
    for asking in (b"\x1b]11;?", b"\x1b]52;c;?", b"\x1bP$qm", b"\x1b]11;?\x1b", b"\x1bPtmux;\x1b\x1b[6n"):
        assert filtered(b"text" + asking) == b"text"


def test_it_can_be_used_again_after_the_end() -> None:
    queries = QueryFilter()
    assert queries.feed(b"\x1bP$q") == b""
    assert queries.flush() == b""
    assert queries.feed(b"m text") == b"m text"


def test_every_query_the_emulator_answers_is_known() -> None:
    """Whatever control sequence makes our own emulator reply must be a query here."""
    numbers = (b"", b"1", b"5", b"6", b"18", b"21", b"996", b"2048")
    answered: set[bytes] = set()
    for marker, middle in itertools.product((b"", b"?", b">", b"=", b"<"), (b"", b"$", b"*", b" ", b"#", b'"', b"'")):
        terminal = Emulator(20, 4)
        for number, final in itertools.product(numbers, range(0x40, 0x7F)):
            sequence = b"\x1b[" + marker + number + middle + bytes([final])
            if terminal.feed(sequence):
                answered.add(sequence)
    assert b"\x1b[c" in answered
    assert [sequence for sequence in answered if filtered(sequence)] == []

"""Text made late from raw bytes: decoding, the text view, clipping and what a reader cannot see."""

import random
import time
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.process.text import (
    EDITABLE,
    GAP_LIMIT,
    LINE_LIMIT,
    STRING_LIMIT,
    Clipped,
    TextView,
    Utf8Decoder,
    clip,
    clip_middle,
    complete_length,
    decode,
    render,
    strip_escapes,
    visible,
)

MIB = 1024 * 1024

FRAGMENTS = (
    *(character.encode() for character in ("a", "0", ";", "[", "]", "\\", "K", "P", "m", "(", " ", "\t", "\r\n")),
    *(text.encode() for text in ("日本語", "한글", "👩‍👩‍👧‍👦", "🏳️‍🌈", "e\u0301\u0328", "é°", "\u202e")),
    *(control.encode() for control in ("\r", "\n", "\b", "\a", "\0", "\x18", "\x7f", "\x1b", "\x85", "\x9b", "\x9c")),
    *(
        b"\x1b[31m",
        b"\x1b[38;2;1;2;3m",
        b"\x1b[?25l",
        b"\x1b[2J",
        b"\x1b(B",
        b"\x1b#8",
        b"\x1b7",
        b"\x1b[3 q",
    ),
    *(
        b"\x1b]0;title\a",
        b"\x1b]8;;file:///x\x1b\\",
        b"\x1b]",
        b"\x1bP1$r0m\x1b\\",
        b"\x1b_Gi=1;",
        b"\x1b^",
        b"\x1bX",
    ),
    *("\x9d2;t\x9c".encode(), "\x9b1;31m".encode(), "\x90q".encode()),
    *(
        b"\x1b[K",
        b"\x1b[1K",
        b"\x1b[2K",
        b"\x1b[9G",
        b"\x1b[3C",
        b"\x1b[2D",
        b"\x1b[P",
        b"\x1b[2X",
        b"\x1b[@",
    ),
    *(b"\xff", b"\xc2", b"\xe0\x80", b"\xed\xa0\x80", b"\xf0\x9f", b"\xf4\x90\x80\x80", b"\x80", b"\x9b"),
)
mixed_bytes = st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=4), max_size=25).map(b"".join)


def random_chunks(data: bytes, choose: random.Random) -> list[bytes]:
    longest = choose.choice((1, 2, 3, 8, 64, 5000))
    chunks: list[bytes] = []
    while data:
        length = choose.randint(1, longest)
        chunks.append(data[:length])
        data = data[length:]
    return chunks


def cpu_seconds_to_view(data: bytes, chunk_size: int) -> float:
    view = TextView()
    began = time.process_time()
    for start in range(0, len(data), chunk_size):
        view.feed(data[start : start + chunk_size])
    return time.process_time() - began


@pytest.mark.requirement("design:text:utf8-never-split")
@pytest.mark.parametrize("character", ["a", "é", "語", "👩", "\U0010ffff", "\ud7ff", "\ue000"])
def test_an_incomplete_character_at_the_end_is_not_counted(character: str) -> None:
    encoded = character.encode()
    for length in range(len(encoded)):
        assert complete_length(b"x" * 5 + encoded[:length]) == 5
        assert complete_length(encoded[:length]) == 0
    assert complete_length(b"x" * 5 + encoded) == 5 + len(encoded)


@pytest.mark.requirement("design:text:utf8-never-split")
@pytest.mark.parametrize(
    "data",
    [b"\xff", b"\x80\x80\x80", b"\xc0", b"\xe0\x80", b"\xed\xa0", b"\xf4\x90", b"\xf5", b"\xe8\xaa\x9e\x80"],
)
def test_invalid_bytes_at_the_end_are_never_held_back(data: bytes) -> None:
    assert complete_length(b"text" + data) == 4 + len(data)


@pytest.mark.requirement("design:text:utf8-never-split")
@settings(max_examples=300, deadline=None, database=None)
@given(mixed_bytes)
def test_bytes_cut_at_their_complete_length_decode_to_the_same_text(data: bytes) -> None:
    length = complete_length(data)
    assert len(data) - 3 <= length <= len(data)
    assert decode(data[:length]) + decode(data[length:] + b"x") == decode(data + b"x")


@pytest.mark.requirement("design:text:utf8-never-split")
def test_each_broken_sequence_becomes_one_replacement_character() -> None:
    assert decode(b"a\xffb\xe2\x82c\xe2\x82") == "a\ufffdb\ufffdc\ufffd"


@pytest.mark.requirement("design:text:utf8-never-split")
def test_the_decoder_turns_an_incomplete_end_into_a_replacement_character_only_when_told() -> None:
    decoder = Utf8Decoder()
    assert decoder.feed(b"a\xe2\x82") == "a"
    assert decoder.feed(b"\xac") == "€"
    assert decoder.feed(b"\xe2\x82") == ""
    assert decoder.feed(b"", final=True) == "\ufffd"
    assert decoder.feed(b"b") == "b"


@pytest.mark.requirement("design:text:raw-view")
@pytest.mark.requirement("000:process:output:ansi-kept")
def test_decoding_changes_nothing_but_broken_bytes() -> None:
    text = "\x1b[31mred\x1b[0m\r\n\b\0\ta\x9b1m\ufeff👩‍👩‍👧\x1b]0;t\a"
    assert decode(text.encode()) == text


@pytest.mark.requirement("design:text:chunking-invariant")
@settings(max_examples=500, deadline=None, database=None)
@given(mixed_bytes, st.integers(0, 2**32))
def test_ten_thousand_chunkings_give_the_same_text_as_one_write(data: bytes, seed: int) -> None:
    choose = random.Random(seed)
    whole = TextView()
    lines, pending = whole.feed(data), whole.pending
    everything = lines + whole.feed(b"", final=True)
    for _ in range(20):
        chunks = random_chunks(data, choose)
        decoder, view = Utf8Decoder(), TextView()
        text = "".join(map(decoder.feed, chunks)) + decoder.feed(b"", final=True)
        assert text == decode(data)
        assert ("".join(map(view.feed, chunks)), view.pending) == (lines, pending)
        assert lines + view.feed(b"", final=True) == everything


@pytest.mark.requirement("design:text:chunking-invariant")
@pytest.mark.parametrize("chunk_size", [1, 100, EDITABLE, EDITABLE + 1])
def test_chunkings_of_a_long_line_give_the_same_text_as_one_write(chunk_size: int) -> None:
    data = "é".encode() * EDITABLE + b"ab\r\x1b[31mc" + b"x" * (EDITABLE - 2) + b"\x1b[1K\ry" * 3 + b"z" * EDITABLE
    whole, view = TextView(), TextView()
    assert whole.feed(data) == ""
    assert "".join(view.feed(data[at : at + chunk_size]) for at in range(0, len(data), chunk_size)) == ""
    assert view.pending == whole.pending


@pytest.mark.requirement("design:lines-never-shift")
@settings(max_examples=300, deadline=None, database=None)
@given(mixed_bytes)
def test_every_newline_byte_is_one_newline_of_the_text(data: bytes) -> None:
    view = TextView()
    lines = view.feed(data)
    assert lines.count("\n") == data.count(b"\n")
    assert "\n" not in view.pending
    assert render(data).count("\n") == data.count(b"\n")


@pytest.mark.requirement("design:text:fuzz")
@settings(max_examples=400, deadline=None, database=None)
@given(st.binary(max_size=300) | mixed_bytes)
def test_no_bytes_break_a_view(data: bytes) -> None:
    text = render(data)
    assert not [char for char in text if unicodedata.category(char) == "Cc" and char not in "\n\t"]
    assert complete_length(data) <= len(data)
    stripped = strip_escapes(decode(data))
    assert not [char for char in stripped if unicodedata.category(char) == "Cc" and char not in "\n\t\r"]
    assert all(char.isprintable() or char in "\n\t " or char.isspace() for char in visible(text) if char < "\u0100")


@pytest.mark.requirement("design:text:escapes-removed")
@pytest.mark.parametrize(
    "escape",
    [
        "\x1b[31m",
        "\x1b[38;2;10;20;30;1m",
        "\x1b[38:2::1:2:3m",
        "\x1b[?2004h",
        "\x1b[>4;1m",
        "\x1b[2 q",
        "\x1b[10;20H",
        "\x1b[5A",
        "\x1b[?K",
        "\x1b]0;a title; with text\a",
        "\x1b]8;;https://example.org/é\x1b\\",
        "\x1b]0;ended by ST\x9c",
        "\x1bPq#0;2;0;0;0\a~~\x1b\\",
        "\x1b_Gf=100;AAAA\x1b\\",
        "\x1b^private\x1b\\",
        "\x1bXstart of string\x9c",
        "\x1b(B",
        "\x1b)0",
        "\x1b#8",
        "\x1b%G",
        "\x1b7",
        "\x1b=",
        "\x1bM",
        "\x1bc",
        "\x9b1;31m",
        "\x9d0;title\x9c",
        "\x90q~~\x9c",
        "\x9fapc\x1b\\",
        "\x85",
        "\a",
        "\0",
        "\v\f\x0e\x0f",
        "\x7f",
        "\x1b\x1b[0m",
        "\x1b[3\x1b[1m",
        "\x1b]0;cancelled\x18",
        "\x1bPtmux;\x1b\x1b]52;c;AAAA\a\x1b\\",
    ],
)
def test_an_escape_leaves_no_trace(escape: str) -> None:
    data = f"ab{escape}cd\n".encode()
    view = TextView()
    assert render(data) == "abcd\n"
    assert "".join(view.feed(bytes([byte])) for byte in data) == "abcd\n"
    assert strip_escapes(f"ab{escape}cd") == "abcd"


@pytest.mark.requirement("design:text:escapes-removed")
@pytest.mark.parametrize(
    "broken", ["\x1b", "\x1b[", "\x1b[31", "\x1b(", "\x1b]0;title", "\x1bPq", "\x9b1", "\x9d0;t"]
)
def test_an_escape_cut_off_by_a_newline_or_the_end_swallows_nothing_else(broken: str) -> None:
    assert render(f"a{broken}\nb{broken}".encode()) == "a\nb"
    assert strip_escapes(f"a{broken}\nb{broken}") == "a\nb"


@pytest.mark.requirement("design:text:escapes-removed")
def test_an_invalid_byte_is_no_c1_control() -> None:
    assert render(b"a\x9b31mb") == "a\ufffd31mb"


@pytest.mark.requirement("design:text:escapes-removed")
def test_stripping_escapes_moves_nothing() -> None:
    assert strip_escapes("a\x1b[31mb\x1b[2K\x1b[3G\rc\td\b\n") == "ab\rc\td\n"


@pytest.mark.requirement("design:text:carriage-returns")
@pytest.mark.parametrize(
    ("output", "seen"),
    [
        ("one\r\ntwo\r\r\n", "one\ntwo\n"),
        (" 10%\r 50%\r100%\n", "100%\n"),
        ("100%\r5%", "5%0%"),
        ("abc\r\x1b[Kd", "d"),
        ("typo\b\b\bea", "teao"),
        ("a\b\b\bb", "b"),
        ("N\bNA\bA_\bx", "NAx"),
        ("abcdef\x1b[3D\x1b[K", "abc"),
        ("abcdef\x1b[4G\x1b[1K", "    ef"),
        ("abcdef\x1b[1K", ""),
        ("abc\x1b[2Kd", "   d"),
        ("abc\x1b[2K\rd", "d"),
        ("abc\x1b[7Kd", "abcd"),
        ("abc\x1b[Gx\x1b[3Gy", "xby"),
        ("a\x1b[3Cb", "a   b"),
        ("a\x1b[0Cb\x1b[Cc", "a b c"),
        ("abc\x1b[99Dx", "xbc"),
        ("abcdef\r\x1b[2P", "cdef"),
        ("abcdef\r\x1b[2X", "  cdef"),
        ("abcdef\x1b[2D\x1b[9X", "abcd"),
        ("abc\r\x1b[2@x", "x abc"),
        ("abc\x1b[5@d", "abcd"),
        ("abc\x9b2Gx", "axc"),
        ("abc\x1b[2;9Gx", "axc"),
        ("日本語\r中", "中本語"),
        ("a\tb\rxy", "xyb"),
        ("up\x1b[A\x1b[2Jdown", "updown"),
    ],
)
def test_a_line_is_edited_as_on_a_terminal(output: str, seen: str) -> None:
    assert render(output.encode()) == seen


@pytest.mark.requirement("design:text:carriage-returns")
def test_only_finished_lines_are_handed_out_and_the_rest_is_pending() -> None:
    view = TextView()
    assert (view.feed(b"one\ntw"), view.pending) == ("one\n", "tw")
    assert (view.feed(b"o\r"), view.pending) == ("", "two")
    assert (view.feed(b"T"), view.pending) == ("", "Two")
    assert (view.feed(b"\x1b[2"), view.pending) == ("", "Two")
    assert (view.feed(b"K\r3"), view.pending) == ("", "3")
    assert (view.feed(b"", final=True), view.pending) == ("3", "")
    assert (view.feed(b"\x1b]0;title", final=True), view.pending) == ("", "")
    assert (view.feed(b"four\x1b[", final=True), view.pending) == ("four", "")
    assert (view.feed(b"m\n"), view.pending) == ("m\n", "")


@pytest.mark.requirement("design:text:escapes-removed")
@pytest.mark.parametrize("start", [b"\x1b]", b"\x1bP", b"\x1b_", b"\xc2\x9d"])
def test_an_endless_string_becomes_text_after_its_limit(start: bytes) -> None:
    data = start + b"s" * STRING_LIMIT + b"text"
    assert render(data) == "text"
    view = TextView()
    assert "".join(view.feed(data[at : at + 1000]) for at in range(0, len(data), 1000)) == ""
    assert view.pending == "text"


@pytest.mark.requirement("design:text:escapes-removed")
def test_an_endless_control_sequence_becomes_text_after_its_limit() -> None:
    text = render(b"\x1b[" + b"1" * 1000 + b"m")
    assert text == "1" * (1000 - 256) + "m"


@pytest.mark.requirement("design:text:carriage-returns")
def test_edits_do_not_reach_text_that_a_long_line_has_settled() -> None:
    assert render(b"a" * EDITABLE + b"\rb") == "b" + "a" * (EDITABLE - 1)
    assert render(b"a" * EDITABLE + b"cc\rb\x1b[K") == "a" * EDITABLE + "b"


@pytest.mark.requirement("design:text:fuzz")
def test_a_move_to_the_right_makes_a_bounded_gap() -> None:
    assert render(b"\x1b[999999999Cx\n") == " " * GAP_LIMIT + "x\n"
    assert render(b"ab\r\x1b[999999999@\x1b[999999999Gx\n") == " " * GAP_LIMIT + "abx\n"
    assert render(b"a" * EDITABLE + b"\r\x1b[9@\n") == " " * 9 + "a" * (EDITABLE - 9) + "\n"


@pytest.mark.requirement("design:text:fuzz")
def test_a_line_beyond_the_limit_is_handed_out_in_pieces_without_a_newline() -> None:
    view = TextView()
    assert view.feed(b"x" * LINE_LIMIT) == ""
    assert view.feed(b"x" * 2 * LINE_LIMIT) == "x" * 2 * LINE_LIMIT
    assert view.pending == "x" * LINE_LIMIT
    assert view.feed(b"y\n") == "x" * LINE_LIMIT + "y\n"


@pytest.mark.requirement("design:text:fuzz")
@pytest.mark.parametrize("chunk_size", [256, 65536, 16 * MIB])
def test_ten_megabytes_without_a_newline_take_linear_time(chunk_size: int) -> None:
    assert cpu_seconds_to_view(b"x" * 10 * MIB, chunk_size) < 3


@pytest.mark.requirement("design:text:fuzz")
@pytest.mark.parametrize(
    "repeated", [b"\x1b]0;", b"\x1b[2K\r", b"\x1b[1;", b"\rxy", b"\x1b[999C\x1b[1Kx", b"\x1b[9@"]
)
def test_hostile_output_takes_linear_time(repeated: bytes) -> None:
    data = b"x" * LINE_LIMIT + repeated * (MIB // 4 // len(repeated))
    assert cpu_seconds_to_view(data, 65536) < 3


@pytest.mark.requirement("design:text:clip")
def test_a_clip_keeps_the_first_characters_and_counts_the_rest() -> None:
    assert clip("日本語👩é", 4) == Clipped("日本語👩", 1)
    assert clip("abc", 3) == Clipped("abc", 0)
    assert clip("abc", 0) == Clipped("", 3)


@pytest.mark.requirement("design:text:clip")
def test_a_clip_of_the_middle_keeps_both_ends_around_a_marker_line() -> None:
    assert clip_middle("a" * 20_000, 5) == Clipped("aaa\n… 19,995 characters left out …\naa", 19_995)
    assert clip_middle("one\ntwo\nsix\n", 8) == Clipped("one\n… 4 characters left out …\nsix\n", 4)
    assert clip_middle("ab\n\ncd", 5) == Clipped("ab\n… 1 character left out …\ncd", 1)
    assert clip_middle("abc", 1) == Clipped("a\n… 2 characters left out …", 2)
    assert clip_middle("abc", 0) == Clipped("… 3 characters left out …", 3)
    assert clip_middle("abc", 3) == Clipped("abc", 0)


@pytest.mark.requirement("design:text:clip")
@pytest.mark.parametrize("shorten", [clip, clip_middle])
def test_a_negative_limit_is_refused_with_its_value(shorten: Callable[[str, int], Clipped]) -> None:
    with pytest.raises(ValueError, match="limit -1 is negative: pass the number of characters"):
        shorten("abc", -1)


@pytest.mark.requirement("design:text:clip")
@settings(max_examples=200, deadline=None, database=None)
@given(st.text("aé語👩\n", max_size=50), st.integers(0, 60))
def test_a_clip_keeps_exactly_what_it_does_not_count_as_left_out(text: str, limit: int) -> None:
    short, middle = clip(text, limit), clip_middle(text, limit)
    assert text.startswith(short.text)
    assert len(short.text) + short.omitted == len(text)
    assert middle.omitted == short.omitted
    assert middle.text.startswith(text[: limit - limit // 2])
    assert middle.text.endswith(text[len(text) - min(limit // 2, len(text)) :])


@pytest.mark.requirement("design:text:visible")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rm -rf /tmp/x", "rm -rf /tmp/x"),
        ("naïve 日本語 👩", "naïve 日本語 👩"),
        ("a\x1b[31mb\x7f\0", r"a\x1b[31mb\x7f\x00"),
        ("a\rb\bc\x9b", r"a\x0db\x08c\x9b"),
        ("\u202etxt.exe\u2066\u200e", r"\u202etxt.exe\u2066\u200e"),
        ("a\u200bb\u200dc\ufeffd\u2060e\u00ad", r"a\u200bb\u200dc\ufeffd\u2060e\xad"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\u3164\u115f\ufe0f\u034f", r"\u3164\u115f\ufe0f\u034f"),
        ("\U000e0041\U000e0100", r"\U000e0041\U000e0100"),
        ("\ud800", r"\ud800"),
        ("one\n\ttwo", "one\n\ttwo"),
    ],
)
def test_what_a_reader_cannot_see_is_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.requirement("design:text:visible")
def test_newlines_and_tabs_are_spelled_out_where_a_single_line_is_shown() -> None:
    assert visible("a\n\tb", keep="") == r"a\x0a\x09b"
    assert visible("a\n\tb\u200d", keep="\u200d") == "a\\x0a\\x09b\u200d"

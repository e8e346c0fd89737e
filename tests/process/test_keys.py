"""Keys, hex and pastes give the bytes that xterm sends, and real programs understand them."""

import itertools
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import python
from tether.errors import InputRefusedError, UnknownKeyError
from tether.process.keys import KEY_NAMES, REPEAT_LIMIT, KeyModes, encode_hex, encode_keys, encode_paste

NORMAL = KeyModes()
APPLICATION = KeyModes(application_cursor=True, application_keypad=True)
BRACKETED = KeyModes(bracketed_paste=True)
KITTY = KeyModes(kitty_flags=1, application_cursor=True, application_keypad=True)
KITTY_ALL = KeyModes(kitty_flags=1 | 4 | 8 | 16)

NAMES = {
    "Enter": "\r", "Return": "\r", "Tab": "\t", "BTab": "\x1b[Z", "Escape": "\x1b", "Esc": "\x1b",
    "Space": " ", "BSpace": "\x7f", "Backspace": "\x7f", "Up": "\x1b[A", "Down": "\x1b[B", "Right": "\x1b[C",
    "Left": "\x1b[D", "Home": "\x1b[H", "End": "\x1b[F", "PageUp": "\x1b[5~", "PgUp": "\x1b[5~",
    "PPage": "\x1b[5~", "PageDown": "\x1b[6~", "PgDn": "\x1b[6~", "NPage": "\x1b[6~", "Insert": "\x1b[2~",
    "IC": "\x1b[2~", "Delete": "\x1b[3~", "Del": "\x1b[3~", "DC": "\x1b[3~",
}  # fmt: skip
FUNCTION_KEYS = {
    "F1": "\x1bOP", "F2": "\x1bOQ", "F3": "\x1bOR", "F4": "\x1bOS", "F5": "\x1b[15~", "F6": "\x1b[17~",
    "F7": "\x1b[18~", "F8": "\x1b[19~", "F9": "\x1b[20~", "F10": "\x1b[21~", "F11": "\x1b[23~",
    "F12": "\x1b[24~", "F13": "\x1b[1;2P", "F14": "\x1b[1;2Q", "F15": "\x1b[1;2R", "F16": "\x1b[1;2S",
    "F17": "\x1b[15;2~", "F18": "\x1b[17;2~", "F19": "\x1b[18;2~", "F20": "\x1b[19;2~", "F21": "\x1b[20;2~",
    "F22": "\x1b[21;2~", "F23": "\x1b[23;2~", "F24": "\x1b[24;2~", "S-F1": "\x1b[1;2P", "C-F4": "\x1b[1;5S",
    "C-F5": "\x1b[15;5~", "M-F12": "\x1b[24;3~", "C-M-S-F5": "\x1b[15;8~", "C-F13": "\x1b[1;6P",
    "M-F24": "\x1b[24;4~",
}  # fmt: skip
KEYPAD = {
    "KP0": ("0", "p"), "KP1": ("1", "q"), "KP2": ("2", "r"), "KP3": ("3", "s"), "KP4": ("4", "t"),
    "KP5": ("5", "u"), "KP6": ("6", "v"), "KP7": ("7", "w"), "KP8": ("8", "x"), "KP9": ("9", "y"),
    "KP.": (".", "n"), "KP/": ("/", "o"), "KP*": ("*", "j"), "KP-": ("-", "m"), "KP+": ("+", "k"),
    "KP=": ("=", "X"), "KPEnter": ("\r", "M"),
}  # fmt: skip
CONTROL = {
    "C-a": "\x01", "C-c": "\x03", "C-C": "\x03", "c-d": "\x04", "C-z": "\x1a", "C-Space": "\0", "C-@": "\0",
    "C-2": "\0", "C-[": "\x1b", "C-3": "\x1b", "C-\\": "\x1c", "C-]": "\x1d", "C-^": "\x1e", "C-_": "\x1f",
    "C-/": "\x1f", "C-?": "\x7f", "C-8": "\x7f", "C-i": "\t", "C-m": "\r", "^C": "\x03", "^c": "\x03",
    "^@": "\0", "^[": "\x1b", "^?": "\x7f", "^I": "\t", "^M": "\r", "^_": "\x1f",
}  # fmt: skip
MODIFIED = {
    "C-Up": "\x1b[1;5A", "S-Left": "\x1b[1;2D", "M-Right": "\x1b[1;3C", "C-S-Down": "\x1b[1;6B",
    "S-C-Down": "\x1b[1;6B", "C-M-S-Up": "\x1b[1;8A", "C-Home": "\x1b[1;5H", "S-End": "\x1b[1;2F",
    "C-PgUp": "\x1b[5;5~", "M-NPage": "\x1b[6;3~", "S-IC": "\x1b[2;2~", "C-Delete": "\x1b[3;5~",
    "M-x": "\x1bx", "M-X": "\x1bX", "M-S-x": "\x1bX", "M-é": "\x1bé", "M-Space": "\x1b ", "M--": "\x1b-",
    "S-a": "A", "S-A": "A", "S-é": "É", "S-Space": " ", "C-M-c": "\x1b\x03", "M-C-c": "\x1b\x03",
    "M-^C": "\x1b\x03", "C-M-Space": "\x1b\0", "M-Enter": "\x1b\r", "M-Tab": "\x1b\t", "M-Escape": "\x1b\x1b",
    "M-BSpace": "\x1b\x7f", "S-Tab": "\x1b[Z", "M-S-Tab": "\x1b\x1b[Z", "S-BTab": "\x1b[Z", "C-BSpace": "\b",
    "C-M-BSpace": "\x1b\b", "S-Enter": "\x1b[13;2u", "C-Enter": "\x1b[13;5u", "C-S-Enter": "\x1b[13;6u",
    "M-S-Enter": "\x1b[13;4u", "C-Tab": "\x1b[9;5u", "C-S-Tab": "\x1b[9;6u", "S-BSpace": "\x1b[127;2u",
    "C-Escape": "\x1b[27;5u", "C-1": "\x1b[49;5u", "C-;": "\x1b[59;5u", "C-.": "\x1b[46;5u",
    "C--": "\x1b[45;5u", "C-é": "\x1b[233;5u", "C-M-.": "\x1b[46;7u", "C-S-a": "\x1b[97;6u",
    "C-S-A": "\x1b[97;6u", "C-S-Space": "\x1b[32;6u", "M-KP5": "\x1b5", "S-KPEnter": "\x1b[13;2u",
    "C-KP5": "\x1d",
}  # fmt: skip
LITERAL = [
    "q", ":", "é", "😀", "-", "^", "*", "ls -l", "Upper", "C-", "^é", "^ß", "^ab", "j:5", "::3", "3:4",
    "host:80", "Up:x", "",
]  # fmt: skip
IN_KITTY = {
    "Escape": "\x1b[27u", "^[": "\x1b[27u", "Enter": "\r", "Tab": "\t", "BSpace": "\x7f", "^M": "\r",
    "^I": "\t", "^?": "\x7f", "C-c": "\x1b[99;5u", "C-C": "\x1b[99;5u", "^C": "\x1b[99;5u",
    "C-i": "\x1b[105;5u", "C-[": "\x1b[91;5u", "C-S-c": "\x1b[99;6u", "M-x": "\x1b[120;3u",
    "M-X": "\x1b[120;4u", "C-M-x": "\x1b[120;7u", "C-Space": "\x1b[32;5u", "a": "a", "A": "A", "S-a": "A",
    "S-Space": " ", "é": "é",
    "S-Enter": "\x1b[13;2u", "M-Enter": "\x1b[13;3u", "S-Tab": "\x1b[9;2u", "BTab": "\x1b[9;2u",
    "C-BSpace": "\x1b[127;5u", "Up": "\x1b[A", "C-Up": "\x1b[1;5A", "Home": "\x1b[H", "Delete": "\x1b[3~",
    "F1": "\x1b[P", "F3": "\x1b[13~", "S-F3": "\x1b[13;2~", "S-F4": "\x1b[1;2S", "F12": "\x1b[24~",
    "F13": "\x1b[57376u", "S-F13": "\x1b[57376;2u", "F24": "\x1b[57387u", "KP5": "5",
    "C-KP0": "\x1b[57399;5u", "M-KP+": "\x1b[57413;3u", "KPEnter": "\x1b[57414u", "C-KP=": "\x1b[57415;5u",
}  # fmt: skip
IN_KITTY_ALL = {
    "Enter": "\x1b[13u", "Tab": "\x1b[9u", "Escape": "\x1b[27u", "a": "\x1b[97;;97u", "A": "\x1b[97:65;2;65u",
    "S-a": "\x1b[97:65;2;65u", "C-a": "\x1b[97;5u", "C-S-a": "\x1b[97:65;6u", "!": "\x1b[33;;33u",
    "S-Space": "\x1b[32;2;32u", "KP5": "\x1b[57404;;53u", "KPEnter": "\x1b[57414u", "M-1": "\x1b[49;3u",
}  # fmt: skip

PREFIXES = [
    "".join(order)
    for size in range(4)
    for chosen in itertools.combinations(("C-", "M-", "S-"), size)
    for order in itertools.permutations(chosen)
]


def check(table: dict[str, str], modes: KeyModes = NORMAL) -> None:
    assert {token: encode_keys([token], modes) for token in table} == {
        token: sent.encode() for token, sent in table.items()
    }


@pytest.mark.requirement("001:keys")
@pytest.mark.requirement("design:keys:names")
def test_names_in_any_case_are_the_keys() -> None:
    check(NAMES)
    check({name.lower(): sent for name, sent in NAMES.items()})
    check({name.upper(): sent for name, sent in NAMES.items()})
    assert {*NAMES, *KEYPAD, *(f"F{number}" for number in range(1, 25))} == set(KEY_NAMES)


@pytest.mark.requirement("design:keys:function")
def test_function_keys_are_those_of_the_terminfo_entry() -> None:
    check(FUNCTION_KEYS)
    with pytest.raises(UnknownKeyError, match=r"'S-F13'.*Shift with F1"):
        encode_keys(["S-F13"])


@pytest.mark.requirement("design:keys:application-cursor")
def test_cursor_keys_follow_the_application_mode_unless_modified() -> None:
    check(
        {name: f"\x1bO{NAMES[name][-1]}" for name in ("Up", "Down", "Right", "Left", "Home", "End")},
        APPLICATION,
    )
    check({token: MODIFIED[token] for token in ("C-Up", "S-Left", "C-Home", "S-End")}, APPLICATION)
    check({"PgUp": "\x1b[5~", "Delete": "\x1b[3~", "F1": "\x1bOP", "Enter": "\r"}, APPLICATION)


@pytest.mark.requirement("design:keys:keypad")
def test_keypad_types_characters_unless_the_program_wants_codes() -> None:
    check({name: typed for name, (typed, _) in KEYPAD.items()})
    check({name: f"\x1bO{letter}" for name, (_, letter) in KEYPAD.items()}, APPLICATION)


@pytest.mark.requirement("000:process:input:special-characters")
@pytest.mark.requirement("001:problem:control-characters")
def test_control_characters() -> None:
    check(CONTROL)


@pytest.mark.requirement("design:keys:modifiers")
@pytest.mark.requirement("design:keys:xterm")
def test_no_modifier_is_lost() -> None:
    check(MODIFIED)


@pytest.mark.requirement("design:keys:xterm")
def test_the_kitty_protocol_where_the_program_enabled_it() -> None:
    check(IN_KITTY, KITTY)
    check(IN_KITTY, KeyModes(kitty_flags=1 | 2))
    check(IN_KITTY_ALL, KITTY_ALL)
    check({"a": "\x1b[97u", "A": "\x1b[97;2u", "S-1": "\x1b[49;2u"}, KeyModes(kitty_flags=8))


@pytest.mark.requirement("001:keys")
def test_other_text_is_typed_as_it_stands() -> None:
    check({text: text for text in LITERAL})
    assert encode_keys(["i", "hello", "Escape", ":wq", "Enter"]) == b"ihello\x1b:wq\r"
    assert encode_keys(["\udcff"]) == b"\xff"


@pytest.mark.requirement("design:keys:modifiers")
@pytest.mark.parametrize(
    ("written", "meant"),
    [("Ctrl+C", "C-c"), ("ctrl-c", "C-c"), ("Control-Shift-Up", "C-S-Up"), ("Alt+x", "M-x"), ("Shift-Tab", "S-Tab")],
)
def test_modifiers_may_be_written_out(written: str, meant: str) -> None:
    assert encode_keys([written]) == encode_keys([meant])


@pytest.mark.requirement("design:keys:unknown")
@pytest.mark.parametrize("token", ["F0", "F25", "f99"])
def test_a_function_key_that_no_keyboard_has_is_refused(token: str) -> None:
    with pytest.raises(UnknownKeyError, match=f"unknown key '{token}'"):
        encode_keys([token])


@pytest.mark.requirement("design:keys:repeat")
def test_a_count_repeats_named_and_modified_keys() -> None:
    check({"Down:3": "\x1b[B" * 3, "c-w:2": "\x17\x17", "^C:2": "\x03\x03", "^[:2": "\x1b\x1b", "Space:2": "  "})
    check({"C-::2": "\x1b[58;5u" * 2, "KP5:1": "5", "Enter:007": "\r" * 7})
    assert encode_keys([f"Tab:{REPEAT_LIMIT}"]) == b"\t" * REPEAT_LIMIT


@pytest.mark.requirement("design:keys:repeat")
@pytest.mark.parametrize("token", ["Up:0", f"Up:{REPEAT_LIMIT + 1}", "C-c:" + "9" * 5000])
def test_a_count_out_of_range_is_refused(token: str) -> None:
    with pytest.raises(UnknownKeyError, match="1 to 1000"):
        encode_keys([token])


@pytest.mark.requirement("design:keys:unknown")
@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("C-Entr", r"'C-Entr'.*'Entr'.*did you mean 'C-Enter'.*send it as text"),
        ("C-M-PageUpp:2", r"'C-M-PageUp'"),
        ("S-expression", r"'expression'.*Enter Tab .* F1-F24"),
        ("C-F25", r"'C-F2'"),
        ("C-M-", r"'M-'"),
        ("M-\x03", r"'\\x03'"),
        ("S-1", r"'S-1'.*depends on the keyboard"),
        ("M-S-ß", r"'ß'"),
        ("\ud800", r"'\\ud800'"),
    ],
)
def test_what_is_no_key_is_refused_with_what_is_near(token: str, said: str) -> None:
    with pytest.raises(UnknownKeyError, match=said):
        encode_keys([token])


def depends_on_shift(prefix: str, name: str, modes: KeyModes) -> bool:
    """Whether Shift is asked to make text of a keypad character, or of a key that already is shifted."""
    keypad_character = name in KEYPAD and name != "KPEnter"
    if modes.kitty_flags:
        return prefix == "S-" and keypad_character
    already_shifted = name.startswith("F") and int(name[1:]) > 12
    return "S-" in prefix and (already_shifted or (keypad_character and "C-" not in prefix))


@pytest.mark.requirement("design:keys:modifiers")
@pytest.mark.parametrize("modes", [NORMAL, APPLICATION, KITTY, KITTY_ALL])
def test_every_name_takes_every_modifier_or_says_why_not(modes: KeyModes) -> None:
    for prefix, name in itertools.product(PREFIXES, KEY_NAMES):
        if depends_on_shift(prefix, name, modes):
            with pytest.raises(UnknownKeyError, match=re.escape(repr(prefix + name))):
                encode_keys([prefix + name], modes)
        else:
            assert encode_keys([prefix + name], modes)


MODES = st.builds(
    KeyModes,
    application_cursor=st.booleans(),
    application_keypad=st.booleans(),
    kitty_flags=st.integers(0, 31),
)


@pytest.mark.requirement("design:keys:unknown")
@given(
    st.sampled_from(PREFIXES),
    st.text() | st.sampled_from(KEY_NAMES),
    st.sampled_from(["", ":2", ":0"]),
    MODES,
)
def test_any_token_encodes_or_is_unknown(prefix: str, name: str, count: str, modes: KeyModes) -> None:
    with suppress(UnknownKeyError):
        encode_keys([prefix + name + count], modes)


@pytest.mark.requirement("001:keys")
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="-:^"), min_size=10))
def test_long_text_arrives_unchanged(text: str) -> None:
    assert encode_keys([text], KITTY) == text.encode()


@pytest.mark.requirement("design:keys:hex")
def test_hex_values_are_raw_bytes() -> None:
    assert encode_hex(["1b", "0x5B", "0Xff", "0", "a", "00"]) == b"\x1b[\xff\x00\x0a\x00"


@pytest.mark.requirement("design:keys:hex")
@pytest.mark.parametrize("value", ["", "0x", "123", "g1", " 1", "1\n", "-1", "1_", "٣", "0x0x1"])
def test_other_hex_values_are_refused_by_name(value: str) -> None:
    with pytest.raises(UnknownKeyError) as caught:
        encode_hex(["41", value])
    assert repr(value) in str(caught.value)


@pytest.mark.requirement("design:keys:paste-bracketed")
@pytest.mark.requirement("000:process:input:multi-line")
def test_a_paste_is_bracketed_only_for_a_program_that_asked() -> None:
    assert encode_paste("one\ntwo\r\nthree\r", NORMAL) == b"one\rtwo\rthree\r"
    assert encode_paste("one\ntwo", BRACKETED) == b"\x1b[200~one\rtwo\x1b[201~"
    assert encode_paste(b"raw \xff\n", BRACKETED) == b"\x1b[200~raw \xff\r\x1b[201~"
    assert encode_paste("Enter \x1b[31m", NORMAL) == b"Enter \x1b[31m"


@pytest.mark.requirement("design:keys:paste-never-escapes")
@pytest.mark.parametrize("modes", [NORMAL, BRACKETED])
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\x1b[201~b", "ab"),
        ("a\x1b[200~b", "ab"),
        ("a\x9b201~b\x9b200~", "ab"),
        (b"a\x9b201~b", "ab"),
        (b"a\xc2\x9b201~b", "ab"),
        ("\x1b[20\x1b[201~1~x", "x"),
        ("\x1b[2\x9b2\x1b[200~01~01~x", "x"),
        ("\r\x1b[201~\nx", "\rx"),
        ("ś201~ \x1b[31m [201~", "ś201~ \x1b[31m [201~"),
    ],
)
def test_markers_inside_a_paste_are_removed(text: str | bytes, kept: str, modes: KeyModes) -> None:
    start, end = (b"\x1b[200~", b"\x1b[201~") if modes.bracketed_paste else (b"", b"")
    assert encode_paste(text, modes) == start + kept.encode() + end


@pytest.mark.requirement("design:keys:paste-never-escapes")
def test_deeply_nested_markers_end_before_the_time_limit() -> None:
    depth = 200_000
    assert encode_paste("\x1b[20" * depth + "1~" * depth, BRACKETED) == b"\x1b[200~\x1b[201~"


PIECES = st.sampled_from([b"\x1b", b"[", b"\x9b", b"\xc2", b"\xc5", b"2", b"20", b"0", b"1", b"01~", b"~", b"\n"])


@pytest.mark.requirement("design:keys:paste-never-escapes")
@given(st.lists(PIECES | st.binary(max_size=3)).map(b"".join))
def test_no_paste_ends_its_own_bracket(text: bytes) -> None:
    sent = encode_paste(text, BRACKETED)
    assert sent.startswith(b"\x1b[200~")
    assert sent.endswith(b"\x1b[201~")
    inside = sent[6:-6]
    assert b"\x1b[201~" not in sent[:-1]
    assert b"\x1b[200~" not in inside
    assert not {"\x9b201~", "\x9b200~"} & {inside.decode("utf-8", "ignore")[at : at + 5] for at in range(len(inside))}
    assert b"\n" not in inside


@pytest.mark.requirement("design:keys:paste-never-escapes")
@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])))
def test_ordinary_text_is_pasted_unchanged(text: str) -> None:
    assert encode_paste(text) == encode_paste(text.encode()) == text.encode()


@pytest.mark.requirement("design:keys:paste-bracketed")
def test_a_paste_of_half_a_character_is_refused() -> None:
    with pytest.raises(InputRefusedError, match="ud83d"):
        encode_paste("\ud83d", BRACKETED)


class Terminal:
    """A real pseudo-terminal with a program on it."""

    def __init__(self, master: int) -> None:
        self.master = master
        self.seen = b""

    def send(self, data: bytes) -> None:
        assert os.write(self.master, data) == len(data)

    def read_until(self, mark: bytes) -> bytes:
        deadline = time.monotonic() + 20
        while mark not in self.seen:
            ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"no {mark!r} in {self.seen!r}"
            self.seen += os.read(self.master, 65536)
        before, _, self.seen = self.seen.partition(mark)
        return before


@contextmanager
def on_a_terminal(code: str) -> Generator[Terminal]:
    """Run Python `code` with a controlling terminal of its own, to its successful end."""
    master, slave = pty.openpty()
    controlling = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    environment = {**os.environ, "TERM": "xterm-256color"}
    try:
        with subprocess.Popen(
            python(controlling + code),
            stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
        ) as program:  # fmt: skip
            try:
                yield Terminal(master)
                assert program.wait(20) == 0
            finally:
                program.kill()
    finally:
        os.close(master)
        os.close(slave)


RAW_READER = """
import os, tty
tty.setraw(0)
print("ready", end="")
got = b""
while not got.endswith(b"end."):
    got += os.read(0, 4096)
print(got.hex() + ";", end="")
"""


@pytest.mark.requirement("001:keys")
def test_a_raw_program_reads_exactly_these_bytes() -> None:
    keys = ["é", "C-Space", "C-c", "C-d", "C-z", "C-Up", "S-Enter", "F5:2", "end."]
    with on_a_terminal(RAW_READER) as terminal:
        terminal.read_until(b"ready")
        terminal.send(encode_keys(keys))
        assert terminal.read_until(b";").decode() == encode_keys(keys).hex()


CURSES_READER = """
import curses
def main(screen):
    curses.raw()
    names = []
    print("ready", end="", flush=True)
    while not names or names[-1] != "!":
        names.append(curses.keyname(screen.getch()).decode())
    print("<" + " ".join(names) + ">", end="", flush=True)
curses.wrapper(main)
"""
CURSES_NAMES = {
    "Up": "KEY_UP", "Down": "KEY_DOWN", "Left": "KEY_LEFT", "Right": "KEY_RIGHT", "Home": "KEY_HOME",
    "End": "KEY_END", "PgUp": "KEY_PPAGE", "PgDn": "KEY_NPAGE", "IC": "KEY_IC", "Delete": "KEY_DC",
    "BTab": "KEY_BTAB", "BSpace": "KEY_BACKSPACE", "S-Left": "KEY_SLEFT", "S-Home": "KEY_SHOME",
    "C-Up": "kUP5", "M-Left": "kLFT3", "C-End": "kEND5", "C-S-Right": "kRIT6", "C-Delete": "kDC5",
    "C-c": "^C", **{f"F{number}": f"KEY_F({number})" for number in range(1, 25)}, "S-F1": "KEY_F(13)",
    "C-F1": "KEY_F(25)", "C-S-F1": "KEY_F(37)", "M-F1": "KEY_F(49)", "C-F13": "KEY_F(37)", "!": "!",
}  # fmt: skip


@pytest.mark.requirement("design:keys:xterm")
@pytest.mark.requirement("design:keys:function")
@pytest.mark.requirement("design:keys:application-cursor")
def test_a_curses_program_knows_the_keys_by_name() -> None:
    with on_a_terminal(CURSES_READER) as terminal:
        terminal.read_until(b"ready")
        terminal.send(encode_keys(list(CURSES_NAMES), KeyModes(application_cursor=True)))
        terminal.read_until(b"<")
        assert terminal.read_until(b">").decode().split() == list(CURSES_NAMES.values())


LINE_READER = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("ready", flush=True)
signal.sigwait([signal.SIGINT])
print("interrupted", flush=True)
print(ascii([sys.stdin.readline(), sys.stdin.readline()]), flush=True)
print(ascii(sys.stdin.read()), "at the end", flush=True)
"""


@pytest.mark.requirement("000:process:input:special-characters")
@pytest.mark.requirement("000:process:input:multi-line")
@pytest.mark.requirement("001:problem:control-characters")
def test_a_line_program_is_interrupted_reads_lines_and_meets_the_end() -> None:
    with on_a_terminal(LINE_READER) as terminal:
        terminal.read_until(b"ready")
        terminal.send(encode_keys(["C-c"]))
        terminal.read_until(b"interrupted")
        terminal.send(encode_paste("one é\ntwo\n"))
        terminal.read_until(rb"['one \xe9\n', 'two\n']")
        terminal.send(encode_keys(["^D"]))
        terminal.read_until(b"'' at the end")

"""`tether attach` from a terminal of another size than the process's: what fits is drawn, as it looks there."""

from pathlib import Path

import pytest

from tests.cli.kept import detached
from tests.cli.persons_terminal import Window, attach, left_as_it_was, window
from tests.cli.running import tether
from tests.helpers import python

pytestmark = pytest.mark.requirement("design:cli:attach-sizes")

# As many coloured rows as its terminal has, too long or too wide for a smaller one, then a prompt.
WIDE_ROWS = r"""
import os
rows = [b"\033[3%dmrow %d \033[0;1m%s\033[0m" % (number % 8, number, b"x" * 100) for number in range(1, 29)]
os.write(1, b"\r\n".join([*rows, "\u6f22".encode() * 60]) + b"\r\nend> ")
line = input()
cols, lines = os.get_terminal_size(1)
print(f"{line} at {cols}x{lines}")
input()
"""

# Fills its terminal, whatever size that has, and says how many keys it got; a string beside the text that no
# picture of the screen contains tells whether its bytes were passed on.
FILLER = r"""
import os, select, signal, tty
tty.setraw(0)
keys = 0
resized, waker = os.pipe()
os.set_blocking(waker, False)
signal.set_wakeup_fd(waker)
signal.signal(signal.SIGWINCH, lambda *_: None)
def draw():
    cols, lines = os.get_terminal_size(1)
    rows = [f"{row} of {cols}x{lines}, {keys} keys ".ljust(cols, "-") for row in range(lines)]
    drawn = "".join(f"\033[{number};1H{row}" for number, row in enumerate(rows, start=1))
    os.write(1, f"\033[?1049h\033[?7l{drawn}\033]7777;{keys}\033\\".encode())
while True:
    draw()
    ready = select.select([0, resized], [], [])[0]
    if 0 in ready:
        keys += len(os.read(0, 1))
    if resized in ready:
        os.read(resized, 100)
"""


def filled(cols: int, rows: int, keys: int) -> list[str]:
    return [f"{row} of {cols}x{rows}, {keys} keys ".ljust(cols, "-") for row in range(rows)]


def shows(at: Window, rows: list[str]) -> None:
    """Wait until the window shows exactly these rows, and nothing below."""
    wanted = "\n".join(rows).rstrip()
    at.until(lambda: at.text.rstrip() == wanted)


def test_a_smaller_terminal_shows_the_rows_that_end_with_the_cursor(home: Path) -> None:
    process_id = detached(*python(WIDE_ROWS), options=("--pty", "--size", "120x30"))
    assert tether("wait", process_id, "--for", "text:end>").returncode == 0
    with window(*attach(process_id, "--read-only"), cols=79, rows=24) as at:
        rows = [f"row {number} ".ljust(79, "x") for number in range(7, 29)]
        shows(at, [*rows, "漢" * 39, "end>"])
        assert ("漢" * 40).encode() not in at.received
        assert at.emulator.cursor == (5, 23, True)
        number, letters = at.emulator.cells()[2]
        assert (number.text, number.fg, number.flags) == ("row 9 ", 1, ())
        assert (letters.text, letters.fg, letters.flags) == ("x" * 73, None, ("bold",))
        assert tether("send", process_id, "sent").returncode == 0
        shows(at, [*rows[2:], "漢" * 39, "end> sent", "sent at 120x30"])
        assert at.emulator.cursor == (0, 23, True)
        at.type(b"\x03")
        assert at.ended() == 0
        left_as_it_was(at)
        assert at.text.rstrip().endswith("\nend> sent\nsent at 120x30\n\n" + at.text.rstrip().split("\n")[-1])


def test_whoever_has_another_size_sees_what_fits_until_they_type(home: Path) -> None:
    process_id = detached(*python(FILLER), options=("--pty", "--size", "80x24"))
    with window(*attach(process_id), cols=90, rows=20) as one:
        shows(one, filled(90, 20, 0))
        with window(*attach(process_id), cols=70, rows=25) as two:
            shows(two, filled(70, 25, 0))
            shows(one, filled(70, 25, 0)[5:])
            one.type(b"a")
            shows(one, filled(90, 20, 1))
            remark = "its terminal has 90x20, yours 70x25; type to give it your size"
            shows(two, [row[:70] for row in filled(90, 20, 1)] + [""] * 4 + [remark])
            one.type(b"b")
            one.until(lambda: b"\x1b]7777;2\x1b\\" in one.received)
            two.until_shown("(?m)^0 of 90x20, 2 keys")
            assert b"\x1b]7777;2" not in two.received
            two.type(b"c")
            shows(two, filled(70, 25, 3))
            two.type(b"d")
            two.until(lambda: b"\x1b]7777;4\x1b\\" in two.received)
            shows(one, filled(70, 25, 4)[5:])
            two.type(b"\x1d")
            assert two.ended() == 0
            left_as_it_was(two)
        one.type(b"e")
        shows(one, filled(90, 20, 5))
        one.type(b"\x1d")
        assert one.ended() == 0
        left_as_it_was(one)


def test_the_size_of_a_silent_program_or_of_our_window_changes(home: Path) -> None:
    process_id = detached("sh", "-c", "printf 'silent '; exec sleep 1000", options=("--pty", "--size", "80x30"))
    with window(*attach(process_id, "--read-only"), cols=80, rows=30) as at:
        shows(at, ["silent"])
        assert tether("resize", process_id, "60x20").returncode == 0
        shows(at, ["silent", *[""] * 28, "its terminal has 60x20, yours 80x30"])
        assert at.emulator.cursor == (7, 0, True)
        at.resize(100, 25)
        shows(at, ["silent", *[""] * 23, "its terminal has 60x20, yours 100x25"])
        at.resize(60, 20)
        shows(at, ["silent"])
        assert at.emulator.cursor == (7, 0, True)
        at.resize(80, 30)
        shows(at, ["silent", *[""] * 28, "its terminal has 60x20, yours 80x30"])
        assert tether("resize", process_id, "80x30").returncode == 0
        shows(at, ["silent"])


def test_keys_are_typed_as_the_program_wants_them_before_the_first_one(home: Path) -> None:
    script = r"printf '\033[?1h\033[?2004h\033[?1003hasked'; exec sleep 1000"
    process_id = detached("sh", "-c", script, options=("--pty", "--size", "80x24"))
    with window(*attach(process_id)) as at:
        at.until_shown("asked")
        assert tether("resize", process_id, "100x30").returncode == 0
        at.until(lambda: at.modes == ["application_cursor", "autowrap", "bracketed_paste"])
        at.type(b"\x1d")
        assert at.ended() == 0
        left_as_it_was(at)


def test_a_flood_is_drawn_now_and_then_and_its_end_is_told_below(home: Path) -> None:
    script = "read line; seq 400000; exit 3"
    process_id = detached("sh", "-c", script, options=("--pty", "--size", "80x24"))
    with window(*attach(process_id, "--read-only"), cols=60, rows=28) as at:
        at.until_painted()
        assert tether("send", process_id, "go").returncode == 0
        assert at.ended() == 3
        assert len(at.received) < 1_000_000
        last = [str(number) for number in range(400_000 - 22, 400_001)]
        told = f"tether: {process_id[:8]} (sh) ended with exit code 3 (exited)"
        assert at.text.rstrip().split("\n") == [*last, told]
        left_as_it_was(at)

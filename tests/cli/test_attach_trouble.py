"""A person's terminal is as it was before, whatever happened while `tether attach` had it."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.cli.kept import detached, keeper_pid, record
from tests.cli.persons_terminal import Window, attach, window
from tests.cli.running import eventually, tether
from tests.helpers import alive, python

pytestmark = pytest.mark.requirement("design:cli:attach-restores")

ON_TERMINAL = ("--pty", "--size", "80x24")
# Everything a program can leave behind on a terminal, then an unfinished string.
NASTY = r"""
import sys
print("waiting")
sys.stdin.readline()
sys.stdout.write(
    "\033[?1049h\033[?1h\033=\033[?1000;1002;1006;1004h\033[?2004h\033[?25l\033[?7l\033[4h\033[5;10r\033[?6h"
    "nasty\033(0\033[1;31;44m\033[>1u\033[?2026h\033[?5h\033[>4;2m\033]11;#ff0000\033\\\033]2;mine\007"
)
sys.stdout.write("\033]0;unfinished")
sys.stdout.flush()
import signal
signal.pause()
"""


# What it draws in the middle stays on its screen, but not in a small log. It asks the emulator where the cursor is
# from time to time, so that the emulator has seen everything.
FLOOD = r"""
import os, select, signal, tty
tty.setraw(0)
os.write(1, b"raw")
os.read(0, 100)
def flood():
    for part in range(16):
        lines = b"".join(b"\033[31m%d of a flood of long lines\033[0m\r\n" % line for line in range(600))
        while lines:
            lines = lines[os.write(1, lines):]
        os.write(1, b"\033[6n")
        while not select.select([0], [], [], 2)[0]:
            os.write(1, b"\033[6n")
        os.read(0, 100)
flood()
os.write(1, b"\033[2J\033[Hmiddle picture\033[5;24r\033[5;1H")
flood()
os.write(1, b"the end")
signal.pause()
"""


def left_as_it_was(at: Window) -> None:
    """The window behaves like a new one: modes, keys, colours, margins, characters and its line discipline."""
    assert at.settings() == at.settings_before
    assert at.modes == ["autowrap"]
    assert not at.emulator.alternate_screen
    assert at.emulator.cursor[2]
    assert at.emulator.key_modes.kitty_flags == 0
    assert at.received.count(b"\x1b[22;0t") == at.received.count(b"\x1b[23;0t") > 0
    assert b"\x1b]111\x1b\\" in at.received
    at.emulator.feed(b"\r\nqqq")
    *_, row, _, _ = [runs for runs in at.emulator.cells() if runs] + [[]] * 2
    assert [(run.text, run.fg, run.bg, run.flags) for run in row] == [("qqq", None, None, ())]
    for number in range(30):
        at.emulator.feed(f"\r\nline {number}".encode())
    shown = at.text.split("\n")
    assert shown == [f"line {number}" for number in range(30 - len(shown), 30)]


def nasty() -> str:
    return detached(*python(NASTY), options=ON_TERMINAL)


def make_a_mess(at: Window) -> None:
    at.until_shown("waiting")
    at.type(b"\r")
    at.until(lambda: at.received.endswith(b"unfinished"))
    assert {"mouse_sgr", "bracketed_paste", "origin", "application_cursor"} < set(at.modes)
    assert at.emulator.alternate_screen


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP])
def test_after_a_signal(home: Path, number: signal.Signals) -> None:
    process_id = nasty()
    with window(*attach(process_id)) as at:
        make_a_mess(at)
        at.program.send_signal(number)
        assert at.ended() == 128 + number
        assert "it runs on" in at.text
        left_as_it_was(at)
    assert record(process_id)["status"] == "running"


def test_after_detaching(home: Path) -> None:
    with window(*attach(nasty())) as at:
        make_a_mess(at)
        at.type(b"\x1d")
        assert at.ended() == 0
        left_as_it_was(at)


def test_after_the_process_was_killed(home: Path) -> None:
    process_id = nasty()
    with window(*attach(process_id)) as at:
        make_a_mess(at)
        tether("kill", process_id)
        assert at.ended() == 128 + signal.SIGKILL
        left_as_it_was(at)


@pytest.mark.requirement("design:cli:attach-keeper-gone")
def test_after_the_keeper_was_killed(home: Path) -> None:
    process_id = nasty()
    child = record(process_id)["pid"]
    assert isinstance(child, int)
    with window(*attach(process_id)) as at:
        make_a_mess(at)
        keeper = keeper_pid(home)
        assert keeper is not None
        os.kill(keeper, signal.SIGKILL)
        assert at.ended() == 1
        assert len(re.findall(r"(?m)^tether: ", at.text)) == 1
        assert "Traceback" not in at.text
        said = at.text.replace("\n", "")
        assert "was lost with its keeper; nobody knows how it ended" in said
        assert "exit code" not in said
        left_as_it_was(at)
    eventually(lambda: not alive(child))
    with window(*attach(process_id), cols=200) as at:
        assert at.ended() == 1
        assert (
            f"tether: process {process_id} was lost with its keeper, and nobody knows how it ended; `tether"
            in at.text
        )


@pytest.mark.requirement("design:cli:attach-suspend")
def test_suspended_and_continued(home: Path) -> None:
    process_id = nasty()
    with window(*attach(process_id)) as at:
        make_a_mess(at)
        at.program.send_signal(signal.SIGTSTP)
        stopped = Path(f"/proc/{at.program.pid}/stat")
        at.until(lambda: stopped.read_text().rpartition(")")[2].split()[0] == "T")
        left_as_it_was(at)
        at.program.send_signal(signal.SIGCONT)
        at.until(lambda: "mouse_sgr" in at.modes and at.settings() != at.settings_before)
        at.type(b"\x1d")
        assert at.ended() == 0
        left_as_it_was(at)


@pytest.mark.requirement("design:cli:attach-slow")
def test_who_reads_too_slowly_gets_a_new_picture_instead_of_rubbish(home: Path) -> None:
    process_id = detached(*python(FLOOD), options=(*ON_TERMINAL, "--cap", "200000"))
    with window(*attach(process_id)) as at:
        at.until_shown("raw")
        tether("send", process_id, "go")
        # Meanwhile nobody looks at the window, so it takes nothing.
        assert tether("wait", process_id, "--for", "text:the end").returncode == 0
        at.until_shown("the end")
        assert at.text.startswith("middle picture\n")
        assert len(at.received) < 1_000_000
        assert at.received.count(b"\x1b[22;0t") == 1
        at.type(b"\x1d")
        assert at.ended() == 0


@pytest.mark.requirement("design:cli:attach-no-screen")
def test_without_an_emulator_the_last_lines_are_shown(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "pyghostty.py").write_text("raise ImportError('not here')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(shim))
    process_id = detached("sh", "-c", "seq 20000; read line; echo got $line; read line", options=ON_TERMINAL)
    assert tether("wait", process_id, "--for", "text:20000").returncode == 0
    assert b"no terminal emulator" in tether("logs", "--view", "screen", process_id).stderr
    monkeypatch.undo()
    monkeypatch.setenv("TETHER_HOME", str(home))
    with window(*attach(process_id)) as at:
        at.until_shown("(?m)^19999\n20000$")
        at.type(b"typed\r")
        at.until_shown("(?m)^got typed$")
        assert b"tether: attached" in at.received
        assert re.search(rb"\r\n\d+\r\n", at.received)
    with window(*attach(process_id, "--read-only"), cols=100, rows=30) as at:
        at.until_shown("(?m)^got typed$")
        tether("send", process_id, "more")
        assert at.ended() == 0

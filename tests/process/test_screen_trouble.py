"""The screen helper in trouble: killed, crashing, hanging, absent, closed."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.helpers import alive, wait_until
from tests.process.screen_table import Table, kill
from tether.errors import ScreenUnavailableError
from tether.process import screen as screen_module

# Run by every Python of the test's environment; makes the emulator end or hang on certain bytes.
BRITTLE = """
import os, signal, sys
if any("screen_helper" in word for word in sys.orig_argv):
    from tether.process import _emulator
    feed = _emulator.Emulator.feed
    def brittle(self, data):
        if b"POISON" in data:
            os.kill(os.getpid(), signal.SIGSEGV)
        while b"HANG" in data:
            pass
        return feed(self, data)
    _emulator.Emulator.feed = brittle
"""


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[Table]:
    made = Table(tmp_path)
    yield made
    await made.close()


@pytest.fixture
def brittle(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = tmp_path_factory.mktemp("shim")
    (shim / "sitecustomize.py").write_text(BRITTLE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(shim))


@pytest.mark.requirement("design:screen:answers-once")
@pytest.mark.requirement("design:screen:crash")
async def test_a_killed_helper_comes_back_with_the_same_screen_and_no_second_answer(table: Table) -> None:
    table.start()
    table.write(b"first \x1b[c\x1b[")
    before = await table.screen()
    assert table.answers == [("p", 11, b"\x1b[?62;22c")]
    old = kill(table)
    again = await table.screen()
    assert again == before
    assert table.helper.pid != old
    assert not alive(old)
    assert len(table.answers) == 1
    table.write(b"6n")
    await table.screen()
    assert table.answers[1:] == [("p", 13, b"\x1b[1;7R")]


@pytest.mark.requirement("design:screen:answers-once")
async def test_growth_reported_to_a_dead_helper_is_answered_by_the_next(table: Table) -> None:
    table.start()
    table.write(b"x")
    await table.screen()
    old = kill(table)
    table.write(b"\x1b[5n")
    await wait_until(lambda: table.answers)
    assert table.answers == [("p", 5, b"\x1b[0n")]
    assert table.helper.pid != old


@pytest.mark.requirement("design:screen:crash")
async def test_fuzzed_bytes_never_end_the_helper(table: Table) -> None:
    table.start()
    chance = random.Random(12)
    pieces = [b"\x1b[", b"\x1b]", b"\x1bP", b"\x1b_G", b"\x1b\\", b"?", b";", b"99999999", b"\x1b[?1049h"]
    table.write(b"x")
    await table.screen()
    pid = table.helper.pid
    for _ in range(40):
        table.write(b"".join(chance.choice([*pieces, chance.randbytes(4)]) for _ in range(2_000)))
        assert (await table.screen()).offset == table.logs["p"].end
        await table.helper.view("p", 0, "vt")
    assert table.helper.pid == pid


@pytest.mark.requirement("design:screen:crash")
@pytest.mark.usefixtures("brittle")
async def test_only_the_process_whose_bytes_crash_the_helper_is_given_up(table: Table) -> None:
    table.start("good")
    table.start("bad")
    table.write(b"fine", "good")
    table.write(b"harmless", "bad")
    assert (await table.screen("bad")).text.startswith("harmless")
    table.write(b"POISON", "bad")
    async with asyncio.timeout(10):
        while True:
            with pytest.raises(ScreenUnavailableError) as raised:
                await table.screen("bad")
            if "given up" in str(raised.value):
                break
    assert "'bad'" in str(raised.value)
    assert "3 times" in str(raised.value)
    table.write(b" and well \x1b[5n", "good")
    assert (await table.screen("good")).text.startswith("fine and well")
    assert table.answers == [("good", 18, b"\x1b[0n")]
    pid = table.helper.pid
    table.write(b"more", "bad")
    assert (await table.screen("good")).text.startswith("fine and well")
    assert table.helper.pid == pid


@pytest.mark.requirement("design:screen:bounded")
@pytest.mark.usefixtures("brittle")
async def test_a_helper_that_hangs_is_ended_and_delays_nobody_for_long(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen_module, "_SILENCE_SECONDS", 0.3)
    table.start("good")
    table.start("bad")
    table.write(b"fine", "good")
    await table.screen("good")
    old = table.helper.pid
    assert old is not None
    table.write(b"HANG", "bad")
    with pytest.raises(ScreenUnavailableError):
        await table.screen("bad")
    assert not alive(old)
    assert (await table.screen("good")).text.startswith("fine")


@pytest.mark.requirement("design:screen:bounded")
@pytest.mark.usefixtures("brittle")
async def test_a_request_fails_when_its_time_is_over(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen_module, "_REQUEST_SECONDS", 0.3)
    table.start()
    table.write(b"HANG")
    with pytest.raises(ScreenUnavailableError, match=r"'p' was not ready within 0\.3 s"):
        await table.screen()


@pytest.mark.requirement("design:screen:absent")
async def test_without_an_emulator_the_screen_says_what_to_install(
    table: Table, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path_factory.mktemp("shim")
    (shim / "pyghostty.py").write_text("raise ImportError('not for this platform')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(shim))
    table.start()
    table.write(b"text \x1b[5n")
    for _ in range(2):
        with pytest.raises(ScreenUnavailableError, match=r"not for this platform.*install tether\[screen\]"):
            await table.screen()
    await wait_until(lambda: table.helper.pid is None)
    table.write(b"more")
    assert table.helper.pid is None
    assert table.answers == []
    assert table.logs["p"].read(0).data == b"text \x1b[5nmore"


@pytest.mark.requirement("design:screen:crash")
async def test_a_helper_that_cannot_be_started_is_reported(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    table.start()
    with pytest.raises(ScreenUnavailableError, match="does not start"):
        await table.screen()
    monkeypatch.undo()
    assert (await table.screen()).text.strip() == ""


@pytest.mark.requirement("design:screen:text")
async def test_a_log_that_is_gone_fails_only_its_own_screen(table: Table) -> None:
    table.start("good")
    (table.directory / "bad").mkdir()
    (table.directory / "bad" / "format").write_bytes(b"something else\n")
    table.helper.open("bad", str(table.directory / "bad"), 80, 24)
    with pytest.raises(ScreenUnavailableError, match=r"'bad'.*something else"):
        await table.helper.view("bad", 10, "screen")
    table.write(b"fine", "good")
    assert (await table.screen("good")).text.startswith("fine")


@pytest.mark.requirement("design:screen:helper")
async def test_closing_ends_the_helper_and_fails_what_is_under_way(table: Table) -> None:
    table.start()
    table.write(b"x")
    await table.screen()
    pid = table.helper.pid
    assert pid is not None
    waiting = asyncio.gather(table.screen(), return_exceptions=True)
    await asyncio.sleep(0)
    await table.helper.aclose()
    assert isinstance((await waiting)[0], ScreenUnavailableError)
    assert not alive(pid)
    with pytest.raises(ScreenUnavailableError):
        await table.screen()
    await table.helper.aclose()

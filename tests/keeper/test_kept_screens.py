"""Screens of kept terminals: answered with nobody attached, right again after the helper was killed."""

import asyncio
import os
import signal

import pytest

from tests.helpers import alive, wait_until
from tests.keeper.places import BOUND, WHOLE, everything, said
from tether.keeper.client import KeeperClient, open_keeper
from tether.keeper.home import Home
from tether.process.command import Command, Pty
from tether.process.exit_status import Cause

LINES = 30_000
# Asks where the cursor is, what the terminal is and which colours it has, and tells every byte of the answers.
ASKS = r"""
import os, sys, termios, time, tty, select
tty.setraw(0)
def ask(query, end):
    os.write(1, query)
    got = b""
    while not got.endswith(end):
        got += os.read(0, 1)
    return got
answers = [ask(b"\x1b[6n", b"R"), ask(b"\x1b[c", b"c"), ask(b"\x1b]11;?\x07", b"\x07")]
print(*[answer.hex() for answer in answers], end="\r\n", flush=True)
while True:
    got = os.read(0, 100)
    print("more", got.hex(), end="\r\n", flush=True)
    if got == b"q":
        break
"""


async def screen_pid(keeper: KeeperClient) -> int:
    pid = (await keeper.status()).screen_pid
    assert pid is not None
    return pid


@pytest.mark.requirement("design:keeper:queries")
async def test_queries_of_a_terminal_are_answered_once_with_nobody_attached(home: Home) -> None:
    async with open_keeper(home) as keeper:
        process_id = (await keeper.start(Command(argv=("python3", "-c", ASKS), stdio=Pty()), name="asks")).id
    async with open_keeper(home) as keeper:
        process = await keeper.find(process_id)
        answers = (await said(process, r"(?m)^[0-9a-f]+ [0-9a-f]+ [0-9a-f]+$")).split()
        cursor, attributes, colour = (bytes.fromhex(answer) for answer in answers)
        assert cursor == b"\x1b[1;1R"
        assert attributes.startswith(b"\x1b[?")
        assert colour.startswith(b"\x1b]11;rgb:")
        # A replay from the beginning, by a new helper and by whoever looks, asks the same again: in vain.
        os.kill(await screen_pid(keeper), signal.SIGKILL)
        await process.screen()
        await process.vt_snapshot()
        await process.write(b"q")
        async with asyncio.timeout(BOUND):
            await process.wait()
        assert (await everything(process)).decode().count("more") == 1


@pytest.mark.requirement("design:keeper:screen-helper")
async def test_killing_the_screen_helper_under_load_loses_nothing(home: Home) -> None:
    script = f"""
import sys
for i in range({LINES}):
    sys.stdout.write("\\x1b[%dmline %d\\x1b[0m\\n" % (31 + i % 7, i))
sys.stdout.write("the end\\n")
sys.stdout.flush()
sys.stdin.readline()
"""
    async with open_keeper(home) as keeper:
        process = await keeper.start(Command(argv=("python3", "-c", script), stdio=Pty(), output=WHOLE))
        killed: set[int] = set()
        while len(killed) < 5:
            await process.screen()
            pid = await screen_pid(keeper)
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
            await wait_until(lambda pid=pid: not alive(pid))
        await said(process, "the end")
        text = (await process.screen()).text
        assert text.splitlines()[-2:] == [f"line {LINES - 1}", "the end"]
        log = (await everything(process)).decode()
        assert [part.split("\x1b")[0] for part in log.split("mline ")[1:]] == [str(i) for i in range(LINES)]
        stopped = await process.stop()
        assert stopped.status is not None
        assert stopped.status.cause is Cause.STOPPED


@pytest.mark.requirement("design:keeper:screen-ended")
async def test_the_screen_of_an_ended_terminal_is_how_it_was_left(home: Home) -> None:
    async with open_keeper(home) as keeper:
        process = await keeper.start(
            Command(argv=("sh", "-c", r"printf '\033[2J\033[5;5Hhere\033[6n'; exit 0"), stdio=Pty(40, 10))
        )
        await process.wait()
        screens = await asyncio.gather(*(process.screen() for _ in range(5)))
        assert {screen.text.strip() for screen in screens} == {"here"}
        assert (screens[0].cols, screens[0].rows) == (40, 10)
        pid = (await keeper.status()).pid
        await keeper.shut_down()
    await wait_until(lambda: not alive(pid))
    async with open_keeper(home) as keeper:
        found = await keeper.find(process.id)
        assert (await found.screen()).text.strip() == "here"
        assert b"here" in (await found.vt_snapshot()).data

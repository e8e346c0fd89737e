"""A keeper becomes another version of itself, and what it keeps notices nothing."""

import asyncio
import os
import re
import stat
import sys
from pathlib import Path

import pytest

from tests.helpers import alive, wait_until
from tests.keeper.places import BOUND, everything, said, shell
from tether.errors import KeeperError
from tether.keeper.channel import UP
from tether.keeper.client import KeeperClient, open_keeper
from tether.keeper.home import Home
from tether.keeper.lease import Owned
from tether.process.command import Command, OutputPolicy, Overflow, Pipes, Pty
from tether.process.exit_status import Cause, Status
from tether.process.place import Stamp
from tether.process.waiting import Prompt, wait_for

pytestmark = [pytest.mark.requirement("design:keeper:upgrade-in-place"), pytest.mark.timeout(180)]

LINES = 400


async def keeper_pid(keeper: KeeperClient) -> int:
    return (await keeper.status()).pid


def counting(number: int) -> str:
    """Counts to `LINES` slowly enough to be upgraded in the middle, then echoes a line and ends with a code."""
    return (
        f"i=0; while [ $i -lt {LINES} ]; do echo {number} $i; i=$((i+1)); [ $((i % 20)) -ne 0 ] || sleep 0.02; done; "
        f"read line; echo got $line; exit {number}"
    )


async def test_fifty_processes_live_through_upgrades_with_every_byte_and_code(home: Home) -> None:
    async with open_keeper(home) as keeper:
        pid = await keeper_pid(keeper)
        processes = [
            await keeper.start(shell(counting(number), Pty() if number % 2 else Pipes())) for number in range(50)
        ]
        await keeper.upgrade()
        await processes[0].submit("between")
        await keeper.upgrade()
        for number, process in enumerate(processes[1:], 1):
            await process.submit(f"line {number}")
        assert await keeper_pid(keeper) == pid
        for number, process in enumerate(processes):
            async with asyncio.timeout(BOUND * 4):
                assert (await process.wait()).code == number
            text = (await everything(process)).decode().replace("\r\n", "\n")
            typed = f"line {number}" if number else "between"
            counted = [line for line in text.splitlines() if re.fullmatch(rf"{number} \d+", line)]
            assert counted == [f"{number} {i}" for i in range(LINES)]
            assert text.count(f"got {typed}\n") == 1


@pytest.mark.parametrize(
    "program",
    ["/bin/false", "/nonexistent/python", "#!/bin/sh\necho ready for nothing; exit 1\n", "#!/bin/sh\nsleep 0\n"],
)
async def test_an_upgrade_that_cannot_start_changes_nothing(home: Home, tmp_path: Path, program: str) -> None:
    if program.startswith("#!"):
        script = tmp_path / "python"
        script.write_text(program, encoding="utf-8")
        script.chmod(0o755)
        program = str(script)
    async with open_keeper(home) as keeper:
        before = await keeper.status()
        process = await keeper.start(Command(argv=("cat",), stdio=Pipes()))
        with pytest.raises(KeeperError, match="the keeper goes on as it was"):
            await keeper.upgrade(program)
        await process.submit("still here")
        await said(process, "still here")
        after = await keeper.status()
        assert (after.pid, after.started_at, after.running) == (before.pid, before.started_at, 1)


async def test_a_version_that_cannot_read_the_state_is_refused_before_anything_happens(
    home: Home, tmp_path: Path
) -> None:
    """A Python whose Tether knows another format of the state."""
    script = tmp_path / "python"
    patch = "import tether.keeper.upgrade as u; u.STATE_FORMAT = 99; import runpy, sys; sys.argv[1:2] = []"
    script.write_text(
        f"#!/bin/sh\nshift 3\nexec {sys.executable} -P -c \"{patch}; sys.argv[0] = 'keeper'; "
        "from tether.keeper.keeper import main; "
        "from tether.errors import TetherError\ntry: main()\nexcept TetherError as error: sys.exit(str(error))"
        '" x "$@"\n',
        encoding="utf-8",
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    async with open_keeper(home) as keeper:
        process = await keeper.start(Command(argv=("cat",), stdio=Pipes()))
        with pytest.raises(KeeperError, match=r"format 99.*goes on as it was"):
            await keeper.upgrade(str(script))
        await process.submit("still here")
        await said(process, "still here")


async def test_unsent_input_is_sent_and_numbers_are_remembered(home: Home) -> None:
    """A reader that reads nothing until it is told: what waits for it in the keeper crosses the upgrade."""
    waiting = b"x" * 99 + b"\n"
    async with open_keeper(home) as keeper:
        fifo = os.path.join(home.path, "go")
        os.mkfifo(fifo)
        reader = shell(f"read go <{fifo}; head -c 1000000 | cksum; cat", Pipes())
        process = await keeper.start(reader)
        for number in range(1, 1001):
            await process.write(waiting * 10, Stamp("feeder", number))
        assert not await process.write(b"behind\n", Stamp("feeder", 1001))
        await keeper.upgrade()
        assert await process.last_number("feeder") == 1001
        await process.write(b"behind\n", Stamp("feeder", 1001))
        await process.write(b"last\n", Stamp("feeder", 1002))
        await process.end_input()
        await asyncio.to_thread(Path(fifo).write_bytes, b"go\n")
        async with asyncio.timeout(BOUND):
            await process.wait()
        lines = (await everything(process)).decode().splitlines()
        assert lines[0].endswith(" 1000000")
        assert lines[1:] == ["behind", "last"]


async def test_timeouts_leases_names_and_what_ended_cross_an_upgrade(home: Home) -> None:
    async with open_keeper(home, owners=["me"]) as keeper:
        timed = await keeper.start(Command(argv=("sleep", "1000"), timeout=2.0), name="timed")
        owned = await keeper.start(Command(argv=("sleep", "1000")), lease=Owned("me", 900.0), name="owned")
        ended = await keeper.start(Command(argv=("sh", "-c", "echo over; exit 3")))
        await ended.wait()
        await keeper.upgrade()
        assert (await keeper.find("owned")).lease == Owned("me", 900.0)
        found = await keeper.find(ended.id)
        assert (found.exit_status, (await found.read()).data) == (ended.exit_status, b"over\n")
        async with asyncio.timeout(BOUND):
            assert (await timed.wait()).cause is Cause.TIMED_OUT
        await keeper.leave("me")
        async with asyncio.timeout(BOUND):
            assert (await owned.wait()).cause is Cause.STOPPED


async def test_a_lossless_log_its_reader_and_a_channel_cross_an_upgrade(home: Home) -> None:
    policy = OutputPolicy(256 * 1024, Overflow.WAIT)
    async with open_keeper(home) as keeper:
        writer = await keeper.start(
            Command(argv=("sh", "-c", "seq 1 200000"), stdio=Pipes(), output=policy),
        )
        channel = await keeper.open_channel("11111111-2222-4333-8444-555555555555", "key")
        await channel.append(UP, b"one ", Stamp("bridge", 1))
        taken, offset, upgraded = bytearray(), 0, False
        while True:
            over = writer.exit_status is not None
            part = await writer.read(offset, 64 * 1024)
            taken += part.data
            offset = part.end
            await writer.discard_before(offset)
            if len(taken) > 300_000 and not upgraded:
                await keeper.upgrade()
                upgraded = True
            if not part.data:
                if over:
                    break
                await writer.grown_or_ended(offset)
        assert taken.decode().split() == [str(number) for number in range(1, 200_001)]
        await channel.append(UP, b"one ", Stamp("bridge", 1))
        await channel.append(UP, b"two", Stamp("bridge", 2))
        assert (await channel.read()).data == b"one two"


async def test_an_exit_during_the_upgrade_is_seen_and_the_screen_answers_once(home: Home) -> None:
    asks = r"stty raw -echo; printf '\033[6n'; head -c 6 | od -An -c; printf '\033[c'; head -c 3 | od -An -c; cat"
    async with open_keeper(home) as keeper:
        quick = [await keeper.start(shell(f"sleep 0.{number}; exit {number}")) for number in range(1, 10)]
        terminal = await keeper.start(shell(asks, Pty()))
        await said(terminal, r"033.*1.*;.*1.*R")
        await keeper.upgrade()
        await said(terminal, r"033.*\[.*\?")
        await terminal.write(b"<typed>")
        await said(terminal, "<typed>")
        text = (await everything(terminal)).decode()
        assert (text.count("R"), text.count("62;22c"), text.endswith("62;22c<typed>")) == (1, 1, True), text
        assert "typed" in (await terminal.screen()).text
        assert [(await process.wait()).code for process in quick] == list(range(1, 10))
        await terminal.kill()
        assert (await terminal.wait()).status is Status.KILLED


async def test_stops_under_way_end_before_the_keeper_is_replaced(home: Home) -> None:
    deaf = "trap '' TERM HUP; echo deaf; while :; do sleep 1; done"
    async with open_keeper(home) as keeper:
        process = await keeper.start(shell(deaf))
        await said(process, "deaf")
        stopped, _ = await asyncio.gather(process.stop(grace=0.5), keeper.upgrade())
        assert stopped.status is not None
        assert stopped.status.signal == "SIGKILL"
        assert not alive(process.pid)


async def test_a_bash_prompt_is_still_a_prompt_after_the_upgrade(home: Home) -> None:
    async with open_keeper(home) as keeper:
        bash = await keeper.start(Command(argv=("bash", "--norc", "-i"), stdio=Pty(100, 40)))
        assert (await wait_for(bash, Prompt(), timeout=BOUND)).met
        await bash.resize(90, 33)
        await keeper.upgrade()
        assert (await wait_for(bash, Prompt(), timeout=BOUND)).met
        await bash.submit("stty size")
        await said(bash, r"33 90")
        assert (await keeper.find(bash.id)).stdio == Pty(90, 33)
        screen = await bash.screen()
        assert (screen.cols, screen.rows) == (90, 33)
        await bash.send_keys(["C-d"])
        await wait_until(lambda: bash.exit_status is not None)

"""Channels: two streams between two programs that may both die, each piece once, and a far end that may do little."""

import asyncio

import pytest

from tests.keeper.places import Door
from tests.keeper.raw import RawClient, refusal
from tether.errors import (
    InputBacklogError,
    InputGapError,
    InvalidCommandError,
    KeeperError,
    ProcessEndedError,
    UnknownProcessError,
)
from tether.keeper.channel import DOWN, UP
from tether.keeper.client import open_keeper
from tether.keeper.home import Home
from tether.keeper.kept_channel import KeptChannel
from tether.process.exit_status import Status
from tether.process.place import Stamp

ID = "cccc0000-0000-4000-8000-000000000001"
OTHER = "cccc0000-0000-4000-8000-000000000002"
KEY = "a key that nobody guesses"


async def stream(channel: KeptChannel, which: int) -> bytes:
    """All that went one way."""
    return (await channel.read(stream=which)).data


async def filled(channel: KeptChannel, piece: bytes) -> int:
    """Send a piece up again and again until there is no room; how many were taken."""
    for number in range(1, 1000):
        try:
            await channel.append(UP, piece, Stamp("far", number))
        except InputBacklogError:
            return number - 1
    raise AssertionError("it was never full")


@pytest.mark.requirement("design:keeper:channel")
async def test_two_streams_are_kept_in_one_log(door: Door) -> None:
    async with door.open() as client:
        channel = await client.open_channel(ID, KEY)
        assert (channel.id, channel.status, channel.end) == (ID, Status.RUNNING, 0)
        assert await channel.append(UP, b"hello ", Stamp("far", 1)) == 6
        assert await channel.append(DOWN, b"welcome", Stamp("near", 1)) == 13
        assert await channel.append(UP, b"there", Stamp("far", 2)) == 18
        assert (await channel.read()).data == b"hello welcomethere"
        assert (await stream(channel, UP), await stream(channel, DOWN)) == (b"hello there", b"welcome")
        assert await client.processes() == []  # a channel is no process


@pytest.mark.requirement("design:keeper:channel-once")
async def test_each_piece_is_kept_once_however_often_it_is_sent(door: Door) -> None:
    async with door.open() as client:
        channel = await client.open_channel(ID, KEY)
        for _ in range(3):
            assert await channel.append(UP, b"one", Stamp("far", 1)) == 3
        assert await channel.append(UP, b"two", Stamp("far", 2)) == 6
        assert await channel.append(UP, b"one", Stamp("far", 1)) == 6
        with pytest.raises(InputGapError) as caught:
            await channel.append(UP, b"four", Stamp("far", 4))
        assert (caught.value.number, caught.value.expected) == (4, 3)
        with pytest.raises(InvalidCommandError, match=r"a channel has streams \d \(up\) and \d \(down\), not 9"):
            await channel.append(9, b"x", Stamp("far", 3))
        assert (await channel.read()).data == b"onetwo"


@pytest.mark.requirement("design:keeper:channel-full")
async def test_a_full_channel_refuses_until_its_reader_has_taken_some(door: Door) -> None:
    piece = bytes(range(256)) * 64
    async with door.open() as client:
        channel = await client.open_channel(ID, KEY, capacity=256 * 1024)
        number = await filled(channel, piece)
        assert 192 * 1024 <= number * len(piece) <= 512 * 1024
        with pytest.raises(InputBacklogError, match=r"has no room .* once its reader has taken some"):
            await channel.append(UP, piece, Stamp("far", number + 1))
        end = number * len(piece)
        for _ in range(40):
            await channel.discard_before(end)
            number, end = number + 1, end + len(piece)
            assert await channel.append(UP, piece, Stamp("far", number)) == end
        assert (await channel.read(end - len(piece))).data == piece


@pytest.mark.requirement("design:keeper:channel")
async def test_whoever_waits_is_told_of_every_piece(door: Door) -> None:
    async with door.open() as near, door.open() as far:
        reading, writing = await near.open_channel(ID, KEY), await far.find_channel(ID)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(asyncio.wait_for(reading.grown_or_ended(0), 10))
            await writing.append(UP, b"ping", Stamp("far", 1))
        assert waiting.done()
        assert await stream(reading, UP) == b"ping"
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(asyncio.wait_for(reading.wait(), 10))
            await writing.close()
        assert ended.result().code == 0


@pytest.mark.requirement("design:keeper:channel")
async def test_a_closed_channel_takes_nothing_and_is_read_until_it_is_released(door: Door) -> None:
    async with door.open() as client:
        channel = await client.open_channel(ID, KEY)
        await channel.append(UP, b"last words", Stamp("far", 1))
        await channel.close()
        await channel.close()
        with pytest.raises((ProcessEndedError, UnknownProcessError)):
            await channel.append(UP, b"more", Stamp("far", 2))
        assert (channel.status, (await channel.read()).data) == (Status.COMPLETED, b"last words")
        await channel.release()
        with pytest.raises(KeeperError, match=f"no channel '{ID}'; open it first"):
            await client.find_channel(ID)


@pytest.mark.requirement("design:keeper:channel-survives")
async def test_a_channel_survives_both_its_ends(door: Door) -> None:
    async with door.open() as near:
        channel = await near.open_channel(ID, KEY)
        await channel.append(DOWN, b"question", Stamp("near", 1))
    with RawClient(door.home) as far:
        assert "error" not in far.hello(channel=ID, key=KEY)
        part = far.ask_frame("read", process=ID, start=0, stream=DOWN)
        assert part.body == b"question"
        assert far.ask("append", b"answer", process=ID, stream=UP, writer="far", number=1)["end"] == 14
    with RawClient(door.home) as far:  # its first answer never came: it sends the piece again
        far.hello(channel=ID, key=KEY)
        assert far.ask("append", b"answer", process=ID, stream=UP, writer="far", number=1)["end"] == 14
        assert far.ask("append", b"!", process=ID, stream=UP, writer="far", number=2)["end"] == 15
    async with door.open() as near:
        channel = await near.open_channel(ID, "not even the key matters to whoever owns the keeper")
        assert (await stream(channel, UP), await stream(channel, DOWN)) == (b"answer!", b"question")
        assert await channel.append(DOWN, b"question", Stamp("near", 1)) == 15
        assert await channel.append(DOWN, b"thanks", Stamp("near", 2)) == 21


@pytest.mark.requirement("design:keeper:channel-key")
async def test_only_the_key_of_a_channel_lets_its_far_end_in(home: Home) -> None:
    async with open_keeper(home) as near:
        await near.open_channel(ID, KEY)
        for channel_id, key in ((ID, "wrong"), (ID, ""), (OTHER, KEY), ("", KEY), (ID, "\udcff"), (ID, KEY + " ")):
            with RawClient(home) as far:
                refused = refusal(far.hello(channel=channel_id, key=key))
                assert refused == ("KeeperRefusedError", "no such channel, or not its key")
                assert refusal(far.ask("read", process=ID, start=0))[0] == "KeeperRefusedError"
        with pytest.raises(InvalidCommandError, match="a channel needs a key"):
            await near.open_channel(OTHER, "")


@pytest.mark.requirement("design:keeper:channel-restricted")
async def test_the_far_end_may_only_send_up_read_and_watch(home: Home) -> None:
    async with open_keeper(home) as near:
        channel = await near.open_channel(ID, KEY)
        await near.open_channel(OTHER, KEY)
        with RawClient(home) as far:
            far.hello(channel=ID, key=KEY)
            for word in ("start", "list", "describe", "write", "stop", "kill", "release", "discard", "status"):
                refused = refusal(far.ask(word, process=ID, ended=True, offset=1))
                assert refused == ("KeeperRefusedError", f"the key of a channel does not open {word!r}")
            for word in ("shut_down", "upgrade", "leave", "open_channel", "close_channel", "dance"):
                assert refusal(far.ask(word, process=ID))[0] == "KeeperRefusedError"
            down = far.ask("append", b"x", process=ID, stream=DOWN, writer="far", number=1)
            assert refusal(down) == ("KeeperRefusedError", "the key of a channel opens stream 1 (up), not 2 (down)")
            for word in ("append", "read"):
                other = far.ask(word, b"x", process=OTHER, start=0, stream=UP, writer="far", number=1)
                assert refusal(other)[0] == "KeeperRefusedError"
            assert refusal(far.ask("watch", processes=[ID, OTHER]))[0] == "KeeperRefusedError"
            assert "error" not in far.ask("watch", processes=[ID])
            assert far.ask("append", b"up", process=ID, stream=UP, writer="far", number=1)["end"] == 2
            await channel.append(DOWN, b"down", Stamp("near", 1))
            await asyncio.to_thread(far.receive)
            assert far.news[-1]["process"] == ID
            assert far.ask_frame("read", process=ID, start=0).body == b"updown"
        assert (await near.status()).running == 0


@pytest.mark.requirement("design:keeper:channel-restricted")
async def test_a_second_hello_does_not_widen_what_a_key_opens(home: Home) -> None:
    async with open_keeper(home) as near:
        await near.open_channel(ID, KEY)
        with RawClient(home) as far:
            far.hello(channel=ID, key=KEY)
            assert refusal(far.hello(owners=["somebody"]))[0] == "KeeperRefusedError"
            assert refusal(far.ask("list", ended=True))[0] == "KeeperRefusedError"
            assert refusal(far.ask("status"))[0] == "KeeperRefusedError"


@pytest.mark.requirement("design:keeper:channel-key")
async def test_what_is_appended_needs_a_stamp(home: Home) -> None:
    async with open_keeper(home) as near:
        await near.open_channel(ID, KEY)
        with RawClient(home) as far:
            far.hello(channel=ID, key=KEY)
            assert refusal(far.ask("append", b"x", process=ID, stream=UP))[0] == "KeeperVersionError"
            assert "error" in far.ask("append", b"x", process=ID, stream=UP, writer="", number=1)
            assert far.ask_frame("read", process=ID, start=0).body == b""

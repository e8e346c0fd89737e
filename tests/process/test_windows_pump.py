"""The threads that read and write for an event loop which cannot watch pipes, on real pipes."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.helpers import wait_until
from tether.process._pump_windows import PIECES_AHEAD, QUEUE_BYTES, Feeder, Pump

pure_parts = pytest.mark.requirement("design:windows:pure-parts")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A real pipe; whoever closes an end says so by closing it only once."""
    read_end, write_end = os.pipe()
    yield read_end, write_end
    for descriptor in (read_end, write_end):
        with suppress(OSError):
            os.close(descriptor)


def never(_: int) -> None:
    """For a thread that must end by itself."""


class Reads:
    """Counts the reads that a pump's thread has finished."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.finished = 0

    def __call__(self) -> bytes:
        data = os.read(self._descriptor, 1)
        self.finished += 1
        return data


@pure_parts
async def test_the_pump_keeps_order_and_tells_the_end_last(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    sent = b"".join(number.to_bytes(4, "big") for number in range(50_000))
    got: list[bytes] = []
    pump = Pump(asyncio.get_running_loop(), lambda: os.read(read_end, 1000), got.append, lambda: got.append(b"end"))

    def send() -> None:
        with open(write_end, "wb") as file:
            file.write(sent)

    sender = threading.Thread(target=send)
    sender.start()
    await wait_until(lambda: got and got[-1] == b"end")
    sender.join(5)
    pump.stop(never)
    assert b"".join(got) == sent + b"end"
    assert max(map(len, got)) <= 1000


@pure_parts
async def test_a_paused_pump_hands_over_nothing_and_reads_no_more_than_its_few_pieces(
    pipe: tuple[int, int],
) -> None:
    read_end, write_end = pipe
    reads, got = Reads(read_end), bytearray()
    pump = Pump(asyncio.get_running_loop(), reads, got.extend, lambda: got.extend(b"!"))
    pump.pause()
    os.write(write_end, b"0123456789")
    os.close(write_end)
    await wait_until(lambda: reads.finished == PIECES_AHEAD)
    assert (reads.finished, bytes(got)) == (PIECES_AHEAD, b"")
    # What the pump has not read is still in the pipe: nobody else took it.
    assert os.read(read_end, 1) == b"0123456789"[PIECES_AHEAD : PIECES_AHEAD + 1]
    pump.drain()
    assert bytes(got) == b""
    pump.resume()
    await wait_until(lambda: got.endswith(b"!"))
    assert bytes(got) == b"0123456789".replace(str(PIECES_AHEAD).encode(), b"") + b"!"
    pump.stop(never)


@pure_parts
async def test_a_pause_from_within_takes_effect_at_once(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    reads, got = Reads(read_end), bytearray()
    pumps: list[Pump] = []

    def received(data: bytes) -> None:
        got.extend(data)
        pumps[0].pause()

    os.write(write_end, b"abc")
    os.close(write_end)
    pumps.append(Pump(asyncio.get_running_loop(), reads, received, lambda: got.extend(b"!")))
    await wait_until(lambda: reads.finished == 4 and got)
    assert bytes(got) == b"a"
    for expected in (b"ab", b"abc", b"abc!"):
        pumps[0].resume()
        await wait_until(lambda expected=expected: bytes(got) == expected)
    pumps[0].stop(never)


@pure_parts
async def test_stopping_a_pump_ends_its_thread_in_the_middle_of_a_read(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    got: list[bytes] = []
    before = threading.active_count()
    pump = Pump(asyncio.get_running_loop(), lambda: os.read(read_end, 9), got.append, lambda: got.append(b"!"))
    assert threading.active_count() == before + 1

    def unblock(_: int) -> None:
        with suppress(OSError):
            os.close(write_end)

    pump.stop(unblock)
    assert threading.active_count() == before
    await asyncio.sleep(0)
    assert got == []


@pure_parts
async def test_a_failing_read_is_the_end(pipe: tuple[int, int], caplog: pytest.LogCaptureFixture) -> None:
    _, write_end = pipe
    got: list[bytes] = []
    pump = Pump(asyncio.get_running_loop(), lambda: os.read(write_end, 9), got.append, lambda: got.append(b"!"))
    await wait_until(lambda: got == [b"!"])
    pump.stop(never)
    assert "taken as its end" in caplog.text


def read_to_end(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read()


@pure_parts
async def test_the_feeder_takes_no_more_than_its_room_and_asks_for_the_rest(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    feeder = Feeder(asyncio.get_running_loop(), lambda data: os.write(write_end, data), lambda: os.close(write_end))
    everything = os.urandom(4 * QUEUE_BYTES)
    left = memoryview(everything)
    taken = feeder.offer(left)
    assert taken == QUEUE_BYTES
    left = left[taken:]
    assert feeder.offer(left) == 0

    def feed() -> None:
        nonlocal left
        left = left[feeder.offer(left) :]
        if not left:
            feeder.on_writable(None)
            feeder.end()

    feeder.on_writable(feed)
    got = await asyncio.wait_for(asyncio.to_thread(read_to_end, read_end), 10)
    assert got == everything
    assert feeder.offer(b"late") == 4
    feeder.stop(never)


@pure_parts
async def test_a_key_is_taken_behind_a_full_queue(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    feeder = Feeder(asyncio.get_running_loop(), lambda data: os.write(write_end, data), lambda: os.close(write_end))
    feeder.offer(bytes(QUEUE_BYTES))
    feeder.append(b"\x03")
    feeder.end()
    got = await asyncio.wait_for(asyncio.to_thread(read_to_end, read_end), 10)
    assert got == bytes(QUEUE_BYTES) + b"\x03"
    feeder.stop(never)


@pure_parts
async def test_input_that_nobody_reads_any_more_goes_nowhere(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    os.close(read_end)
    told = asyncio.Event()
    feeder = Feeder(asyncio.get_running_loop(), lambda data: os.write(write_end, data), lambda: None)
    assert feeder.offer(b"x" * QUEUE_BYTES) == QUEUE_BYTES
    feeder.on_writable(told.set)
    await asyncio.wait_for(told.wait(), 5)
    await wait_until(lambda: feeder.offer(b"x" * (QUEUE_BYTES + 1)) == QUEUE_BYTES + 1)
    feeder.stop(never)


@pure_parts
async def test_stopping_a_feeder_ends_its_thread_in_the_middle_of_a_write(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    before = threading.active_count()
    finished: list[str] = []
    feeder = Feeder(asyncio.get_running_loop(), lambda data: os.write(write_end, data), lambda: finished.append(""))
    feeder.offer(bytes(QUEUE_BYTES))  # more than a pipe holds

    def unblock(_: int) -> None:
        with suppress(OSError):
            os.close(read_end)

    feeder.stop(unblock)
    assert threading.active_count() == before
    assert finished == []

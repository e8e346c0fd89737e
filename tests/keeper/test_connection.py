"""One client at the keeper: what it may say, in which order, and that no client is at another's expense."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.helpers import alive, python, wait_until
from tests.keeper.places import BOUND
from tests.keeper.raw import RawClient, refusal
from tether.keeper.client import KeeperClient, open_keeper
from tether.keeper.frames import Frame
from tether.keeper.home import Home
from tether.keeper.protocol import PROTOCOL
from tether.process.command import Command

NO_PROCESS = "ffffffff-ffff-4fff-8fff-ffffffffffff"


@pytest.fixture
async def keeper(home: Home) -> AsyncIterator[KeeperClient]:
    """A keeper that serves somebody already."""
    async with open_keeper(home) as client:
        yield client


def resident_bytes(pid: int) -> int:
    """How much memory a process has."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no memory is told of process {pid}")


def ask_for_more_than_is_read(client: RawClient, process_id: str) -> list[int]:
    """Ask for a long output again and again, reading none of it; the numbers of these requests."""
    asked = list(range(1000, 1200))
    requests = [Frame({"id": number, "do": "read", "process": process_id, "start": 0}) for number in asked]
    client.socket.sendall(b"".join(request.encode() for request in requests))
    return asked


@pytest.mark.requirement("design:keeper:hello-first")
async def test_who_does_not_say_hello_is_refused(home: Home, keeper: KeeperClient) -> None:
    with RawClient(home) as client:
        for word in ("list", "status", "shut_down", "no such word"):
            assert refusal(client.ask(word, ended=True)) == ("KeeperRefusedError", f"say hello before {word!r}")
        assert client.hello()["protocol"] == PROTOCOL
        assert client.ask("list", ended=True)["records"] == []


@pytest.mark.requirement("design:keeper:unknown-word")
async def test_a_word_of_the_future_is_answered_with_what_to_do(home: Home, keeper: KeeperClient) -> None:
    version = (await keeper.status()).version
    with RawClient(home) as client:
        client.hello()
        kind, sentence = refusal(client.ask("dance"))
        assert kind == "KeeperVersionError"
        assert sentence == f"the keeper (version {version}) does not know 'dance'; run `tether keeper upgrade`"
        assert "pid" in client.ask("status")


@pytest.mark.parametrize(("protocol", "word"), [(PROTOCOL + 1, "an older"), (PROTOCOL - 1, "a newer")])
@pytest.mark.requirement("design:keeper:other-protocol")
async def test_a_client_of_another_protocol_can_only_look_and_end(home: Home, protocol: int, word: str) -> None:
    async with open_keeper(home) as keeper:
        pid = (await keeper.status()).pid
    with RawClient(home) as client:
        assert client.hello(protocol)["protocol"] == PROTOCOL
        for asked in ("list", "start", "write", "read"):
            kind, sentence = refusal(client.ask(asked, process=NO_PROCESS, ended=True))
            assert kind == "KeeperVersionError"
            assert sentence.startswith(f"the keeper that runs is of {word} version")
            assert f"(protocol {protocol})" in sentence
            assert "`tether keeper " in sentence
        assert client.ask("status")["pid"] == pid
        assert client.ask("shut_down")["ended"] == 0
        client.receive_until_hung_up()


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x00\x00\x00\x01\x00\x00\x00\x00x",
        b"\x00\x00\x00\x02\x00\x00\x00\x00{}",
        Frame({"id": "seven", "do": "hello"}).encode(),
        b"\x00\x01\x00\x00\x00\x00\x00\x00" + b"[" * 65536,
        b"\xff" * 100_000,
    ],
    ids=["http", "no-json", "no-number", "odd-number", "deep", "bytes"],
)
@pytest.mark.requirement("design:keeper:garbage")
async def test_garbage_costs_its_sender_the_connection_and_nobody_else_anything(
    home: Home, keeper: KeeperClient, garbage: bytes
) -> None:
    process = await keeper.start(Command(argv=("cat",)))
    with RawClient(home) as client:
        client.socket.sendall(garbage)
        client.receive_until_hung_up()
    with RawClient(home) as client:
        client.hello()
        client.socket.sendall(garbage)
        client.receive_until_hung_up()
    await process.submit("still here")
    await process.end_input()
    assert (await process.wait()).code == 0
    assert (await process.read()).data == b"still here\n"


@pytest.mark.parametrize(
    ("word", "fields"),
    [
        ("write", {}),
        ("write", {"process": 7}),
        ("start", {"process": "../../escape", "command": {}, "name": "", "lease": None}),
        ("start", {"process": NO_PROCESS, "command": {"argv": "echo"}, "name": ""}),
        ("read", {"process": "../..", "start": 0}),
        ("release", {"process": ""}),
        ("open_channel", {"process": "../x", "key": "k", "capacity": 5}),
        ("watch", {"processes": [["no id"]]}),
        ("hello", {"protocol": "1"}),
        ("hello", {"protocol": PROTOCOL, "owners": 3}),
    ],
    ids=lambda value: str(value)[:40],
)
@pytest.mark.requirement("design:keeper:fields-checked")
async def test_a_request_that_makes_no_sense_is_answered_and_does_no_harm(
    home: Home, keeper: KeeperClient, word: str, fields: dict[str, object]
) -> None:
    with RawClient(home) as client:
        client.hello()
        kind, sentence = refusal(client.ask(word, **fields))
        assert kind.endswith("Error")
        assert "the keeper failed" not in sentence
        assert client.ask("list", ended=True)["records"] == []


@pytest.mark.requirement("design:keeper:silent-listener")
async def test_a_listener_that_never_reads_costs_nothing(home: Home, keeper: KeeperClient) -> None:
    pid = (await keeper.status()).pid
    warm = await keeper.start(Command(argv=("seq", "200000")))
    await warm.wait()
    count = 50 * 1024 * 1024 // 64
    code = f"import sys\nsys.stdin.readline()\nfor _ in range({count}): sys.stdout.write('x' * 63 + chr(10))"
    process = await keeper.start(Command(argv=python(code)))
    before = resident_bytes(pid)
    with RawClient(home) as client:
        client.hello()
        client.ask("watch", processes=[process.id])
        ask_for_more_than_is_read(client, warm.id)
        await process.submit()
        served = 0
        while process.exit_status is None:
            await asyncio.wait_for(keeper.status(), 2)
            served += 1
            await process.grown_or_ended(process.end)
        assert (await process.wait()).code == 0
        assert process.end == count * 64
        assert served > 5
        assert resident_bytes(pid) - before < 2 * 1024 * 1024


@pytest.mark.requirement("design:keeper:silent-listener")
async def test_a_listener_that_never_reads_does_not_hold_up_the_keepers_end(home: Home) -> None:
    async with open_keeper(home) as keeper:
        pid = (await keeper.status()).pid
        process = await keeper.start(Command(argv=("seq", "200000")))
        await process.wait()
    with RawClient(home) as client:
        client.hello()
        ask_for_more_than_is_read(client, process.id)
        async with open_keeper(home, start=False) as keeper:
            assert await keeper.shut_down() == 0
        await wait_until(lambda: not alive(pid))


@pytest.mark.requirement("design:keeper:silent-listener")
async def test_who_reads_late_gets_every_answer(home: Home, keeper: KeeperClient) -> None:
    process = await keeper.start(Command(argv=("seq", "200000")))
    await process.wait()
    with RawClient(home) as client:
        client.hello()
        asked = ask_for_more_than_is_read(client, process.id)
        client.socket.settimeout(BOUND)
        assert {len(client.answer(number).body) for number in asked} == {256 * 1024}
        assert client.ask("status")["running"] == 0


@pytest.mark.requirement("design:keeper:news-coalesced")
async def test_many_small_writes_are_told_as_few_news(home: Home, keeper: KeeperClient) -> None:
    code = "import os\nos.read(0, 1)\nfor _ in range(25600): os.write(1, b'x' * 4096)"
    process = await keeper.start(Command(argv=python(code)))
    with RawClient(home) as client:
        client.hello()
        client.ask("watch", processes=[process.id])
        began = time.monotonic()
        client.ask("write", b"\n", process=process.id)
        told = await asyncio.to_thread(lambda: list(client.news_until("ended")))
        seconds = time.monotonic() - began
    ends = [int(str(news["end"])) for news in told[:-1]]
    assert {news["news"] for news in told[:-1]} == {"grown"}
    assert ends == sorted(set(ends))
    assert len(ends) <= seconds / 0.01 + 2
    await asyncio.wait_for(process.wait(), BOUND)
    assert process.end == 25600 * 4096

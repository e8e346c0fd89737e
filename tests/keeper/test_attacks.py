"""What a keeper must survive: answers too large to send, files that vanish, strangers that keep it busy."""

import asyncio
import os
import shutil
import signal
import socket

import pytest

from tests.helpers import alive, wait_until
from tests.keeper.campaign import keeper_pid
from tests.keeper.places import BOUND, everything, said, shell
from tether.errors import InputBacklogError, KeeperError, KeeperUnavailableError
from tether.keeper import channel as channels
from tether.keeper.client import open_keeper
from tether.keeper.home import Home, KeeperLock
from tether.keeper.link import Link
from tether.process.command import Command, OutputPolicy, Overflow
from tether.process.log_reader import STDOUT
from tether.process.output import OutputLog
from tether.process.place import Stamp, TakenInput

SLEEP = Command(argv=("sleep", "1000"))


@pytest.mark.requirement("design:keeper:large-answers")
async def test_a_listing_that_is_larger_than_a_message_comes_in_parts(home: Home) -> None:
    words = "x" * 100_000
    async with open_keeper(home) as keeper:
        for _ in range(30):
            await (await keeper.start(Command(argv=("true", words)))).wait()
        running = await keeper.start(Command(argv=("sh", "-c", "exec sleep 1000", words)))
        pid = keeper_pid(home)
        assert len(await keeper.processes()) == 31
        assert (keeper_pid(home), alive(running.pid)) == (pid, True)


@pytest.mark.requirement("design:keeper:large-answers")
async def test_an_answer_that_cannot_be_sent_is_an_error_and_nothing_ends(home: Home) -> None:
    async with open_keeper(home) as keeper:
        output = OutputPolicy(80 * 1024 * 1024)
        process = await keeper.start(Command(argv=("head", "-c", "60000000", "/dev/zero"), output=output))
        await process.wait()
        other = await keeper.start(SLEEP)
        with pytest.raises(KeeperError, match="more than goes to or from a keeper at once"):
            await keeper.ask("read", process.id, what="lines", start=0, limit=1)
        with pytest.raises(KeeperError, match="does not know"):
            await keeper.ask("\x80" * 1_000_000, process.id)
        assert alive(other.pid)
        assert (await keeper.find(other.id)).exit_status is None


@pytest.mark.requirement("design:keeper:lock-removed")
async def test_a_keeper_whose_lock_and_socket_were_removed_goes_on_and_nobody_takes_over(home: Home) -> None:
    async with open_keeper(home) as keeper:
        process = await keeper.start(SLEEP)
        pid = keeper_pid(home)
    os.unlink(home.lock_path)
    os.unlink(home.socket_path)
    async with open_keeper(home) as again:
        assert (await again.status()).pid == pid
        found = await again.find(process.id)
        assert (found.exit_status, alive(found.pid)) == (None, True)
    await wait_until(lambda: (holder := KeeperLock.holder(home)) is not None and holder.pid == pid)


@pytest.mark.requirement("design:keeper:record-removed")
@pytest.mark.parametrize("damage", ["directory", "short", "fifo", "link"])
async def test_an_end_is_told_although_somebody_has_removed_its_record(home: Home, damage: str) -> None:
    async with open_keeper(home) as keeper:
        process = await keeper.start(shell("read line; exit 3"))
        record = os.path.join(process.directory, "record")
        if damage == "directory":
            shutil.rmtree(process.directory)
        elif damage == "short":
            os.truncate(record, 70)
        else:
            os.unlink(record)
            os.mkfifo(record) if damage == "fifo" else os.symlink("/dev/null", record)
        await process.submit("")
        async with asyncio.timeout(BOUND):
            assert (await process.wait()).code == 3
        assert (await (await keeper.start(shell("exit 4"))).wait()).code == 4


@pytest.mark.requirement("design:keeper:record-removed")
async def test_a_start_makes_the_directory_of_processes_again(home: Home) -> None:
    async with open_keeper(home) as keeper:
        await (await keeper.start(shell("exit 3"))).wait()
        shutil.rmtree(home.processes)
        for code in (4, 5):
            assert (await (await keeper.start(shell(f"exit {code}"))).wait()).code == code


@pytest.mark.requirement("design:keeper:silent-strangers")
async def test_who_says_something_large_before_hello_is_cut_off(home: Home) -> None:
    async with open_keeper(home):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.settimeout(BOUND)
            stranger.connect(home.socket_path)
            stranger.sendall(b"\x00\x10\x00\x00\x00\x00\x00\x00{")
            answer = await asyncio.to_thread(stranger.recv, 65536)
            assert b"more than goes to or from a keeper" in answer
            assert await asyncio.to_thread(stranger.recv, 65536) == b""


@pytest.mark.requirement("design:keeper:frozen")
async def test_a_frozen_keeper_is_told_as_such(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{Link.__module__}._HELLO_SECONDS", 0.5)
    async with open_keeper(home):
        pid = keeper_pid(home)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(KeeperUnavailableError, match="does not answer"):
                async with open_keeper(home):
                    pass
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.requirement("design:keeper:held-output")
async def test_what_a_process_left_behind_is_told_ended_by_stop_and_whole_after_an_upgrade(home: Home) -> None:
    script = "(while read line; do echo late $line; done <$0) & echo early; exit 3"
    fifo = os.path.join(home.path, "late")
    async with open_keeper(home) as keeper:
        os.mkfifo(fifo)
        process = await keeper.start(Command(argv=("sh", "-c", script, fifo)))
        writing = await asyncio.to_thread(os.open, fifo, os.O_WRONLY)
        assert (await process.wait()).code == 3
        assert (await keeper.find(process.id)).record.output_held
        await keeper.upgrade()
        os.write(writing, b"one\n")
        await wait_until(lambda: process.end == len("early\nlate one\n"))
        assert [found.id for found in await keeper.processes()] == [process.id]
        await process.stop()
        os.close(writing)
        assert await everything(process) == b"early\nlate one\n"
        await keeper.shut_down()
    async with open_keeper(home) as keeper:
        found = await keeper.find(process.id)
        assert (found.end, found.record.output_held, await everything(found)) == (15, False, b"early\nlate one\n")


@pytest.mark.requirement("design:keeper:channel-full")
async def test_a_piece_that_the_disk_refuses_is_not_told_as_kept(tmp_path: object) -> None:
    log = OutputLog(f"{tmp_path}/c", OutputPolicy(1 << 20, Overflow.WAIT))
    channel = channels.Channel("c", "key", log, 0.0, TakenInput())
    channel.append(STDOUT, b"one", Stamp("w", 1))
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        if descriptor > 2 and bytes(data).startswith(b"two"):
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", full)
        for _ in range(2):
            with pytest.raises(InputBacklogError):
                channel.append(STDOUT, b"two", Stamp("w", 2))
        with pytest.raises(InputBacklogError, match="cannot be closed"):
            channel.close()
    assert channel.append(STDOUT, b"two", Stamp("w", 2)) == 6
    assert log.read(0).data == b"onetwo"
    log.close()


@pytest.mark.requirement("design:keeper:lease")
async def test_a_stop_that_was_under_way_goes_on_after_an_upgrade(home: Home) -> None:
    deaf = "trap '' TERM HUP; echo deaf; while :; do sleep 0.1; done"
    async with open_keeper(home) as keeper:
        process = await keeper.start(shell(deaf))
        await said(process, "deaf")
        async with open_keeper(home) as other:
            task = asyncio.get_running_loop().create_future()
            stopping = (await other.find(process.id)).stop(grace=30.0)
            try:
                async with asyncio.timeout(0.5):
                    await stopping
            except TimeoutError:
                task.set_result(None)
            assert task.done()
        await keeper.upgrade()
        async with asyncio.timeout(BOUND):
            assert (await process.wait()).signal == "SIGKILL"

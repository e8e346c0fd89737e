"""Waiting for output: who is woken, when, and who is forgotten."""

import asyncio
import weakref
from pathlib import Path

import pytest

from tether.process.log_reader import STDOUT
from tether.process.output import OutputLog


@pytest.mark.requirement("design:log:wait-beyond")
async def test_waiting_returns_at_once_when_there_is_more_already(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"))
    log.append(STDOUT, b"abc")
    async with asyncio.timeout(5):
        assert await log.wait_beyond(2) == 3
        log.close()
        assert await log.wait_beyond(3) == 3
    log.remove()


@pytest.mark.requirement("design:log:wait-beyond")
async def test_waiters_are_woken_by_the_bytes_they_wait_for_and_by_the_end(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"))
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(log.wait_beyond(offset)) for offset in range(1000)]
        await asyncio.sleep(0)
        for end in (1, 2, 500):
            log.append(STDOUT, b"x" * (end - log.end))
            assert [await task for task in waiting[:end]][-1] == end
            assert not any(task.done() for task in waiting[end:])
        log.close()
        assert {await task for task in waiting[500:]} == {500}
    log.remove()


@pytest.mark.requirement("design:log:wait-beyond")
async def test_a_cancelled_waiter_disturbs_nobody_and_is_forgotten(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"))
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        given_up: list[weakref.ref[asyncio.Future[int]]] = []
        for _ in range(50):
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            log.tell(0, future)
            future.cancel()
            given_up.append(weakref.ref(future))
        assert sum(remembered() is not None for remembered in given_up) <= 1
        other = tasks.create_task(log.wait_beyond(0))
        both = tasks.create_task(log.wait_beyond(0))
        await asyncio.sleep(0)
        both.cancel()
        log.append(STDOUT, b"x")
        assert await other == 1
    log.remove()


@pytest.mark.requirement("design:log:wait-beyond")
async def test_futures_given_to_a_closed_log_are_told_its_end(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / "log"))
    log.append(STDOUT, b"abc")
    log.close()
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    log.tell(3, future)
    async with asyncio.timeout(5):
        assert await future == 3
    log.remove()

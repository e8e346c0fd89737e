"""The keeper itself: `python -m tether.keeper --home DIR`, started by whoever needs it first."""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Awaitable, Coroutine
from typing import cast

from tether.errors import KeeperError, TetherError
from tether.keeper.connection import Connection
from tether.keeper.frames import Frame, Header
from tether.keeper.home import Home, KeeperLock, Listener, bind, bound_here
from tether.keeper.keeping import Keeping
from tether.keeper.launch import keeper_argv, leave_control_group, restore_signals, unlocked_keeper
from tether.keeper.own_log import OwnLog
from tether.keeper.peer import peer_of, refusal
from tether.keeper.protocol import PROTOCOL, field, optional
from tether.keeper.records import record_to_json
from tether.keeper.requests import Requests
from tether.keeper.retention import Shelf
from tether.keeper.upgrade import ENDING, READY, STATE_FORMAT, become, load, try_out
from tether.process._reaper import Reaper
from tether.process._spawn_posix import children_open_files, raise_open_files
from tether.process._tree import become_reaper
from tether.version import VERSION

logger = logging.getLogger(__name__)

IDLE_SECONDS = 15.0
_SETTLE_SECONDS = 10.0
_TEND_SECONDS = 1.0
_NEWS_SECONDS = 0.01


class Keeper:
    """Serves its socket until nobody needs it any more."""

    def __init__(self, home: Home, lock: KeeperLock, listener: Listener, instance: str) -> None:
        self.version = VERSION
        self._home = home
        self._lock = lock
        self._instance = instance
        self._generation = 0
        self._loop = asyncio.get_running_loop()
        self._keeping = Keeping(home.processes, Shelf(home.processes), self._note_news)
        self._requests = Requests(self, self._keeping)
        self._listener = listener
        self._tasks = asyncio.TaskGroup()
        self._upgrading = asyncio.Lock()
        self._trial_pid = 0
        self._under_way = 0
        self._connections: set[Connection] = set()
        self._watchers: dict[str, set[Connection]] = {}
        self._news: dict[str, None] = {}
        self._news_due = False
        self._told_at = 0.0
        self._idle_since = self._loop.time()
        self._started_at = time.time()
        self._over: asyncio.Future[None] = self._loop.create_future()

    async def serve(self, state: Header | None = None) -> None:
        """Keep until told to stop, or until nobody has needed us for a while; go on from `state` if there is one."""
        become_reaper()
        reaper = Reaper(self._loop, self._is_ours)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.shut_down)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        expect_many_signals()
        try:
            async with self._keeping, self._tasks:
                if state is None:
                    await self._keeping.take_over()
                else:
                    self._take_up(state)
                self._listen()
                self._tend()
                await self._over
                self._listener.close(self._home)
                await self._keeping.table.end_all()
                self._say_goodbye()
        finally:
            reaper.close()
            self._lock.release()

    def refusal(self, connection: socket.socket) -> str | None:
        """Why whoever is at the other end is not served; None when it is."""
        keeping = self._keeping
        return refusal(
            peer_of(connection),
            own_uid=os.geteuid(),
            keeper_pid=os.getpid(),
            is_guest=keeping.is_guest,
            leaders=keeping.leaders(),
            guests_seen=bool(keeping.guests or keeping.shelf.guests),
        )

    def joined(self, connection: Connection) -> None:
        """A connection begins."""
        self._connections.add(connection)

    def left(self, connection: Connection) -> None:
        """A connection is over."""
        self._connections.discard(connection)
        for owner in connection.owners:
            self._keeping.holders.let_go(owner, self._loop.time())
        for watchers in self._watchers.values():
            watchers.discard(connection)
        self._idle_since = self._loop.time()

    def work_for(self, connection: Connection, frame: Frame) -> Awaitable[Frame]:
        """Do what a request says."""
        return self._requests.work_for(connection, frame)

    def in_background(self, work: Coroutine[object, object, object]) -> None:
        """Do something without making anybody wait."""
        self._tasks.create_task(self._counted(work))

    async def _counted(self, work: Coroutine[object, object, object]) -> None:
        self._under_way += 1
        try:
            await work
        except Exception:
            # Whatever one client brings about must not end what the keeper keeps for all others.
            logger.exception("something asked for in the background failed")
        finally:
            self._under_way -= 1

    def watch(self, connection: Connection, process_id: str) -> None:
        """Tell this connection about this process from now on."""
        if process_id in self._keeping.kept or process_id in self._keeping.channels:
            self._watchers.setdefault(process_id, set()).add(connection)

    def news_of(self, process_id: str) -> Frame | None:
        """How far a process has come: its growth, its whole record once it has ended, or that it is gone."""
        end = self._keeping.reach(process_id)
        if end is not None:
            size = self._keeping.size(process_id)
            return Frame({"news": "grown", "process": process_id, "end": end, "size": size})
        record = self._keeping.find(process_id)
        if record is None:
            return Frame({"news": "forgotten", "process": process_id})
        word = "grown" if record.exit_status is None else "ended"
        return Frame({"news": word, "process": process_id, "end": record.end, "record": record_to_json(record)})

    def greeting(self) -> Header:
        """Who we are."""
        return {
            "protocol": PROTOCOL,
            "version": self.version,
            "instance": self._instance,
            "generation": self._generation,
            "pid": os.getpid(),
            "processes": self._home.processes,
        }

    def status(self) -> Header:
        """How we are."""
        keeping = self._keeping
        helpers = keeping.table.helper_pids()
        return {
            **self.greeting(),
            "home": self._home.path,
            "socket": self._home.socket_path,
            "started_at": self._started_at,
            "running": sum(kept.process.exit_status is None for kept in keeping.kept.values()),
            "ended": len(keeping.shelf),
            "connections": len(self._connections),
            "log_bytes": keeping.shelf.bytes,
            "screen_pid": helpers[0] if helpers else None,
        }

    async def upgrade(self, python: str, generation: int) -> Header:
        """Become the version that `python` has installed; what is kept notices nothing.

        Raises:
            KeeperError: that version cannot take over, and nothing has changed.
        """
        async with self._upgrading:
            if generation < self._generation:
                return self.greeting()  # that was done already: we are what was asked for
            version = await try_out(python, self._home, self._state(), self._note_trial)
            logger.info("becoming version %s", version)
            await self._settle()
            try:
                become(keeper_argv(self._home, python=python), self._state(), self._descriptors())
            except OSError as error:
                raise KeeperError(f"cannot run {python!r}: {error.strerror}; the keeper goes on as it was") from error
            raise AssertionError("a program that was replaced does not go on")

    async def _settle(self) -> None:
        """Wait until no stop is half-way through and everybody but whoever asked for this has their answer."""
        until = self._loop.time() + _SETTLE_SECONDS
        await self._keeping.table.settled()
        while self._under_way > 1 and self._loop.time() < until:  # noqa: ASYNC110 - they end in many places
            await asyncio.sleep(_NEWS_SECONDS)
        await self._keeping.table.settled()

    def _state(self) -> Header:
        listener = self._listener
        return {
            "format": STATE_FORMAT,
            "came_from": sys.executable,
            "instance": self._instance,
            "generation": self._generation + 1,
            "started_at": self._started_at,
            "open_files": children_open_files(),
            "descriptors": self._descriptors(),
            "lock": self._lock.descriptor,
            "listener": [listener.socket.fileno(), listener.path, listener.device, listener.inode],
            "keeping": self._keeping.state(),
        }

    def _descriptors(self) -> list[int]:
        return [self._lock.descriptor, self._listener.socket.fileno(), *self._keeping.descriptors()]

    def _take_up(self, state: Header) -> None:
        """Go on from the state of the version before; whatever is wrong with it, that version gets it back."""
        try:
            self._generation = field(state, "generation", int)
            self._started_at = field(state, "started_at", float)
            self._keeping.restore(cast("Header", state["keeping"]))
        except Exception:
            if state.get("returned"):
                raise
            logger.exception("cannot go on from the saved state: giving it back")
            came_from = keeper_argv(self._home, python=field(state, "came_from", str))
            become(came_from, {**state, "returned": True}, cast("list[int]", state["descriptors"]))
        self._keeping.go_on()

    def _note_trial(self, pid: int) -> None:
        self._trial_pid = pid

    def _is_ours(self, pid: int) -> bool:
        return pid == self._trial_pid or pid in self._keeping.owned_pids()

    def shut_down(self) -> None:
        """End everything that is kept, then ourselves."""
        if not self._over.done():
            self._loop.remove_reader(self._listener.socket)
            self._over.set_result(None)

    @property
    def ending(self) -> bool:
        """Whether it is too late to start anything."""
        return self._over.done()

    def _listen(self) -> None:
        self._loop.add_reader(self._listener.socket, self._accept)

    def _accept(self) -> None:
        try:
            arrived, _ = self._listener.socket.accept()
        except BlockingIOError:
            return
        except OSError as error:
            logger.warning("cannot let anybody in now: %s; trying again", error)
            self._loop.remove_reader(self._listener.socket)
            self._loop.call_later(_TEND_SECONDS, self._listen)
            return
        arrived.setblocking(False)  # noqa: FBT003 - named by its function
        self.in_background(self._loop.connect_accepted_socket(lambda: Connection(self), arrived))

    def _say_goodbye(self) -> None:
        """Tell everybody how everything ended, and that we end on purpose."""
        self._tell_news()
        for connection in list(self._connections):
            connection.say_goodbye()

    def _note_news(self, process_id: str) -> None:
        """Something happened to a process; whoever watches it hears of it soon, of many things at once."""
        if process_id not in self._watchers:
            return
        self._news[process_id] = None
        if self._keeping.reach(process_id) is None:
            self._tell_news()  # of an end nobody waits to be told
        elif not self._news_due:
            self._news_due = True
            self._loop.call_at(max(self._loop.time(), self._told_at + _NEWS_SECONDS), self._tell_due_news)

    def _tell_due_news(self) -> None:
        self._news_due = False
        self._tell_news()

    def _tell_news(self) -> None:
        self._told_at = self._loop.time()
        news, self._news = self._news, {}
        for process_id in news:
            for connection in self._watchers.get(process_id, ()):
                connection.tell(process_id)
            if process_id not in self._keeping.kept and process_id not in self._keeping.channels:
                self._watchers.pop(process_id, None)

    def _tend(self) -> None:
        if self.ending:
            return
        now = self._loop.time()
        self._loop.call_later(_TEND_SECONDS, self._tend)
        self._keeping.tend(now)
        if not self._lock.in_place(self._home):
            self._lock_again()
        if not bound_here(self._home, self._listener):
            self._rebind()
        if self._connections or self._keeping.busy:
            self._idle_since = now
        elif now - self._idle_since >= IDLE_SECONDS:
            self.shut_down()

    def _lock_again(self) -> None:
        """Somebody has removed our lock: take it again before another keeper does, and give way to one that has."""
        logger.warning("the lock has vanished: taking it again")
        try:
            self._home.prepare()
            lock = KeeperLock.take(self._home, self._instance)
        except TetherError as error:
            logger.warning("cannot take the lock again: %s; trying again", error)
            return
        if lock is None:
            logger.error("another keeper has taken over this home: ending")
            self.shut_down()
        else:
            self._lock.release()
            self._lock = lock

    def _rebind(self) -> None:
        logger.warning("the socket has vanished: binding it again")
        try:
            listener = bind(self._home)
        except (TetherError, OSError) as error:
            logger.warning("cannot bind the socket again: %s; trying again", error)
            return
        self._loop.remove_reader(self._listener.socket)
        self._listener.socket.close()
        self._listener = listener
        self._listen()


def expect_many_signals() -> None:
    """Let signals be lost in a crowd without a word: the loop is awake then anyway.

    When hundreds of children end at once there are more signals than the loop's wakeup socket holds. Python's
    complaint about that takes, inside the signal handler, a lock that the interrupted code may hold: for ever.
    """
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)


async def _keep(home: Home, lock: KeeperLock, listener: Listener, instance: str, state: Header | None) -> None:
    await Keeper(home, lock, listener, instance).serve(state)


def _begin(home: Home) -> int:
    """Become the keeper of a home, unless there is one already."""
    instance = str(uuid.uuid4())
    home.prepare()
    lock = KeeperLock.take(home, instance)
    if lock is None:
        return 0  # another one was quicker
    if (other := unlocked_keeper(home)) is not None:
        # It takes its lock and its socket again within a moment; what it keeps is not ours to end.
        lock.release()
        sys.stderr.write(f"keeper {other} of this home lives, but its lock was removed: leaving it alone\n")
        return 0
    leave_control_group()
    restore_signals()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise_open_files()
    OwnLog(home.log_path).install()
    logger.info("keeper %s of %s begins", VERSION, home.path)
    asyncio.run(_keep(home, lock, bind(home), instance, None))
    return 0


def _resume(home: Home, descriptor: int) -> int:
    """Go on as the keeper that this process was before it became this program."""
    OwnLog(home.log_path).install()
    state = load(descriptor)
    os.close(descriptor)
    raise_open_files(optional(state, "open_files", int))
    number, path, device, inode = cast("tuple[int, str, int, int]", state["listener"])
    listener = Listener.inherited(number, path, device, inode)
    lock = KeeperLock.adopt(field(state, "lock", int))
    instance = field(state, "instance", str)
    logger.info("keeper %s of %s goes on", VERSION, home.path)
    asyncio.run(_keep(home, lock, listener, instance, state))
    return 0


def _try(home: Home) -> int:
    """Say whether we could go on from the state on standard input."""
    state = load(0)
    asyncio.run(_load_only(home, state))
    return 0


async def _load_only(home: Home, state: Header) -> None:
    keeping = Keeping(home.processes, Shelf(home.processes), lambda _: None)
    await keeping.table.__aenter__()
    keeping.restore(cast("Header", state["keeping"]))
    for name, kind in (("generation", int), ("instance", str), ("lock", int), ("listener", list)):
        field(state, name, kind)
    sys.stdout.write(f"{READY}{VERSION}\n")
    sys.stdout.flush()
    # Nothing of what was restored is ours to close.
    os._exit(0)


def main() -> int:
    """Keep a home, or try on what another version kept."""
    parser = argparse.ArgumentParser(prog="tether.keeper", description="The keeper of a TETHER_HOME.")
    parser.add_argument("--home", required=True)
    parser.add_argument("--try", action="store_true", dest="trial")
    parser.add_argument("--resume", type=int, default=-1)
    options = parser.parse_args()
    home = Home.of(options.home)
    if options.trial:
        return _try(home)
    return _begin(home) if options.resume < 0 else _resume(home, options.resume)

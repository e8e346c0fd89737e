"""Run-aways of a dead keeper: everybody of them is ended, nobody else, and what is lost is on record."""

import asyncio
import contextlib
import errno
import json
import logging
import os
import resource
import signal
import subprocess
import time
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.helpers import alive, python, wait_until
from tether.keeper.record_file import create_record, read_record, write_end, write_running
from tether.keeper.records import ProcessRecord
from tether.keeper.sweep import end_runaways
from tether.process._census import KEEPER, KEEPER_LOCK, entry
from tether.process._stopping import Survivor
from tether.process.command import COOKIE, Command
from tether.process.exit_status import Cause, ExitStatus
from tether.process.output import OutputLog

LOST = ExitStatus(None, None, Cause.LOST)

# Starts each argv with its environment on pipes in a session of its own, tells the pids, and waits to be killed.
KEEPER_TO_BE_KILLED = """
    import json, subprocess, sys

    pids = []
    for argv, env in json.loads(sys.argv[1]):
        child = subprocess.Popen(argv, env=env, start_new_session=True, stdin=-1, stdout=-1, stderr=-1)
        pids.append(child.pid)
    print(json.dumps(pids), flush=True)
    sys.stdin.read()
"""
STAY = 'echo "$0 $$" >>"$PIDS"; exec sleep 1000'
DEAF = f"trap '' TERM HUP; {STAY}"
POLITE = """
    import os, signal, sys, time

    def leave(number, frame):
        # Only when all have been asked: those who are ended one after the other never get there.
        open(f"asked.{os.getpid()}", "w").close()
        while sum(name.startswith("asked.") for name in os.listdir(".")) < int(sys.argv[1]):
            time.sleep(0.01)
        open(f"left.{os.getpid()}", "w").close()
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    with open(os.environ["PIDS"], "a") as file:
        file.write(f"polite{os.getpid()} {os.getpid()}\\n")
    while True:
        signal.pause()
"""


@dataclass
class Home:
    """A directory of processes, and a file where whoever runs for a test notes its name and pid."""

    processes: Path
    pids: Path

    def environment(self, process_id: str = "") -> dict[str, str]:
        return {**os.environ, "PIDS": str(self.pids)} | ({COOKIE: process_id} if process_id else {})

    def noted(self) -> dict[str, int]:
        lines = self.pids.read_text().splitlines() if self.pids.exists() else []
        return {name: int(pid) for name, pid in (line.split() for line in lines if " " in line)}

    def record(self, process_id: str, pid: int = 0, mark: str = "") -> ProcessRecord:
        """Put a process on record that runs as `pid`."""
        command = Command(argv=("sh",), root="/")
        record = ProcessRecord(id=process_id, command=command, started_at=time.time(), pid=pid, started_mark=mark)
        create_record(str(self.processes / process_id), record)
        write_running(str(self.processes / process_id), record)
        return record

    def started(self, process_id: str, pid: int) -> ProcessRecord:
        found = entry(pid)
        assert found is not None
        return self.record(process_id, pid, found.started)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    processes = tmp_path / "processes"
    processes.mkdir()
    home = Home(processes, tmp_path / "pids")
    yield home
    for pid in home.noted().values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def new_id() -> str:
    return str(uuid.uuid4())


@contextlib.contextmanager
def kept(commands: Sequence[tuple[Sequence[str], Mapping[str, str]]], directory: Path) -> Generator[list[int]]:
    """The pids of what a keeper has started, which is killed at the end of the block."""
    keeper = subprocess.Popen(
        [*python(KEEPER_TO_BE_KILLED), json.dumps(commands)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=directory,
    )
    with keeper:
        assert keeper.stdout is not None
        try:
            yield json.loads(keeper.stdout.readline())
        finally:
            keeper.kill()


async def run_away(home: Home, scripts: Mapping[str, str], names: set[str]) -> list[int]:
    """Have a keeper start the scripts by process id; their pids once `names` run and the keeper is dead."""
    commands = [(("sh", "-c", script, "leader"), home.environment(one)) for one, script in scripts.items()]
    with kept(commands, home.pids.parent) as pids:
        await wait_until(lambda: home.noted().keys() >= names)
        for process_id, pid in zip(scripts, pids, strict=True):
            if alive(pid):
                home.started(process_id, pid)
            else:
                home.record(process_id, pid, "1")
    return pids


def living(home: Home) -> list[str]:
    return [name for name, pid in home.noted().items() if alive(pid)]


@pytest.mark.requirement("design:keeper:sweep:ends")
async def test_whoever_is_left_of_a_lost_process_is_ended(home: Home) -> None:
    process_id, other = new_id(), new_id()
    script = f"""
        stay='{STAY}'
        (setsid sh -c "$stay" setsid; :) &
        (setsid sh -c "$stay" orphan &)
        env -i PIDS="$PIDS" PATH="$PATH" sh -c "$stay" uncookied &
        sh -c "trap '' TERM HUP INT; $stay" deaf &
        sh -c 'echo "$0 $$" >>"$PIDS"; kill -STOP $$; exec sleep 1000' suspended &
        {DEAF}
    """
    names = {"leader", "setsid", "orphan", "uncookied", "deaf", "suspended"}
    await run_away(home, {process_id: script}, names)
    await run_away(home, {other: STAY.replace("$0", "other")}, {"other"})
    assert living(home) == list(home.noted())
    before = time.time()
    ended = await end_runaways(str(home.processes), [process_id], grace=0.2)
    assert living(home) == ["other"]
    assert ended.keys() == {process_id}
    record = ended[process_id]
    assert (record.exit_status, record.survivors) == (LOST, ())
    assert record.ended_at is not None
    assert before <= record.ended_at <= time.time()
    assert read_record(str(home.processes / process_id)) == record
    assert (await end_runaways(str(home.processes), [process_id, other])).keys() == {other}
    assert living(home) == []


@pytest.mark.requirement("design:keeper:sweep:ends")
async def test_who_has_lost_its_leader_is_found_by_its_cookie(home: Home) -> None:
    process_id = new_id()
    (pid,) = await run_away(
        home, {process_id: f'(setsid sh -c \'{DEAF}\' orphan &); echo "leader $$" >>"$PIDS"'}, {"orphan"}
    )
    await wait_until(lambda: not alive(pid))
    assert living(home) == ["orphan"]
    ended = await end_runaways(str(home.processes), [process_id], grace=0.1)
    assert living(home) == []
    assert ended[process_id].survivors == ()


@pytest.mark.requirement("design:keeper:sweep:polite")
async def test_all_are_asked_at_once_before_anybody_is_killed(home: Home) -> None:
    ids = [new_id() for _ in range(3)]
    # Half of them in a session of their own without their leader: known by nothing but their cookie.
    commands = [((*python(POLITE), "6"), home.environment(one)) for one in ids]
    commands += [(("sh", "-c", 'setsid "$@" &', "sh", *python(POLITE), "6"), home.environment(one)) for one in ids]
    with kept(commands, home.pids.parent) as pids:
        await wait_until(lambda: len(home.noted()) == 6)
        for process_id, pid in zip(ids, pids, strict=False):
            home.started(process_id, pid)
    await end_runaways(str(home.processes), ids, grace=30)
    left = {int(name.partition(".")[2]) for name in os.listdir(home.pids.parent) if name.startswith("left.")}
    assert left == set(home.noted().values())


@pytest.mark.requirement("design:keeper:sweep:strangers")
async def test_a_stranger_who_got_the_number_is_not_touched(home: Home) -> None:
    commands = [(("sh", "-c", f"sh -c '{STAY}' child & {STAY}", "stranger"), home.environment())]
    with kept(commands, home.pids.parent) as (pid,):
        await wait_until(lambda: home.noted().keys() == {"stranger", "child"})
    assert home.noted()["stranger"] == pid
    ids = [new_id(), new_id(), new_id()]
    home.record(ids[0], pid, "12345")
    home.record(ids[1], pid)
    home.record(ids[2], os.getpid(), "12345")
    ended = await end_runaways(str(home.processes), ids, grace=0.1)
    assert sorted(living(home)) == ["child", "stranger"]
    assert [ended[one].exit_status for one in ids] == [LOST] * 3
    assert [ended[one].survivors for one in ids] == [()] * 3


@pytest.mark.requirement("design:keeper:sweep:strangers")
async def test_who_is_left_in_a_session_without_leader_and_cookie_is_told_and_spared(home: Home) -> None:
    process_id = new_id()
    script = f"""env -i PIDS="$PIDS" PATH="$PATH" sh -c '{STAY}' left & echo "leader $$" >>"$PIDS" """
    (pid,) = await run_away(home, {process_id: script}, {"leader", "left"})
    await wait_until(lambda: entry(pid) is None)
    ended = await end_runaways(str(home.processes), [process_id], grace=0.1)
    assert living(home) == ["left"]
    assert ended[process_id].survivors == (Survivor(home.noted()["left"], "sleep 1000", certain=False),)


@pytest.mark.requirement("design:keeper:sweep:control-group")
async def test_who_has_neither_cookie_nor_parent_is_found_in_its_control_group(home: Home) -> None:
    process_id = new_id()
    script = f"""(env -i PIDS="$PIDS" PATH="$PATH" setsid sh -c '{STAY}' stray &) """
    with control_group(process_id) as procs:
        joined = f"""echo $$ >"{procs}"; {script}""" if procs else script
        await run_away(home, {process_id: joined}, {"stray"})
        ended = await end_runaways(str(home.processes), [process_id], grace=0.1)
        assert ended[process_id].survivors == ()
        # Where this system gives us no group, nobody could know it.
        assert living(home) == ([] if procs else ["stray"])


@contextlib.contextmanager
def control_group(process_id: str) -> Generator[Path | None]:
    """The file to which members of a process's group write themselves; None where we may have no group."""
    roots = [Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")]
    root = next((root for root in roots if (root / "cgroup.procs").exists() and os.access(root, os.W_OK)), None)
    if root is None:
        yield None
        return
    group = root / f"tether-{process_id}"
    group.mkdir()
    try:
        yield group / "cgroup.procs"
    finally:
        await_empty(group)
        group.rmdir()


def await_empty(group: Path) -> None:
    """Dying members leave their group a moment after they are dead."""
    deadline = time.monotonic() + 10
    while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
        os.sched_yield()


@pytest.mark.requirement("design:keeper:sweep:spares-keepers")
async def test_keepers_and_what_they_keep_are_spared(home: Home, tmp_path: Path) -> None:
    process_id = new_id()
    environment = home.environment(process_id) | {KEEPER: str(tmp_path)}
    keeper = f"""echo $$ >"{tmp_path / KEEPER_LOCK}"; sh -c '{STAY}' child & {STAY}"""
    with kept([(("sh", "-c", keeper, "keeper"), environment)], tmp_path):
        await wait_until(lambda: home.noted().keys() == {"keeper", "child"})
    await run_away(home, {process_id: STAY}, {"leader"})
    await end_runaways(str(home.processes), [process_id], grace=0.1)
    assert sorted(living(home)) == ["child", "keeper"]


SWEEPER = """
    import asyncio, subprocess, sys
    from tether.keeper.sweep import end_runaways

    child = subprocess.Popen(["sleep", "1000"])
    ended = asyncio.run(end_runaways(sys.argv[1], [sys.argv[2]], grace=0.1))
    print(len(ended), child.poll())
    child.kill()
    child.wait()
"""


@pytest.mark.requirement("design:keeper:sweep:spares-keepers")
async def test_a_keeper_that_a_lost_process_started_spares_itself_and_its_children(home: Home) -> None:
    process_id = new_id()
    await run_away(home, {process_id: DEAF}, {"leader"})
    sweeper = await asyncio.create_subprocess_exec(
        *python(SWEEPER),
        str(home.processes),
        process_id,
        env=home.environment(process_id),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert (*await sweeper.communicate(), sweeper.returncode) == (b"1 None\n", b"", 0)
    assert living(home) == []


@pytest.mark.requirement("design:keeper:sweep:record")
async def test_the_end_of_the_log_is_on_record_and_a_channel_just_ends(home: Home) -> None:
    process_id, channel, damaged = new_id(), new_id(), new_id()
    home.record(process_id)
    create_record(str(home.processes / channel), ProcessRecord(id=channel, command=None, started_at=1.0))
    for one in (process_id, channel):
        log = OutputLog(str(home.processes / one))
        log.append(1, b"x" * 5000)
        log.close()
    home.record(damaged)
    (home.processes / damaged / "format").write_bytes(b"somebody else's")
    ended = await end_runaways(str(home.processes), [process_id, channel, damaged])
    assert [(ended[one].end, ended[one].exit_status) for one in (process_id, channel, damaged)] == [
        (5000, LOST),
        (5000, LOST),
        (0, LOST),
    ]
    assert all(ended[one] == read_record(str(home.processes / one)) for one in ended)


@pytest.mark.requirement("design:keeper:sweep:robust")
async def test_one_bad_record_does_not_stop_the_others(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    missing, broken, over, good = (new_id() for _ in range(4))
    for process_id in (broken, over):
        home.record(process_id)
    (home.processes / broken / "record").write_bytes(b"{}")
    done = replace(
        read_record(str(home.processes / over)), ended_at=5.0, exit_status=ExitStatus(3, None, Cause.EXITED)
    )
    write_end(str(home.processes / over), done)
    await run_away(home, {good: STAY}, {"leader"})
    with caplog.at_level(logging.WARNING):
        ended = await end_runaways(str(home.processes), [missing, broken, over, good], grace=0.2)
    assert ended.keys() == {good}
    assert living(home) == []
    assert read_record(str(home.processes / over)) == done
    assert [record.getMessage()[: len(missing) + 8] for record in caplog.records] == [
        f"process={missing}",
        f"process={broken}",
    ]
    assert await end_runaways(str(home.processes), []) == {}


@pytest.mark.requirement("design:keeper:sweep:robust")
async def test_an_end_that_cannot_be_written_is_told_and_left_to_the_next_keeper(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    process_id = new_id()
    await run_away(home, {process_id: STAY}, {"leader"})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        ended = await end_runaways(str(home.processes), [process_id], grace=0.2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (ended, living(home)) == ({}, [])
    assert os.strerror(errno.EFBIG) in caplog.text
    ended = await end_runaways(str(home.processes), [process_id])
    assert ended[process_id].exit_status == LOST

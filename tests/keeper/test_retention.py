"""Keeping what has ended: by age, size and number, without ever touching what is not ours."""

import contextlib
import gc
import logging
import os
import shutil
import subprocess
import tracemalloc
import uuid
import zlib
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from tether.errors import KeeperError
from tether.keeper.record_file import create_record, read_record, write_end
from tether.keeper.records import ProcessRecord
from tether.keeper.retention import Shelf
from tether.process.exit_status import Cause, ExitStatus

NOW = 1_700_000_000.0
DONE = ExitStatus(0, None, Cause.EXITED)
LOG = "00000000000000000000.out"


def put(place: Path, ended_at: float | None, size: int = 0) -> str:
    """A process with a log of `size` bytes, without an end when `ended_at` is None."""
    record = ProcessRecord(id=str(uuid.uuid4()), command=None, started_at=NOW)
    directory = place / record.id
    create_record(str(directory), record)
    if size:
        (directory / LOG).write_bytes(bytes(size))
    if ended_at is not None:
        write_end(str(directory), replace(record, ended_at=ended_at, exit_status=DONE, end=size))
    return record.id


def loaded(place: Path, *, keep_bytes: int = 2 * 1024**3, keep_count: int = 10_000) -> Shelf:
    """A shelf for a hundred seconds with what is there; nothing may be without an end."""
    shelf = Shelf(str(place), keep_seconds=100, keep_bytes=keep_bytes, keep_count=keep_count)
    assert shelf.load() == []
    return shelf


def rewrite_start(file: Path, old: bytes, new: bytes) -> None:
    """Have the record say something else about the start, as another version might."""
    start, *slots = file.read_bytes().split(b"\n")
    assert old in start
    value = start.partition(b" ")[2].replace(old, new)
    file.write_bytes(b"\n".join([b"%08x %s" % (zlib.crc32(value), value), *slots]))


def there(place: Path) -> set[str]:
    return set(os.listdir(place))


@pytest.mark.requirement("design:keeper:retention:load")
def test_a_new_keeper_finds_what_has_ended_and_tells_what_has_not(tmp_path: Path) -> None:
    assert Shelf(str(tmp_path / "none")).load() == []
    late, early = put(tmp_path, NOW), put(tmp_path, NOW - 10)
    endless = put(tmp_path, None)
    shelf = Shelf(str(tmp_path))
    assert shelf.load() == [endless]
    assert list(shelf) == [early, late]
    assert (late in shelf, endless in shelf, len(shelf)) == (True, False, 2)
    assert shelf.read(late) == read_record(str(tmp_path / late))
    with pytest.raises(KeyError):
        shelf.read(endless)


@pytest.mark.requirement("design:keeper:retention:load")
def test_what_ends_later_is_added_in_its_place(tmp_path: Path) -> None:
    shelf = loaded(tmp_path)
    late, early = put(tmp_path, NOW), put(tmp_path, NOW - 10, 5000)
    for process_id in (late, early, early):
        shelf.add(read_record(str(tmp_path / process_id)))
    assert list(shelf) == [early, late]
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert shelf.bytes == sum(max(file.stat().st_size, file.stat().st_blocks * 512) for file in files)
    with pytest.raises(KeeperError, match="no end on record"):
        shelf.add(read_record(str(tmp_path / put(tmp_path, None))))


@pytest.mark.requirement("design:keeper:peer-guest")
def test_who_ran_for_an_agent_is_known_to_the_next_keeper(tmp_path: Path) -> None:
    person, agent = put(tmp_path, NOW), put(tmp_path, NOW)
    record = read_record(str(tmp_path / agent))
    shutil.rmtree(tmp_path / agent)
    create_record(str(tmp_path / agent), replace(record, guest=True))
    write_end(str(tmp_path / agent), record)
    shelf = loaded(tmp_path)
    assert (set(shelf), shelf.guests) == ({person, agent}, {agent})


@pytest.mark.requirement("design:keeper:retention:age")
def test_what_ended_too_long_ago_is_forgotten_and_the_future_is_not(tmp_path: Path) -> None:
    old, young, future = put(tmp_path, NOW - 101), put(tmp_path, NOW - 99), put(tmp_path, NOW + 10**9)
    running = put(tmp_path, None)
    shelf = Shelf(str(tmp_path), keep_seconds=100)
    shelf.load()
    assert shelf.sweep(NOW) == [old]
    assert there(tmp_path) == {young, future, running}
    assert shelf.sweep(NOW) == []
    assert shelf.sweep(NOW + 2) == [young]
    assert list(shelf) == [future]
    assert there(tmp_path) == {future, running}


@pytest.mark.requirement("design:keeper:retention:bounds")
def test_the_oldest_go_first_when_there_is_too_much(tmp_path: Path) -> None:
    ids = [put(tmp_path, NOW - 50 + number, 100_000) for number in range(5)]
    shelf = loaded(tmp_path, keep_bytes=350_000)
    assert shelf.sweep(NOW) == ids[:2]
    assert there(tmp_path) == set(ids[2:])
    assert 300_000 < shelf.bytes <= 350_000


@pytest.mark.requirement("design:keeper:retention:bounds")
def test_the_newest_stays_however_large_until_another_ends(tmp_path: Path) -> None:
    small, large = put(tmp_path, NOW - 2, 10), put(tmp_path, NOW - 1, 500_000)
    shelf = loaded(tmp_path, keep_bytes=100_000)
    assert shelf.sweep(NOW) == [small]
    assert list(shelf) == [large]
    newest = put(tmp_path, NOW, 10)
    shelf.add(read_record(str(tmp_path / newest)))
    assert shelf.sweep(NOW) == [large]
    assert there(tmp_path) == {newest}


@pytest.mark.requirement("design:keeper:retention:bounds")
def test_no_more_are_kept_than_the_number_allows(tmp_path: Path) -> None:
    ids = [put(tmp_path, NOW - 50 + number) for number in range(5)]
    assert loaded(tmp_path, keep_count=2).sweep(NOW) == ids[:3]
    assert loaded(tmp_path, keep_count=0).sweep(NOW) == ids[3:]
    assert there(tmp_path) == set()


@pytest.mark.requirement("design:keeper:retention:forget")
def test_forgetting_removes_everything_of_one_process(tmp_path: Path) -> None:
    gone, stays = put(tmp_path, NOW, 5000), put(tmp_path, NOW, 5000)
    shelf = loaded(tmp_path)
    before = shelf.bytes
    shelf.forget(gone)
    assert there(tmp_path) == {stays}
    assert (list(shelf), shelf.bytes) == ([stays], before // 2)
    for look in (shelf.forget, shelf.read):
        with pytest.raises(KeyError):
            look(gone)


@pytest.mark.requirement("design:keeper:retention:forget")
def test_a_process_that_somebody_else_removed_is_no_longer_there(tmp_path: Path) -> None:
    gone, stays = put(tmp_path, NOW, 5000), put(tmp_path, NOW, 5000)
    shelf = loaded(tmp_path)
    subprocess.run(["rm", "-r", str(tmp_path / gone)], check=True)
    with pytest.raises(KeyError):
        shelf.read(gone)
    assert list(shelf) == [stays]
    subprocess.run(["rm", "-r", str(tmp_path / stays)], check=True)
    assert shelf.sweep(NOW + 1000) == [stays]


@pytest.mark.requirement("design:keeper:retention:foreign")
def test_what_is_not_ours_is_never_touched(tmp_path: Path) -> None:
    processes = tmp_path / "processes"
    processes.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    linked = put(elsewhere, NOW - 10_000)
    (processes / "notes").mkdir()
    (processes / "notes" / "record").write_text("mine")
    (processes / linked).symlink_to(elsewhere / linked)
    (processes / str(uuid.uuid4())).write_text("a file")
    (processes / str(uuid.uuid4()).upper()).mkdir()
    copy = put(processes, NOW - 10_000)
    (processes / copy).rename(processes / str(uuid.uuid4()))
    before = there(processes)
    shelf = loaded(processes, keep_count=0)
    assert shelf.sweep(NOW + 10**9) == shelf.sweep(NOW + 10**9) == []
    assert there(processes) == before
    assert there(elsewhere / linked) == {"record"}


@pytest.mark.requirement("design:keeper:retention:unfinished")
def test_a_start_that_died_half_way_is_removed_after_a_minute(tmp_path: Path) -> None:
    empty, torn, started = (tmp_path / str(uuid.uuid4()) for _ in range(3))
    for directory in (empty, torn, started):
        directory.mkdir()
    (torn / "record.new").write_bytes(b"half")
    damaged = tmp_path / put(tmp_path, NOW)
    (damaged / "record").write_bytes(b"")
    newer = tmp_path / put(tmp_path, NOW)
    rewrite_start(newer / "record", b'"kind":"forever"', b'"kind":"eternal"')
    shelf = Shelf(str(tmp_path))
    assert shelf.load() == []
    create_record(str(started), ProcessRecord(id=started.name, command=None, started_at=NOW))
    for directory in tmp_path.iterdir():
        os.utime(directory, (NOW, NOW))
    assert shelf.sweep(NOW - 10**6) == shelf.sweep(NOW + 59) == []
    assert there(tmp_path) == {one.name for one in (empty, torn, started, damaged, newer)}
    assert shelf.sweep(NOW + 61) == []
    assert there(tmp_path) == {started.name, newer.name}


@contextlib.contextmanager
def unremovable(directory: Path) -> Generator[None]:
    """While this lasts, the system refuses to remove `directory`: it is in use, or closed to us."""
    if os.geteuid() == 0:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(directory)], timeout=30, check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", str(directory)], timeout=30, check=True)
    else:
        directory.chmod(0o500)
        try:
            yield
        finally:
            directory.chmod(0o700)


@pytest.mark.requirement("design:keeper:retention:retry")
def test_what_cannot_be_removed_is_told_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, other = put(tmp_path, NOW - 200, 1000), put(tmp_path, NOW - 100, 1000)
    (tmp_path / stuck / "inner").mkdir()
    (tmp_path / stuck / "inner" / "file").touch()
    shelf = loaded(tmp_path, keep_count=0)
    with caplog.at_level(logging.WARNING), unremovable(tmp_path / stuck / "inner"):
        assert shelf.sweep(NOW) == [stuck, other]
        assert shelf.sweep(NOW + 10**9) == []
        assert (len(shelf), shelf.bytes) == (0, 0)
        assert there(tmp_path) == {stuck}
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"process={stuck} cannot be removed wholly"
    ]
    assert shelf.sweep(NOW + 10**9) == []
    assert there(tmp_path) == set()


@pytest.mark.requirement("design:keeper:retention:retry")
def test_a_record_that_cannot_be_removed_is_told_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = put(tmp_path, NOW, 1000)
    shelf = loaded(tmp_path)
    (tmp_path / stuck / "record").unlink()
    (tmp_path / stuck / "record").mkdir()  # what no user may unlink
    with caplog.at_level(logging.WARNING):
        shelf.forget(stuck)
        assert shelf.sweep(NOW) == []
    assert len(caplog.records) == 1
    assert (list(shelf), there(tmp_path)) == ([], {stuck})
    (tmp_path / stuck / "record").rmdir()
    assert shelf.sweep(NOW) == []
    assert there(tmp_path) == set()


@pytest.mark.requirement("design:keeper:retention:memory")
def test_an_ended_process_costs_a_few_hundred_bytes(tmp_path: Path) -> None:
    for _ in range(500):
        put(tmp_path, NOW)
    shelf = Shelf(str(tmp_path))
    tracemalloc.start()
    try:
        shelf.load()
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(shelf) == 500
    assert held / 500 < 500

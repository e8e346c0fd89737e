"""What is known of a process: as a value, as JSON and as a file that no crash or full disk can spoil."""

import contextlib
import errno
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import uuid
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers import python
from tether.errors import InvalidCommandError, KeeperError
from tether.keeper.lease import Owned
from tether.keeper.record_file import create_record, has_whole_record, read_record, write_end, write_running
from tether.keeper.records import (
    ProcessRecord,
    check_process_id,
    command_from_json,
    command_to_json,
    record_from_json,
    record_to_json,
)
from tether.process._stopping import Survivor
from tether.process.command import Command, OutputPolicy, Overflow, Pipes, Pty
from tether.process.exit_status import Cause, ExitStatus, Status

ID = "0f8fad5b-d9cb-469f-a165-70867728950e"
NO_TEXT = os.fsdecode(b"/tmp/\xff\xfe")
COMMAND = Command(
    argv=("printf", NO_TEXT, "ü\n", "😀"),
    root=NO_TEXT,
    cwd="a/b",
    stdio=Pty(80, 24, required=True),
    output=OutputPolicy(5000, Overflow.WAIT),
    timeout=1.5,
)
STARTED = ProcessRecord(
    id=ID, name="näme", command=COMMAND, lease=Owned("me", 60.0), guest=True, started_at=1_700_000_000.25
)
RUNNING = replace(STARTED, pid=4711, started_mark="123456", stdio=Pty(100, 30), warnings=("no terminal", "slow"))
ENDED = replace(
    RUNNING,
    ended_at=1_700_000_001.5,
    exit_status=ExitStatus(None, "SIGSEGV", Cause.SIGNALLED, "/tmp/core.4711"),
    survivors=(Survivor(4712, "sleep 1000"), Survivor(4713, NO_TEXT, certain=False)),
    end=2**40,
    missing=17,
)


@pytest.mark.requirement("design:keeper:record:json")
@pytest.mark.parametrize("record", [STARTED, RUNNING, ENDED, replace(ENDED, command=None)])
def test_a_record_survives_json_with_bytes_that_are_no_text(record: ProcessRecord) -> None:
    text = json.dumps(record_to_json(record))
    assert text.isascii()
    assert record_from_json(json.loads(text)) == record


@pytest.mark.requirement("design:keeper:record:json")
def test_an_older_program_reads_a_newer_record_and_a_newer_one_an_older() -> None:
    newer = record_to_json(ENDED) | {"mood": "good"}
    assert record_from_json(newer) == ENDED
    oldest: dict[str, object] = {"id": ID, "started_at": 5}
    assert record_from_json(oldest) == ProcessRecord(id=ID, command=None, started_at=5.0)


BROKEN: list[tuple[dict[str, object], str]] = [
    ({"id": None}, "no process record: 'id' is None, not text"),
    ({"id": "../x"}, "impossible process id '../x'"),
    ({"started_at": "now"}, "no process record: 'started_at' is 'now', not a finite number"),
    ({"started_at": float("nan")}, "'started_at' is nan, not a finite number"),
    ({"started_at": 10**400}, "not a finite number"),
    ({"pid": -1}, "'pid' is -1, not a whole number from 0 up"),
    ({"pid": True}, "'pid' is True, not a whole number"),
    ({"guest": 1}, "'guest' is 1, not true or false"),
    ({"warnings": "no"}, "'warnings' is 'no', not a list"),
    ({"warnings": [5]}, "'warnings' is 5, not text"),
    ({"stdio": {"kind": "fax"}}, "no stdio: 'kind' is 'fax', not 'pipes' or 'pty'"),
    ({"stdio": {"kind": "pty", "cols": 0, "rows": 1}}, "impossible terminal size"),
    ({"lease": {"kind": "week"}}, "no lease: 'kind' is 'week', not 'forever' or 'owned'"),
    ({"exit_status": {"cause": "boredom"}}, "no exit status: 'cause' is 'boredom', not one of exited, "),
    ({"survivors": [7]}, "no survivor: of type 'int', not a JSON object"),
    ({"command": {"argv": ["x"], "root": "relative"}}, "root 'relative' is not an absolute path"),
    ({"command": {"argv": ["x"], "root": "/", "output": {"capacity": 1, "overflow": "leak"}}}, "no output policy"),
]


@pytest.mark.requirement("design:keeper:record:json")
@pytest.mark.parametrize(("value", "said"), BROKEN)
def test_what_is_no_record_is_refused_with_what_is_wrong(value: dict[str, object], said: str) -> None:
    with pytest.raises(KeeperError) as raised:
        record_from_json({"id": ID, "started_at": 1.0} | value)
    assert said in str(raised.value)
    with pytest.raises(KeeperError, match="no process record: of type 'list', not a JSON object"):
        record_from_json([value])


@pytest.mark.requirement("design:keeper:record:json")
@pytest.mark.parametrize("stdio", [Pipes(), Pipes(inherit_stdin=True), Pty(7, 8)])
def test_a_command_survives_json_its_environment_only_with_secrets(stdio: Pipes | Pty) -> None:
    command = replace(COMMAND, stdio=stdio, env={"PASSWORD": "s3cret", "PATH": NO_TEXT})
    assert command_from_json(json.loads(json.dumps(command_to_json(command, secrets=True)))) == command
    without = command_to_json(command, secrets=False)
    assert "s3cret" not in json.dumps(without)
    assert command_from_json(without) == replace(command, env=None)
    assert command_from_json(command_to_json(COMMAND, secrets=True)) == COMMAND


@pytest.mark.requirement("design:keeper:record:json")
@pytest.mark.parametrize("env", [["s3cret"], {"A": ["s3cret"]}, {"A=s": "s3cret"}])
def test_a_refused_environment_tells_no_secret(env: object) -> None:
    with pytest.raises((KeeperError, InvalidCommandError)) as raised:
        command_from_json({"argv": ["x"], "root": "/", "env": env})
    assert "s3cret" not in str(raised.value)


@pytest.mark.requirement("design:keeper:record:no-secrets")
def test_secrets_are_neither_in_a_record_nor_on_disk(tmp_path: Path) -> None:
    command = Command(argv=("cat",), root="/", env={"PASSWORD": "s3cret"}, stdin=b"s3cret input")
    record = ProcessRecord(id=ID, command=command, started_at=1.0)
    assert record.command == Command(argv=("cat",), root="/")
    create_record(str(tmp_path / ID), record)
    write_running(str(tmp_path / ID), replace(record, command=command, pid=1))
    assert b"s3cret" not in (tmp_path / ID / "record").read_bytes()
    assert command.env == {"PASSWORD": "s3cret"}


UNSAFE = [
    "",
    ".",
    "..",
    "../" + ID,
    ID.upper(),
    "{" + ID + "}",
    ID + "\n",
    ID.replace("-", ""),
    "\N{ARABIC-INDIC DIGIT ZERO}" + ID[1:],
    5,
    None,
]


@pytest.mark.requirement("design:keeper:record:id")
@pytest.mark.parametrize("text", UNSAFE)
def test_only_a_canonical_uuid_can_name_a_process(text: object) -> None:
    with pytest.raises(InvalidCommandError, match="impossible process id"):
        check_process_id(text)
    assert check_process_id(ID) == ID
    with pytest.raises(InvalidCommandError, match="impossible process id"):
        replace(STARTED, id=str(text))


@pytest.mark.requirement("design:keeper:record:file")
def test_a_record_is_private_and_grows_with_the_life_of_its_process(tmp_path: Path) -> None:
    directory = tmp_path / ID
    create_record(str(directory), STARTED)
    size = (directory / "record").stat().st_size
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "record").stat().st_mode) == 0o600
    assert os.listdir(directory) == ["record"]
    assert read_record(str(directory)) == STARTED
    assert read_record(str(directory)).status is Status.RUNNING
    write_running(str(directory), RUNNING)
    assert read_record(str(directory)) == RUNNING
    write_end(str(directory), ENDED)
    assert read_record(str(directory) + "/") == ENDED
    assert read_record(str(directory)).status is Status.KILLED
    assert (directory / "record").stat().st_size == size
    with pytest.raises(KeeperError, match="has a record"):
        create_record(str(directory), STARTED)
    assert read_record(str(directory)) == ENDED


@pytest.mark.requirement("design:keeper:record:file")
def test_texts_that_do_not_fit_are_clipped_and_the_facts_stay(tmp_path: Path) -> None:
    directory = str(tmp_path / ID)
    create_record(directory, STARTED)
    crowd = tuple(Survivor(2**22 + number, "ü" * 5000) for number in range(200))
    endless = replace(
        ENDED,
        warnings=("ä" * 5000, *("more",) * 500),
        survivors=crowd,
        exit_status=ExitStatus(139, "SIGSEGV", Cause.TIMED_OUT, "/" + "core" * 1000),
    )
    write_running(directory, endless)
    write_end(directory, endless)
    found = read_record(directory)
    assert found.warnings[0].rstrip("…") == "ä" * (len(found.warnings[0]) - 1)
    assert len(found.warnings) > 3
    assert [one.pid for one in found.survivors] == [one.pid for one in crowd[: len(found.survivors)]]
    assert len(found.survivors) > 5
    status = ExitStatus(139, "SIGSEGV", Cause.TIMED_OUT)
    assert found == replace(endless, warnings=found.warnings, survivors=found.survivors, exit_status=status)


@pytest.mark.requirement("design:keeper:record:crash")
def test_a_write_torn_anywhere_leaves_what_was_known_before(tmp_path: Path) -> None:
    directory = str(tmp_path / ID)
    file = tmp_path / ID / "record"
    create_record(directory, STARTED)
    stages = [file.read_bytes()]
    for write, record in ((write_running, RUNNING), (write_end, ENDED), (write_end, replace(ENDED, end=5))):
        write(directory, record)
        stages.append(file.read_bytes())
    known = [STARTED, RUNNING, ENDED, replace(ENDED, end=5)]
    for before, after, old, new in zip(stages, stages[1:], known, known[1:], strict=False):
        changed = [at for at in range(len(after)) if before[at] != after[at]]
        for cut in range(changed[0] + 1, changed[-1]):
            file.write_bytes(after[:cut] + before[cut:])
            torn = read_record(directory)
            assert torn == old or (torn == RUNNING and old == ENDED and new.end == 5)
        file.write_bytes(after)
        assert read_record(directory) == new


@pytest.mark.requirement("design:keeper:record:crash")
def test_a_damaged_start_is_told_apart_from_one_that_nobody_understands(tmp_path: Path) -> None:
    directory = str(tmp_path / ID)
    with pytest.raises(KeeperError, match="no whole process record"):
        read_record(directory)
    create_record(directory, STARTED)
    whole = (tmp_path / ID / "record").read_bytes()
    for data in (b"", whole[:40], whole[:-1], whole[:-3000], b"\0" * len(whole), whole.replace(b"printf", b"pr1ntf")):
        (tmp_path / ID / "record").write_bytes(data)
        assert not has_whole_record(directory)
        with pytest.raises(KeeperError, match="no whole process record"):
            read_record(directory)
    (tmp_path / ID / "record").write_bytes(whole)
    copy = tmp_path / str(uuid.uuid4())
    (tmp_path / ID).rename(copy)
    assert has_whole_record(str(copy))
    with pytest.raises(KeeperError, match=f"is that of process {ID}"):
        read_record(str(copy))


WRITES_FOR_EVER = """
    import sys, uuid
    from dataclasses import replace
    from tests.keeper.test_records import ENDED, RUNNING, STARTED
    from tether.keeper.record_file import create_record, write_end, write_running

    print("begin", flush=True)
    while True:
        name = str(uuid.uuid4())
        place = sys.argv[1] + "/" + name
        create_record(place, replace(STARTED, id=name))
        write_running(place, replace(RUNNING, id=name))
        write_end(place, replace(ENDED, id=name))
"""


@pytest.mark.requirement("design:keeper:record:crash")
def test_a_writer_killed_at_any_moment_leaves_whole_records_or_none(tmp_path: Path) -> None:
    for _ in range(5):
        writer = subprocess.Popen([*python(WRITES_FOR_EVER), str(tmp_path)], stdout=subprocess.PIPE)
        with writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"begin\n"
            seen = len(os.listdir(tmp_path))
            while len(os.listdir(tmp_path)) < seen + 20:
                assert writer.poll() is None
            writer.kill()
    incomplete = 0
    for place in tmp_path.iterdir():
        expected = [replace(one, id=place.name) for one in (STARTED, RUNNING, ENDED)]
        if has_whole_record(str(place)):
            assert read_record(str(place)) in expected
        else:
            incomplete += 1
            create_record(str(place), expected[0])
            assert read_record(str(place)) == expected[0]
    assert incomplete <= 5


@contextlib.contextmanager
def full_disk(directory: Path) -> Generator[Path]:
    """A small file system of its own; for users who may not mount, one whose files cannot grow any more."""
    directory.mkdir()
    if os.geteuid() == 0:
        mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(directory)]
        subprocess.run(mount, timeout=30, check=True)
        try:
            yield directory
        finally:
            subprocess.run(["umount", str(directory)], timeout=30, check=True)
    else:
        yield directory


@contextlib.contextmanager
def filled(disk: Path) -> Generator[None]:
    """While this lasts, no file on the disk gets another byte of room."""
    if os.geteuid() == 0:
        with contextlib.suppress(OSError), (disk / "other").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                continue
        assert os.statvfs(disk).f_bfree == 0
        yield
        (disk / "other").unlink()
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    largest = max(file.stat().st_size for file in disk.rglob("record"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.requirement("design:keeper:record:full-disk")
def test_a_full_disk_loses_no_exit_code(tmp_path: Path) -> None:
    with full_disk(tmp_path / "disk") as disk:
        place = str(disk / ID)
        create_record(place, STARTED)
        with filled(disk):
            with pytest.raises(OSError, match=r"No space left|File too large"):
                (disk / ID / "log").write_bytes(bytes(100_000))
            write_running(place, RUNNING)
            write_end(place, ENDED)
            assert read_record(place) == ENDED
        assert read_record(place) == ENDED


@pytest.mark.requirement("design:keeper:record:full-disk")
def test_a_start_for_which_there_is_no_room_leaves_nothing_behind(tmp_path: Path) -> None:
    large = replace(STARTED, command=replace(COMMAND, argv=("x" * 100_000,)))
    with full_disk(tmp_path / "disk") as disk:
        create_record(str(disk / ID), STARTED)
        other = str(uuid.uuid4())
        with filled(disk):
            before = sorted(os.listdir(disk))
            with pytest.raises(OSError, match=r"No space left|File too large") as raised:
                create_record(str(disk / other), replace(large, id=other))
            assert raised.value.errno in (errno.ENOSPC, errno.EFBIG)
            assert sorted(os.listdir(disk)) == before
        create_record(str(disk / other), replace(large, id=other))
        assert read_record(str(disk / other)) == replace(large, id=other)


@pytest.mark.requirement("design:keeper:record:full-disk")
def test_an_end_without_a_descriptor_to_write_it_can_be_written_later(tmp_path: Path) -> None:
    place = str(tmp_path / ID)
    create_record(place, STARTED)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            write_end(place, ENDED)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    write_end(place, ENDED)
    assert read_record(place).exit_status == ENDED.exit_status


@pytest.mark.requirement("design:keeper:standard-library")
def test_records_need_the_standard_library_only() -> None:
    code = """
        import sys
        import tether.keeper.records, tether.keeper.retention, tether.keeper.sweep
        known = {name.partition(".")[0] for name in sys.modules if not name.startswith("_")}
        print(sorted(known - set(sys.stdlib_module_names) - {"tether"}))
    """
    shown = subprocess.run([*python(code)[:1], "-I", *python(code)[1:]], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n", sys.path

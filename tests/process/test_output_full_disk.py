"""The output log on a disk that the system itself calls full."""

import contextlib
import errno
import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.helpers import python
from tests.process.log_model import HELD, MIB, LogModel
from tether.process.command import OutputPolicy
from tether.process.log_reader import STDERR, STDOUT, Gap, LogReader
from tether.process.output import OutputLog

FILE_TOO_LARGE = """
    import logging, resource, sys
    from tether.process.command import OutputPolicy, Overflow
    from tether.process.output import OutputLog

    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
    log, whole = OutputLog(sys.argv[1], OutputPolicy(10_000_000)), bytes(range(256)) * 1000
    for at in range(0, len(whole), 1000):
        log.append(1, whole[at : at + 1000])
    assert log.blocked and log.end == 50_000, log.end
    assert log.read(0).data == whole[:50_000]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.append(1, b"end")
    assert log.read(0).data == whole + b"end"
    assert not log.blocked and not log.missing
    log.remove()
"""


@pytest.mark.requirement("design:log:write-failure")
def test_a_limit_on_file_sizes_holds_output_until_it_is_lifted(tmp_path: Path) -> None:
    ended = subprocess.run(
        [*python(FILE_TOO_LARGE), str(tmp_path / "log")], capture_output=True, text=True, timeout=30, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [line.partition(" ")[2] for line in ended.stdout.splitlines()] == [
        "cannot write: [Errno 27] File too large; holding output and trying again",
        "writes work again",
    ]


@contextlib.contextmanager
def small_disk(directory: Path, size: int) -> Generator[Path | None]:
    """A file system of its own with `size` bytes; None where this user may not mount one."""
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    try:
        mounted = subprocess.run(mount, capture_output=True, timeout=30, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield directory if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", str(directory)], timeout=30, check=True)


@pytest.mark.requirement("design:log:write-failure")
@pytest.mark.requirement("design:log:gap-record")
def test_a_disk_that_is_really_full_loses_nothing_below_the_hold_and_counts_the_rest(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", MIB) as disk:
        if disk is None:
            test_a_limit_on_file_sizes_holds_output_until_it_is_lifted(tmp_path)
        else:
            fill(disk)


def fill(disk: Path) -> None:
    log, model = OutputLog(str(disk / "log"), OutputPolicy(50 * MIB)), LogModel()
    (disk / "other").write_bytes(bytes(MIB // 2))
    chunk = bytes(range(250)) * 10
    while not log.blocked:
        log.append(STDOUT, chunk)
        model.append(STDOUT, chunk)
    assert 0 < log.end < MIB // 2
    assert LogReader(log.directory).read(0).data == model.everything[: log.end]
    (disk / "other").unlink()
    log.append(STDERR, b"there is room again\n")
    model.append(STDERR, b"there is room again\n")
    model.check(log)
    appended = log.end
    while not log.missing:
        log.append(STDOUT, chunk)
        appended += len(chunk)
    held = log.end + HELD
    assert (log.missing, log.blocked) == (appended - held, True)
    subprocess.run(["mount", "-o", f"remount,size={4 * MIB}", str(disk)], timeout=30, check=True)
    log.retry()
    assert (log.end, log.missing, log.blocked) == (held, appended - held, False)
    assert log.gaps() == [Gap(held, appended - held, os.strerror(errno.ENOSPC))]
    later = log.read(len(model.everything)).data
    assert later == (chunk * (HELD // len(chunk) * 2))[: len(later)]
    log.remove()

"""Reading a log with bytes missing: each gap is told where it is."""

import subprocess
import uuid
from pathlib import Path

import pytest

from tests.helpers import python
from tether.cli.log_reading import Wanted, read_log
from tether.keeper.frames import Frame
from tether.keeper.kept_process import KeptProcess
from tether.keeper.records import ProcessRecord
from tether.process.command import Command
from tether.process.exit_status import Cause, ExitStatus
from tether.process.log_reader import LogReader

# Files may not grow beyond 50,000 bytes for a while: what the log cannot hold in memory either is lost.
GAPS = """
    import resource, sys
    from tether.process.command import OutputPolicy
    from tether.process.output import OutputLog

    log = OutputLog(sys.argv[1], OutputPolicy(100_000_000))
    for letter in (b"a", b"b"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
        before = log.missing
        while log.missing == before:
            log.append(1, letter * 1000)
        log.append(1, letter * 5000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        log.append(2, b"room again\\n")
    log.close()
"""


class NobodyToAsk:
    """A log on this machine is read without a keeper."""

    async def ask(self, word: str, process_id: str, body: bytes = b"", **fields: object) -> Frame:
        raise AssertionError(f"asked to {word} {process_id} with {fields} and {body!r}")


def ended_process(directory: Path) -> KeptProcess:
    """A process that has ended and whose log is in that directory."""
    record = ProcessRecord(
        id=str(uuid.uuid4()),
        command=Command(argv=("writer",)),
        started_at=1.0,
        ended_at=2.0,
        exit_status=ExitStatus(0, None, Cause.EXITED),
        end=LogReader(str(directory)).end,
    )
    return KeptProcess(record, NobodyToAsk(), str(directory))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with two gaps in it."""
    directory = tmp_path / "log"
    subprocess.run([*python(GAPS), str(directory)], capture_output=True, timeout=30, check=True)
    return directory


async def read(process: KeptProcess, wanted: Wanted) -> list[bytes | str]:
    """What a reader gets, bytes and notices in order, bytes between notices in one piece."""
    seen: list[bytes | str] = []

    async def take(data: bytes) -> bool:
        if seen and isinstance(last := seen[-1], bytes):
            seen[-1] = last + data
        else:
            seen.append(data)
        return True

    async def tell(message: str) -> None:
        seen.append(message)

    await read_log(process, wanted, take, tell)
    return seen


@pytest.mark.requirement("design:cli:logs-gaps")
@pytest.mark.parametrize("follow", [False, True])
async def test_each_gap_is_told_between_the_bytes_around_it(log: Path, follow: bool) -> None:  # noqa: FBT001 - pytest passes it by name
    process = ended_process(log)
    gaps, whole = await process.gaps(), LogReader(str(log)).read(0).data
    assert len(gaps) == 2
    expected: list[bytes | str] = []
    for start, gap in zip([0, *(gap.offset for gap in gaps)], gaps, strict=False):
        expected += [whole[start : gap.offset], f"{gap.missing} bytes are missing here: File too large"]
    expected.append(whole[gaps[-1].offset :])
    assert await read(process, Wanted(follow=follow)) == expected
    only_first = Wanted(start=0, limit=10, follow=follow)
    assert await read(process, only_first) == [whole[:10]]
    behind_all = Wanted(start=gaps[-1].offset + 1, follow=follow)
    assert await read(process, behind_all) == [whole[gaps[-1].offset + 1 :]]

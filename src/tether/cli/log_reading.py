"""Reading a log from anywhere in it, piece by piece, and knowing what is missing."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tether.process.log_reader import Gap, OutputSlice
from tether.process.place import PlacedProcess

_AT_ONCE = 1024 * 1024
_TAIL_BLOCK = 64 * 1024
_NOTHING = OutputSlice(0, b"", 0)

Take = Callable[[bytes], Awaitable[bool]]
Tell = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """From byte `start`, but `skip_lines` lines later, at most `limit` bytes of one stream or of all."""

    start: int = 0
    skip_lines: int = 0
    limit: int | None = None
    stream: int | None = None
    follow: bool = False


async def read_log(process: PlacedProcess, wanted: Wanted, take: Take, tell: Tell) -> None:
    """Hand what is wanted to `take` until there is no more or it says so; `tell` hears what is missing, in place."""
    offset, skip, left = wanted.start, wanted.skip_lines, wanted.limit
    stop = None if wanted.follow else process.end
    told_to = offset - 1
    while left != 0:
        ended = process.exit_status is not None
        here, gap_ahead = await _gaps(process, told_to, offset)
        for gap in here:
            await tell(f"{gap.missing} bytes are missing here: {gap.reason}")
        told_to = max(told_to, offset)
        most = min([_AT_ONCE, *(at - offset for at in (stop, gap_ahead) if at is not None and at > offset)])
        part = await process.read(offset, most, stream=wanted.stream) if stop is None or offset < stop else _NOTHING
        if part.dropped:
            await tell(f"{part.dropped} bytes dropped here")
        data, skip = _behind_lines(part.data, skip)
        data = data[:left]
        if data and not await take(data):
            return
        left = None if left is None else left - len(data)
        if part.end > offset:
            offset = part.end
        elif ended or stop is not None:
            return
        else:
            await process.grown_or_ended(offset)


async def tail_start(process: PlacedProcess, lines: int, stream: int | None) -> tuple[int, int]:
    """Where to begin reading, and how many lines to leave out there, to see the last `lines` lines."""
    position = process.end
    if not lines:
        return position, 0
    found, is_open = 0, True
    while position > 0:
        begin = max(0, position - _TAIL_BLOCK)
        data = await _block(process, begin, position, stream)
        if is_open and data.endswith(b"\n"):
            lines += 1  # behind the newline of the last line no other begins
        is_open = is_open and not data
        found += data.count(b"\n")
        position = begin
        if found >= lines:
            return position, found - lines + 1
    return 0, 0


async def _block(process: PlacedProcess, begin: int, end: int, stream: int | None) -> bytes:
    """What is kept of [begin, end)."""
    blocks: list[bytes] = []
    while begin < end:
        part = await process.read(begin, end - begin, stream=stream)
        if part.dropped:
            begin = part.start  # the limit counted from there
        elif part.end > begin:
            blocks.append(part.data)
            begin = part.end
        else:
            break
    return b"".join(blocks)


def _behind_lines(data: bytes, lines: int) -> tuple[bytes, int]:
    """`data` behind its first `lines` newlines, and how many of them are still to come."""
    start = 0
    while lines:
        newline = data.find(b"\n", start)
        if newline < 0:
            return b"", lines
        start, lines = newline + 1, lines - 1
    return data[start:] if start else data, lines


async def _gaps(process: PlacedProcess, told_to: int, offset: int) -> tuple[list[Gap], int | None]:
    """The gaps behind `told_to` and up to `offset`, and where the next one is."""
    gaps = [gap for gap in await process.gaps() if gap.offset > told_to]
    return [gap for gap in gaps if gap.offset <= offset], min(
        (gap.offset for gap in gaps if gap.offset > offset), default=None
    )

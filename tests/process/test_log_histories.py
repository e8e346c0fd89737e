"""The output log under any history of appends, sizes and reads, held against a model."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.process.log_model import SMALLEST_LOG, STREAMS, LogModel, disk_bytes
from tether.process.command import OutputPolicy, Overflow
from tether.process.log_reader import LogReader, Resize
from tether.process.output import OutputLog

CAPACITIES = (1, 64, 100, 1000, 1024, 3000, 5000, 20_000)
FRAGMENTS = (
    b"\n",
    b"\n\n",
    b"line\n",
    b"x",
    b"\x1b[31m",
    "日本語\n".encode(),
    b"\r\n",
    b"\xff\xfe",
    b"",
    b"word " * 20,
)


class LogMachine(RuleBasedStateMachine):
    """One log written in every way, its own reader and a foreign one held against the model all the time."""

    directory = ""

    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp(dir=self.directory)
        self.model = LogModel()
        self.sizes: list[Resize] = []

    @initialize(capacity=st.sampled_from(CAPACITIES), overflow=st.sampled_from((Overflow.DROP, Overflow.STOP)))
    def create(self, capacity: int, overflow: Overflow) -> None:
        self.log = OutputLog(os.path.join(self.path, "log"), OutputPolicy(capacity, overflow))
        self.foreign = LogReader(self.log.directory)

    @precondition(lambda self: len(self.model.everything) < 20_000)
    @rule(
        stream=st.sampled_from(STREAMS),
        pieces=st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=40), max_size=5),
        times=st.sampled_from((1, 1, 5, 15)),
    )
    def append(self, stream: int, pieces: list[bytes], times: int) -> None:
        data = b"".join(pieces) * times
        self.log.append(stream, data)
        self.model.append(stream, data)

    @precondition(lambda self: len(self.model.everything) < 20_000)
    @rule(count=st.integers(1, 200))
    def alternate(self, count: int) -> None:
        for number in range(count):
            stream, data = STREAMS[number % 2], bytes([number])
            self.log.append(stream, data)
            self.model.append(stream, data)

    @rule(count=st.integers(1, 300))
    def resize(self, count: int) -> None:
        for _ in range(count):
            size = Resize(self.log.end, len(self.sizes) % 10_000 + 1, len(self.sizes) // 10_000 + 1)
            self.log.resized(size.cols, size.rows)
            self.sizes.append(size)

    @rule(data=st.data(), limit=st.none() | st.integers(-1, 500))
    def read_anywhere(self, data: st.DataObject, limit: int | None) -> None:
        start = data.draw(st.integers(-2, len(self.model.everything) + 2))
        for reader in (self.log, self.foreign):
            self.model.check_read(reader, start, limit)

    @rule(data=st.data(), limit=st.integers(-1, 60))
    def read_lines_anywhere(self, data: st.DataObject, limit: int) -> None:
        first = data.draw(st.integers(-1, self.log.total_lines + 2))
        expected = self.model.lines(first, limit, self.model.check(self.log))
        assert self.log.read_lines(first, limit) == expected
        assert self.foreign.read_lines(first, limit) == expected
        assert LogReader(self.log.directory).total_lines == expected.total == self.log.total_lines

    @rule()
    def read_at_every_boundary(self) -> None:
        for start in self.log.starts():
            for reader in (self.log, self.foreign):
                for offset in (start - 1, start, start + 1):
                    self.model.check_read(reader, offset, 3)

    @invariant()
    def everything_is_as_written(self) -> None:
        hole = self.model.check(self.log)
        assert self.model.check(self.foreign) == hole
        assert self.log.starts() == self.foreign.starts()
        if self.log.policy.overflow is Overflow.STOP:
            assert hole[0] == hole[1]
        elif self.log.starts():
            assert disk_bytes(self.log.directory) <= max(self.log.policy.capacity, SMALLEST_LOG)

    @invariant()
    def the_sizes_that_counted_are_told(self) -> None:
        told = self.foreign.resizes()
        assert [size for size in self.sizes if size in set(told)] == told
        _, tail = self.model.check(self.log)
        lasting = {size.offset: size for size in self.sizes if size.offset > tail}
        assert {size.offset: size for size in told if size.offset > tail} == lasting

    def teardown(self) -> None:
        self.log.close()
        self.everything_is_as_written()
        self.log.remove()
        assert os.listdir(self.path) == []
        os.rmdir(self.path)


@pytest.mark.requirement("design:log:read-slice")
@pytest.mark.requirement("design:log:one-axis")
@pytest.mark.requirement("design:log:order")
@pytest.mark.requirement("design:log:cap")
@pytest.mark.requirement("design:lines-never-shift")
def test_any_history_reads_back_as_the_model_says(tmp_path: Path) -> None:
    LogMachine.directory = str(tmp_path)
    run_state_machine_as_test(
        LogMachine,
        settings=settings(
            max_examples=40, stateful_step_count=20, deadline=None, phases=(Phase.generate, Phase.shrink)
        ),
    )

"""The words of the protocol: every error and every value is the same on the other side."""

import inspect
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tether.errors
from tether.errors import (
    AmbiguousProcessError,
    InputGapError,
    KeeperError,
    LineTooLongError,
    ProgramNotFoundError,
    TetherError,
    UnknownProcessError,
)
from tether.keeper.frames import Frame, FrameReader, Header
from tether.keeper.protocol import (
    error_from_json,
    error_to_json,
    field,
    lines_from_frame,
    lines_to_frame,
    look_from_json,
    look_to_json,
    marks_from_json,
    marks_to_json,
    optional,
    slice_from_frame,
    slice_to_frame,
    stamp_of,
    stamp_to_json,
)
from tether.process.log_reader import STDERR, STDOUT, Chunk, Gap, Lines, OutputSlice, Resize
from tether.process.place import Stamp
from tether.process.probe import Certainty, Look, Probe

text = st.text(st.characters(exclude_categories=()), max_size=30)
words = st.lists(text, max_size=5)
offsets = st.integers(0, 1 << 60)
made_otherwise: dict[type[TetherError], st.SearchStrategy[TetherError]] = {
    ProgramNotFoundError: st.builds(ProgramNotFoundError, text, words, text),
    UnknownProcessError: st.builds(UnknownProcessError, text, words),
    AmbiguousProcessError: st.builds(AmbiguousProcessError, text, words),
    LineTooLongError: st.builds(LineTooLongError, offsets, offsets),
    InputGapError: st.builds(InputGapError, text, offsets, offsets),
}
kinds = [
    kind
    for kind in vars(tether.errors).values()
    if isinstance(kind, type) and issubclass(kind, TetherError) and kind.__module__ == "tether.errors"
]
errors = st.one_of([made_otherwise.get(kind, st.builds(kind, text)) for kind in kinds])


def travelled(frame: Frame) -> Frame:
    """What the other side receives."""
    (received,) = FrameReader().feed(frame.encode())
    return received


def header_of(header: Header) -> Header:
    """The same for what has no body."""
    return travelled(Frame(header)).header


@given(error=errors)
@pytest.mark.requirement("design:keeper:errors")
def test_every_error_is_the_same_on_the_other_side(error: TetherError) -> None:
    received = error_from_json(header_of(error_to_json(error)))
    assert type(received) is type(error)
    assert (str(received), received.args, vars(received)) == (str(error), error.args, vars(error))


@pytest.mark.requirement("design:keeper:errors")
def test_every_kind_of_error_is_among_those_that_travel() -> None:
    assert {kind.__name__ for kind in kinds} == set(re.findall(r"\w+Error", tether.errors.__doc__ or ""))
    with_attributes = {kind for kind in kinds if len(inspect.signature(kind.__init__).parameters) > 3}
    assert with_attributes <= made_otherwise.keys()


@pytest.mark.parametrize("kind", ["ErrorOfTheFuture", "Sequence", "__name__", "Exception", ""])
@pytest.mark.requirement("design:keeper:errors")
def test_an_error_of_a_kind_we_do_not_know_keeps_its_sentence(kind: str) -> None:
    received = error_from_json({"kind": kind, "message": "too much", "attributes": {"limit": 3}})
    assert (type(received), str(received), vars(received)) == (KeeperError, "too much", {"limit": 3})


@given(part=st.builds(OutputSlice, offsets, st.binary(), offsets, offsets))
@pytest.mark.requirement("design:keeper:values")
def test_a_part_of_a_log_travels(part: OutputSlice) -> None:
    assert slice_from_frame(travelled(slice_to_frame(part))) == part


@given(lines=st.builds(Lines, offsets, st.lists(st.binary(max_size=20), max_size=8), offsets, offsets))
@pytest.mark.requirement("design:keeper:values")
def test_lines_of_a_log_travel(lines: Lines) -> None:
    assert lines_from_frame(travelled(lines_to_frame(lines))) == lines


@given(
    chunks=st.lists(st.builds(Chunk, offsets, offsets, st.sampled_from([STDOUT, STDERR]), offsets), max_size=5),
    gaps=st.lists(st.builds(Gap, offsets, offsets, text), max_size=5),
    resizes=st.lists(st.builds(Resize, offsets, offsets, offsets), max_size=5),
)
@pytest.mark.requirement("design:keeper:values")
def test_what_an_index_says_travels(chunks: list[Chunk], gaps: list[Gap], resizes: list[Resize]) -> None:
    assert marks_from_json(Chunk, travelled(Frame({"marks": marks_to_json(chunks)}))) == chunks
    assert marks_from_json(Gap, travelled(Frame({"marks": marks_to_json(gaps)}))) == gaps
    assert marks_from_json(Resize, travelled(Frame({"marks": marks_to_json(resizes)}))) == resizes


probes = st.builds(
    Probe,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(1), max_size=4).map(tuple),
    st.sampled_from(Certainty),
)


@given(
    look=st.builds(
        Look,
        probe=st.none() | probes,
        quiet=st.booleans(),
        idle_seconds=st.floats(0, 1e9) | st.integers(0, 99).map(float),
        end=offsets,
    )
)
@pytest.mark.requirement("design:keeper:values")
def test_a_look_travels(look: Look) -> None:
    received = look_from_json(header_of(look_to_json(look)))
    assert (received, received.waiting) == (look, look.waiting)


@given(stamp=st.builds(Stamp, text.filter(bool), st.integers(1, 1 << 60)))
@pytest.mark.requirement("design:keeper:values")
def test_a_stamp_travels(stamp: Stamp) -> None:
    assert stamp_of(header_of(stamp_to_json(stamp))) == stamp
    assert stamp_of({}) is None


@pytest.mark.parametrize(
    ("value", "kind"),
    [(None, str), ("1", int), (True, int), (1.5, int), ("x", float), (True, float), (1, bool), ({}, list)],
    ids=repr,
)
@pytest.mark.requirement("design:keeper:fields-checked")
def test_a_field_of_another_type_is_told_with_its_name(value: object, kind: type[object]) -> None:
    with pytest.raises(KeeperError, match=r"message 'write': 'number' is .*, not "):
        field({"do": "write", "number": value}, "number", kind)


@pytest.mark.requirement("design:keeper:fields-checked")
def test_a_field_may_be_missing_where_it_is_optional() -> None:
    assert optional({}, "number", int) is None
    assert optional({"number": None}, "number", int) is None
    assert optional({"number": 3}, "number", int) == 3
    assert field({"number": 3}, "number", float) == 3.0
    with pytest.raises(KeeperError, match="message 'answer': 'number' is 'x', not a whole number"):
        optional({"number": "x"}, "number", int)

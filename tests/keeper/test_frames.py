"""Frames: cut right however the stream arrives, bounded, and never guessed at."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.errors import KeeperError
from tether.keeper.frames import MOST_BYTES, Frame, FrameReader, Header

text = st.text(st.characters(exclude_categories=()))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=8,
)
frames = st.builds(Frame, st.dictionaries(text, values, max_size=5), st.binary(max_size=300))


def raw(header: bytes, body: bytes = b"") -> bytes:
    """A frame whose header is any bytes."""
    return struct.pack(">II", len(header), len(body)) + header + body


@given(sent=st.lists(frames, max_size=6), cuts=st.lists(st.integers(0, 3000), max_size=20))
@pytest.mark.requirement("design:keeper:frames")
def test_frames_arrive_whole_and_in_order_in_any_pieces(sent: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(frame.encode() for frame in sent)
    reader = FrameReader()
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[start:end] for start, end in itertools.pairwise(edges)]
    received = [frame for piece in pieces for frame in reader.feed(piece)]
    assert received == sent


@given(sent=st.lists(frames, min_size=1, max_size=3))
@pytest.mark.requirement("design:keeper:frames")
def test_a_frame_is_there_with_its_last_byte_and_not_before(sent: list[Frame]) -> None:
    reader = FrameReader()
    for frame in sent:
        data = frame.encode()
        assert [found for byte in data[:-1] for found in reader.feed(bytes([byte]))] == []
        assert list(reader.feed(data[-1:])) == [frame]


@pytest.mark.requirement("design:keeper:frames")
def test_what_a_frame_says_survives_even_where_it_is_no_text() -> None:
    header: Header = {"word": "\udcff é \0", "numbers": [1, 2.5, None, True], "": {}}
    body = bytes(range(256))
    assert list(FrameReader().feed(Frame(header, body).encode())) == [Frame(header, body)]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "is more than goes to or from a keeper"),
        (struct.pack(">II", MOST_BYTES + 1, 0), "is more than goes to or from a keeper"),
        (struct.pack(">II", 2, MOST_BYTES - 1), "is more than goes to or from a keeper"),
        (raw(b"{"), "cannot be read"),
        (raw(b"\xff\xfe"), "cannot be read"),
        (raw(b""), "cannot be read"),
        (raw(b"[1]"), r"is no object: \[1\]"),
        (raw(b"null"), "is no object: None"),
        (raw(b"[" * 100_000), "cannot be read"),
        (raw(b'{"a":' + b"9" * 5000 + b"}"), "cannot be read"),
    ],
    ids=["http", "header", "body", "cut", "bytes", "empty", "list", "null", "deep", "number"],
)
@pytest.mark.requirement("design:keeper:frames-garbage")
def test_what_is_no_frame_is_told_as_such(data: bytes, sentence: str) -> None:
    with pytest.raises(KeeperError, match=sentence):
        list(FrameReader().feed(data))


@given(garbage=st.binary(max_size=200))
@pytest.mark.requirement("design:keeper:frames-garbage")
def test_no_bytes_are_too_strange(garbage: bytes) -> None:
    try:
        for frame in FrameReader().feed(garbage):
            assert isinstance(frame.header, dict)
    except KeeperError:
        pass


@pytest.mark.requirement("design:keeper:frames")
def test_frames_before_a_broken_one_are_not_lost() -> None:
    reader = FrameReader()
    received = reader.feed(Frame({"a": 1}).encode() + raw(b"x"))
    assert next(received) == Frame({"a": 1})
    with pytest.raises(KeeperError, match="cannot be read"):
        next(received)


@pytest.mark.requirement("design:keeper:frames")
def test_a_message_that_nobody_would_take_is_refused_by_its_sender() -> None:
    with pytest.raises(KeeperError, match="take or send it in parts"):
        Frame({}, bytes(MOST_BYTES - 1)).encode()
    assert len(Frame({}, bytes(MOST_BYTES - 2)).encode()) == MOST_BYTES + 8

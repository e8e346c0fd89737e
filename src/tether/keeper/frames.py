"""What travels between a keeper and its clients: frames of a JSON header and a body of raw bytes."""

import json
import struct
from collections.abc import Iterator
from typing import NamedTuple, cast

from tether.errors import KeeperError

_LENGTHS = struct.Struct(">II")
MOST_BYTES = 48 * 1024 * 1024

Header = dict[str, object]


class Frame(NamedTuple):
    """One message."""

    header: Header
    body: bytes = b""

    def encode(self) -> bytes:
        """Its bytes on the stream.

        Raises:
            KeeperError: it is larger than the other side would take.
        """
        # Lone surrogates, which stand for bytes that are no text, survive as escapes.
        header = json.dumps(self.header, separators=(",", ":")).encode("ascii")
        _check_length(len(header) + len(self.body), MOST_BYTES)
        return _LENGTHS.pack(len(header), len(self.body)) + header + self.body


class FrameReader:
    """Cuts a stream of bytes into frames, however it arrives."""

    __slots__ = ("_unread", "most_bytes")

    def __init__(self) -> None:
        self.most_bytes = MOST_BYTES
        self._unread = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """The frames that are whole now.

        Raises:
            KeeperError: this is no stream of frames.
        """
        self._unread += data
        at = 0
        try:
            while len(self._unread) - at >= _LENGTHS.size:
                header, body = _LENGTHS.unpack_from(self._unread, at)
                _check_length(header + body, self.most_bytes)
                begin = at + _LENGTHS.size
                if len(self._unread) < begin + header + body:
                    break
                at = begin + header + body
                yield Frame(_parse(self._unread[begin : begin + header]), bytes(self._unread[begin + header : at]))
        finally:
            del self._unread[:at]


def _check_length(length: int, most: int) -> None:
    if length > most:
        raise KeeperError(
            f"a message of {length} bytes is more than goes to or from a keeper at once ({most}); "
            "take or send it in parts"
        )


def _parse(data: bytearray) -> Header:
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise KeeperError(f"a message of the keeper's protocol cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise KeeperError(f"a message of the keeper's protocol is no object: {value!r:.100}")
    return cast("Header", value)

"""A client of a keeper without any of the library's own: a blocking socket and frames."""

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Self, cast

from tether.keeper.frames import Frame, FrameReader, Header
from tether.keeper.home import Home
from tether.keeper.protocol import PROTOCOL

BOUND = 20.0
_AT_ONCE = 256 * 1024


class RawClient:
    """Sends what it is told to and returns what comes, answers and news apart."""

    def __init__(self, home: Home) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(BOUND)
        try:
            self.socket.connect(home.socket_path)
        except OSError:
            self.socket.close()
            raise
        self.news: list[Header] = []
        self._reader = FrameReader()
        self._answers: dict[int, Frame] = {}
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def hello(self, protocol: int = PROTOCOL, **fields: object) -> Header:
        """Say hello; returns what the keeper says to it."""
        return self.ask("hello", protocol=protocol, version="test", **fields)

    def ask(self, word: str, body: bytes = b"", /, **fields: object) -> Header:
        """Send a request and return the header of its answer, which may be an error."""
        return self.ask_frame(word, body, **fields).header

    def ask_frame(self, word: str, body: bytes = b"", /, **fields: object) -> Frame:
        """The same with the answer's body."""
        self._number += 1
        self.send(Frame({"id": self._number, "do": word, **fields}, body))
        return self.answer(self._number)

    def answer(self, number: int) -> Frame:
        """What comes in answer to the request with that number."""
        while number not in self._answers:
            if not self.receive():
                raise ConnectionError(f"the keeper hung up instead of answering request {number}")
        return self._answers.pop(number)

    def send(self, frame: Frame) -> None:
        """Send a frame as it is."""
        self.socket.sendall(frame.encode())

    def receive(self) -> bool:
        """Take what comes next; False when the keeper has hung up."""
        data = self.socket.recv(_AT_ONCE)
        for frame in self._reader.feed(data):
            number = frame.header.get("id")
            if isinstance(number, int):
                self._answers[number] = frame
            else:
                self.news.append(frame.header)
        return bool(data)

    def receive_until_hung_up(self) -> None:
        """Take everything; fails the test when the keeper never hangs up."""
        with contextlib.suppress(ConnectionResetError):
            while self.receive():
                pass

    def news_until(self, kind: str) -> Iterator[Header]:
        """The news as they come, with the first of that kind as the last."""
        deadline = time.monotonic() + BOUND
        while time.monotonic() < deadline:
            while self.news:
                yield self.news[0]
                if self.news.pop(0).get("news") == kind:
                    return
            assert self.receive(), "the keeper hung up"
        raise AssertionError(f"no news of kind {kind!r} within {BOUND} s")


def refusal(answer: Header) -> tuple[str, str]:
    """The kind and the sentence of an answer that is an error."""
    error = cast("Header", answer["error"])
    return str(error["kind"]), str(error["message"])

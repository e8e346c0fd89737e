"""The keeper's protocol over standard input and output: how a client on another machine reaches it."""

import os
import select
import socket

from tether.keeper.home import Home
from tether.keeper.launch import connect

_AT_ONCE = 256 * 1024


async def serve(home: Home) -> None:
    """Connect our standard streams to the keeper of `home` until either side hangs up."""
    keeper = await connect(home, start=True)
    try:
        copy_both_ways(keeper)
    finally:
        keeper.close()


def copy_both_ways(keeper: socket.socket, incoming: int = 0, outgoing: int = 1) -> None:
    """Pass bytes on until a side hangs up; a direction that is stuck never holds up the other one."""
    up, down = _Direction(incoming, keeper.fileno()), _Direction(keeper.fileno(), outgoing)
    for descriptor in (incoming, outgoing, keeper.fileno()):
        os.set_blocking(descriptor, False)
    while not (up.over or down.over):
        readable, writable, _ = select.select(
            [way.source for way in (up, down) if not way.unsent],
            [way.target for way in (up, down) if way.unsent],
            [],
        )
        for way in (up, down):
            if way.source in readable or way.target in writable:
                way.move()


class _Direction:
    """Bytes from one descriptor to another, no more in between than one read."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.target = target
        self.unsent = memoryview(b"")
        self.over = False

    def move(self) -> None:
        """Go on as far as it goes now."""
        try:
            if not self.unsent:
                self.unsent = memoryview(os.read(self.source, _AT_ONCE))
                self.over = not self.unsent
            self.unsent = self.unsent[os.write(self.target, self.unsent) :]
        except BlockingIOError:
            pass  # `select` tells when it goes on
        except ConnectionError:
            self.over = True

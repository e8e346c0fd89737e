"""A channel that a keeper keeps, as the programs at its two ends see it."""

from tether.keeper.kept_log import KeptLog
from tether.keeper.protocol import field, stamp_to_json
from tether.process.place import Stamp


class KeptChannel(KeptLog):
    """Two streams of bytes in one log, each piece kept once however often it is sent."""

    async def append(self, stream: int, data: bytes, stamp: Stamp) -> int:
        """Send a piece up or down; returns how far the log reaches then.

        Raises:
            InputRefusedError: a piece before it is missing, or there is no room until a reader has taken some.
            ProcessEndedError: the channel is closed.
        """
        answer = await self._ask("append", data, stream=stream, **stamp_to_json(stamp))
        return field(answer.header, "end", int)

    async def close(self) -> None:
        """No more is sent; what it holds can still be read."""
        self._told_by(await self._ask("close_channel"))

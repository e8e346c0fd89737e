"""A channel: two streams of bytes between two programs that may both die, kept in one log, without a child."""

import os
import time
from dataclasses import replace
from typing import cast

from tether.errors import InputBacklogError, InvalidCommandError, ProcessEndedError
from tether.keeper.frames import Header
from tether.keeper.record_file import create_record, write_end
from tether.keeper.records import ProcessRecord, check_process_id
from tether.process._saved_state import saved, saved_part
from tether.process.command import OutputPolicy, Overflow
from tether.process.exit_status import Cause, ExitStatus
from tether.process.log_reader import STDERR, STDOUT
from tether.process.output import OutputLog
from tether.process.place import Stamp, TakenInput

UP, DOWN = STDOUT, STDERR


class Channel:
    """A lossless log that both ends append to, each piece once however often it is sent.

    `key` is what the far end shows to be let in: it may write `UP` and read, and do nothing else.
    """

    __slots__ = ("id", "key", "log", "opened_at", "taken")

    def __init__(self, channel_id: str, key: str, log: OutputLog, opened_at: float, taken: TakenInput) -> None:
        self.id = channel_id
        self.key = key
        self.log = log
        self.opened_at = opened_at
        self.taken = taken

    @classmethod
    def opened(cls, channel_id: str, key: str, directory: str, capacity: int) -> "Channel":
        """A new channel, on record in a directory of its own.

        Raises:
            InvalidCommandError: there is no key.
            OSError: there is no room.
        """
        if not key:
            raise InvalidCommandError("a channel needs a key; give one that nobody guesses")
        log = OutputLog(directory, OutputPolicy(capacity, Overflow.WAIT))
        channel = cls(channel_id, key, log, time.time(), TakenInput())
        create_record(directory, channel.record())
        return channel

    @classmethod
    def restored(cls, directory: str, state: Header) -> "Channel":
        """The channel that gave this state; touches nothing."""
        channel_id = check_process_id(state.get("id"))
        log = OutputLog.reopen(os.path.join(directory, channel_id), saved_part(state, "log"))
        taken = TakenInput(dict(cast("dict[str, int]", saved_part(state, "taken"))))
        return cls(channel_id, saved(state, "key", str), log, saved(state, "opened_at", float), taken)

    def state(self) -> Header:
        """What must survive when this program becomes another one, as JSON values."""
        return {
            "id": self.id,
            "key": self.key,
            "opened_at": self.opened_at,
            "taken": self.taken.last,
            "log": self.log.state(),
        }

    def record(self) -> ProcessRecord:
        """What is known of it now."""
        end, missing = self.log.end, self.log.refused
        return ProcessRecord(id=self.id, command=None, started_at=self.opened_at, end=end, missing=missing)

    def close(self) -> ProcessRecord:
        """Take no more, and put that on record.

        Raises:
            InputBacklogError: the disk has no room for what was sent before.
        """
        self.log.retry()
        if self.log.blocked:
            raise InputBacklogError(
                f"channel {self.id} cannot be closed: the disk takes no more; make room, try again"
            )
        self.log.close()
        over = ExitStatus(0, None, Cause.EXITED)
        ended = replace(self.record(), ended_at=time.time(), exit_status=over)
        write_end(self.log.directory, ended)
        return ended

    def admits(self, key: str) -> bool:
        """Whether this is the key."""
        return self.key == key

    def append(self, stream: int, data: bytes, stamp: Stamp) -> int:
        """Keep a piece and return the log's end; one that was kept before changes nothing.

        Raises:
            InputRefusedError: a piece before it is missing, or there is no room until a reader has taken some.
            ProcessEndedError: the channel is closed.
        """
        if stream not in (UP, DOWN):
            raise InvalidCommandError(f"a channel has streams {UP} (up) and {DOWN} (down), not {stream!r}")
        known = self.taken.has(stamp)
        if not known and self.log.closed:
            raise ProcessEndedError(f"channel {self.id} is closed; open another")
        self.log.retry()
        if not known and not self.log.full and not self.log.blocked:
            self.log.append(stream, data)
            self.taken.take(stamp)
            known = True
        if not known or self.log.blocked:
            # What the disk has refused is only held in memory: it is not told as kept before it is.
            raise InputBacklogError(
                f"channel {self.id} has no room ({self.log.end} bytes, limit {self.log.policy.capacity}); "
                "send this piece again once its reader has taken some, or the disk has room"
            )
        return self.log.end

"""What a child seems to be waiting for: never a guess presented as certain."""

from dataclasses import dataclass
from enum import StrEnum


class Certainty(StrEnum):
    """Whether a process is blocked reading its input."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class WaitingForInput(StrEnum):
    """The doors' word for it."""

    NO = "no"
    LIKELY = "likely"
    PASSWORD = "password"  # noqa: S105 - a state, not a secret
    YES = "yes"


@dataclass(frozen=True, slots=True)
class Probe:
    """One look at a child: its terminal's mode, who is in the foreground, and whether it reads."""

    line_mode: bool
    echo: bool
    signals: bool
    foreground: tuple[int, ...]
    reading: Certainty

    def waiting(self, *, quiet: bool) -> WaitingForInput:
        """What the look says; `quiet` is whether the child has been silent for a while."""
        if self.reading is Certainty.YES:
            return WaitingForInput.PASSWORD if self.line_mode and not self.echo else WaitingForInput.YES
        if self.reading is Certainty.UNKNOWN and quiet:
            return WaitingForInput.LIKELY
        return WaitingForInput.NO

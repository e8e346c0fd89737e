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


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A probe (None once the child is gone) and how long its process has been silent, with its output up to then."""

    probe: Probe | None
    quiet: bool
    idle_seconds: float
    end: int

    @property
    def waiting(self) -> WaitingForInput:
        """Whether it waits for somebody to type; `yes` only when that is certain."""
        return WaitingForInput.NO if self.probe is None else self.probe.waiting(quiet=self.quiet)

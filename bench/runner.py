"""Runs a group: every contestant once per round, in a fresh process and in shuffled order."""

import json
import random
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from bench.groups import Contestant, Figure, Group

ROOT = Path(__file__).parent.parent
LONGEST_RUN_SECONDS = 120


@dataclass(slots=True)
class Row:
    """A contestant with what each of its rounds reported, or why it reported nothing."""

    contestant: Contestant
    rounds: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    failure: str = ""

    def best(self, figure: Figure) -> float:
        """Return the best round; of a figure that says so, the worst."""
        values = self._values(figure)
        return max(values) if figure.larger_is_better or figure.worst else min(values)

    def median(self, figure: Figure) -> float:
        """Return the median over the rounds."""
        return statistics.median(self._values(figure))

    def _values(self, figure: Figure) -> list[float]:
        return [reported[figure.key] for reported in self.rounds]


@dataclass(frozen=True, slots=True)
class Result:
    """A group that has been run."""

    group: Group
    rows: tuple[Row, ...]

    @property
    def base(self) -> Row | None:
        """The row all ratios refer to."""
        return next((row for row in self.rows if row.rounds), None)

    def row(self, name: str) -> Row | None:
        """Return the row of that contestant if it ran."""
        return next((row for row in self.rows if row.contestant.name == name and row.rounds), None)


def _run_once(group: Group, contestant: Contestant) -> dict[str, float]:
    assert contestant.argv is not None
    work = replace(group.work, task=contestant.task)
    # A part of nothing measured in bytes or counts is still the whole ballast.
    argv = [*contestant.argv, *work.share(contestant.part).arguments()]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONGEST_RUN_SECONDS)
    if ended.returncode != 0:
        last_words = ended.stderr.strip().splitlines()[-1:] or ["nothing on stderr"]
        raise RuntimeError(f"exit code {ended.returncode}: {last_words[0]}")
    return cast("dict[str, float]", json.loads(ended.stdout.splitlines()[-1]))


def run_group(group: Group, rounds: int, shuffler: random.Random, progress: Callable[[str], None]) -> Result:
    """Run `rounds` rounds; a contestant that fails once is left out of the rest and says why."""
    rows = [Row(contestant, failure=contestant.absent) for contestant in group.contestants]
    for number in range(rounds):
        order = [row for row in rows if not row.failure]
        shuffler.shuffle(order)
        for row in order:
            progress(f"{group.name} round {number + 1}/{rounds}: {row.contestant.name}")
            try:
                row.rounds.append(_run_once(group, row.contestant))
            except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
                row.failure = f"failed: {error}"
                row.rounds.clear()
    return Result(group, tuple(rows))

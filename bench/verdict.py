"""The targets: what the ratios must be, and whether they are."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.groups import KEEPER, TETHER, THROWN_AWAY, Figure
from bench.runner import Result, Row
from bench.table import number

# Best-of-rounds on a shared machine moves by about half from run to run; less than that is flat.
FLAT = 1.5
PEERS_BEHIND_EVERYWHERE = ("pexpect", "ptyprocess", "terminado")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target: the group it is shown beside, what was found, and whether that is enough."""

    group: str
    target: str
    found: str
    met: bool | None

    def __str__(self) -> str:
        word = {True: "met", False: "MISSED", None: "not measured"}[self.met]
        return f"{word:<12}  {self.target}: {self.found}"


class Results:
    """The groups that were run, by name."""

    def __init__(self, results: list[Result]) -> None:
        self._results = {result.group.name: result for result in results}

    def group(self, name: str) -> Result | None:
        return self._results.get(name)

    def names(self) -> list[str]:
        return list(self._results)

    def figure(self, group: str, contestant: str, key: str) -> float | None:
        """Return the best of that figure if it was measured."""
        result = self._results.get(group)
        row = result.row(contestant) if result else None
        if result is None or row is None:
            return None
        return row.best(next(figure for figure in result.group.figures if figure.key == key))

    def ratio(self, group: str, key: str) -> float | None:
        """Return our best over the first row's, a C limit's or our own table's; None when either is missing."""
        result = self._results.get(group)
        if result is None or not result.rows[0].rounds:
            return None
        limit, ours = result.rows[0], self.figure(group, result.group.ours, key)
        if ours is None:
            return None
        base = limit.best(next(figure for figure in result.group.figures if figure.key == key))
        return ours / base if base > 0 else None


def _at_most(group: str, target: str, value: float | None, most: float, unit: str) -> Verdict:
    if value is None:
        return Verdict(group, target, "no figure", None)
    return Verdict(group, target, f"{number(value)}{unit}", value <= most)


def _at_least(group: str, target: str, value: float | None, least: float, unit: str) -> Verdict:
    if value is None:
        return Verdict(group, target, "no figure", None)
    return Verdict(group, target, f"{number(value)}{unit}", value >= least)


def _flat(results: Results) -> Verdict:
    small = results.figure("spawn-pty", TETHER, "us")
    big = results.figure("spawn-pty-500mb", TETHER, "us")
    value = big / small if big is not None and small is not None else None
    return _at_most("spawn-pty-500mb", f"PTY spawn from 500 MB flat (<= {FLAT}x small)", value, FLAT, "x")


def _lead(ours: Row, peer: Row, figure: Figure) -> float:
    """Return how many times better ours is; level where both are nothing."""
    mine, theirs = ours.best(figure), peer.best(figure)
    if figure.larger_is_better:
        mine, theirs = theirs, mine
    if mine <= 0:
        return 1.0 if theirs <= 0 else float("inf")
    return theirs / mine


def _ahead(results: Results, peer: str, wanted: Callable[[str, str], bool], suffix: str = "") -> Verdict:
    """Compare with every row of that peer, in every figure that `wanted(group, key)` names."""
    leads: list[tuple[float, str]] = []
    for name in results.names():
        result = results.group(name)
        ours = result.row(TETHER) if result else None
        if result is None or ours is None:
            continue
        for row in result.rows:
            if not row.rounds or row.contestant.name.split(",")[0] != peer:
                continue
            if (THROWN_AWAY in row.contestant.name) != bool(suffix):
                continue
            leads += [
                (_lead(ours, row, figure), f"{name} {figure.title}")
                for figure in result.group.figures
                if wanted(name, figure.key)
            ]
    target = f"ahead of {peer}{suffix}"
    if not leads:
        return Verdict("", target, "no figure", None)
    behind = [f"{where} {lead:.2f}x" for lead, where in leads if lead < 1]
    if behind:
        return Verdict("", target, "behind in " + ", ".join(behind), met=False)
    least, where = min(leads)
    return Verdict("", target, f"in all {len(leads)} figures, least in {where}: {least:.2f}x", met=True)


def _in_every_group(_: str, key: str) -> bool:
    return key not in {"typical_us", "p99_us", "start_cpu_s"}


def _in_spawn_memory_and_loss(group: str, key: str) -> bool:
    return (group.startswith("spawn") and key == "us") or key in {"rss_kb_each", "lost"}


def _of_the_keeper(results: Results) -> list[Verdict]:
    return [
        *(
            _at_most(group, f"start answered by the keeper on {kind} <= 2x table", results.ratio(group, "us"), 2, "x")
            for group, kind in (("keeper-start-pipes", "pipes"), ("keeper-start-pty", "a PTY"))
        ),
        _at_most(
            "keeper-idle",
            "keeper RSS with 500 idle PTYs <= 25 MB",
            results.figure("keeper-idle", KEEPER, "rss_mb"),
            25,
            " MB",
        ),
        _at_least(
            "keeper-pty",
            "kept PTY >= 40 MB per keeper CPU s",
            results.figure("keeper-pty", KEEPER, "mb_per_cpu_s"),
            40,
            " MB",
        ),
        _at_most("keeper-pty", "kept PTY bytes lost 0", results.figure("keeper-pty", KEEPER, "lost"), 0, ""),
        _at_most(
            "keeper-pty",
            "growth news of a flood <= 110/s",
            results.figure("keeper-pty", KEEPER, "news_per_s"),
            110,
            "/s",
        ),
    ]


def verdicts(measured: list[Result]) -> list[Verdict]:
    """Judge every target; ratios are best to best."""
    results = Results(measured)
    judged = [
        _at_most("spawn-pty", "PTY spawn+exit <= 2.2x C vfork", results.ratio("spawn-pty", "us"), 2.2, "x"),
        _flat(results),
        _at_least("pty", "PTY throughput >= 0.6x C", results.ratio("pty", "mb_s"), 0.6, "x"),
        _at_most("pty", "PTY bytes lost 0", results.figure("pty", TETHER, "lost"), 0, ""),
        _at_most("pty", "PTY reader CPU <= 2.5x C", results.ratio("pty", "cpu_s_per_gb"), 2.5, "x"),
        _at_least("pipe", "pipe throughput >= 0.4x C", results.ratio("pipe", "mb_s"), 0.4, "x"),
        _at_most("pipe", "pipe bytes lost 0", results.figure("pipe", TETHER, "lost"), 0, ""),
        _at_most("echo", "echo <= 3x C", results.ratio("echo", "us"), 3, "x"),
        _at_most(
            "scale-1000",
            "RSS <= 8 KB per idle process",
            results.figure("scale-1000", TETHER, "rss_kb_each"),
            8,
            " KB",
        ),
        *_of_the_keeper(results),
    ]
    for peer in PEERS_BEHIND_EVERYWHERE:
        judged.append(_ahead(results, peer, _in_every_group))
        throws_away = _ahead(results, peer, _in_every_group, " that keeps nothing")
        if throws_away.met is not None:
            judged.append(throws_away)
    judged.append(_ahead(results, "node-pty", _in_spawn_memory_and_loss))
    return judged


def beside(judged: list[Verdict]) -> dict[str, str]:
    """Return what the table says beside our row, by group."""
    words: dict[str, list[str]] = {}
    for verdict in judged:
        if verdict.group and verdict.met is not None:
            words.setdefault(verdict.group, []).append(f"{verdict.target} {'met' if verdict.met else 'MISSED'}")
    return {group: "; ".join(parts) for group, parts in words.items()}

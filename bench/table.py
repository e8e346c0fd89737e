"""Prints the results as one table of ratios."""

from bench.groups import Figure
from bench.runner import Result, Row

HEADINGS = ("group", "contestant", "figure", "best", "median", "x best", "x median", "also", "target")
LEFT_ALIGNED = {0, 1, 2, 7, 8}


def number(value: float) -> str:
    """Write a figure with three significant digits or more, never in powers of ten."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def ratio(value: float, base: float) -> str:
    """Write how many times the base, or a dash where the base is nothing."""
    return f"{value / base:.2f}" if base > 0 else "-"


def _also(result: Result, row: Row) -> str:
    words: list[str] = []
    base = result.base
    for figure in result.group.figures[1:]:
        best = row.best(figure)
        word = f"{figure.title} {number(best)}"
        if base is not None and row is not base and figure.compared and base.best(figure) > 0:
            medians = ratio(row.median(figure), base.median(figure))
            word += f" ({ratio(best, base.best(figure))}x, median {medians}x)"
        words.append(word)
    if row.contestant.part < 1:
        words.append(f"at {row.contestant.part:g} of the work")
    return ", ".join(words)


def _cells(result: Result, row: Row, figure: Figure, target: str) -> list[str]:
    base = result.base
    stands_in = row is base and "(limit)" not in row.contestant.name
    head = [result.group.name, row.contestant.name + (" (base)" if stands_in else "")]
    if base is None or not row.rounds:
        return [*head, row.failure, "", "", "", "", "", ""]
    best, median = row.best(figure), row.median(figure)
    ratios = [ratio(best, base.best(figure)), ratio(median, base.median(figure))]
    return [*head, figure.title, number(best), number(median), *ratios, _also(result, row), target]


def table(results: list[Result], targets: dict[str, str]) -> str:
    """Return the whole table; `targets` has what to say beside our row, by group."""
    lines: list[list[str]] = [list(HEADINGS)]
    for result in results:
        for row in result.rows:
            target = targets.get(result.group.name, "") if row.contestant.name == result.group.ours else ""
            lines.append(_cells(result, row, result.group.figures[0], target))
    # A row that did not run says why in the place of its figures, as wide as it likes.
    ran = [cells for cells in lines if cells[3]]
    widths = [max(len(cells[column]) for cells in ran) for column in range(len(HEADINGS))]
    widths[1] = max(len(cells[1]) for cells in lines)
    written: list[str] = []
    previous = ""
    for cells in lines:
        if cells[0] != previous:
            written.append("")
            previous = cells[0]
        padded = [
            cell.ljust(width) if column in LEFT_ALIGNED else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        written.append("  ".join(padded).rstrip())
    return "\n".join(written[1:])

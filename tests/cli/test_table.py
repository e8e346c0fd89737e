"""Tables fit the terminal they are for."""

import pytest

from tether.cli.table import Cell, Column, cell_width, cut, render, size_words, time_words

COLUMNS = (Column("ID"), Column("SIZE", expendable=2, right=True), Column("TIME", expendable=1), Column("COMMAND"))
ROWS = [
    [Cell("3f2a"), Cell("1 B"), Cell("2s"), Cell("make -j8 all")],
    [Cell("81c0d"), Cell("1000 B"), Cell("10m", "31"), Cell("sleep 1")],
]


@pytest.mark.requirement("design:cli:tables")
def test_columns_are_aligned_and_nothing_is_cut_without_a_width() -> None:
    assert render(COLUMNS, ROWS, width=None, colour=False) == [
        "ID       SIZE  TIME  COMMAND",
        "3f2a      1 B  2s    make -j8 all",
        "81c0d  1000 B  10m   sleep 1",
    ]


@pytest.mark.requirement("design:cli:tables")
@pytest.mark.parametrize("width", range(1, 60))
def test_no_line_is_wider_than_the_terminal_as_long_as_the_ids_fit(width: int) -> None:
    lines = render(COLUMNS, ROWS, width=width, colour=False)
    assert max(map(len, lines)) <= max(width, len("81c0d  …"))
    assert [line.split()[0] for line in lines] == ["ID", "3f2a", "81c0d"]


@pytest.mark.requirement("design:cli:tables")
def test_the_least_needed_columns_go_first_and_the_last_one_is_cut() -> None:
    assert [line.split()[1] for line in render(COLUMNS, ROWS, width=30, colour=False)] == ["TIME", "2s", "10m"]
    assert render(COLUMNS, ROWS, width=14, colour=False) == ["ID     COMMAND", "3f2a   make -…", "81c0d  sleep 1"]


@pytest.mark.requirement("design:cli:tables")
def test_colours_do_not_disturb_the_alignment() -> None:
    plain = render(COLUMNS, ROWS, width=60, colour=False)
    painted = render(COLUMNS, ROWS, width=60, colour=True)
    assert "\x1b[31m10m\x1b[0m" in painted[2]
    for code in ("\x1b[31m", "\x1b[1m", "\x1b[0m"):
        painted = [line.replace(code, "") for line in painted]
    assert painted == plain


@pytest.mark.requirement("design:cli:tables")
@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("abcd", 1, "…"),
    ],
)
def test_cutting_counts_columns_of_the_terminal(text: str, width: int, expected: str) -> None:
    assert cut(text, width) == expected
    assert cell_width(cut(text, width)) <= width


@pytest.mark.requirement("design:cli:tables")
def test_sizes_and_times_are_short() -> None:
    assert [size_words(count) for count in (0, 999, 1000, 10_240, 1_048_576, 3_000_000_000)] == [
        "0 B",
        "999 B",
        "1.0 K",
        "10 K",
        "1.0 M",
        "2.8 G",
    ]
    assert [time_words(value) for value in (-1, 0.4, 59.9, 60, 61, 3600, 3661, 90_000, 864_000)] == [
        "0s",
        "0s",
        "59s",
        "1m",
        "1m 1s",
        "1h",
        "1h 1m",
        "1d 1h",
        "10d",
    ]

"""Stretches of terminal cells that look alike."""

from dataclasses import dataclass, replace

FLAG_CODES = {
    "bold": "1",
    "faint": "2",
    "italic": "3",
    "blink": "5",
    "inverse": "7",
    "invisible": "8",
    "strikethrough": "9",
    "overline": "53",
}


@dataclass(frozen=True, slots=True)
class StyledRun:
    """Neighbouring cells of one style; colours are a palette number, `#rrggbb` or None for the default.

    `flags` are names out of bold, faint, italic, blink, inverse, invisible, strikethrough and overline;
    `underline` is 0 for none, 1 single, 2 double, 3 curly, 4 dotted, 5 dashed.
    """

    text: str
    fg: int | str | None = None
    bg: int | str | None = None
    flags: tuple[str, ...] = ()
    underline: int = 0


def append_text(runs: list[StyledRun], pieces: list[str]) -> None:
    """Give the last run its text; a run of the same style before it takes it over."""
    if not runs:
        return
    run = replace(runs.pop(), text="".join(pieces))
    pieces.clear()
    if runs and replace(runs[-1], text="") == replace(run, text=""):
        run = replace(run, text=runs.pop().text + run.text)
    runs.append(run)


def select_style(run: StyledRun) -> bytes:
    """The sequence that selects a run's style in a terminal."""
    codes = ["0", *(FLAG_CODES[flag] for flag in run.flags)]
    if run.underline:
        codes.append(f"4:{run.underline}")
    for base, colour in ((38, run.fg), (48, run.bg)):
        if isinstance(colour, int):
            codes.append(f"{base};5;{colour}")
        elif colour is not None:
            codes.append(f"{base};2;" + ";".join(str(part) for part in bytes.fromhex(colour[1:])))
    return f"\x1b[{';'.join(codes)}m".encode()


def shows_on_blanks(run: StyledRun) -> bool:
    """Whether even a space of this style can be seen."""
    return (
        run.bg is not None or run.underline > 0 or not {"inverse", "strikethrough", "overline"}.isdisjoint(run.flags)
    )

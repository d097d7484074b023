"""Tables and bars of the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from noiseproof.jacobian.spectrum import RunSpectrum

console = Console()


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]], caption: str | None = None) -> Table:
    """A table whose first column is text and whose others are figures, unless they are text too; no word is markup."""
    view = Table(title=escape(title), title_justify="left", caption=caption and escape(caption), caption_justify="left")
    rows = list(rows)
    columns = [[row[place] for row in rows] for place in range(len(header))]
    figures = [place > 0 and all(one[:1] in "–+-0123456789" for one in cells) for place, cells in enumerate(columns)]
    least = []  # a figure is never broken over lines, nor a word
    for name, cells, whole in zip(header, columns, figures, strict=True):
        words = name.split() + (cells if whole else [word for cell in cells for word in cell.split()])
        least.append(max(map(cell_len, words), default=0))
    most = [max(map(cell_len, [name, *cells])) for name, cells in zip(header, columns, strict=True)]
    widths = fitted(least, most, console.width - 3 * len(header) - 1)
    for place, (name, width) in enumerate(zip(header, widths, strict=True)):
        justify: JustifyMethod = "right" if figures[place] else "left"
        view.add_column(escape(name), justify=justify, style="bold" if place == 0 else None, width=width)
    for row in rows:
        view.add_row(*map(escape, row))
    return view


def fitted(least: Sequence[int], most: Sequence[int], room: int) -> list[int]:
    """Widths of columns between these: the `room` that is left goes to those that lack most of theirs."""
    widths = list(least)
    while sum(widths) < room and any(width < full for width, full in zip(widths, most, strict=True)):
        lacking = [full / max(width, 1) for width, full in zip(widths, most, strict=True)]
        widths[lacking.index(max(lacking))] += 1
    return widths


def show(view: Table) -> None:
    """Print a table; one too wide for the terminal, or for a pipe's 80 columns, runs over rather than lose figures."""
    needed = sum(column.width or 0 for column in view.columns) + 3 * len(view.columns) + 1
    view.width = needed if needed > console.width else None
    console.print(view, crop=False)


def print_spectrum(found: RunSpectrum) -> None:
    """The table of `noiseproof jacobian`."""
    rows = []
    for name, spectrum, shares in (
        ("at initialisation", found.initial, found.initial_shares),
        ("now", found.now, found.now_shares),
    ):
        inside = [f"{100 * shares[key].information:.0f} %" if key in shares else "–" for key in _VECTORS]
        rows.append([name, f"{float(spectrum.values[0]):.4g}", str(spectrum.count(0.1)), *inside])
    header = ["weights", "top value", "number", *_VECTORS]
    n, parameters = found.now.shape
    caption = "Number: of singular values above 0.1 of the top one. Then what share of a vector lies in their space."
    show(table(f"The Jacobian, {n:,} × {parameters:,}", header, rows, caption=caption))


_VECTORS = ("residual", "labels", "noise")


def wrote(path: Path, more: str = "") -> None:
    """Say where a file or folder is, whatever brackets its name has."""
    console.print(f"Wrote [bold]{escape(str(path))}[/bold]{escape(more)}")

"""Tables and bars of the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from noiseproof.jacobian.spectrum import RunSpectrum

console = Console()


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]], caption: str | None = None) -> Table:
    """A table whose first column is text and whose others are figures, unless they are text too."""
    view = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    rows = list(rows)
    for place, name in enumerate(header):
        figures = place > 0 and all(row[place][:1] in "–0123456789" for row in rows)
        words = [row[place] for row in rows] if figures else [word for row in rows for word in row[place].split()]
        view.add_column(
            name,
            justify="right" if figures else "left",
            style="bold" if place == 0 else None,
            min_width=max(map(len, words), default=0),  # a figure is never broken over lines, nor a word
        )
    for row in rows:
        view.add_row(*row)
    return view


def show(view: Table) -> None:
    """Print a table; one too wide for the terminal, or for a pipe's 80 columns, runs over rather than lose figures."""
    needed = console.measure(view).minimum
    console.print(view, width=max(console.width, needed), crop=False)


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

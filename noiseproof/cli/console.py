"""Tables and bars of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from noiseproof.jacobian.spectrum import RunSpectrum
    from noiseproof.papers.experiment import Experiment
    from noiseproof.papers.grid import Outcome

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


METHODS_CAPTION = "Cost: of a training step, relative to ce. Wrappers go around another method: 'early_stop(elr)'."


def print_methods() -> None:
    """The table of `noiseproof methods`."""
    from noiseproof import methods

    rows = [(row.name, _clause(row.description), row.paper, row.needs, row.cost) for row in methods.table()]
    header = ("name", "what it does", "paper", "needs", "cost")
    show(table("Methods", header, rows, caption=METHODS_CAPTION))


def _clause(text: str) -> str:
    """A description up to its first colon, semicolon or full stop."""
    return re.split(r"[:;.]\s|\.$", text, maxsplit=1)[0]


def print_models() -> None:
    """The table of `noiseproof models`."""
    from noiseproof import models

    rows = [(row.name, row.about, f"{row.parameters:,}") for row in models.table()]
    show(table("Networks", ("name", "what it is", "parameters"), rows))


def print_recipes() -> None:
    """The table of `noiseproof recipes`."""
    from noiseproof.recipes import RECIPES

    rows = [(name, one.verb, one.about, one.paper) for name, one in RECIPES.items()]
    show(table("Recipes", ("name", "for", "what it is", "from"), rows))


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


def print_experiments() -> None:
    """The table of `noiseproof reproduce`."""
    from noiseproof.papers import experiments

    rows = [(one.name, one.title, one.paper, ", ".join(one.scales)) for one in experiments().values()]
    show(table("Experiments", ("name", "what it shows", "from", "scales"), rows))


def wrote(path: Path, more: str = "") -> None:
    """Say where a file or folder is, whatever brackets its name has."""
    console.print(f"Wrote [bold]{escape(str(path))}[/bold]{escape(more)}")


def print_outcome(experiment: Experiment, outcome: Outcome) -> None:
    """The table of a finished experiment, and where its files are."""
    figures = experiment.table(outcome.done)
    if figures is not None:
        show(table(f"{experiment.title} ({experiment.paper})", *figures))
    wrote(outcome.picture, f" and {outcome.results}")

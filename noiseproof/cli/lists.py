"""What there is: `noiseproof methods | recipes | models`."""

from __future__ import annotations

import re

from noiseproof.cli.app import app

METHODS_CAPTION = "Cost: of a training step, relative to ce. Wrappers go around another method: 'early_stop(elr)'."


@app.command()
def methods() -> None:
    """List the methods: what each is called, where it comes from, what it needs and costs."""
    from noiseproof import methods
    from noiseproof.cli.console import show, table

    rows = [(row.name, f"{_clause(row.description)} ({row.paper})", row.needs, row.cost) for row in methods.table()]
    header = ("name", "what it does", "needs", "cost")
    show(table("Methods", header, rows, caption=METHODS_CAPTION))


def _clause(text: str) -> str:
    """A description up to its first colon, semicolon or full stop."""
    return re.split(r"[:;.]\s|\.$", text, maxsplit=1)[0]


@app.command()
def recipes() -> None:
    """List the papers' settings that `fit` and `pretrain` take as --recipe."""
    from noiseproof.cli.console import show, table
    from noiseproof.recipes import RECIPES

    rows = [(name, one.verb, one.about, one.paper) for name, one in RECIPES.items()]
    show(table("Recipes", ("name", "for", "what it is", "from"), rows))


@app.command()
def models() -> None:
    """List the networks and their sizes."""
    from noiseproof import models
    from noiseproof.cli.console import show, table

    rows = [(row.name, row.about, f"{row.parameters:,}") for row in models.table()]
    show(table("Networks", ("name", "what it is", "parameters"), rows))

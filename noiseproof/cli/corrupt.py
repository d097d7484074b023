"""`noiseproof corrupt`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noiseproof.cli.app import app


@app.command(epilog="[bold]Example[/bold]  noiseproof corrupt clean.csv noisy.csv --noise symmetric:0.3")
def corrupt(
    source: Annotated[Path, typer.Argument(help="A CSV, Parquet or npz file.")],
    target: Annotated[Path, typer.Argument(help="Where to write the noisy copy.")],
    noise: Annotated[
        str,
        typer.Option(help="symmetric:0.4, symmetric-any:0.4, asymmetric:0.4, derangement:0.4, pair:0.2, instance:0.3."),
    ],
    label_column: Annotated[str | None, typer.Option(help="The column that holds the label.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same labels.")] = 0,
) -> None:
    """Write a copy of a table with noisy labels; the old ones are kept as `true_label`."""
    from noiseproof.cli.console import wrote
    from noiseproof.data.corrupt import corrupt_table

    summary = corrupt_table(source, target, label_column=label_column, spec=noise, seed=seed)
    wrote(target, f": {summary.changed:,} of {summary.n:,} labels changed")

"""`noiseproof reproduce`: added to the command line by an entry point, as the product knows nothing of papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noiseproof.cli.app import app, interruptible

EXAMPLES = """[bold]Examples[/bold]

  noiseproof reproduce

  noiseproof reproduce sop-fig2

  noiseproof reproduce sop-table1 --data data/ --seeds 3 --workers 2

  noiseproof reproduce ledger --out docs/ledger.md
"""


@app.command(epilog=EXAMPLES)
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A figure or a table, or ledger; none: list them.", show_default=False)
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            help="small (minutes on a laptop), features (of a frozen network, minutes), medium (all of CIFAR-10, "
            "hours) or paper (the exact recipe).",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Runs of each setting; by default the experiment's.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The folder of your data sets, e.g. of cifar-10-batches-py.", show_default=False)
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=1000, help="Processes; they share the cores.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Where the results go; by default results/NAME-SCALE.", show_default=False)
    ] = None,
    cells: Annotated[
        int | None, typer.Option(min=0, help="Run at most so many, the rest another day; 0: only show what there is.")
    ] = None,
    publish: Annotated[
        bool,
        typer.Option(
            "--publish", help="Also write the small files of results that docs and ledger cite, finished or not."
        ),
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what published results hold.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Run a figure or a table of a paper: a PNG and a JSON file. The same command goes on after an interruption."""
    from noiseproof.cli.console import show, table, wrote
    from noiseproof_papers import build, experiments, grid, results

    if name is None:
        rows = [(one.name, one.title, one.paper, ", ".join(one.scales)) for one in experiments().values()]
        show(table("Experiments", ("name", "what it shows", "from", "scales"), rows))
        return
    if name == "ledger":
        _write_ledger(out or Path("results") / "ledger.md")
        return
    experiment = build(name)
    folder = out or Path("results") / f"{name}-{scale or experiment.scales[0]}"
    with interruptible():
        outcome = grid.reproduce(
            experiment, out=folder, scale=scale, seeds=seeds, data=data, workers=workers, progress=not quiet,
            most=cells, fresh=fresh,
        )  # fmt: skip
    if outcome.table is not None:
        show(table(f"{experiment.title} ({experiment.paper})", *outcome.table))
    if outcome.picture is not None:
        wrote(outcome.picture, f" and {outcome.results}")
    else:
        wrote(
            outcome.results, f": {len(outcome.done)} of {outcome.total} cells; the same command without --cells goes on"
        )
    if publish:
        wrote(results.publish(experiment, outcome.results))


def _write_ledger(path: Path) -> None:
    from noiseproof import files
    from noiseproof.cli.console import wrote
    from noiseproof_papers import ledger

    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, ledger.page())
    wrote(path)

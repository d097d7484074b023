"""`noiseproof relabel`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noiseproof.cli.app import app
from noiseproof.errors import InputError

if TYPE_CHECKING:
    from noiseproof.data.decisions import Decisions
    from noiseproof.data.relabel import Relabelled

EXAMPLES = """[bold]Examples[/bold]

  noiseproof relabel photos/ --decisions runs/photos-auto-s0 --out photos-clean

  noiseproof relabel table.csv --decisions audit/ --auto 0.95 --out clean.csv --dry-run
"""


@app.command(epilog=EXAMPLES)
def relabel(
    data: Annotated[Path, typer.Argument(help="What was reviewed: an image folder, a CSV, Parquet or npz file.")],
    decisions: Annotated[
        Path, typer.Option(help="A reviewed run or audit, or a table of decisions (CSV, Parquet): id, decision, label.")
    ],
    out: Annotated[Path, typer.Option(help="Where to write the corrected copy.")],
    auto: Annotated[
        float | None, typer.Option(help="Take suggestions of at least this confidence, too, without review.")
    ] = None,
    label_column: Annotated[str | None, typer.Option(help="The column that holds the label.")] = None,
    split: Annotated[
        str, typer.Option(help="test: the data is the reviewed test set, in a file of its own.")
    ] = "train",
    copy: Annotated[bool, typer.Option("--copy", help="Copy images; by default they are hard links.")] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also where a label is not the one that was reviewed (--noise, --labels).")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change; write nothing.")] = False,
) -> None:
    """Write corrected data in the form it came in, and the decisions beside it as CSV."""
    from noiseproof import checks
    from noiseproof.cli.console import wrote
    from noiseproof.data.relabel import relabel as write

    checks.choice("--split", split, ("train", "test"))
    chosen = decided(decisions, None if auto is None else checks.fraction("--auto", auto))
    done = write(data, chosen, out, label_column=label_column, split=split, copy=copy, anyway=anyway, dry_run=dry_run)
    _tell(done)
    if done.table is not None:
        wrote(done.path, f" and {done.table.name}")


def decided(source: Path, auto: float | None) -> Decisions:
    """The decisions in a folder or file; with `auto`, what its labels.parquet suggests for all others."""
    from noiseproof.data.decisions import FILE, decisions_of, suggestions

    if auto is None:
        return decisions_of(source)
    labels = source / "labels.parquet"
    if not labels.is_file():
        raise InputError(f"--auto takes the suggestions in a run or an audit, and {source} is none; leave it out")
    return suggestions(labels, auto) | (decisions_of(source) if (source / FILE).is_file() else {})


def _tell(done: Relabelled) -> None:
    from noiseproof.cli.console import show, table

    rows = [[f"{old} → {new}", f"{count:,}"] for (old, new), count in done.changed.most_common(30)]
    rest = sum(done.changed.values()) - sum(count for _, count in done.changed.most_common(30))
    rows += [["other pairs", f"{rest:,}"]] if rest else []
    rows += [["dropped", f"{done.dropped:,}"], ["kept as they are, on purpose", f"{done.confirmed:,}"]]
    away = f"{done.elsewhere:,} decisions are of the other set: see --split." if done.elsewhere else None
    show(table(f"{sum(done.changed.values()):,} of {done.n:,} labels change", ["", "examples"], rows, caption=away))

"""`noiseproof review`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noiseproof.cli.app import app
from noiseproof.cli.options import DATA_OF_RUN, Options, Source, with_options
from noiseproof.errors import InputError

if TYPE_CHECKING:
    from noiseproof.data.relabel import Relabelled
    from noiseproof.reviewing.examples import Cells, Embed, Examples
    from noiseproof.reviewing.items import Items
    from noiseproof.reviewing.session import Counted, Review
    from noiseproof.runs.label_report import LabelReport

EXAMPLES = """[bold]Examples[/bold]

  noiseproof review runs/photos-auto-s0

  noiseproof review audit/ --name Ada --port 8000 --no-browser
"""


@app.command(epilog=EXAMPLES)
@with_options(Source)
def review(
    run: Annotated[Path, typer.Argument(help="The folder of a finished fit or audit.")],
    data: DATA_OF_RUN = None,
    name: Annotated[str, typer.Option(help="Your name, kept with each decision.")] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="On this machine alone; 0: one that is free.")] = 0,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="First judge the labels again, in the light of what was decided.")
    ] = False,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    **source: Any,
) -> None:
    """Look at suspected labels in a browser and decide; each decision is on the disk at once."""
    from noiseproof.reviewing import need_extra

    need_extra()
    from noiseproof.reviewing.server import serve

    one = opened(run, {"data": data, **source}, name, quiet)
    if refresh:
        one.refresh()  # the page shows how far it has come
    try:
        serve(one, port=port, browser=browser, announce=_Announcer())
    finally:
        one.close()
    typer.echo(f"All decisions are in {one.store.path}.", err=True)


def opened(run: Path, given: Options, who: str = "", quiet: bool = True) -> Review:
    """The review of a run or an audit, its data read again."""
    import pyarrow as pa

    from noiseproof.cli.reading import data_of, read
    from noiseproof.data.readers.table_files import read_table
    from noiseproof.reviewing.examples import Examples
    from noiseproof.reviewing.items import LABELS, Items
    from noiseproof.reviewing.session import Review

    options = data_of(run, given, "review")
    labels = dict.fromkeys(("limit", "noise", "labels", "true_labels", "decisions"))  # those reviewed are the table's
    if not (run / LABELS).is_file():
        raise InputError(f"{run} has no {LABELS}; pass the folder of a finished fit or audit")
    tested = "test" in read_table(run / LABELS, ["split"]).column("split").unique().to_pylist()
    train, test = read(options | labels, quiet, whole=not tested, tested=tested, decode=False)
    cells, embed = _cells(options), _embed(run)

    def joined() -> tuple[Items, Examples]:
        items = Items(run / LABELS, train.class_names)
        return items, Examples(items, train, test, cells=cells, embed=embed)

    def judged(progress: Counted) -> tuple[Items, Examples]:
        from noiseproof.reviewing.refresh import replace_rows

        replace_rows(run / LABELS, _judged_again(run, options, progress))
        return joined()

    items, examples = joined()
    pa.default_memory_pool().release_unused()  # what reading took and nobody needs any more
    source = str(options["data"])
    column = options["label_column"]
    named = "" if column is None else f" --label-column {shlex.quote(column)}"
    hint = f"noiseproof relabel {shlex.quote(source)}{named} --decisions {shlex.quote(str(run))} --out CLEAN"
    return Review(
        run, items, examples, title=Path(source).name, who=who, hint=hint, refresh=judged,
        export=lambda: _export(run, options),
    )  # fmt: skip


def _judged_again(run: Path, options: Options, progress: Counted) -> LabelReport:
    """A run by its evidence, an audit in the way it was made; both with what was decided as known."""
    from noiseproof.cli.audit import of_data
    from noiseproof.cli.reading import read
    from noiseproof.data.decisions import decisions_of
    from noiseproof.reviewing.refresh import judged_again, known_of
    from noiseproof.runs.evidence import EVIDENCE, read_evidence

    if (run / EVIDENCE).is_file():
        train, _ = read(options | {"decisions": None}, quiet=True)
        return judged_again(read_evidence(run, train), known_of(train, decisions_of(run)))
    chosen = {name: options.get(name) for name in ("pred_probs", "features", "model", "method", "epochs", "augment")}
    return of_data(options | {"decisions": str(run)}, chosen, {}, quiet=True, counted=progress)


def _cells(options: Options) -> Cells | None:
    """What a table says of its examples beside what a network is given."""
    from noiseproof.data.readers import tables
    from noiseproof.reviewing.examples import table_cells

    path = Path(str(options["data"]))
    if not path.is_file() or not (tables.is_parquet(path) or tables.is_csv(path)):
        return None
    table, ids = tables.cells(path, options["label_column"])
    return table_cells(table, ids) if table.num_columns else None


def _embed(run: Path) -> Embed | None:
    """The features of the run's own network, if it left one that can be built again: examples are compared by them."""
    from noiseproof.reviewing.examples import embed_with
    from noiseproof.runs.loading import load_backbone

    try:
        return embed_with(load_backbone(run))
    except InputError:  # an audit has no network, and one's own cannot be built here
        return None


def _export(run: Path, options: Options) -> Relabelled:
    """Write the corrected data into the folder of the run, under a new name."""
    from noiseproof.data.decisions import decisions_of
    from noiseproof.data.relabel import relabel

    source = Path(str(options["data"]))
    suffix = source.suffix if source.is_file() else ""
    target, number = run / f"clean{suffix}", 1
    while target.exists():
        number += 1
        target = run / f"clean-{number}{suffix}"
    return relabel(source, decisions_of(run), target, label_column=options["label_column"])


class _Announcer:
    """Says which link opens the page; each works once."""

    def __init__(self) -> None:
        self.first = True

    def __call__(self, link: str) -> None:
        typer.echo(f"Review at {link}\nCtrl-C ends it." if self.first else f"For another browser: {link}", err=True)
        self.first = False

"""`noiseproof bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from noiseproof.cli.app import app, interruptible
from noiseproof.cli.options import FEATURES, JOBS, QUIET, Source, option, with_options
from noiseproof.cli.sets import NOT_OF_A_CELL
from noiseproof.errors import InputError
from noiseproof.training.settings import DATA, RUN, TRAIN, Fitting

EXAMPLES = """[bold]Examples[/bold]

  noiseproof bench digits --noise none,symmetric:0.4 --methods ce,elr,sop --seeds 3 --jobs 2

  noiseproof bench photos/ --test checked/ --image-size 32 --methods 'ce,early_stop(elr)'

  noiseproof bench cifar10-train.parquet --features imagenet --noise labels:cifar10n.csv:aggre_label --limit 10000

  noiseproof bench --leaderboard --out docs                  the results that come with this version
"""
METHODS = "ce,gce,elr,sop,early_stop(ce)"


@app.command(epilog=EXAMPLES)
@with_options(Fitting, Source, without=("method", "seed", *NOT_OF_A_CELL))
def bench(
    data: Annotated[
        list[str] | None, typer.Argument(help="One data set or several, as of fit.", show_default=False)
    ] = None,
    methods: Annotated[str, option("Methods and stacks, with commas between, or all.", panel=TRAIN)] = METHODS,
    noise: Annotated[
        str | None,
        option(
            "Kinds of noise, with commas between: none,symmetric:0.4,labels:FILE:COLUMN. Without it the labels are "
            "taken as they are, and right ones are those of --test alone.",
            panel=DATA,
        ),
    ] = None,
    seeds: Annotated[int, option("Runs of each method.", panel=RUN, min=1, max=1000)] = 3,
    features: FEATURES = None,
    class_names: Annotated[
        str | None,
        option("Names for classes that are numbers, in their order; asymmetric noise may know them.", panel=DATA),
    ] = None,
    test_limit: Annotated[int | None, option("Use only so many test examples.", panel=DATA, min=1)] = None,
    equal_time: Annotated[
        bool, option("A second table: the epochs that fit into the processor time of ce.", "--equal-time", panel=RUN)
    ] = False,
    jobs: JOBS = 1,
    out: Annotated[Path | None, option("Where the cells and the page go; by default bench/DATA.", panel=RUN)] = None,
    leaderboard: Annotated[
        bool, option("No runs: write the page of the committed results to --out.", "--leaderboard", panel=RUN)
    ] = False,
    publish: Annotated[
        Path | None,
        option("Also write the results to this file, small enough to commit; what it has is not run again.", panel=RUN),
    ] = None,
    quiet: QUIET = False,
    **given: Any,
) -> None:
    """Compare methods: each on the same data, noise and seeds. The same command goes on after an interruption."""
    from functools import partial

    from noiseproof.benching import CANDIDATES, page, plan, published
    from noiseproof.benching.cells import CELLS, complete, read
    from noiseproof.benching.trial import trial
    from noiseproof.cli import sets
    from noiseproof.cli.console import show, table, wrote

    if leaderboard:
        wrote(page.write(out or Path("bench"), published.committed()))
        return
    if not data:
        raise InputError("give the data, e.g. noiseproof bench digits --noise symmetric:0.4 (see bench --help)")
    if features not in (None, "imagenet"):
        raise InputError(f"--features must be imagenet, got {features!r}")
    options = given | {"features": features, "class_names": class_names}
    cells = plan.cells(
        [sets.source_of(one, options) for one in data], sets.noises_of(noise), _names(methods), seeds,
        sets.settings_of_fit(options), limit=given["limit"], tested=test_limit,
    )  # fmt: skip
    sets.check(cells, given["device"], quiet)
    folder = out or Path("bench") / Path(data[0]).name.split(".")[0]
    log = folder / CELLS
    run = partial(
        complete,
        partial(trial, sets.sets, folder, given["device"]),
        log=log,
        workers=jobs,
        option="--jobs",
        progress=not quiet,
    )
    with interruptible():
        records, _ = run(cells=cells, what="bench", borrow=partial(plan.known, log, publish, cells))
        if equal_time:
            again = plan.in_equal_time(records, [*read(log), *published.records(publish)])
            run(cells=again, what="bench, equal time", borrow=partial(plan.known, log, publish, again))
    records = plan.judged(read(log), folder, CANDIDATES)
    for part in page.sections(records):
        if part.title.startswith(("Accuracy", "Against", "Cost")):
            rows = [[str(cell) for cell in row] for row in part.rows]
            show(table(part.title, list(part.header), rows, caption=part.about))
    wrote(page.write(folder, records), f" and leaderboard.md, leaderboard.png; cells in {log}")
    if publish is not None:
        published.publish(records, publish)
        wrote(publish)


def _names(text: str) -> list[str]:
    """The methods asked for; all are those that need no other, and the wrappers of ce."""
    from noiseproof import methods
    from noiseproof.cli.sets import split_outside
    from noiseproof.method import Wrapper

    if text != "all":
        return list(dict.fromkeys(split_outside(text)))
    return [f"{name}(ce)" if issubclass(cls, Wrapper) else name for name, cls in methods.registry().items()]

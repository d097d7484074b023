"""`noiseproof compare`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from noiseproof.benching import CANDIDATES
from noiseproof.cli.app import app, interruptible
from noiseproof.cli.options import FEATURES, JOBS, QUIET, Source, given_by_hand, option, with_options
from noiseproof.cli.sets import NOT_OF_A_CELL
from noiseproof.training.settings import RUN, TRAIN, Fitting

EXAMPLES = """[bold]Examples[/bold]

  noiseproof compare table.csv --label-column species

  noiseproof compare photos/ --features imagenet --methods 'auto,ce,gce,elr,early_stop(ce)' --jobs 2
"""


@app.command(epilog=EXAMPLES)
@with_options(Fitting, Source, without=("method", "seed", "test", *NOT_OF_A_CELL))
def compare(
    context: typer.Context,
    data: Annotated[str, typer.Argument(help="Your data, as of fit; no label of it need be right.")],
    methods: Annotated[str, option("The candidates, with commas between.", panel=TRAIN)] = ",".join(CANDIDATES),
    features: FEATURES = None,
    jobs: JOBS = 1,
    out: Annotated[Path | None, option("Where the runs' figures go; by default compare/DATA.", panel=RUN)] = None,
    quiet: QUIET = False,
    **given: Any,
) -> None:
    """Say which method suits your data, without a single label that is known to be right."""
    from functools import partial

    from rich.markup import escape

    from noiseproof.benching import criteria, plan, published
    from noiseproof.benching.cells import CELLS, complete
    from noiseproof.benching.trial import trial
    from noiseproof.cli import sets
    from noiseproof.cli.console import console, show, table, wrote
    from noiseproof.errors import InputError

    names = list(dict.fromkeys(sets.split_outside(methods)))
    if len(names) < 2:
        raise InputError(f"--methods must name two candidates or more, got {methods!r}")
    if features not in (None, "imagenet"):
        raise InputError(f"--features must be imagenet, got {features!r}")
    if not given["val"]:
        raise InputError("the candidates are told apart by labels held out; leave --val at 0.1 or above")
    options = given | {"features": features, "class_names": None, "test": None}
    source = sets.source_of(data, options)
    cells = plan.cells([source], [None], names, 1, sets.settings_of_fit(options), limit=given["limit"])
    sets.check(cells, given["device"], quiet)
    folder = out or Path("compare") / Path(data).name.split(".")[0]
    with interruptible():
        records, _ = complete(
            partial(trial, sets.sets, folder, given["device"]), cells, folder / CELLS,
            what="compare", workers=jobs, option="--jobs", progress=not quiet,
        )  # fmt: skip
    known = [one for one in plan.judged(records, folder) if "corrected" in one["figures"]]
    if not known:
        raise InputError(f"no candidate could be trained: {records[0]['figures'].get('failed')}")
    known.sort(key=lambda one: -one["figures"][criteria.PICKS])
    rows = [[one["cell"]["method"], *_figures(one["figures"])] for one in known]
    header = ["method", *criteria.NAMES.values(), "between", "processor s"]
    caption = f"In % of the examples held out. By {criteria.NAMES[criteria.PICKS]}; noise by estimate: " + ", ".join(
        sorted({f"{100 * one['figures']['estimated']:.0f} %" for one in known})
    )
    show(table(f"Candidates on {Path(data).name}", header, rows, caption=caption))
    found = {name: criteria.track_record(published.committed(), name, CANDIDATES) for name in criteria.NAMES}
    past = [
        [
            criteria.NAMES[name],
            f"{one.correlation:.2f}",
            f"{100 * one.near:.0f} %",
            f"{one.regret:.1f}",
            f"{one.worst:.1f}",
        ]
        for name, one in found.items()
        if one is not None
    ]
    if past:
        header = ["criterion", "rank correlation", "pick within 1 point", "points below the best", "at worst"]
        show(table("How far these criteria are to be trusted", header, past, caption=_PAST))
    found_of = {one["cell"]["method"]: one["figures"] for one in known}
    best = criteria.pick(found_of, criteria.PICKS, [name for name in names if name in found_of])
    least = known[0]["figures"]["agreed"] - known[0]["figures"]["error"]
    near = [name for name, one in found_of.items() if name != best and one["agreed"] >= least]
    equal = f" Held-out labels do not tell it from {', '.join(near)}: it stands first in --methods." if near else ""
    chosen = {name: value for name, value in given_by_hand(context).items() if name in given} | {"method": best}
    typed = [f"--{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in chosen.items()]
    # there is no run of `fit` on features
    how = "" if features else f": noiseproof fit {shlex.quote(data)} {' '.join(typed)}"
    console.print(f"Take [bold]{escape(best)}[/bold]{escape(how)}.{escape(equal)}", highlight=False, soft_wrap=True)
    wrote(folder / CELLS)


_PAST = "Measured where the truth is known, on the leaderboard that comes with this version (docs/leaderboard.md)."


def _figures(figures: dict[str, Any]) -> list[str]:
    from noiseproof.benching import criteria

    shown = [f"{100 * figures[name]:.1f}" for name in criteria.NAMES]
    return [*shown, f"{100 * figures['low']:.1f}–{100 * figures['high']:.1f}", f"{figures['processor']:.1f}"]

"""Commands that show something: `noiseproof demo | reproduce | jacobian`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noiseproof.cli.app import app, interruptible
from noiseproof.cli.common import read
from noiseproof.errors import InputError

if TYPE_CHECKING:
    from noiseproof.data import LabeledData


@app.command(epilog="[bold]Example[/bold]  noiseproof demo --noise symmetric:0.6 --seeds 1")
def demo(
    noise: Annotated[str, typer.Option(help="How to corrupt the labels.")] = "symmetric:0.4",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training set.")] = 100,
    out: Annotated[Path, typer.Option(help="Where the picture, the table and the report go.")] = Path("runs/demo"),
) -> None:
    """See plain training memorise wrong labels, and robust training not."""
    from noiseproof.cli.demo import run_demo

    run_demo(noise, seeds, epochs, out)


REPRODUCE_EXAMPLES = """[bold]Examples[/bold]

  noiseproof reproduce

  noiseproof reproduce sop-fig2

  noiseproof reproduce sop-table1 --data data/ --seeds 3 --workers 2
"""


@app.command(epilog=REPRODUCE_EXAMPLES)
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A figure or a table; none: list them.", show_default=False)
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="small (minutes on a laptop) or paper (the exact recipe).", show_default=False)
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each setting; by default the experiment's.", show_default=False)
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The folder of your data sets, e.g. of cifar-10-batches-py.", show_default=False)
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes; they share the cores.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Where the results go; by default results/NAME-SCALE.", show_default=False)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Run a figure or a table of a paper: a PNG and a JSON file. The same command goes on after an interruption."""
    from noiseproof.cli.console import print_experiments, print_outcome
    from noiseproof.papers import build
    from noiseproof.papers.grid import reproduce as run

    if name is None:
        print_experiments()
        return
    experiment = build(name)
    folder = out or Path("results") / f"{name}-{scale or experiment.scales[0]}"
    with interruptible():
        outcome = run(experiment, out=folder, scale=scale, seeds=seeds, data=data, workers=workers, progress=not quiet)
    print_outcome(experiment, outcome)


@app.command(epilog="[bold]Example[/bold]  noiseproof jacobian runs/digits-ce-s0 --examples 300")
def jacobian(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    examples: Annotated[int, typer.Option(min=2, help="Training examples to use, at random.")] = 1000,
    k: Annotated[int, typer.Option(min=1, help="Singular values to compute; more if these are all large.")] = 40,
    outputs: Annotated[str, typer.Option(help="all: every class; correct: that of the label.")] = "all",
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Initial batch statistics: those of the examples, not 0 and 1.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """The singular values of a run's Jacobian, at initialisation and now: a table, and spectrum.png in its folder."""
    from noiseproof.cli.console import print_spectrum, wrote
    from noiseproof.files import write_atomically
    from noiseproof.jacobian.spectrum import plot_spectrum, spectrum_of_run
    from noiseproof.training.progress import counting

    train = _training_set(run, quiet)
    with counting("Jacobian", show=not quiet) as progress:
        found = spectrum_of_run(
            run, train, examples=examples, k=k, outputs=outputs, calibrate=calibrate, progress=progress
        )
    print_spectrum(found)
    picture = run / "spectrum.png"
    spectra = {"at initialisation": found.initial, "now": found.now}
    write_atomically(picture, lambda path: plot_spectrum(spectra, path))
    wrote(picture)


def _training_set(run: Path, quiet: bool) -> LabeledData:
    """What a run of `fit` was trained on, without what it held out, read again.

    Raises:
        InputError: it was not begun by the command line, or its data is not what it was.
    """
    from noiseproof.runs.folder import RunDir, describe
    from noiseproof.training.setup import split_validation

    if not run.is_dir():
        raise InputError(f"there is no folder {run}; pass that of a finished run of fit")
    config = RunDir(run).config()
    options = config["notes"].get("command")
    if not isinstance(options, dict) or not {"labels", "noise", "val", "feature_columns"} <= set(options):
        raise InputError(f"the run in {run} was not begun by noiseproof fit; call spectrum_of_run(run, data) in Python")
    train, _, _ = split_validation(read(options, quiet)[0], options["val"], options["seed"])
    if describe(train) != config["call"]["data"]:
        raise InputError(
            f"{options['data']} is not what the run in {run} was trained on; bring the data back as it was"
        )
    return train

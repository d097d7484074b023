"""`noiseproof jacobian`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noiseproof.cli.app import app
from noiseproof.errors import InputError

if TYPE_CHECKING:
    from noiseproof.data import LabeledData


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
    from noiseproof.cli.reading import command_of, read
    from noiseproof.runs.folder import RunFolder, describe
    from noiseproof.training.setup import split_validation

    options = command_of(run)
    if options is None or not {"labels", "noise", "val", "feature_columns"} <= set(options):
        raise InputError(f"the run in {run} was not begun by noiseproof fit; call spectrum_of_run(run, data) in Python")
    train, _, _ = split_validation(read(options, quiet)[0], options["val"], options["seed"])
    if describe(train) != RunFolder(run).config()["call"]["data"]:
        raise InputError(
            f"{options['data']} is not what the run in {run} was trained on; bring the data back as it was"
        )
    return train

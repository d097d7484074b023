"""`noiseproof fit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from noiseproof.cli.options import NoisySource, Options, training_command
from noiseproof.training.settings import Fitting

if TYPE_CHECKING:
    from noiseproof.runs.result import FitResult

EXAMPLES = """[bold]Examples[/bold]

  noiseproof fit digits --noise symmetric:0.4

  noiseproof fit photos/ --image-size 64 --model resnet34 --method 'early_stop(elr)'

  noiseproof fit table.csv --label-column species --method gce

  noiseproof fit cifar10-train.parquet --labels cifar10n.csv:random_label1 --true-labels own --method 'elr(lam=3)'

  noiseproof fit cifar-10-batches-py --noise symmetric:0.4 --recipe sop-cifar10-sym

  noiseproof fit cifar10-train.parquet --init runs/cifar10-sane --method sop

  noiseproof fit --out runs/digits-elr --resume
"""


@training_command(
    Fitting, NoisySource, epilog=EXAMPLES,
    data="digits, fashion-mnist, or a path: CSV, Parquet, npz, IDX, CIFAR batches, image folder.",
)  # fmt: skip
def fit(options: Options, resume: bool, quiet: bool) -> None:
    """Fit a model that does not memorise the wrong labels."""
    from noiseproof import distributed, methods
    from noiseproof.cli.reading import begin
    from noiseproof.training import fit as training
    from noiseproof.training.interrupt import Interrupted

    run = begin("fit", Fitting, options, methods.build(options["method"]), resume, quiet)
    try:
        result = training.fit(**run)
    except Interrupted as stop:
        if stop.result is not None:
            report(stop.result, run["out"].path, f" so far, {stop.result.run.epoch} of {stop.result.run.epochs} epochs")
        raise
    if distributed.is_main():
        report(result, run["out"].path)


def report(result: FitResult, folder: Path, when: str = "") -> None:
    """The closing table, what was found of the labels, and where it is."""
    from noiseproof.cli.console import console, show, table, wrote
    from noiseproof.runs.report import caution, figures, found, waited

    title = f"{result.method.title()} on {len(result.run.data):,} examples{when}"
    show(table(title, *figures(result), caption=caution(result)))
    for sentence in filter(None, (waited(result.history), found(result.report))):
        console.print(sentence, highlight=False)
    wrote(folder, ": report.html, labels.parquet (labels by probability), curves.png, weights")

"""`noiseproof fit`."""

from __future__ import annotations

from noiseproof.cli.options import NoisySource, Options, training_command, values
from noiseproof.training.settings import Fitting

EXAMPLES = """[bold]Examples[/bold]

  noiseproof fit digits --noise symmetric:0.4 --method elr

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
    from noiseproof.cli.console import console, show, table, wrote
    from noiseproof.cli.reading import read, run_folder, say_what_was_read
    from noiseproof.runs.report import caution, figures, found
    from noiseproof.training import fit as training

    method = methods.build(options["method"])
    folder = run_folder("fit", options, method.name, resume)
    train, test = read(options, quiet)
    if not quiet:
        say_what_was_read(options, train, test)
    result = training.fit(
        data=train, test=test, out=folder, resume=resume, progress=not quiet,
        **values(Fitting, options) | {"method": method},
    )  # fmt: skip
    if not distributed.is_main():
        return
    show(table(f"{method.title()} on {len(result.run.data):,} examples", *figures(result), caption=caution(result)))
    console.print(found(result.report), highlight=False)
    wrote(folder.path, ": report.html, labels.parquet (labels by probability), curves.png, weights")

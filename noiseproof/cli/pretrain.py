"""`noiseproof pretrain`."""

from __future__ import annotations

import typer

from noiseproof.cli.options import Options, Source, training_command
from noiseproof.training.settings import Pretraining

EXAMPLES = """[bold]Examples[/bold]

  noiseproof pretrain cifar10-train.parquet --model resnet18 --epochs 200

  noiseproof pretrain cifar10-train.parquet --method 'sane(crops=1)' --mix-augment sane-strong

  noiseproof pretrain photos/ --image-size 64 --method moco

  noiseproof pretrain cifar-10-batches-py --recipe sane-cifar10

  noiseproof pretrain --out runs/photos-moco-s0 --resume
"""


@training_command(
    Pretraining, Source, epilog=EXAMPLES,
    data="As of fit, or images or a table without labels: they are used to report, never to train.",
)  # fmt: skip
def pretrain(options: Options, resume: bool, quiet: bool) -> None:
    """Pre-train a backbone without labels: SANE, MoCo, SimCLR, BYOL or i-Mix."""
    from noiseproof import distributed, pretraining
    from noiseproof.cli.console import console, table, wrote
    from noiseproof.cli.reading import begin
    from noiseproof.pretraining.moco import crowded
    from noiseproof.pretraining.report import figures

    method = pretraining.build(options["method"])
    run = begin("pretrain", Pretraining, options, method, resume, quiet, labeled=False)
    caution = None if quiet or resume else crowded(method, len(run["data"]))
    if caution is not None and distributed.is_main():
        typer.echo(f"note: {caution}", err=True)
    result = pretraining.pretrain(**run)
    if distributed.is_main():
        console.print(table(f"{method.title()} on {len(run['data']):,} examples", *figures(result)))
        wrote(run["out"].path, ": report.html, backbone.safetensors, pictures")

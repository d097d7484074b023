"""`noiseproof probe`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noiseproof.cli.app import app
from noiseproof.cli.options import DATA_OF_RUN, Source, with_options
from noiseproof.errors import InputError

if TYPE_CHECKING:
    from noiseproof.data import LabeledData
    from noiseproof.runs.trained import Features

EXAMPLES = """[bold]Examples[/bold]

  noiseproof probe runs/cifar10-train-sane-s0

  noiseproof probe runs/photos-sane-s0 labelled-photos/ --image-size 64 --doubts doubts.parquet
"""


@app.command(epilog=EXAMPLES)
@with_options(Source)
def probe(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run of pretrain or fit.")],
    data: DATA_OF_RUN = None,
    k: Annotated[int, typer.Option(min=1, help="Neighbours that vote.")] = 50,
    protocol: Annotated[
        str, typer.Option(help="The linear classifier: convex (to the optimum), or the SANE paper's cifar10, imagenet.")
    ] = "convex",
    at_random: Annotated[bool, typer.Option("--random/--no-random", help="Probe random weights too.")] = True,
    export: Annotated[
        Path | None, typer.Option(help="Write the weights here (.safetensors), under torchvision's and timm's names.")
    ] = None,
    doubts: Annotated[
        Path | None, typer.Option(help="Write here (.parquet) how suspicious each label is, by its neighbours' labels.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    **source: Any,
) -> None:
    """How good a run's features are: k-NN and linear accuracy on the test set, beside those of random weights."""
    from noiseproof.cli.console import wrote
    from noiseproof.cli.reading import data_of, read
    from noiseproof.runs import loading
    from noiseproof.runs.export import write_weights
    from noiseproof.training.setup import match

    if doubts is not None and doubts.suffix != ".parquet":
        raise InputError(f"--doubts writes a Parquet table, got {doubts}; give it a name that ends in .parquet")
    for target in (doubts, export):
        if target is not None and target.exists():
            raise InputError(f"{target} is there already; choose another name, or delete it first")
    if run.is_file():
        raise InputError(f"{run} is a file; pass the folder of a finished run of pretrain or fit")
    trained = loading.load_backbone(run, device=device)
    options = data_of(run, {"data": data, **source}, "probe")
    known, asked = read(options, quiet, labeled=False)
    if asked is not None:
        asked = match("test", asked, known)
        assert asked is not None
        _print_accuracies(trained, known, asked, at_random, k=k, protocol=protocol, quiet=quiet)
        if doubts is not None:
            _write_doubts(doubts, trained, known, asked, k)
            wrote(doubts, ", the most suspicious labels first")
    elif export is None or doubts is not None:
        raise InputError(
            f"{options['data']} has no labels to probe with; pass labelled data: noiseproof probe {run} DATA"
        )
    if export is not None:
        write_weights(trained, export)
        wrote(export)


def _print_accuracies(
    trained: Features, known: LabeledData, asked: LabeledData, at_random: bool, *, k: int, protocol: str, quiet: bool
) -> None:
    from noiseproof.cli.console import console, table
    from noiseproof.pretraining import probes
    from noiseproof.runs import loading
    from noiseproof.training.progress import counting

    with counting("probing", show=not quiet):
        found = {"pre-trained": probes.probe(trained, known, asked, k=k, protocol=protocol)}
        if at_random:
            fresh = loading.untrained(trained.architecture, trained.normalize, trained.form)
            found["random weights"] = probes.probe(fresh, known, asked, k=k, protocol=protocol)
    rows = [[name, *(f"{100 * one[key]:.1f} %" for key in probes.PROBES)] for name, one in found.items()]
    title = f"{len(known):,} labelled examples, {len(asked):,} to tell"
    console.print(table(title, ["", f"{min(k, len(known))}-NN", "linear"], rows))


def _write_doubts(path: Path, trained: Features, known: LabeledData, asked: LabeledData, k: int) -> None:
    """A table of both sets, what the neighbours among the known say of each label."""
    import torch

    from noiseproof.pretraining import probes
    from noiseproof.training.run_audit import audit_run

    bank, classes = trained(known), known.num_classes
    own = probes.knn(bank, known.labels, k=k, num_classes=classes)
    told = probes.knn(bank, known.labels, trained(asked), k=k, num_classes=classes)
    reports = [
        audit_run(data, [(torch.arange(len(data)), said)], split)
        for data, said, split in ((known, own, "train"), (asked, told, "test"))
    ]
    reports[0].to_parquet(path, reports[1])

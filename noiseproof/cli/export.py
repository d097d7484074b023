"""`noiseproof export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noiseproof.cli.app import app

EXAMPLES = """[bold]Examples[/bold]

  noiseproof export runs/photos-auto-s0 model.onnx --softmax

  noiseproof export runs/photos-auto-s0 model.pt2

  noiseproof export runs/photos-sane-s0 backbone.safetensors
"""


@app.command(epilog=EXAMPLES)
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run of fit or pretrain.")],
    out: Annotated[Path, typer.Argument(help="A name that ends in .onnx, .pt2 or .safetensors (weights alone).")],
    softmax: Annotated[bool, typer.Option("--softmax", help="Give probabilities, not logits.")] = False,
    dtype: Annotated[str, typer.Option(help="Of images: uint8 (0..255), float32 (0..1), auto.")] = "auto",
) -> None:
    """The model of a run as one file for other programs, normalisation inside."""
    from noiseproof.cli.console import wrote
    from noiseproof.runs.export import export as write
    from noiseproof.training.progress import counting

    with counting("exporting"):
        done = write(run, out, softmax=softmax, dtype=dtype)
    if out.suffix == ".safetensors":
        wrote(out, ": weights; mean and std of the inputs in its metadata")
        return
    missing = ": not compared with the network, as onnxruntime is not installed"
    wrote(out, missing if done.difference is None else f": agrees with the network to {done.difference:.1g}")
    if done.encoder is not None:
        wrote(done.encoder, ": the features that it takes, from the columns (nf.load_encoder)")

"""`noiseproof demo`: real digits, some labels wrong; plain training against robust methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noiseproof.cli.app import app

if TYPE_CHECKING:
    from noiseproof.runs.result import FitResult

METHODS = {  # shown in this order
    "ce": "cross-entropy",
    "auto": "auto",
    "mixup": "mixup",
    "gce": "gce",
    "sce": "sce",
    "elr": "elr",
    "sop": "sop",
    "co_teaching(forget_rate={rate})": "co-teaching",
    "early_stop(ce)": "early stopping",
}


@app.command(epilog="[bold]Example[/bold]  noiseproof demo --noise symmetric:0.6 --seeds 1")
def demo(
    spec: Annotated[str, typer.Option("--noise", help="How to corrupt the labels.")] = "symmetric:0.4",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training set.")] = 100,
    out: Annotated[Path, typer.Option(help="Where the picture, the table and the report go.")] = Path("runs/demo"),
) -> None:
    """See plain training memorise wrong labels, and robust training not."""
    import torch

    from noiseproof import files, methods
    from noiseproof.benching.statistics import spread
    from noiseproof.cli.console import console, show, table, wrote
    from noiseproof.data import load, noise
    from noiseproof.runs.plots import plot_runs
    from noiseproof.runs.report import found, write_report
    from noiseproof.training.fit import fit
    from noiseproof.training.progress import reporter

    torch.set_num_threads(1)  # a network this small gains little from more, and loses much when others use them
    rate = noise.parse(spec).rate
    wrong = noise.apply(load("digits"), spec, seed=0).noise_rate or 0.0  # as it comes out, not as it was asked for
    console.print(f"Digits, {100 * wrong:.0f} % of the training labels wrong ({spec}); an mlp, {epochs} epochs.")
    for template in METHODS:
        methods.build(template.format(rate=rate))  # a rate that a method refuses is refused before anything is trained
    histories: dict[str, list[list[dict[str, Any]]]] = {}
    figures: dict[str, list[dict[str, float]]] = {}
    shown: FitResult | None = None
    count = 0
    for template, title in METHODS.items():
        for seed in range(seeds):
            count += 1
            clean, test = load("digits").split(0.2, seed=seed)
            train = noise.apply(clean, spec, seed=seed)
            result = fit(
                "mlp", train, template.format(rate=rate), epochs=epochs, batch_size=64, lr=0.05, weight_decay=5e-4,
                val=0.1, test=test, seed=seed, progress=reporter(True, f"{count} of {seeds * len(METHODS)}: "),
            )  # fmt: skip
            histories.setdefault(title, []).append(result.history)
            figures.setdefault(title, []).append(_figures(result))
            if template == "auto":
                shown = result
    picture = out / "demo.png"
    headline = f"digits, {100 * wrong:.0f} % of the labels wrong (dotted: the share that is right), {seeds} seeds"
    files.write_atomically(picture, lambda path: plot_runs(histories, path, title=headline, noise_rate=wrong))
    results = {"noise": spec, "epochs": epochs, "seeds": seeds, "methods": figures}
    files.write_text(out / "demo.json", json.dumps(results, indent=2) + "\n")
    assert shown is not None
    rows = [(title, *[spread([one[key] for one in values]) for key in COLUMNS]) for title, values in figures.items()]
    header = ["method", *COLUMNS.values()]
    write_report(out / "report.html", shown, picture=picture, table=(header, rows))
    show(table(f"Test accuracy in %, mean ± standard deviation of {seeds} seeds", header, rows))
    console.print(f"The labels, by auto: {found(shown.report)}", highlight=False)
    known = shown.report.summary()["known"]
    console.print(
        f"By the true labels, {100 * known['precision']:.0f} % of those are wrong, and {100 * known['recall']:.0f} % "
        "of the wrong ones are among them.",
        highlight=False,
    )
    console.print("The best epoch is chosen on held-out noisy labels, never on test labels.")
    wrote(picture, f" and {out / 'report.html'}")


COLUMNS = {"last": "last epoch", "best": "best epoch", "kept": "model kept", "memorised": "wrong labels memorised"}


def _figures(result: FitResult) -> dict[str, float]:
    rows = result.summary()
    return {
        "last": rows["last"]["test_accuracy"],
        "best": rows["best"]["test_accuracy"],
        "kept": rows["final"]["test_accuracy"],
        "memorised": rows["last"].get("train_memorised", 0.0),
    }

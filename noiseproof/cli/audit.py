"""`noiseproof audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noiseproof.cli.app import app, interruptible
from noiseproof.cli.options import QUIET, NoisySource, Options, anchored, given_by_hand, option, with_options
from noiseproof.errors import InputError
from noiseproof.training.settings import DATA, RUN, TRAIN

if TYPE_CHECKING:
    import numpy as np

    from noiseproof.data import LabeledData
    from noiseproof.runs.label_report import LabelReport

EXAMPLES = """[bold]Examples[/bold]

  noiseproof audit photos/                                   colour images: by a network that knows ImageNet

  noiseproof audit table.csv --label-column species          by a linear model and the neighbours

  noiseproof audit table.csv --pred-probs probabilities.npy  by predictions of yours, out of sample

  noiseproof audit photos/ --features embeddings.npy --precision 0.9

  noiseproof audit photos/ --image-size 32 --model resnet8   five networks, each asked of what it has not seen

  noiseproof audit runs/photos-auto-s0 --top 200              what a run found, decided otherwise
"""
DECIDE = "Decision"
OF_NETWORKS = ("method", "epochs")
OF_A_RUN = ("data", "precision", "recall", "top", "threshold", "out", "quiet")  # what can be asked of a finished run


@app.command(epilog=EXAMPLES)
@with_options(NoisySource, without=("test",))
def audit(
    context: typer.Context,
    data: Annotated[str, typer.Argument(help="The data, as of fit, or the folder of a finished run of fit.")],
    pred_probs: Annotated[
        Path | None, option("Out-of-sample class probabilities: .npy, .npz, .csv, .parquet.", panel=DATA)
    ] = None,
    features: Annotated[
        str | None,
        option("Features: a file as above, a run of pretrain or fit, imagenet, or inputs: the data's own.", panel=DATA),
    ] = None,
    model: Annotated[str | None, option("Train five networks of this name, cross-fitted.", panel=TRAIN)] = None,
    method: Annotated[str, option("How to train them.", panel=TRAIN)] = "elr",
    epochs: Annotated[int, option("Passes over the data.", panel=TRAIN)] = 30,
    precision: Annotated[float | None, option("Call labels wrong while so many of them are.", panel=DECIDE)] = None,
    recall: Annotated[
        float | None, option("Call labels wrong until so many of all wrong ones are.", panel=DECIDE)
    ] = None,
    top: Annotated[int | None, option("Call so many labels wrong.", panel=DECIDE)] = None,
    threshold: Annotated[float | None, option("Call labels wrong above this probability.", panel=DECIDE)] = None,
    seed: Annotated[int, option("Of folds and samples.", panel=RUN)] = 0,
    out: Annotated[Path | None, option("The audit's folder; by default a new one under audits/.", panel=RUN)] = None,
    quiet: QUIET = False,
    **source: Any,
) -> None:
    """Say which labels are wrong, what they should be, and how many are."""
    from noiseproof.auditing.decision import decided
    from noiseproof.cli.console import wrote

    by_hand, is_run = given_by_hand(context), (Path(data) / "config.json").is_file()
    for name in by_hand:
        if is_run and name not in OF_A_RUN:
            raise InputError(f"{_dashed(name)} is for data; {data} is a run, which is audited by itself")
        if name in OF_NETWORKS and model is None:
            raise InputError(f"{_dashed(name)} is for networks that --model trains; name one, e.g. --model resnet8")
    how: Options = {"precision": precision, "recall": recall, "top": top, "threshold": threshold}
    decided(_nothing(), **how)  # a mistake there is said before the work
    folder = _free(out, data)
    options: Options = {"data": anchored(data), "seed": seed, "test": None, **source}
    options |= {key: anchored(options[key]) for key in ("labels", "true_labels", "decisions")}
    with interruptible():
        if is_run:
            report, options = _of_run(Path(data), how, quiet)
        else:
            chosen: Options = {"pred_probs": pred_probs, "features": features}
            chosen |= {} if model is None else {"model": model, "method": method, "epochs": epochs, "augment": "auto"}
            report = of_data(options, chosen, how, quiet)
            options |= {name: str(one) if isinstance(one, Path) else one for name, one in chosen.items()}
    report.save(folder, options)
    _show(report)
    wrote(folder, ": report.html, labels.parquet (labels by probability), audit.json")


def _dashed(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _nothing() -> np.ndarray:
    import numpy as np

    return np.zeros(1, np.float32)


def _free(out: Path | None, data: str) -> Path:
    """The folder to write to: the one asked for, which must not hold an audit or a run, or a new one."""
    from noiseproof.cli.reading import fresh

    out = out or fresh("audits", data)
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; choose a folder")
    for name in ("labels.parquet", "config.json"):
        if (out / name).exists():
            raise InputError(f"{out} has a {name} already; choose another folder")
    return out


def of_data(
    options: Options, chosen: dict[str, Any], how: dict[str, Any], quiet: bool, counted: Any = None
) -> LabelReport:
    """Audit data by predictions or features of files, by networks, or by its own features.

    `counted` is called with (done, total), in place of a bar.
    """
    from noiseproof.cli.reading import read, reviewed
    from noiseproof.data.readers.matrices import read_matrix
    from noiseproof.training import audit as auditing
    from noiseproof.training.progress import counting

    data, _ = read(options | {"decisions": None}, quiet, whole=True)
    given = {name: one for name, one in chosen.items() if one is not None}
    if options["decisions"] is not None:
        data, given["known"] = reviewed(options["decisions"], data)
    assert data.ids is not None
    if "pred_probs" in given:
        given["pred_probs"] = read_matrix(Path(given["pred_probs"]), data.ids, data.class_names)
    if "features" in given:
        given["features"] = _features(given["features"], data)
    with counting("auditing", show=not quiet) as progress:
        return auditing.audit(data, **given, **how, seed=options["seed"], progress=counted or progress)


def _features(given: str, data: LabeledData) -> Any:
    """Features of a file, of a trained network, or by name."""
    from noiseproof.data.readers.matrices import read_matrix
    from noiseproof.runs import loading

    path = Path(given)
    if path.is_dir():
        return loading.load_backbone(path)(data).numpy()
    return read_matrix(path, data.ids or (), None) if path.exists() or path.suffix else given


def _of_run(run: Path, how: dict[str, Any], quiet: bool) -> tuple[LabelReport, Options]:
    """What a run found, decided as asked; with the examples, if they can be read again."""
    from noiseproof.cli.reading import command_of, read
    from noiseproof.runs.evidence import read_evidence

    options = command_of(run)
    if options is None:
        raise InputError(f"the run in {run} was not begun by the command line; in Python: noiseproof.audit(result)")
    train, _ = read(options, quiet)
    return read_evidence(run, train).decide(**how), options


def _show(report: LabelReport) -> None:
    """The answer in a sentence, and the most frequent confusions as a table."""
    from noiseproof.cli.console import console, show, table
    from noiseproof.runs.report import found

    console.print(found(report), highlight=False)
    rows = [[pair.given, pair.right, f"{pair.count:,.0f}"] for pair in report.pairs[:8] if pair.count >= 1]
    if rows:
        show(table("Taken for each other", ["given", "rather", "labels"], rows))
    for name, kind in (("off-topic", report.off_topic), ("near-duplicates with different labels", report.group)):
        count = 0 if kind is None else int((kind > 0).sum() if kind.dtype == bool else (kind >= 0).sum())
        if count:
            console.print(f"{count:,} {name}", highlight=False)
    if report.true_labels is not None:
        known = report.summary()["known"]
        console.print(
            f"By the true labels, {100 * known['noise_rate']:.1f} % are wrong: precision {known['precision']:.3f}, "
            f"recall {known['recall']:.3f}, F1 {known['f1']:.3f}, calibration error {known['calibration_error']:.3f}.",
            highlight=False,
        )

"""How well `audit` finds wrong labels, beside cleanlab's `find_label_issues`, on the same predictions in the same run.

python benchmarks/audit_quality.py --cifar10 TRAIN.parquet --cifar10n LABELS.csv [--cache FOLDER] [--only TEXT]

Each set is labels of which some are wrong, the true ones, and predictions of five-fold cross-validation by a model that
saw the wrong ones: CIFAR-10 with people's labels (CIFAR-10N) and made noise, Fashion-MNIST, digits. Names say the model
and the noise: lin, softmax regression, and mlp, a network of one hidden layer, on frozen ImageNet features of CIFAR-10;
str, softmax regression on these features with a noisy hint of the true class beside them, in the place of a strong
model (nine in ten right); res, resnet8 on pixels; fas and dig, Fashion-MNIST and digits on pixels.

The tuned sets (d-) were looked at while the audit was developed, the held ones (h-) were not. Both are of other rows of
CIFAR-10, of other random sixths of Fashion-MNIST, but of the same digits under other noise. Two further sets have no
wrong label at all.

Sets are made once and kept in the cache as npz files, so that a run that was stopped goes on; without CIFAR-10 its sets
are left out. Prints a table in Markdown and writes results/audit_quality.json.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from common import CIFAR10N, machine, parser_of, write
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from torch import nn

import noiseproof as nf
from noiseproof.auditing.calibration import reliability
from noiseproof.data.noise import CIFAR10_CLASSES
from noiseproof.errors import InputError
from noiseproof.files import cache_folder, write_atomically
from noiseproof.models.embedding import imagenet_features

HUMAN = {"aggre": "aggre_label", "random1": "random_label1"}  # the columns of CIFAR-10N


class Case(NamedTuple):
    """A set: its name, what it is made of, and how."""

    name: str
    source: str  # digits, fashion:SEED or cifar:FIRST:COUNT
    noise: str
    model: str
    seed: int


CASES = (
    Case("d-lin-aggre", "cifar:0:12000", "aggre", "linear", 0),
    Case("d-lin-sym4", "cifar:0:12000", "symmetric:0.4", "linear", 1),
    Case("d-lin-inst3", "cifar:0:12000", "instance:0.3", "linear", 2),
    Case("d-mlp-random1", "cifar:0:12000", "random1", "mlp", 0),
    Case("d-mlp-asym4", "cifar:0:12000", "asymmetric:0.4", "mlp", 1),
    Case("d-mlp-der4", "cifar:0:12000", "derangement:0.4", "mlp", 1),
    Case("d-mlp-sym2", "cifar:0:12000", "symmetric:0.2", "mlp", 2),
    Case("d-str-aggre", "cifar:0:12000", "aggre", "hinted", 0),
    Case("d-str-sym4", "cifar:0:12000", "symmetric:0.4", "hinted", 1),
    Case("d-str-pair3", "cifar:0:12000", "pair:0.3", "hinted", 2),
    Case("d-res-aggre", "cifar:0:4000", "aggre", "resnet8", 0),
    Case("d-fas-lin-sym4", "fashion:1", "symmetric:0.4", "linear", 0),
    Case("d-fas-mlp-inst3", "fashion:1", "instance:0.3", "mlp", 1),
    Case("d-dig-lin-sym2", "digits", "symmetric:0.2", "linear", 0),
    Case("d-dig-mlp-pair3", "digits", "pair:0.3", "mlp", 1),
    Case("d-lin-none", "cifar:0:12000", "none", "linear", 0),
    Case("h-lin-random1", "cifar:20000:12000", "random1", "linear", 10),
    Case("h-lin-sym2", "cifar:20000:12000", "symmetric:0.2", "linear", 11),
    Case("h-lin-asym4", "cifar:20000:12000", "asymmetric:0.4", "linear", 12),
    Case("h-lin-der4", "cifar:20000:12000", "derangement:0.4", "linear", 12),
    Case("h-mlp-aggre", "cifar:20000:12000", "aggre", "mlp", 10),
    Case("h-mlp-inst3", "cifar:20000:12000", "instance:0.3", "mlp", 11),
    Case("h-mlp-sym4", "cifar:20000:12000", "symmetric:0.4", "mlp", 12),
    Case("h-str-random1", "cifar:20000:12000", "random1", "hinted", 20),
    Case("h-str-sym2", "cifar:20000:12000", "symmetric:0.2", "hinted", 21),
    Case("h-str-inst3", "cifar:20000:12000", "instance:0.3", "hinted", 22),
    Case("h-res-random1", "cifar:20000:4000", "random1", "resnet8", 10),
    Case("h-fas-mlp-sym2", "fashion:2", "symmetric:0.2", "mlp", 10),
    Case("h-fas-lin-pair3", "fashion:2", "pair:0.3", "linear", 11),
    Case("h-dig-mlp-sym4", "digits", "symmetric:0.4", "mlp", 10),
    Case("h-dig-lin-inst2", "digits", "instance:0.2", "linear", 11),
    Case("h-mlp-none", "cifar:20000:12000", "none", "mlp", 10),
)


class Source(NamedTuple):
    """Inputs (n, F) on a scale of about 1, true labels (n,), the names of the classes, what people said, images."""

    inputs: np.ndarray
    true: np.ndarray
    names: tuple[str, ...]
    human: dict[str, np.ndarray]
    images: torch.Tensor | None = None


def cifar10n(train: Path, labels: Path, first: int, count: int, *, images: bool = False) -> Source:
    """Some rows of CIFAR-10: features, kept in the cache of `imagenet_features`, or images; CIFAR-10N's labels."""
    data = nf.load(str(train))
    rows = slice(first, first + count)
    with open(labels, newline="") as file:
        given = list(csv.DictReader(file))[rows]
    human = {name: np.array([int(row[column]) for row in given]) for name, column in HUMAN.items()}
    true = data.labels.numpy()[rows]
    if images:
        return Source(np.empty((count, 0)), true, CIFAR10_CLASSES, human, data.take(torch.arange(first, first + count)))
    return Source(imagenet_features(data)[rows].astype(np.float32), true, CIFAR10_CLASSES, human)


def read(case: Case, cifar: tuple[Path, Path] | None) -> Source:
    """What a set is made of."""
    kind, *numbers = case.source.split(":")
    if kind == "cifar":
        assert cifar is not None
        first, count = map(int, numbers)
        found = cifar10n(*cifar, first, count, images=case.model == "resnet8")
        if found.images is not None:
            return found
        return found._replace(inputs=(found.inputs - found.inputs.mean(0)) / (found.inputs.std(0) + 1e-3))
    data = nf.load("digits" if kind == "digits" else "fashion-mnist")
    rows = np.arange(len(data))
    if kind == "fashion":
        rows = np.sort(np.random.default_rng(int(numbers[0])).permutation(rows)[:10_000])
    inputs = data.take(torch.from_numpy(rows)).flatten(1).float().numpy()
    inputs = (inputs - inputs.mean() * (kind == "fashion")) / inputs.std()
    return Source(inputs, data.labels.numpy()[rows], tuple(data.class_names), {})


def linear(x: np.ndarray, y: np.ndarray, asked: np.ndarray, num_classes: int, seed: int) -> np.ndarray:
    model = LogisticRegression(C=0.001 if x.shape[1] > 100 else 1.0, max_iter=60, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # where it stops is part of what the set is
        return model.fit(x, y).predict_proba(asked)


def mlp(x: np.ndarray, y: np.ndarray, asked: np.ndarray, num_classes: int, seed: int, epochs: int = 12) -> np.ndarray:
    torch.manual_seed(seed)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    model = nn.Sequential(nn.Linear(x.shape[1], 256), nn.ReLU(), nn.Linear(256, num_classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(inputs)).split(128):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
            optimizer.step()
        schedule.step()
    with torch.no_grad():
        return model(torch.from_numpy(asked)).softmax(1).numpy()


def resnet8(x: np.ndarray, y: np.ndarray, asked: np.ndarray, num_classes: int, seed: int) -> np.ndarray:
    data = nf.LabeledData(x, y, class_names=[str(k) for k in range(num_classes)], allow_empty=True)
    settings = {"epochs": 10, "lr": 0.1, "augment": "weak", "eval_examples": 0, "audit_features": "none"}
    return nf.fit("resnet8", data, "ce", seed=seed, **settings).predict_proba(asked)


MODELS: dict[str, Callable[..., np.ndarray]] = {"linear": linear, "hinted": linear, "mlp": mlp, "resnet8": resnet8}


def make(case: Case, cifar: tuple[Path, Path] | None) -> dict[str, np.ndarray]:
    """Labels, true labels and out-of-fold predictions (n, K)."""
    inputs, true, names, human, images = read(case, cifar)
    K = len(names)
    if case.model == "hinted":
        noise = np.random.default_rng(case.seed + 99).normal(size=(len(true), K))
        inputs = np.concatenate([inputs, 6 * (np.eye(K)[true] + 0.45 * noise)], axis=1).astype(np.float32)
    if case.noise in human:
        labels = human[case.noise]
    elif case.noise == "none":
        labels = true
    else:
        clean = nf.LabeledData(inputs, true, class_names=names)
        labels = nf.noise.apply(clean, case.noise, seed=case.seed).labels.numpy()
    asked = inputs if images is None else images.numpy()
    predicted = np.zeros((len(labels), K), np.float32)
    folds = StratifiedKFold(5, shuffle=True, random_state=case.seed)
    for number, (rest, part) in enumerate(folds.split(labels, labels)):
        predicted[part] = MODELS[case.model](asked[rest], labels[rest], asked[part], K, 10 * case.seed + number)
    return {"labels": labels, "true": true, "pred_probs": predicted}


def cached(case: Case, folder: Path, cifar: tuple[Path, Path] | None) -> dict[str, np.ndarray] | None:
    """The set from the cache, or made and put there; None where its source is not at hand."""
    path = folder / f"{case.name}.npz"
    if not path.is_file():
        if case.source.startswith("cifar") and cifar is None:
            return None
        try:
            made = make(case, cifar)
        except InputError as error:  # Fashion-MNIST is not installed
            print(f"{case.name}: {error}")
            return None
        write_atomically(path, partial(_save, made))
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in ("labels", "true", "pred_probs")}


def _save(arrays: dict[str, np.ndarray], path: Path) -> None:
    with open(path, "wb") as file:
        np.savez_compressed(file, **arrays)


def f1(chosen: np.ndarray, wrong: np.ndarray) -> float:
    """Of a choice (n,) of labels, by which are wrong (n,)."""
    return 2 * int((chosen & wrong).sum()) / max(1, int(chosen.sum() + wrong.sum()))


def best_f1(scores: np.ndarray, wrong: np.ndarray) -> float:
    """Of the best threshold of scores (n,), which only the truth can tell. It falls between different scores."""
    order = np.argsort(-scores, kind="stable")
    hits, at = np.cumsum(wrong[order]), np.arange(1, len(order) + 1)
    ends = np.append(np.diff(scores[order]) != 0, True)
    return float((2 * hits / (at + wrong.sum()))[ends].max())


def measure(case: Case, labels: np.ndarray, true: np.ndarray, pred_probs: np.ndarray) -> dict[str, Any]:
    """Ours and cleanlab's answers to the same arrays."""
    from cleanlab.filter import find_label_issues

    report = nf.audit(labels, pred_probs)
    theirs = find_label_issues(labels, pred_probs, n_jobs=1)  # one process finds the same as several
    wrong = labels != true
    low, high = report.interval
    return {
        "set": case.name,
        "tuned": case.name.startswith("d-"),
        "rows": len(labels),
        "rate": float(wrong.mean()),
        "estimate": report.noise_rate,
        "interval": [low, high],
        "covers": bool(low <= wrong.mean() <= high),
        "issues": int(report.issues.sum()),
        "cleanlab_issues": int(theirs.sum()),
        "f1": f1(report.issues, wrong),
        "cleanlab": f1(theirs, wrong),
        "best": best_f1(report.scores, wrong),
        "ece": reliability(report.scores, wrong).error,
    }


def row(one: dict[str, Any]) -> str:
    low, high = one["interval"]
    cells = [
        one["set"],
        f"{one['rows']:,}",
        f"{one['rate']:.3f}",
        f"{one['estimate']:.3f} ({low:.3f}–{high:.3f})",
        "yes" if one["covers"] else "no",
        f"{one['f1']:.3f}",
        f"{one['cleanlab']:.3f}",
        f"{one['f1'] - one['cleanlab']:+.3f}",
        f"{one['best']:.3f}",
        f"{one['ece']:.3f}",
    ]
    return f"| {' | '.join(cells)} |"


def totals(name: str, rows: list[dict[str, Any]]) -> str:
    """A line for several sets: means of F1, counts of good estimates, the median ECE, the worst set beside cleanlab."""
    mean = {key: float(np.mean([one[key] for one in rows])) for key in ("f1", "cleanlab", "best")}
    near = sum(abs(one["estimate"] - one["rate"]) <= 0.15 * one["rate"] for one in rows)
    worst = min(rows, key=lambda one: one["f1"] - one["cleanlab"])
    cells = [
        name,
        str(len(rows)),
        f"{mean['f1']:.3f}",
        f"{mean['cleanlab']:.3f} ({mean['f1'] - mean['cleanlab']:+.3f})",
        f"{mean['best']:.3f} ({mean['f1'] - mean['best']:+.3f})",
        f"{worst['f1'] - worst['cleanlab']:+.3f} ({worst['set']})",
        f"{near} of {len(rows)}",
        f"{sum(one['covers'] for one in rows)} of {len(rows)}",
        f"{np.median([one['ece'] for one in rows]):.3f}",
    ]
    return f"| {' | '.join(cells)} |"


def tables(rows: list[dict[str, Any]]) -> str:
    """Everything as Markdown."""
    noisy = [one for one in rows if one["rate"] > 0]
    header = ("set", "rows", "wrong", "estimate (interval)", "covers", "F1", "cleanlab's F1", "difference",
              "best threshold's F1", "ECE")  # fmt: skip
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header), *map(row, noisy), ""]
    header = ("sets", "number", "mean F1", "cleanlab's", "best threshold's", "worst difference to cleanlab",
              "estimate within 15 %", "interval covers", "median ECE")  # fmt: skip
    lines += [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    groups = {"tuned": [one for one in noisy if one["tuned"]], "held": [one for one in noisy if not one["tuned"]]}
    lines += [totals(name, group) for name, group in {**groups, "all": noisy}.items() if group]
    lines += [
        "",
        "| without a wrong label | rows | called wrong | cleanlab | estimate (interval) |",
        "|---|---|---|---|---|",
    ]
    for one in rows:
        if one["rate"] == 0:
            low, high = one["interval"]
            shown = f"{one['issues']:,} | {one['cleanlab_issues']:,} | {one['estimate']:.3f} ({low:.3f}–{high:.3f})"
            lines.append(f"| {one['set']} | {one['rows']:,} | {shown} |")
    return "\n".join(lines)


def main() -> None:
    parser = parser_of(__doc__)
    labels = CIFAR10N(parser)
    parser.add_argument("--cache", type=Path, default=cache_folder() / "audit-sets", help="where sets are kept")
    parser.add_argument("--only", default="", help="sets with this in their names")
    options = parser.parse_args()
    cifar = labels.given(options)
    found = []
    for case in CASES:
        if options.only in case.name and (arrays := cached(case, options.cache, cifar)) is not None:
            found.append(measure(case, **arrays))
            print(f"{case.name}: F1 {found[-1]['f1']:.3f}, cleanlab {found[-1]['cleanlab']:.3f}", flush=True)
    print("\n" + tables(found))
    write("audit_quality", {"rows": found, "machine": machine()})


if __name__ == "__main__":
    main()

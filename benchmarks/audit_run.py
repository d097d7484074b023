"""The audit of one training beside that of five: how much does it find, and at what cost?

python benchmarks/audit_run.py [--cifar10 TRAIN.parquet --cifar10n LABELS.csv] [--seeds 3] [--first 0]

One `fit`, of which every tenth example is held out, keeps what it said of each label on its way; `audit` with a model
trains five times on four fifths and asks of the fifth. Same network, method and data, and the same epochs: 0.9 passes
over the data for each epoch beside 4, so that one costs 0.225 of five at best; and with two fifths of the epochs. F1
of the default decision over all labels, and seconds of the processor. Seeds are counted from --first. Prints a table in
Markdown and writes results/audit_run.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from audit_quality import best_f1, cifar10n, f1
from common import CIFAR10N, machine, parser_of, write

import noiseproof as nf
from noiseproof.data import LabeledData
from noiseproof.runs.label_report import LabelReport

EPOCHS = {"digits": 50, "CIFAR-10N": 15}
FIRST_ROW, ROWS = 40_000, 8_000  # of CIFAR-10: nothing was chosen by these


def cases(seeds: range, cifar: tuple[Path, Path] | None) -> Iterator[tuple[str, int, LabeledData]]:
    """Each set under each seed: of the noise, the split and the network on digits; of the last two on CIFAR-10N."""
    for noise in ("symmetric:0.4", "asymmetric:0.4", "instance:0.2"):
        for seed in seeds:
            yield f"digits, {noise}", seed, nf.noise.apply(nf.load("digits"), noise, seed=seed)
    if cifar is not None:
        source = cifar10n(*cifar, FIRST_ROW, ROWS)
        for name, labels in source.human.items():
            data = LabeledData(source.inputs, labels, true_labels=source.true, class_names=source.names)
            for seed in seeds:
                yield f"CIFAR-10N {name}, features", seed, data


def measured(report: Callable[[], LabelReport]) -> dict[str, float]:
    """F1 of the decision and of the best threshold, the estimated rate, and the processor's seconds."""
    began = time.process_time()
    found = report()
    seconds = time.process_time() - began
    assert found.true_labels is not None
    wrong = found.labels != found.true_labels
    return {
        "f1": f1(found.issues, wrong),
        "best": best_f1(found.scores, wrong),
        "rate": float(wrong.mean()),
        "estimate": found.noise_rate,
        "seconds": seconds,
    }


def compare(name: str, seed: int, data: LabeledData) -> dict[str, Any]:
    settings: dict[str, Any] = {"epochs": EPOCHS[name.split(",")[0].split()[0]], "seed": seed, "device": "cpu"}
    shorter = settings | {"epochs": 2 * settings["epochs"] // 5}
    one = measured(lambda: nf.fit("mlp", data, "elr", val=0.1, **settings).report)
    short = measured(lambda: nf.fit("mlp", data, "elr", val=0.1, **shorter).report)
    five = measured(lambda: nf.audit(data, model="mlp", method="elr", **settings))
    found = {"one": one, "short": short, "five": five}
    told = (f"{side} {figures['f1']:.3f} in {figures['seconds']:.1f} s" for side, figures in found.items())
    print(f"{name}, seed {seed}: {', '.join(told)}", flush=True)
    return {"case": name, "seed": seed, **found}


def table(rows: list[dict[str, Any]]) -> str:
    """A line for each set, mean and range over its seeds."""
    header = ["set", "seeds", "wrong"]
    for side in ("one fit", "two fifths of its epochs", "five folds"):
        header += [f"{side}: F1", "best threshold's", "estimate"]
    for side in ("one fit", "two fifths"):
        header += [f"difference of {side} (range)", "cost (range)"]
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    for name in dict.fromkeys(one["case"] for one in rows):
        group = [one for one in rows if one["case"] == name]

        def mean(side: str, key: str, group: list[dict[str, Any]] = group) -> float:
            return float(np.mean([one[side][key] for one in group]))

        cells = [name, str(len(group)), f"{mean('one', 'rate'):.3f}"]
        for side in ("one", "short", "five"):
            cells += [f"{mean(side, key):.3f}" for key in ("f1", "best", "estimate")]
        for side in ("one", "short"):
            gaps = [one[side]["f1"] - one["five"]["f1"] for one in group]
            cells.append(f"{np.mean(gaps):+.3f} ({min(gaps):+.3f} … {max(gaps):+.3f})")
            costs = [one[side]["seconds"] / one["five"]["seconds"] for one in group]
            cells.append(f"{np.mean(costs):.3f} ({min(costs):.3f} … {max(costs):.3f})")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = parser_of(__doc__)
    labels = CIFAR10N(parser)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    options = parser.parse_args()
    cifar = labels.given(options)
    nf.fit("mlp", nf.load("digits"), "elr", epochs=1, val=0.1)  # what is imported and compiled once counts for neither
    rows = [compare(*case) for case in cases(range(options.first, options.first + options.seeds), cifar)]
    print("\n" + table(rows))
    write("audit_run", {"rows": rows, "machine": machine()})


if __name__ == "__main__":
    main()

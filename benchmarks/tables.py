"""RobustClassifier, as it comes, against logistic regression and gradient boosting trained plainly, on noisy tables.

The tables are those of the R packages mlbench, kernlab and modeldata, which Debian ships (r-cran-mlbench, …): pass the
folder that has them, by default R's. Each seed draws a test set of 30 %, whose labels stay right, and corrupts the
labels of the rest. Results are added to results/tables.jsonl, and what is there already is not run again.

    python benchmarks/tables.py --noise symmetric:0.3 --seeds 10,11,12,13,14
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import lzma
import struct
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import ROOT, show
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import noiseproof as nf

R = "/usr/lib/R/site-library"
TABLES = {  # package, name, label, most rows
    "votes": ("mlbench", "HouseVotes84", "Class", None),
    "soybean": ("mlbench", "Soybean", "Class", None),
    "credit": ("modeldata", "credit_data", "Status", None),
    "churn": ("modeldata", "mlc_churn", "churn", None),
    "spam": ("kernlab", "spam", "type", None),
    "letters": ("mlbench", "LetterRecognition", "lettr", 6000),
    "telecom": ("modeldata", "wa_churn", "churn", None),
    "attrition": ("modeldata", "attrition", "Attrition", None),
    "diabetes": ("mlbench", "PimaIndiansDiabetes2", "diabetes", None),
    "jobs": ("modeldata", "hpc_data", "class", None),
}


def read(folder: Path, package: str, name: str) -> pd.DataFrame:
    """A data frame of an R package, from its own file or from the package's database."""
    import rdata

    file = folder / package / "data" / f"{name}.rda"
    if file.exists():
        return next(iter(rdata.conversion.convert(rdata.parser.parse_file(file)).values()))
    index, base = (folder / package / "data" / f"Rdata.{end}" for end in ("rdx", "rdb"))
    places = rdata.conversion.convert(rdata.parser.parse_data(gzip.decompress(index.read_bytes())))["variables"]
    start, length = map(int, places[name])
    block = base.read_bytes()[start : start + length]
    return rdata.conversion.convert(rdata.parser.parse_data(_unpacked(block)))


def _unpacked(block: bytes) -> bytes:
    """What a block of R's database holds: its length, how it is packed, and the content."""
    if block[4:5] == b"2":
        content = bz2.decompress(block[5:])
    elif block[4:5] == b"Z":
        content = lzma.decompress(block[5:], lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 6}])
    else:
        content = zlib.decompress(block[4:])
    assert len(content) == struct.unpack(">I", block[:4])[0]
    return content


def plain_regression() -> Any:
    number = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    category = OneHotEncoder(handle_unknown="ignore")
    columns = make_column_transformer(
        (number, make_column_selector(dtype_include="number")), (category, make_column_selector(dtype_exclude="number"))
    )
    return make_pipeline(columns, LogisticRegression(max_iter=2000))


CLASSIFIERS = {
    "robust": lambda seed: nf.RobustClassifier(random_state=seed),
    "logistic": lambda seed: plain_regression(),
    "boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),  # categories from dtype
    "robust-mlp": lambda seed: nf.RobustClassifier(model="mlp", random_state=seed),
    "robust-linear": lambda seed: nf.RobustClassifier(model="mlp(widths=[])", random_state=seed),
}


def one(table: pd.DataFrame, label: str, most: int | None, classifier: str, noise: str, seed: int) -> dict[str, Any]:
    """Accuracy on right labels of a classifier fitted to wrong ones."""
    table = table[table[label].notna()]
    table = table if most is None else table.sample(most, random_state=seed)
    y, X = table[label].astype(str).to_numpy(), table.drop(columns=label)
    texts = [name for name in X if not pd.api.types.is_numeric_dtype(X[name])]
    X[texts] = X[texts].astype("category")
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
    data = nf.noise.apply(nf.LabeledData(np.zeros((len(y), 1)), y), noise, seed=seed)
    given = np.array(data.class_names)[data.labels]
    began, model = time.process_time(), CLASSIFIERS[classifier](seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of categories unseen in training
        accuracy = model.fit(X, given).score(X_test, y_test)
    return {"accuracy": accuracy, "chosen": getattr(model, "model_", None), "seconds": time.process_time() - began}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default=R)
    parser.add_argument("--noise", default="symmetric:0.3")
    parser.add_argument("--seeds", default="10,11,12,13,14")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--classifiers", default="robust,logistic,boosting")
    args = parser.parse_args()
    if not Path(args.folder).is_dir():
        print(
            f"there is no {args.folder}; install r-cran-mlbench, r-cran-kernlab and r-cran-modeldata, or pass --folder"
        )
        return
    path = ROOT / "results" / "tables.jsonl"
    path.parent.mkdir(exist_ok=True)
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    found = {(d["table"], d["classifier"], d["noise"], d["seed"]): d for d in done}
    seeds, names = [int(seed) for seed in args.seeds.split(",")], args.classifiers.split(",")
    rows = []
    for table in args.tables.split(","):
        package, name, label, most = TABLES[table]
        frame = read(Path(args.folder), package, name)
        for seed in seeds:
            for classifier in names:
                key = (table, classifier, args.noise, seed)
                if key not in found:
                    said = dict(zip(("table", "classifier", "noise", "seed"), key, strict=True))
                    found[key] = said | one(frame, label, most, classifier, args.noise, seed)
                    with open(path, "a") as file:
                        file.write(json.dumps(found[key]) + "\n")
        cells = [[found[table, classifier, args.noise, seed]["accuracy"] for seed in seeds] for classifier in names]
        rows.append([table, *(f"{100 * np.mean(c):.1f} ± {100 * np.std(c, ddof=1):.1f}" for c in cells)])
        print(*rows[-1], sep="   ", flush=True)
    show(f"Accuracy on right labels, {args.noise}, {len(seeds)} seeds", ["", *names], rows)


if __name__ == "__main__":
    main()

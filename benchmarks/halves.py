"""What was developed on one half of the leaderboard's cells and tested on the other: `auto`, and the pick of `compare`.

    python benchmarks/halves.py                         the results that come with the product
    python benchmarks/halves.py results/small.json      those that `noiseproof bench --publish` wrote

The halves were drawn up before `auto` had its present form: every kind of noise and every data set is in both, but
for a kind of noise on one data set, which is in one. Runs nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from common import show

from noiseproof.benching import CANDIDATES, criteria, published
from noiseproof.benching.board import Board
from noiseproof.benching.cells import Record

DEVELOPED = {
    "digits": {"none", "symmetric:0.4", "asymmetric:0.4", "instance:0.3"},
    "fashion-mnist": {"symmetric:0.2", "symmetric:0.6", "pair:0.3"},
    "cifar10-train.parquet": {"symmetric:0.2", "symmetric:0.4", "instance:0.3", "aggre_label"},
}
CONSTANTS = ["ce", "gce", "elr", "sop", "early_stop(ce)", "dividemix"]


def developed(record: Record) -> bool:
    """Whether a cell is of the half that was looked at."""
    cell = record["cell"]
    noise = cell["noise"].rpartition(":")[2] if cell["noise"].startswith("labels:") else cell["noise"]
    return noise in DEVELOPED[cell["source"]["data"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?")
    given = parser.parse_args().results
    records = published.committed() if given is None else published.records(given)
    records = [one for one in records if one["cell"]["budget"] == "epochs"]
    for half, here in (("developed on", True), ("tested on", False)):
        mine = [one for one in records if developed(one) == here]
        table = [one for one in mine if one["cell"]["method"] in ("auto", *CONSTANTS)]
        board = Board(table)
        header, rows = board.accuracy()
        show(f"The half {half}: test accuracy in %", header, [[str(one) for one in row] for row in rows])
        show(f"The half {half}: points below the best of these methods", *map(list, board.regret()))
        picks = []
        for name, words in criteria.NAMES.items():
            found = criteria.track_record(mine, name, CANDIDATES)
            if found is not None:
                shares = [f"{found.correlation:.2f}", f"{100 * found.near:.0f} %"]
                picks.append([words, *shares, f"{found.regret:.2f}", f"{found.worst:.2f}", str(found.runs)])
        header = ["criterion", "rank correlation", "pick within 1 point", "points below the best", "at worst", "runs"]
        show(f"The half {half}: the pick of compare", header, picks)


if __name__ == "__main__":
    main()

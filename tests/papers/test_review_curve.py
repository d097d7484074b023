"""What a review is worth: the simulated reviewers, the orders, and the learner that is refitted to other labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from noiseproof_papers import build
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.experiment import Done
from noiseproof_papers.review.curve import DECAY, ERRS, ORDERS, SHARES, LeastSquares, _walk


def test_least_squares_is_what_solving_it_anew_gives() -> None:
    rng = np.random.default_rng(0)
    x, held = rng.normal(size=(60, 5)), rng.normal(size=(40, 5))
    labels, truth = rng.integers(3, size=60), rng.integers(3, size=40)
    z, w = (np.c_[(one - x.mean(0)) / (x.std(0) + 1e-6), np.ones(len(one))] for one in (x, held))
    rows = np.r_[z, np.sqrt(DECAY * 60) * np.eye(6)]
    weights = np.linalg.lstsq(rows, np.r_[np.eye(3)[labels], np.zeros((6, 3))], rcond=None)[0]
    expected = ((w @ weights).argmax(1) == truth).mean()
    assert LeastSquares(x, held, truth, 3).accuracy(labels) == pytest.approx(expected)


def test_reviewers_set_labels_in_order() -> None:
    rng = np.random.default_rng(1)
    x, truth = rng.normal(size=(200, 4)), np.arange(200) % 2
    labels = np.where(np.arange(200) < 40, 1 - truth, truth)  # the first forty are wrong
    learner = LeastSquares(x, x[:20], truth[:20], 2)
    best, worst = (_walk(learner, order, labels, truth, truth) for order in (np.arange(200), np.arange(200)[::-1]))
    assert best["wrong"][0] == 0.2
    assert best["wrong"][SHARES.index(0.1)] == pytest.approx(0.1)
    assert best["wrong"][SHARES.index(0.2)] == 0
    assert worst["wrong"][SHARES.index(0.8)] == 0.2
    erring = _walk(learner, np.arange(200), labels, np.where(np.arange(200) % 20 == 0, 1 - truth, truth), truth)
    assert erring["wrong"][-1] == pytest.approx(ERRS)


def test_a_cell_of_digits(tmp_path: Path) -> None:
    pytest.importorskip("cleanlab")
    curve = build("review-curve")
    cells = curve.cells("small", 1)
    assert [cell["noise"] or cell["labels"] for cell in cells] == [
        "symmetric:0.2", "symmetric:0.4", "pair:0.2", "aggre_label", "random_label1"
    ]  # fmt: skip
    figures = curve.run(cells[2], DataDir(None))
    wrong = round(figures["noise"] * figures["examples"])
    for name in ORDERS:
        assert figures[name]["sure"]["wrong"][-1] == 0
        assert figures[name]["erring"]["wrong"][-1] == pytest.approx(ERRS, abs=0.02)
        assert figures[name]["needed"] >= 0.9 * wrong
    assert figures["audit"]["needed"] < figures["cleanlab"]["needed"] < 0.5 * figures["random"]["needed"]
    done = [Done(cells[2], figures)]
    curve.draw(done, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000
    header, rows = curve.table(done)
    assert header[1:] == ["digits, pair:0.2"]
    assert [row[0] for row in rows[:5]] == list(ORDERS)

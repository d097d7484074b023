"""The audit that ends a run: one list for examples trained on and held out, and what it goes by."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import hypergeom
from sklearn.datasets import make_classification

import noiseproof as nf
from noiseproof.auditing import left_out
from noiseproof.errors import InputError
from noiseproof.runs.evidence import read_evidence
from noiseproof.runs.label_report import LabelReport
from noiseproof.training import run_audit
from noiseproof.training.run_audit import audit_run, others_say

TOP = 50


def table(seed: int) -> nf.LabeledData:
    """2,000 rows of named columns, two classes, a fifth of the labels wrong."""
    x, right = make_classification(2000, 10, n_informative=6, class_sep=1.5, random_state=seed)
    names = np.array(["above", "below"])
    wrong = np.random.default_rng(seed).random(2000) < 0.2
    frame = pd.DataFrame(x, columns=[f"c{k}" for k in range(10)]).assign(label=names[np.where(wrong, 1 - right, right)])
    data = nf.load(frame, label_column="label")
    return nf.LabeledData(data.inputs, data.labels, true_labels=right, class_names=list(names))


def check_list(report: LabelReport) -> None:
    """One list on one scale: to any depth it has as many held-out rows as chance allows, and its top is wrong."""
    order = np.argsort(-report.scores, kind="stable")
    assert report.split is not None
    held_out = (report.split == "val")[order]
    for depth in (TOP, *(len(order) * np.array([0.1, 0.2, 0.4, 0.7])).astype(int)):
        low, high = hypergeom.ppf([0.0005, 0.9995], len(order), held_out.sum(), depth)
        assert low <= held_out[:depth].sum() <= high, f"{held_out[:depth].sum()} of the first {depth} are held out"
    assert (report.labels != report.true_labels)[order[:TOP]].mean() >= 0.9


@pytest.mark.parametrize("features", ["auto", "none"])
@pytest.mark.parametrize("seed", [0, 1])
def test_held_out_rows_stand_at_the_top_as_often_as_others(seed: int, features: str) -> None:
    digits = nf.noise.apply(nf.load("digits"), "symmetric:0.2", seed=seed)
    for data, epochs in ((digits, 20), (table(seed), 10)):
        report = nf.fit("mlp", data, "elr", epochs=epochs, val=0.1, seed=seed, audit_features=features).report
        check_list(report)
        soft = report.soft_labels()
        np.testing.assert_allclose(1 - soft[np.arange(len(soft)), report.labels], report.scores, atol=1e-4)
        np.testing.assert_array_equal(soft.argmax(axis=1), report.suggested)


def test_a_wrong_scale_is_seen_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """What networks say of labels they half know by heart, taken as it is: held-out rows rise, and that is noticed."""
    for data in (nf.noise.apply(nf.load("digits"), "symmetric:0.2", seed=0), table(0)):
        rng, n, K = np.random.default_rng(0), len(data), data.num_classes
        said = 0.6 * np.eye(K)[data.true_labels] + 0.4 * rng.dirichlet(np.ones(K), n)
        held_out = np.isin(np.arange(n), rng.choice(n, n // 10, replace=False))
        by_heart = 0.3 * np.eye(K)[data.labels] + 0.7 * said
        parts = [(np.flatnonzero(held_out), said), (np.flatnonzero(~held_out), by_heart)]
        evidence = [(torch.from_numpy(rows), torch.from_numpy(p[rows]).float()) for rows, p in parts]
        split = np.where(held_out, "val", "train").astype(object)
        check_list(audit_run(data, evidence, split))
        with monkeypatch.context() as wrong:
            wrong.setattr(run_audit, "as_unseen", lambda seen, *_: seen)
            report = audit_run(data, evidence, split)
        with pytest.raises(AssertionError, match="are held out"):
            check_list(report)


def test_a_run_by_its_others_and_by_itself(tmp_path) -> None:
    data = nf.noise.apply(nf.load("digits"), "symmetric:0.3", seed=1)
    by_both = nf.fit("mlp", data, "elr", epochs=10, val=0.1, out=tmp_path / "run").report
    assert len(by_both.basis.evidence) == 3
    again = read_evidence(tmp_path / "run", data.numbered())
    np.testing.assert_allclose(again.scores, by_both.scores, atol=0.01)
    first = [set(np.argsort(-one.scores, kind="stable")[:TOP]) for one in (again, by_both)]
    assert len(first[0] & first[1]) > 0.8 * TOP
    alone = nf.fit("mlp", data, "elr", epochs=10, val=0.1, audit_features="none").report
    assert len(alone.basis.evidence) == 1
    nothing_held_out = nf.fit("mlp", data, "elr", epochs=2).report
    np.testing.assert_array_equal(nothing_held_out.basis.evidence, others_say(data))
    assert nothing_held_out.summary()["known"]["f1"] > 0.93


def test_examples_that_are_not_looked_at_in_every_epoch_are_judged_too() -> None:
    data = nf.noise.apply(nf.load("digits"), "symmetric:0.3", seed=1)
    some = nf.fit("mlp", data, "elr", epochs=10, val=0.1, eval_examples=300, audit_features="none").report
    assert some.summary()["known"]["f1"] > 0.8
    none = nf.fit("mlp", data, "elr", epochs=2, eval_examples=0, audit_features="none").report
    assert np.isfinite(none.scores).all()


def colours(n: int = 60, side: int = 16) -> nf.LabeledData:
    images = torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return nf.LabeledData(images, np.arange(n) % 2, class_names=["a", "b"])


def test_what_the_others_go_by(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def features(data: nf.LabeledData) -> np.ndarray:
        asked.append(len(data))
        return np.random.default_rng(0).normal(size=(len(data), 5))

    monkeypatch.setattr(run_audit, "imagenet_features", features)
    assert len(others_say(colours())) == 2
    assert asked == [60]
    others_say(colours(), "inputs")
    others_say(colours(side=15))  # tiny ones are told by their pixels
    digits = nf.load("digits")
    others_say(digits)
    assert asked == [60]
    others_say(digits, "imagenet")
    assert asked == [60, 1797]
    assert others_say(colours(), "none") == others_say(colours(n=49)) == []
    monkeypatch.setattr(run_audit, "_MOST_IMAGES", 59)
    assert others_say(colours()) == []
    assert len(others_say(colours(), "imagenet")) == 2
    wide = nf.LabeledData(torch.randn(60, 2049), np.arange(60) % 2, class_names=["a", "b"])
    assert others_say(wide) == []
    with monkeypatch.context() as quick:
        quick.setattr(left_out, "evidence", lambda *_: ["said"])
        few = nf.LabeledData(torch.randn(60, 2048), np.arange(60) % 2, class_names=["a", "b"])
        assert others_say(few) == ["said"]
    with pytest.raises(InputError, match="2,048 values of each at most, got 2,049"):
        others_say(wide, "inputs")


def test_without_the_frozen_network_images_speak_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(data: nf.LabeledData) -> np.ndarray:
        raise InputError("the pretrained weights are not installed")

    monkeypatch.setattr(run_audit, "imagenet_features", missing)
    assert others_say(colours()) == []
    with pytest.raises(InputError, match="not installed"):
        others_say(colours(), "imagenet")


def test_a_part_with_more_wrong_labels_by_chance_does_not_raise_the_rate() -> None:
    """Half as many wrong labels again among those held out: the others know that it is chance."""
    data = nf.noise.apply(nf.load("digits"), "symmetric:0.2", seed=0)
    assert data.true_labels is not None
    wrong = (data.labels != data.true_labels).numpy()
    held_out = np.concatenate([np.flatnonzero(wrong)[:54], np.flatnonzero(~wrong)[:126]])
    rest = np.setdiff1d(np.arange(len(wrong)), held_out)
    split = np.full(len(wrong), "train", dtype=object)
    split[held_out] = "val"
    rng = np.random.default_rng(0)
    said = 0.6 * np.eye(10)[data.true_labels] + 0.4 * rng.dirichlet(np.ones(10), len(wrong))
    parts = [(torch.from_numpy(rows), torch.from_numpy(said[rows]).float()) for rows in (held_out, rest)]
    report = audit_run(data, parts, split, others_say(data))
    assert report.noise_rate == pytest.approx(0.2, rel=0.1)
    told = [(rows.numpy(), probability.numpy()) for rows, probability in parts]
    for beside in (others_say(data), []):  # by what others say, or the networks: more than chance is believed
        weights = run_audit._as_noisy(data.labels.numpy(), told, beside)
        share = 0.2 if beside else 0.3
        assert np.average(wrong[held_out], weights=weights) == pytest.approx(share, abs=0.02)


def test_features_too_large_to_square() -> None:
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)) * 1e30
    data = nf.LabeledData(x, (x[:, 0] > 0).long())
    assert others_say(data) == []
    assert len(nf.fit("mlp", data, "ce", epochs=1).report) == 60
    with pytest.raises(InputError, match=r"inputs must be finite, and below 1e\+18, row 0 is not"):
        nf.audit(data)

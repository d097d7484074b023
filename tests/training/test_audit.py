"""`audit`: from labels with predictions or features, from data, and from a finished run."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

import noiseproof as nf
from noiseproof.cli.app import app
from noiseproof.data.sources import Mapped
from noiseproof.errors import InputError
from noiseproof.runs.label_report import LabelReport


@pytest.fixture(scope="module")
def noisy() -> nf.LabeledData:
    return nf.noise.apply(nf.load("digits"), "symmetric:0.3", seed=1)


@pytest.fixture(scope="module")
def report(noisy: nf.LabeledData) -> LabelReport:
    return nf.audit(noisy)


@pytest.fixture(scope="module")
def predicted() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    right = rng.integers(0, 3, 300)
    labels = np.where(rng.random(300) < 0.2, (right + 1) % 3, right)
    p = np.full((300, 3), 0.05)
    p[np.arange(300), right] = 0.9
    return labels, p


def test_digits_are_audited_by_their_pixels(noisy: nf.LabeledData, report: LabelReport) -> None:
    figures = report.summary()
    assert figures["known"]["f1"] > 0.95
    assert report.noise_rate == pytest.approx(0.3, rel=0.1)
    assert report.interval[0] < 0.3 < report.interval[1]
    assert figures["known"]["calibration_error"] < 0.03
    assert report.apply(noisy).noise_rate < 0.04
    assert report.apply(noisy, confidence=1.0).noise_rate > report.apply(noisy, confidence=0.9).noise_rate
    np.testing.assert_allclose(report.transition.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(report.inverse.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(report.joint.sum(), len(noisy), rtol=1e-4)
    np.testing.assert_allclose(report.joint.sum(axis=0), np.bincount(report.labels), rtol=1e-4)


def test_suggestions_scores_and_soft_labels_agree(report: LabelReport) -> None:
    soft = report.soft_labels()
    rows = np.arange(len(report))
    np.testing.assert_allclose(soft.sum(axis=1), 1, rtol=1e-4)
    np.testing.assert_allclose(1 - soft[rows, report.labels], report.scores, atol=1e-4)
    np.testing.assert_array_equal(soft.argmax(axis=1), report.suggested)
    classes, likely = report.candidates
    np.testing.assert_array_equal(classes[:, 0], report.suggested)
    assert (np.diff(likely, axis=1) <= 0).all()
    np.testing.assert_allclose(report.soft_labels([5, 3]), soft[[5, 3]])
    assert set(report.advice) <= {"keep", "relabel", "cannot tell"}
    assert (report.advice[~report.issues] == "keep").all()
    assert (report.suggested[report.advice == "relabel"] != report.labels[report.advice == "relabel"]).all()


def test_the_same_seed_gives_the_same_report(noisy: nf.LabeledData, report: LabelReport) -> None:
    np.testing.assert_array_equal(nf.audit(noisy).scores, report.scores)


def test_labels_as_numbers_names_and_series_give_one_answer(predicted: tuple[np.ndarray, np.ndarray]) -> None:
    labels, p = predicted
    plain = nf.audit(labels, p)
    names = np.array(["ant", "bee", "cow"])
    named = nf.audit(names[labels], p)
    assert named.class_names == ("ant", "bee", "cow")
    np.testing.assert_array_equal(plain.scores, named.scores)
    pd = pytest.importorskip("pandas")
    shuffled = pd.DataFrame(p, columns=names)[["cow", "ant", "bee"]]  # columns in an order of their own
    tabled = nf.audit(pd.Series(names[labels]), shuffled)
    assert tabled.class_names == ("cow", "ant", "bee")
    np.testing.assert_allclose(tabled.scores, plain.scores, atol=1e-5)
    data = nf.LabeledData(np.zeros((300, 2), np.float32), labels, class_names=names)
    for found in (nf.audit(data, shuffled), nf.audit(labels, shuffled, class_names=names), nf.audit(data, [shuffled])):
        assert found.class_names == ("ant", "bee", "cow")
        np.testing.assert_allclose(found.scores, plain.scores, atol=1e-5)
    both = nf.audit(names[labels], [pd.DataFrame(p, columns=names), shuffled])  # each by its own names
    assert np.corrcoef(both.scores, plain.scores)[0, 1] > 0.99
    with pytest.raises(InputError, match="named after each of the 3 classes"):
        nf.audit(data, shuffled.rename(columns={"cow": "dog"}))
    np.testing.assert_array_equal(nf.audit(data, pd.DataFrame(p)).scores, nf.audit(data, p).scores)  # no names
    assert list(plain.to_frame()["probability_wrong"]) == sorted(plain.scores, reverse=True)


def test_issues_are_what_was_asked_for(predicted: tuple[np.ndarray, np.ndarray]) -> None:
    labels, p = predicted
    assert nf.audit(labels, p, top=7).issues.sum() == 7
    assert nf.audit(labels, p, threshold=1.0).issues.sum() == 0
    few, many = nf.audit(labels, p, precision=0.99), nf.audit(labels, p, recall=0.999)
    assert few.issues.sum() <= nf.audit(labels, p).issues.sum() <= many.issues.sum()
    with pytest.raises(InputError, match="precision or by top"):
        nf.audit(labels, p, top=7, precision=0.5)


def test_known_labels_are_kept(predicted: tuple[np.ndarray, np.ndarray]) -> None:
    labels, p = predicted
    known = [None] * 300
    known[4], known[5] = int(labels[4]), int((labels[5] + 1) % 3)
    report = nf.audit(labels, p, known=known)
    assert report.scores[4] == 0
    assert report.scores[5] == 1
    assert report.suggested[5] == known[5]
    assert report.soft_labels([5])[0, known[5]] == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y, p: (y, p * 2), "sum of 2"),
        (lambda y, p: (y, np.where(p > 0.5, np.nan, p)), "a NaN"),
        (lambda y, p: (y, np.log(p)), "pass logits through a softmax"),
        (lambda y, p: (y[:-1], p), "300 rows for 299 labels"),
        (lambda y, p: (y + 1, p), "3 columns, but the largest label is 3"),
        (lambda y, p: (np.minimum(y, 1), p), "class 2 is given to no label"),
        (lambda y, p: (y - 1, p), "labels must not be negative, got -1 at row"),
        (lambda y, p: (y / 2, p), "labels must hold whole numbers, got 0.5 at row 1"),
        (lambda y, p: ([None, *y[1:]], p), "labels has a missing value at row 0"),
        (lambda y, p: (y, p[:, 0]), r"probabilities \(n, K\)"),
        (lambda y, p: (y, None), "labels alone say nothing"),
    ],
)
def test_bad_input_is_one_sentence(predicted: tuple[np.ndarray, np.ndarray], change, words: str) -> None:
    with pytest.raises(InputError, match=words):
        nf.audit(*change(*predicted))


def test_predictions_of_trained_examples_are_suspected(predicted: tuple[np.ndarray, np.ndarray]) -> None:
    labels, _ = predicted
    with pytest.warns(UserWarning, match="trained on"):
        nf.audit(labels, np.eye(3)[labels] * 0.98 + 0.02 / 3)


def test_duplicates_and_strangers_are_kinds_of_their_own() -> None:
    rng = np.random.default_rng(0)
    centres = 6 * rng.normal(size=(3, 20))
    right = np.repeat(np.arange(3), 60)
    features = centres[right] + rng.normal(size=(180, 20))
    labels = right.copy()
    features[7], labels[7] = features[3] + 1e-4, 1  # the same thing as 3, under another label
    features[11] = -4 * centres.sum(axis=0) + 40 * rng.normal(size=20)
    report = nf.audit(labels, features=features)
    assert report.group is not None
    assert report.group[3] == report.group[7] >= 0
    assert (report.group >= 0).sum() == 2
    assert report.off_topic is not None
    assert np.flatnonzero(report.off_topic).tolist() == [11]
    assert report.kind[11] == "off-topic"


def test_a_run_is_audited_and_read_again(noisy: nf.LabeledData, tmp_path) -> None:
    result = nf.fit("mlp", noisy, "elr", epochs=20, val=0.1, out=tmp_path / "run")
    report = nf.audit(result)
    np.testing.assert_array_equal(report.scores, result.report.scores)
    assert report.summary()["known"]["f1"] > 0.93
    assert noisy.wrong is not None
    for name in ("train", "val"):  # each has its own rate, by chance, and it is found
        rows = report.split == name
        assert report.scores[rows].mean() == pytest.approx(noisy.wrong.numpy()[rows].mean(), abs=0.02)
    table = pq.read_table(tmp_path / "run" / "labels.parquet").to_pydict()
    assert table["probability_wrong"] == sorted(table["probability_wrong"], reverse=True)
    by_id = dict(zip(table["id"], table["suggested"], strict=True))
    assert [by_id[str(i)] for i in range(20)] == [noisy.class_names[k] for k in report.suggested[:20]]
    from noiseproof.runs.evidence import read_evidence

    again = read_evidence(tmp_path / "run", noisy.numbered())
    np.testing.assert_allclose(again.scores, report.scores, atol=0.01)  # predictions are kept in half precision
    with pytest.raises(InputError, match="not those the run"):
        read_evidence(tmp_path / "run", noisy.with_labels((noisy.labels + 1) % 10))
    (tmp_path / "run" / "evidence.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match="damaged"):
        read_evidence(tmp_path / "run", noisy)


def test_the_command(tmp_path, monkeypatch) -> None:
    from typer.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    run = CliRunner()
    done = run.invoke(app, ["audit", "digits", "--noise", "symmetric:0.2", "-q"])
    assert done.exit_code == 0, done.output
    assert "labels look wrong" in done.output
    folder = tmp_path / "audits" / "digits"
    answer = json.loads((folder / "audit.json").read_text())
    assert answer["command"]["noise"] == "symmetric:0.2"
    assert answer["known"]["f1"] > 0.95
    page = (folder / "report.html").read_text()
    assert "Taken for each other" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    predictions = tmp_path / "p.npy"
    right = nf.load("digits").labels.numpy()
    np.save(predictions, np.eye(10, dtype=np.float32)[np.where(np.arange(1797) < 3, 0, right)] * 0.9 + 0.01)
    done = run.invoke(app, ["audit", "digits", "--pred-probs", str(predictions), "-q", "--out", str(tmp_path / "b")])
    assert done.exit_code == 0, done.output


def test_options_that_would_change_nothing_are_refused(tmp_path) -> None:
    from typer.testing import CliRunner

    (tmp_path / "config.json").write_text("{}")  # of a run
    for words, said in (
        (["digits", "--method", "sop"], "--method is for networks that --model trains"),
        ([str(tmp_path), "--label-column", "species"], "--label-column is for data"),
        ([str(tmp_path), "--features", "imagenet"], "--features is for data"),
    ):
        with pytest.raises(InputError, match=said):
            CliRunner().invoke(app, ["audit", *words], catch_exceptions=False)


def test_hostile_names_are_inert(predicted: tuple[np.ndarray, np.ndarray], tmp_path) -> None:
    labels, p = predicted
    evil = "<script>alert(1)</script>$x$"
    report = nf.audit(labels, p, class_names=[evil, "b", "c"], ids=[f"{evil}{i}" for i in range(300)])
    report.to_html(tmp_path / "page.html")
    assert "<script>alert" not in (tmp_path / "page.html").read_text()


def test_a_file_is_named_and_a_row_numbered(predicted: tuple[np.ndarray, np.ndarray], tmp_path) -> None:
    labels, p = predicted
    for ids, shown in (([f"a/{i}.png" for i in range(300)], r">a/\d+\.png<"), (None, r">#\d+<")):
        nf.audit(labels, p, ids=ids).to_html(tmp_path / "page.html")
        assert re.search(shown, (tmp_path / "page.html").read_text())


def test_what_tells_nothing_doubts_nothing() -> None:
    labels = np.random.default_rng(0).integers(0, 5, 2000)
    with pytest.warns(UserWarning, match="next to nothing"):
        report = nf.audit(labels, np.full((2000, 5), 0.2))
    assert report.issues.sum() == 0
    assert report.noise_rate < 0.05
    sure = np.eye(5)[labels] * 0.96 + 0.008
    sure[0] = np.roll(sure[0], 1)  # one that disagrees, so that they do not look trained on
    assert nf.audit(labels, sure).issues.sum() <= 1


def test_further_mistakes_at_the_door(predicted: tuple[np.ndarray, np.ndarray]) -> None:
    labels, p = predicted
    for given, words in (
        ({"class_names": ["a", "b"]}, "got 2 at row 2; pass 3 class names"),
        ({"ids": ["a"]}, "ids holds 1 values but labels holds 300 rows"),
        ({"ids": ["a"] * 300}, "ids must be distinct, got 'a' at rows 0 and 1"),
        ({"true_labels": labels[:5]}, "true_labels has 5 entries"),
        ({"true_labels": labels + 1}, "true_labels must be classes 0..2, got 3"),
    ):
        with pytest.raises(InputError, match=words):
            nf.audit(labels, p, **given)
    with pytest.raises(InputError, match="of one class"):
        nf.audit(np.zeros(20, int), features=np.random.default_rng(0).normal(size=(20, 3)))
    np.testing.assert_array_equal(nf.audit(labels, p.tolist()).scores, nf.audit(labels, p).scores)


def test_whole_numbers_that_name_columns_go_by_name(predicted: tuple[np.ndarray, np.ndarray]) -> None:
    pd = pytest.importorskip("pandas")
    labels, p = predicted
    turned = nf.audit(labels, pd.DataFrame(p[:, ::-1], columns=[2, 1, 0]))
    np.testing.assert_allclose(turned.scores, nf.audit(labels, p).scores, atol=1e-5)


def test_a_decision_leaves_the_run_alone(predicted: tuple[np.ndarray, np.ndarray]) -> None:
    report = nf.audit(*predicted)
    before = report.issues.sum()
    assert report.decide(top=3).issues.sum() == 3
    assert report.issues.sum() == before


def test_inputs_that_are_not_in_memory_are_not_read_into_it_beyond_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).random((40, 1, 8, 8)).astype(np.float32)
    data = nf.LabeledData(Mapped(pixels), np.arange(40) % 2)
    monkeypatch.setattr("noiseproof.training.audit._MOST_VALUES", pixels.size - 1)
    with pytest.raises(InputError, match="holds all of them in memory, 2,559 values at most, got 2,560; pass features"):
        nf.audit(data)

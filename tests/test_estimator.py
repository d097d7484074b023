"""RobustClassifier: what scikit-learn asks of a classifier, and what it is for."""

from __future__ import annotations

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import noiseproof as nf
from noiseproof import estimator
from noiseproof.errors import InputError
from noiseproof.training.fit import fit

# A row of weight 2 meets other steps of the optimizer than two rows; scikit-learn lists the same of its stochastic
# estimators (SGDClassifier, BaggingClassifier, …).
STOCHASTIC = {"check_sample_weight_equivalence_on_dense_data": "weights are not repetitions to stochastic gradients"}
QUICK = nf.RobustClassifier("ce", "mlp(widths=[])", epochs=20, lr=0.1, random_state=0)
CHOOSING = nf.RobustClassifier("ce", epochs=20, lr=0.1, random_state=0)  # between two networks


def own_checks(estimator: nf.RobustClassifier) -> list:
    return list(estimator_checks_generator(estimator, expected_failed_checks=STOCHASTIC, mark="xfail"))


def name_of(value) -> str | None:
    return getattr(getattr(value, "func", None), "__name__", None)


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), own_checks(CHOOSING), ids=name_of)
def test_scikit_learns_own_checks_of_the_default_network(estimator, check) -> None:
    test_scikit_learns_own_checks(estimator, check)


@pytest.mark.parametrize(("estimator", "check"), own_checks(QUICK), ids=name_of)
def test_scikit_learns_own_checks(estimator, check) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those that the checks provoke
        check(estimator)


def noisy(labels: np.ndarray, rate: float = 0.3, seed: int = 0) -> np.ndarray:
    classes, codes = np.unique(labels, return_inverse=True)
    return classes[nf.noise.symmetric(codes, rate, seed=seed).labels]


def test_in_pipelines_searches_and_calibration() -> None:
    X, y = load_wine(return_X_y=True)
    classifier = nf.RobustClassifier("gce", epochs=15, random_state=0)
    pipeline = make_pipeline(StandardScaler(), classifier)
    assert cross_val_score(pipeline, X, noisy(y, 0.1), cv=2).mean() > 0.7
    search = GridSearchCV(classifier, {"method": ["ce", "gce(q=0.5)"], "epochs": [2, 15]}, cv=2).fit(X, y)
    assert search.best_params_["epochs"] == 15
    calibrated = CalibratedClassifierCV(classifier, cv=2).fit(X, y)
    assert calibrated.predict_proba(X).shape == (178, 3)
    assert calibrated.score(X, y) > 0.9


def test_the_same_seed_gives_the_same_bits() -> None:
    X, y = load_wine(return_X_y=True)
    one = nf.RobustClassifier("elr", epochs=2, random_state=3).fit(X, y)
    for other in (clone(one).fit(X, y), pickle.loads(pickle.dumps(one))):
        np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))
    drawn = nf.RobustClassifier("elr", epochs=2, random_state=np.random.RandomState(3)).fit(X, y)
    np.testing.assert_array_equal(one.predict_proba(X), drawn.predict_proba(X))
    assert not np.array_equal(one.predict_proba(X), clone(one).set_params(random_state=4).fit(X, y).predict_proba(X))


def people(n: int = 200) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"edu": rng.choice(["a", "b", "c"], n), "age": rng.normal(size=n), "zip": rng.integers(9, size=n)}
    )
    table.loc[::7, "age"] = np.nan
    return table, pd.Series(np.where(table["edu"] == "a", "yes", "no"), index=table.index)


def test_frames_of_any_kind_of_column() -> None:
    X, y = people()
    classifier = nf.RobustClassifier("ce", epochs=20, kinds={"zip": "category"}, random_state=0).fit(X, y)
    assert classifier.classes_.tolist() == ["no", "yes"]
    assert classifier.feature_names_in_.tolist() == ["edu", "age", "zip"]
    assert classifier.score(X, y) == 1
    other = clone(classifier).fit(pl.from_pandas(X), y)
    np.testing.assert_array_equal(other.predict_proba(pl.from_pandas(X)), classifier.predict_proba(X))
    with pytest.raises(ValueError, match="names should match"):
        classifier.predict(X.rename(columns={"age": "years"}))


def rhymes(n: int = 240) -> tuple[list[str], np.ndarray]:
    """Sentences of made-up words, most of which two kinds have in common; more features than `WIDE`."""
    rng = np.random.default_rng(0)
    words = np.array(["".join(rng.choice([*"abcdefghiklmnoprstu"], 6)) for _ in range(300)])
    kind = rng.integers(2, size=n)
    chance = np.where(
        (np.arange(300) < 100)[None] & (np.arange(300) % 2 == np.arange(2)[:, None]), 3.0, 1.0
    )  # (2, 300)
    texts = [" ".join(rng.choice(words, 25, p=chance[k] / chance[k].sum())) for k in kind]
    return texts, np.array(["odd", "even"])[1 - kind]


def test_texts_are_taken_as_they_are() -> None:
    """A list, an array, a series and a column of a frame are the same; so many features have a method of their own."""
    X, y = rhymes()
    given = noisy(y, 0.2)
    classifier = nf.RobustClassifier(epochs=10, random_state=0).fit(X, given)
    assert (classifier.method_, classifier.model_) == ("left_out", "mlp(widths=[])")
    assert classifier.n_features_in_ == 1
    assert classifier.score(X, y) > 0.85 > (given == y).mean()
    expected = classifier.predict_proba(X)
    for form in (lambda x: np.array(x), pd.Series, lambda x: pd.DataFrame({"text": x})):
        other = clone(classifier).fit(form(X), given)
        np.testing.assert_array_equal(other.predict_proba(form(X)), expected)
    assert clone(classifier).set_params(method="ce").fit(X, given).method_ == "ce"
    assert nf.RobustClassifier(epochs=1, random_state=0).fit(*people()).method_ == "elr(lam=1)"
    with pytest.raises(ValueError, match="length zero at row 1"):
        classifier.fit(["a b c", " "], [0, 1])


def test_a_network_is_chosen_by_as_many_epochs_as_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(estimator, "fit", lambda *a, **how: asked.append(how["epochs"]) or fit(*a, **how))
    monkeypatch.setattr(estimator, "STEPS", 40)
    monkeypatch.setattr(estimator, "NETWORKS", {"mlp(widths=[])": math.inf, "mlp": 6})
    monkeypatch.setattr(estimator, "CLEARLY", 1e9)  # none is given up
    X, y = people()  # 200 rows: 4 steps, of two thirds of them 3
    classifier = nf.RobustClassifier("ce", random_state=0).fit(X, y)
    assert asked[:2] == [10, 6]
    assert [sorted(asked[at : at + 2]) for at in (0, 2, 4)] == [[6, 10]] * 3  # in each fold, the best so far first
    for model, epochs in (("mlp", 6), ("mlp(widths=[])", 10), ("mlp(widths=[8])", 10)):
        classifier.set_params(model=model).fit(X, y)
        assert asked[-1] == epochs
    classifier.set_params(model="mlp", epochs=7).fit(X, y)
    assert asked[-1] == 7


def test_weights_say_what_counts() -> None:
    X, y = people()
    wrong = np.where(np.arange(len(y)) % 3 > 0, "no", y)  # most labels of one class are wrong, and have no weight
    weight = (wrong == y).astype(float)
    classifier = nf.RobustClassifier("ce", epochs=20, random_state=0)
    assert classifier.fit(X, wrong, sample_weight=weight).score(X, y) > 0.95
    heavy = np.where(wrong == y, 50.0, 0.02)
    assert clone(classifier).fit(X, wrong, sample_weight=heavy).score(X, y) > 0.95
    rare = np.arange(len(y)) % 10 == 0
    plain = clone(classifier).fit(X[["age"]], rare)
    balanced = clone(classifier).set_params(class_weight="balanced").fit(X[["age"]], rare)
    assert balanced.predict(X[["age"]]).mean() > plain.predict(X[["age"]]).mean() + 0.2
    with pytest.raises(ValueError, match="weights must be finite and not negative"):
        classifier.fit(X, y, sample_weight=-heavy)


def test_issues_are_found_out_of_sample() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    given = noisy(y, 0.2)
    report = nf.RobustClassifier("gce", epochs=15, random_state=0).find_label_issues(X, given, folds=3)
    truly = given != y
    assert (report.issues & truly).sum() / truly.sum() > 0.8  # found
    assert (report.issues & truly).sum() / report.issues.sum() > 0.7  # of those named
    assert report.class_names == ("0", "1")
    assert np.array_equal(report.suggested != given, report.scores > 0.5)  # of two classes the likelier
    assert (report.suggested[report.issues] != given[report.issues]).mean() > 0.9  # the best F1 takes some below
    assert abs(report.noise_rate - 0.2) < 0.08
    frame, labels = people()
    spoilt = labels.mask(labels.index == 3, "yes" if labels[3] == "no" else "no")
    found = nf.RobustClassifier("ce", epochs=10, random_state=0).find_label_issues(
        frame.set_axis(frame.index + 100), spoilt
    )
    assert found.ids[3] == 103
    assert found.scores.argmax() == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "elrr"}, "unknown method 'elrr'; did you mean 'elr'"),
        ({"model": "mlpp"}, "did you mean 'mlp'"),
        ({"epochs": 0}, "epochs must be"),
        ({"kinds": {"ages": "number"}}, "did you mean 'age'"),
        ({"class_weight": "fair"}, "class_weight"),
    ],
)
def test_bad_options_are_refused_in_fit(change: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        nf.RobustClassifier(**change).fit(*people())


def test_one_class_is_none() -> None:
    with pytest.raises(InputError, match="y holds one class alone"):
        nf.RobustClassifier().fit(np.eye(4), [1, 1, 1, 1])


def sure_of(classes: np.ndarray, right: float, rate: float, seed: int) -> np.ndarray:
    """Predictions (n, 3) that name the class as often as `right`, and are as sure as it is of each."""
    rng = np.random.default_rng(seed)
    guess = np.where(rng.random(len(classes)) < right, classes, (classes + 1) % 3)
    return np.where(np.eye(3, dtype=bool)[guess], rate, (1 - rate) / 2).astype(np.float32)


def test_what_tells_labels_best_is_kept_and_what_is_clearly_behind_is_not() -> None:
    classes = np.random.default_rng(0).integers(3, size=600)
    given = noisy(classes, 0.3)
    good, timid, poor = (sure_of(classes, right, rate, 1) for right, rate in ((0.95, 0.99), (0.95, 0.4), (0.6, 0.7)))
    assert estimator._in_the_race([poor, good], given) == [1]
    assert set(estimator._in_the_race([timid, good], given)) == {0, 1}  # as good, were it as sure
    assert estimator._in_the_race([poor[:90], good[:90]], given[:90]) == [1, 0]  # too few to give one up


@pytest.mark.parametrize(
    ("races", "chosen", "fits"),
    [
        ([[2]], 2, 3 + 1),  # alone after the first fold
        ([[2, 1, 0], [0], []], 2, 3 + 3 + 1),  # ahead, and alone after the second
        ([[2, 1, 0], [0, 1, 2], [0, 2, 1]], 0, 3 + 3 + 3 + 1),  # ahead of others to the end
        (
            [[0, 2], [0, 1], [1, 0]],
            0,
            3 + 2 + 2 + 1,
        ),  # not ahead, then ahead, but of another that is not clearly behind
        ([[0, 2], [0, 1], [1]], 2, 3 + 2 + 2 + 1),  # not ahead, then alone
        ([[1, 2, 0], [1, 0], [1, 0]], 1, 3 + 3 + 2 + 1),  # not ahead of two
    ],
)
def test_the_method_is_chosen_with_the_network(
    races: list[list[int]], chosen: int, fits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The challenger stays in the race until it is clearly behind, and is taken where all others are."""
    asked, pairs = [], [("mlp(widths=[])", "elr(lam=1)"), ("mlp", "elr(lam=1)"), ("mlp", "auto")]
    monkeypatch.setattr(
        estimator, "fit", lambda model, data, method, **how: asked.append((model, method)) or fit("mlp", data, **how)
    )
    left = iter(races)  # by position among those still in the race, the best first
    monkeypatch.setattr(estimator, "_in_the_race", lambda said, labels: next(left))
    classifier = nf.RobustClassifier(epochs=1, random_state=0).fit(*people(300))
    assert (classifier.model_, classifier.method_) == asked[-1] == pairs[chosen]
    assert (asked[:3], len(asked)) == (pairs, fits)


@pytest.mark.slow
def test_wrong_labels_are_not_learned() -> None:
    """Digits with 40 % wrong labels: the default against plain cross-entropy, over three seeds."""
    X, y = load_digits(return_X_y=True)
    gaps = []
    for seed in range(3):
        train = np.random.default_rng(seed).random(len(y)) < 0.7
        given = noisy(y[train], 0.4, seed)
        robust = nf.RobustClassifier(random_state=seed).fit(X[train], given)
        plain = nf.RobustClassifier("ce", random_state=seed).fit(X[train], given)
        gaps.append(robust.score(X[~train], y[~train]) - plain.score(X[~train], y[~train]))
    assert min(gaps) > 0.05


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_a_missing_label_is_named(missing: object) -> None:
    frame = pd.DataFrame({"a": np.arange(6.0), "b": list("xyxyxy")})
    with pytest.raises(InputError, match="y has a missing value at row 1"):
        QUICK.fit(frame, pd.Series(["u", missing, "v", "u", "v", "v"], dtype=object))


def test_many_numbers_are_no_texts_and_what_does_not_fit_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    numbers = nf.RobustClassifier(epochs=1).fit(rng.normal(size=(40, estimator.WIDE + 1)), np.arange(40) % 2)
    assert numbers.method_ == estimator.METHOD
    monkeypatch.setattr(estimator, "MOST_VALUES", 100)
    X, y = rhymes(60)
    assert nf.RobustClassifier(epochs=1).fit(X, y).method_ == estimator.METHOD

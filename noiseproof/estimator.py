"""`RobustClassifier`: a classifier for scikit-learn that does not memorise wrong labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import _safe_indexing, check_consistent_length, check_random_state
from sklearn.utils._missing import is_pandas_na
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data

from noiseproof import checks
from noiseproof.auditing import posterior
from noiseproof.data import LabeledData
from noiseproof.data.input_checks import TEXT, columns_of, texts_in
from noiseproof.errors import InputError
from noiseproof.methods.left_out import MOST_VALUES
from noiseproof.runs.label_report import LabelReport
from noiseproof.runs.result import FitResult
from noiseproof.training.audit import audit
from noiseproof.training.fit import fit
from noiseproof.training.setup import WIDE

STEPS = 800  # of the optimizer, by default
LINEAR = "mlp(widths=[])"  # multinomial logistic regression
NETWORKS = {LINEAR: math.inf, "mlp": 40}  # of model="auto", and how many epochs each is given at most: two hidden
# layers of 256 learn labels by heart in more, logistic regression does not
METHOD, METHOD_OF_TEXTS = "elr(lam=1)", "left_out"
CHALLENGER = "auto"  # in the place of METHOD, if clearly better, as on digits: it finds out how robust to be
FOLDS = 3  # to choose between them
LARGE = 20_000  # rows, from which one of two folds tells enough
ENOUGH, CLEARLY = 100, 2.0  # held-out rows by which one is given up, and by how many standard errors it is behind


def _default_method(data: LabeledData) -> str:
    """By what the columns are, and whether their features fit into the memory that a regression is given."""
    width = data.input_shape[0]
    texts = "text" in data.inputs.encoder.kinds.values()  # type: ignore[union-attr]
    return METHOD_OF_TEXTS if texts and width > WIDE and len(data) * width <= MOST_VALUES else METHOD


class RobustClassifier(ClassifierMixin, BaseEstimator):
    """Fit a network to labels that are partly wrong: `noiseproof.fit`, as scikit-learn has it.

    X is an array of numbers (n, d), NaN where missing, a DataFrame with categories, dates and texts, too
    (docs/habits/table.md), or a list of texts.

    Args:
        method: a method or a stack, e.g. "gce" or "early_stop(elr)"; see `noiseproof methods`. None: "left_out" of
            texts, where a linear network sees thousands of features, if these fit into memory; else "elr(lam=1)",
            weaker than the paper's ELR, of lam=3, which on two unequal classes ends with the larger one everywhere; or
            "auto", which finds out how noisy the labels are, where that is clearly better, by labels it did not see.
        model: a network by name, or a function that makes one, from features (B, d) to logits (B, K). "auto": logistic
            regression or two hidden layers, whichever tells better what labels are that it did not see, by three folds
            and the noise model of the audit; of texts, logistic regression.
        epochs: passes over the data; None: as many as make about 800 steps, 5 at least, and of "mlp" 40 at most.
        batch_size, lr, weight_decay: of the optimizer, SGD with a cosine schedule.
        class_weight: None, "balanced", or a dict from classes to weights.
        kinds: what columns are if not what they look like: {"zip": "category"}.
        random_state: a seed or a generator; the same seed gives the same bits.
        device: "cpu", "cuda", "auto", ….

    Attributes:
        classes_: (K,), as in y.
        n_features_in_, feature_names_in_: of X; the latter of a DataFrame.
        predictor_: the trained network with its preprocessing, which takes X as it is (`noiseproof.Predictor`).
        history_: a record for each epoch.
        model_, method_: the network and the method that were chosen.
    """

    def __init__(
        self,
        method: Any = None,
        model: Any = "auto",
        *,
        epochs: int | None = None,
        batch_size: int = 64,
        lr: float = 0.05,
        weight_decay: float = 5e-4,
        class_weight: Mapping[Any, float] | str | None = None,
        kinds: Mapping[str, str] | None = None,
        random_state: Any = None,
        device: str = "cpu",
    ) -> None:
        self.method = method
        self.model = model
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.class_weight = class_weight
        self.kinds = kinds
        self.random_state = random_state
        self.device = device

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> RobustClassifier:
        """Fit to inputs X (n, d) and labels y (n,), of which some may be wrong; rows of weight 0 are left out."""
        X = _as_table(X)
        columns, y = self._checked(X, y)
        weights = None
        if sample_weight is not None or self.class_weight is not None:
            weights = _check_sample_weight(sample_weight, y) * compute_sample_weight(self.class_weight, y)
            used = weights != 0
            columns = {name: _safe_indexing(column, np.flatnonzero(used)) for name, column in columns.items()}
            y, weights = y[used], weights[used]
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError("y holds one class alone; a classifier needs two classes to tell apart")
        names = [str(k) for k in range(len(self.classes_))]
        if self.kinds is not None and not hasattr(X, "columns"):
            raise InputError("kinds are those of a table's columns, and X has no names; pass a DataFrame")
        kinds = self.kinds or {} if hasattr(X, "columns") else dict.fromkeys(columns, "number")
        kinds = {TEXT: "text"} if isinstance(X, _Texts) else kinds
        data = LabeledData(columns, codes, weights=weights, class_names=names, kinds=kinds)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        self.model_, self.method_ = self._choose(self._candidates(data), data, seed)
        result = self._fit(self.model_, self.method_, data, seed)
        self.predictor_, self.history_ = result.predictor, result.history
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities (n, K), in the order of `classes_`."""
        check_is_fitted(self)
        X = _as_table(X)
        columns = _columns(validate_data(self, X, reset=False, **_how_to_check(X)))
        names = self.predictor_.form.feature_names or ()  # by position, where scikit-learn lets names differ
        return self.predictor_.predict_proba(dict(zip(names, columns.values(), strict=True)))

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class (n,) of each row."""
        probability = self.predict_proba(X)
        return self.classes_[probability.argmax(axis=1)]

    def find_label_issues(self, X: Any, y: Any, *, folds: int = 5) -> LabelReport:
        """Which labels look wrong to classifiers that did not see them: cross-fitted, by clones of this one.

        The report of `noiseproof.audit`: `.issues` (n,) bool, `.scores` (n,) the probability that a label is wrong,
        `.suggested` (n,) positions in `.class_names`, `.noise_rate`, `.to_frame()`. The index of a pandas object names
        the rows.

        Args:
            folds: the data is cut in so many parts; each is judged by a classifier fitted to the others.
        """
        checks.integer("folds", folds, 2)
        _, given = self._checked(_as_table(X), y)
        classes, codes = np.unique(given, return_inverse=True)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        fold = _folds(codes, folds, seed)
        probability = np.zeros((len(codes), len(classes)))
        for part in range(folds):
            rest, rows = np.flatnonzero(fold != part), np.flatnonzero(fold == part)
            if len(rows):
                judge = clone(self).set_params(random_state=seed).fit(_safe_indexing(X, rest), given[rest])
                known = np.searchsorted(classes, judge.classes_)
                probability[np.ix_(rows, known)] = judge.predict_proba(_safe_indexing(X, rows))
        index = next((one.index for one in (X, y) if hasattr(one, "iloc")), None)
        ids = None if index is None or not index.is_unique else index.tolist()
        return audit(codes, probability, class_names=[str(name) for name in classes], ids=ids, seed=seed)

    def _checked(self, X: Any, y: Any) -> tuple[dict[str, Any], np.ndarray]:
        """The columns of X by name, and y (n,), through scikit-learn's own door."""
        X, y = validate_data(self, X, y, **_how_to_check(X))
        y = column_or_1d(y, warn=True)
        missing = [one is None or is_pandas_na(one) or one != one for one in y.tolist()]
        if any(missing):
            raise InputError(f"y has a missing value at row {missing.index(True)}; fill it in or drop the row")
        check_consistent_length(X, y)
        check_classification_targets(y)
        return _columns(X), y

    def _fit(
        self, model: Any, method: Any, data: LabeledData, seed: int, of: int | None = None, **more: Any
    ) -> FitResult:
        """`noiseproof.fit` with the settings of this estimator; for as many epochs as `of` rows would be given."""
        epochs = self.epochs
        if epochs is None:
            epochs = max(5, math.ceil(STEPS / math.ceil((of or len(data)) / self.batch_size)))
            epochs = int(min(epochs, NETWORKS.get(model, math.inf) if isinstance(model, str) else math.inf))
        return fit(
            model, data, method, epochs=epochs, batch_size=self.batch_size, lr=self.lr,
            weight_decay=self.weight_decay, seed=seed, device=self.device, audit_features="none", **more,
        )  # fmt: skip

    def _candidates(self, data: LabeledData) -> list[tuple[Any, Any]]:
        """Networks, each with a method, to choose from; the simplest first."""
        few, wide = len(data) < 4 * FOLDS, data.input_shape[0] > WIDE
        any_network = isinstance(self.model, str) and self.model == "auto"
        networks = [self.model] if not any_network else [LINEAR] if few or wide else list(NETWORKS)
        method = _default_method(data) if self.method is None else self.method
        pairs = [(network, method) for network in networks]
        if self.method is None and not wide and len(data) >= FOLDS * ENOUGH and networks[-1] != LINEAR:
            pairs.append((networks[-1], CHALLENGER))
        return pairs

    def _choose(self, pairs: list[tuple[Any, Any]], data: LabeledData, seed: int) -> tuple[Any, Any]:
        """The network and method that tell best what labels are that they did not see, wrong ones included.

        After each fold those are given up that are clearly behind; at the end the challenger is taken only where all
        others are.
        """
        folds, parts = (FOLDS, FOLDS) if len(data) < LARGE else (2, 1)
        fold = _folds(data.labels.numpy(), folds, seed)
        said: list[list[np.ndarray]] = [[] for _ in pairs]
        left = list(range(len(pairs)))  # positions in pairs, the best first
        for part in range(parts):
            if len(left) == 1:
                break
            train, held_out = data.subset(fold != part), data.subset(fold == part)
            held_out = held_out.encoded_by(train.inputs.encoder)  # type: ignore[union-attr]
            for at in left:
                result = self._fit(*pairs[at], train, seed, len(data), eval_examples=0)
                said[at].append(result.run.predict(held_out).numpy())
            labels = np.concatenate([data.labels.numpy()[fold == done] for done in range(part + 1)])
            left = [left[i] for i in _in_the_race([np.concatenate(said[at]) for at in left], labels)]
            if self.method is None and len(left) > 1 and part == parts - 1:
                left = [at for at in left if pairs[at][1] != CHALLENGER]
        return pairs[left[0]]


class _Texts:
    """A list, an array or a series of texts (n,) as a table of one column."""

    columns = (TEXT,)

    def __init__(self, texts: list[str]) -> None:
        self.texts, self.shape = texts, (len(texts), 1)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, name: str) -> list[str]:
        return self.texts


def _as_table(X: Any) -> Any:
    """Texts as a table; anything else as it is."""
    found = texts_in(X.tolist() if getattr(X, "ndim", 0) == 1 else X)
    return X if found is None else _Texts(found)


def _how_to_check(X: Any) -> dict[str, Any]:
    """What scikit-learn is to check of X: of a frame its columns' names alone, their values are checked here."""
    return {"skip_check_array": True} if hasattr(X, "columns") else {"ensure_all_finite": "allow-nan"}


def _columns(X: Any) -> dict[str, Any]:
    """The columns of a frame, or of an array (n, d), by name."""
    found = columns_of(X)
    return {f"x{i}": X[:, i] for i in range(X.shape[1])} if found is None else found


def _in_the_race(said: list[np.ndarray], labels: np.ndarray) -> list[int]:
    """Which of some predictions (n, K) tell labels (n,) best, or not clearly worse than that: the best first.

    By the likelihood of the labels with the noise that the audit finds in them. It tells more than how many labels are
    agreed with, which are known to be wrong in part, and is fair to predictions that are too sure or not sure enough.
    """
    told = [posterior.fit(labels, [one]).told([one], labels) for one in said]  # (n,) each
    order = sorted(range(len(said)), key=lambda i: -float(told[i].mean(dtype=np.float64)))
    behind = [told[order[0]] - told[i] for i in order]  # (n,) each
    error = [CLEARLY * float(one.std()) / math.sqrt(len(labels)) for one in behind]
    few = len(labels) < ENOUGH
    return [i for i, one, most in zip(order, behind, error, strict=True) if few or float(one.mean()) <= most]


def _folds(codes: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """The part (n,) that each row belongs to: at random, each class spread evenly."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]  # class by class
    fold = np.empty(len(codes), dtype=np.int64)
    fold[order] = np.arange(len(codes)) % folds
    return fold

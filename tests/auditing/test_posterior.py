"""The probability that a label is wrong, against a slow twin, and what it must be where it is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import posterior as twin

import noiseproof as nf
from noiseproof.auditing import blocks, decision, judging, posterior
from noiseproof.auditing.calibration import reliability


def world(
    n: int = 4000, K: int = 5, noise: float = 0.2, sharp: float = 3.0, seed: int = 0, pair: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Examples of known class probabilities: labels, right classes, and p(given | x) as predictions."""
    rng = np.random.default_rng(seed)
    logits = sharp * rng.normal(size=(n, K))
    r = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    T = (1 - noise) * np.eye(K) + (noise * np.roll(np.eye(K), 1, axis=1) if pair else noise / (K - 1) * (1 - np.eye(K)))
    draw = lambda p: (p.cumsum(axis=1) > rng.random((len(p), 1))).argmax(axis=1)  # noqa: E731
    right = draw(r)
    return draw(T[right]), right, (r @ T).astype(np.float32)


def interval(
    labels: np.ndarray, evidence: list[np.ndarray], rate: float, **given: np.ndarray | int
) -> tuple[float, float]:
    """Around a rate, by what `fit_with_range` finds beside the model."""
    return posterior.fit_with_range(labels, evidence, **given)[1]().around(rate)


@pytest.mark.parametrize("pair", [False, True])
def test_the_whole_equals_its_slow_twin(pair: bool) -> None:
    labels, _, p = world(n=400, pair=pair)
    model = posterior.fit(labels, [p])
    ours = judging.judge(model, labels, [p]).wrong
    slow = twin.wrong(p.astype(float), labels, sure=0.9, least=0.1, prior=20.0, rounds=3)
    np.testing.assert_allclose(ours, slow, atol=0.02)  # b is found to two digits
    assert np.corrcoef(ours, slow)[0, 1] > 0.9999


def test_what_tells_labels_well_makes_them_likely() -> None:
    """log (Tᵀr)_y, one example after the other; less of what knows nothing of the labels."""
    labels, _, p = world(n=400)
    model = posterior.fit(labels, [p])
    told = model.told([p], labels)
    slow = [
        np.log(sum(r[k] * model.transition[k, y] for k in range(len(r))))
        for r, y in zip(model.right([p]), labels, strict=True)
    ]
    np.testing.assert_allclose(told, slow, atol=1e-3)
    idle = np.full_like(p, 1 / p.shape[1])
    assert told.mean() > posterior.fit(labels, [idle]).told([idle], labels).mean() + 0.1


def test_each_step_equals_its_slow_twin() -> None:
    labels, _, p32 = world(n=200)
    p, rng = p32.astype(np.float64), np.random.default_rng(1)
    T, other = rng.dirichlet(np.ones(5), 5), rng.dirichlet(np.ones(5), 200)
    nobody = np.full(len(labels), -1)
    for sure, least in ((0.9, 0.3), (0.5, 0.1)):
        for before in (None, T):
            ours = posterior.transition(p, labels, nobody, sure, least, 0.6, before)
            slow = twin.transition(p, labels, sure, least, posterior.PRIOR[0], 0.6, before)
            np.testing.assert_allclose(ours, slow, rtol=1e-10)
    for parts, a, b in (([p], [1.3], 1.7), ([p, other], [0.9, 0.4], 0.6), ([p, other], [3.0, 2.0], 2.5)):
        model = posterior.NoiseModel(np.array(a), T, b)
        q = twin.given(parts, a)
        np.testing.assert_allclose(model.given(parts), q, rtol=1e-10)
        r = twin.powered(twin.unmixed(q, T), b)
        np.testing.assert_allclose(model.right(parts), r, rtol=1e-10)
        slow = twin.posterior(r, T, labels)
        np.testing.assert_allclose(model.posterior(parts, labels), slow, rtol=1e-10)
        np.testing.assert_allclose(model.wrong(parts, labels), 1 - slow[np.arange(200), labels], rtol=1e-10, atol=1e-14)
        single = posterior.NoiseModel(model.exponents, T.astype(np.float32), b)
        found = judging.judge(single, labels, [part.astype(np.float32) for part in parts])
        np.testing.assert_allclose(found.wrong, 1 - slow[np.arange(200), labels], rtol=1e-3, atol=1e-6)
        np.testing.assert_array_equal(found.suggested, slow.argmax(axis=1))
        np.testing.assert_allclose(found.confidence, slow.max(axis=1), rtol=1e-4)
        joint = [[slow[labels == j, i].sum() for j in range(5)] for i in range(5)]
        np.testing.assert_allclose(found.joint, joint, rtol=1e-4)
    assert posterior._exponents([np.log(p + 1e-6)], labels)[0] == pytest.approx(twin.exponent(p, labels), rel=0.01)


@pytest.mark.parametrize("K", [3, 12])
def test_where_sure_begins_and_ties(K: int) -> None:
    """Of r in sixteenths many are at a limit exactly, and many are equal."""
    rng = np.random.default_rng(K)
    top = rng.integers(7, 16, 300) / 16
    r = np.repeat(((1 - top) / (K - 1))[:, None], K, axis=1)
    r[np.arange(300), rng.integers(0, K, 300)] = top
    labels, nobody = rng.integers(0, K, 300), np.full(300, -1)
    before = rng.dirichlet(np.ones(K), K)
    for sure, least, bound in ((0.875, 0.25, 0.625), (0.75, 0.5, 0.5)):
        for given_before in (None, before):
            ours = posterior.transition(r, labels, nobody, sure, least, bound, given_before)
            slow = twin.transition(r, labels, sure, least, max(20.0, 2.0 * K), bound, given_before)
            np.testing.assert_allclose(ours, slow, rtol=1e-10)


def test_the_exponents_of_two_models_are_the_likeliest() -> None:
    labels, _, p = world(n=80, K=3)
    other = np.random.default_rng(0).dirichlet(np.ones(3), 80) * 0.5 + 0.5 * p
    parts = [p.astype(float), other]
    found = posterior._exponents([np.log(part + 1e-6) for part in parts], labels)
    best = twin.exponents(parts, labels)
    np.testing.assert_allclose(found, best, atol=0.02)
    assert abs(best[0] - best[1]) > 0.1


def test_exponents_have_limits() -> None:
    labels = np.arange(60) % 3
    right, wrong = (0.01 * np.eye(3)[(labels + shift) % 3] + 0.33 for shift in (0, 1))
    for p, a in ((right, 20.0), (wrong, 0.01)):  # always right, and never sure; never right
        assert posterior._exponents([np.log(p)], labels)[0] == pytest.approx(a)
        log_r, T = np.log(p), np.full((3, 3), 0.05) + 0.85 * np.eye(3)
        assert posterior._sharpness(log_r, T.T[labels]) == pytest.approx(np.exp(1.5 if a > 1 else -3), rel=0.02)


def test_the_sharpness_is_the_likeliest() -> None:
    labels, _, p = world(n=150, K=4)
    T = np.full((4, 4), 0.05) + 0.8 * np.eye(4)
    for power in (0.5, 1.0, 2.0):
        slow = twin.sharpness(twin.powered(p.astype(float), power), T, labels)
        ours = posterior._sharpness(power * np.log(p.astype(float)), T.T[labels])
        assert ours == pytest.approx(slow, rel=0.02)


@pytest.mark.parametrize(("noise", "sharp"), [(0.02, 3.0), (0.3, 3.0), (0.1, 4.0)])
def test_the_interval_equals_its_slow_twin(noise: float, sharp: float) -> None:
    """To both other estimates, to 15 % of the rate at least, and two standard errors further."""
    labels, _, p = world(n=150, K=3, noise=noise, sharp=sharp)
    model = posterior.fit(labels, [p])
    rate = float(model.wrong([p], labels).mean())
    q = twin.given([p.astype(float)], model.exponents.tolist())
    for given_rate in (rate, 0.001, 0.9):  # one end is that of the rate, or of an estimate
        found = interval(labels, [p], given_rate)
        np.testing.assert_allclose(found, twin.interval(q, labels, given_rate), atol=3e-3)
    if sharp > 3:  # some are as sure as the lower end asks for, which tells
        strict, lax = (twin.estimated(q, labels, *who, 2) for who in ((0.98, 0.05), (0.7, 0.5)))
        nobody = twin.estimated(q, labels, 1.5, 0.05, 2)
        assert strict < lax
        assert abs(strict - nobody) > 0.01


def test_sure_of_somebody_is_one_in_a_hundred_at_a_half() -> None:
    def sure(top: float, count: int, n: int, K: int = 4) -> bool:
        p = np.full((n, K), 1 / K, np.float32)
        p[:count] = (1 - top) / (K - 1)
        p[:count, 0] = top
        return posterior.NoiseModel(np.ones(1, np.float32), np.eye(K, dtype=np.float32), 1.0).is_sure([p])

    assert sure(0.6, 1, 100)
    assert not sure(0.6, 1, 150)
    assert not sure(0.45, 100, 100)
    assert not sure(0.5, 100, 100, K=2)  # of two classes one has a half at least
    assert not sure(0.54, 100, 100, K=2)
    assert sure(0.56, 1, 100, K=2)


def test_two_classes_of_which_nothing_is_known() -> None:
    labels = np.random.default_rng(0).integers(0, 2, 400)
    with pytest.warns(UserWarning, match="next to nothing"):
        report = nf.audit(labels, np.full((400, 2), 0.5))
    assert report.noise_rate < 0.05


def test_samples_are_random_rows_and_no_more_than_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(n: int, K: int, seed: int = 0) -> list[int]:
        at, [part] = posterior._sample([np.broadcast_to(np.arange(n, dtype=np.float16)[:, None], (n, K))], seed)
        np.testing.assert_array_equal(part[:, 0], at.astype(np.float16))
        assert part.dtype == np.float32
        assert len(set(at.tolist())) == len(at)
        return at.tolist()

    assert len(rows(20_000, 2)) == len(rows(20_001, 2)) == 20_000
    assert rows(20_000, 2) == rows(20_000, 2) != rows(20_000, 2, seed=1)

    class Wide:
        """33,554,432 values are taken at most."""

        shape = 30_000, 6710

        def __getitem__(self, rows: np.ndarray) -> np.ndarray:
            return np.zeros(1)

    assert len(posterior._sample([Wide()], 0)[0]) == 5000  # type: ignore[list-item]
    monkeypatch.setattr(posterior, "_SAMPLE_VALUES", 4000)
    assert [len(rows(3000, K)) for K in (2, 3, 400)] == [2000, 1333, 1000]
    assert posterior._few(np.empty((1, 64))) == slice(0, 4096)
    assert posterior._few(np.empty((1, 1000))) == slice(0, 1000)


def test_where_pairs_are_too_many_and_powers_too_far() -> None:
    for K, unmixed in ((256, True), (257, False)):
        log_q = np.log(np.random.default_rng(0).dirichlet(np.ones(K), 2))
        T = np.full((K, K), 0.3 / K) + 0.7 * np.eye(K)
        assert (posterior._log_right(log_q, np.exp(log_q), T) is log_q) is not unmixed
    for reach, top in ((4.0, 2.0), (4.1, 0.0)):
        assert posterior._lifted(np.array([[1.0, 2.0]]), reach).max() == top


@pytest.mark.parametrize(("a", "b"), [(0.01, 0.05), (1.0, 1.0), (6.0, 1.0), (1.5, 4.4), (20.0, 4.4)])
def test_no_power_loses_a_row(a: float, b: float) -> None:
    """Also where all classes are about equally likely, or all but one impossible, no row vanishes in float32."""
    K = 200
    p = np.full((3, K), 1 / K, np.float32)
    p[1], p[2] = 0, np.random.default_rng(0).dirichlet(np.ones(K))
    p[1, 7] = 1
    T = np.full((K, K), 0.2 / K, np.float32) + 0.8 * np.eye(K, dtype=np.float32)
    labels = np.array([3, 8, 9])
    for parts in ([p], [p, p[[1, 0, 2]], p]):
        model = posterior.NoiseModel(np.full(len(parts), a / len(parts), np.float32), T, b)
        found = model.posterior(parts, labels)
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-4)
        exact = posterior.NoiseModel(model.exponents.astype(float), T.astype(float), b)
        np.testing.assert_allclose(found, exact.posterior([part.astype(float) for part in parts], labels), atol=2e-3)


def test_scores_are_calibrated_where_the_model_is_true() -> None:
    for noise, pair in ((0.1, False), (0.3, False), (0.3, True)):
        labels, right, p = world(n=20_000, noise=noise, sharp=6.0, pair=pair)
        found = judging.judge(posterior.fit(labels, [p]), labels, [p])
        assert found.wrong.mean() == pytest.approx(noise, rel=0.2)  # who is sure is assumed
        assert reliability(found.wrong, labels != right).error < 0.04
        share = np.diag(found.joint).sum() / len(labels)
        assert share == pytest.approx(1 - found.wrong.mean(), abs=1e-3)


def test_overconfident_predictions_are_tempered() -> None:
    labels, _, p = world(n=5000)
    sharp = p**3 / (p**3).sum(axis=1, keepdims=True)
    plain, tempered = (posterior.fit(labels, [one]) for one in (p, sharp))
    assert tempered.exponents[0] == pytest.approx(plain.exponents[0] / 3, rel=0.02)
    both = [judging.judge(model, labels, [one]).wrong for model, one in ((plain, p), (tempered, sharp))]
    np.testing.assert_allclose(*both, atol=0.02)


def test_a_second_model_adds_and_a_useless_one_does_not_hurt() -> None:
    labels, right, p = world(n=6000, sharp=1.5)
    rng = np.random.default_rng(5)
    noisy = [p * np.exp(rng.normal(size=p.shape)).astype(np.float32) for _ in range(2)]
    noisy = [one / one.sum(axis=1, keepdims=True) for one in noisy]
    junk = rng.dirichlet(np.ones(5), len(p)).astype(np.float32)

    def area(*parts: np.ndarray) -> float:
        from sklearn.metrics import roc_auc_score

        return roc_auc_score(labels != right, judging.judge(posterior.fit(labels, parts), labels, parts).wrong)

    assert area(*noisy) > max(map(area, noisy)) + 0.005
    assert area(noisy[0], junk) > area(noisy[0]) - 0.005


def test_known_examples_are_anchors() -> None:
    labels, right, p = world(n=600, noise=0.3)
    blurred = 0.5 * p + 0.5 / 5  # a poor model
    known = np.where(np.arange(600) < 300, right, -1)
    told, untold = (posterior.fit(labels, [blurred], known=one) for one in (known, None))
    T = np.full((5, 5), 0.3 / 4) + (0.7 - 0.3 / 4) * np.eye(5)
    assert np.abs(told.transition - T).mean() < np.abs(untold.transition - T).mean()


def test_what_a_weak_model_is_wrong_about_is_not_noise() -> None:
    """It is right about half: of its own mistakes it takes fewer for noise than if all it is surest of counted."""
    labels, _, p = world(n=8000, noise=0.1, sharp=1.5)
    model = posterior.fit(labels, [p])
    assert model.wrong([p], labels).mean() < 0.22  # 0.27 where nothing is shared out
    q, nobody = model.given([p]), np.full(len(labels), -1)
    shared, counted = (posterior.transition(q, labels, nobody, 0.9, 0.3, 0.5, T) for T in (model.transition, None))
    assert np.diag(shared).mean() > np.diag(counted).mean() + 0.03


def test_known_labels_are_not_shared_out() -> None:
    labels, right, p = world(n=300)
    T = np.full((5, 5), 0.05, np.float32) + 0.75 * np.eye(5, dtype=np.float32)
    told = posterior.transition(p, labels, right, 0.9, 0.3, 0.5, T)
    counts = np.zeros((5, 5))
    np.add.at(counts, (right, labels), 1)
    noise = (counts.sum() - np.trace(counts) + 0.1) / (counts.sum() + 10)
    counts += posterior.PRIOR[0] * np.where(np.eye(5, dtype=bool), 1 - noise, noise / 4)
    np.testing.assert_allclose(told, counts / counts.sum(axis=1, keepdims=True), rtol=1e-5)


def test_the_model_beside_the_range_is_that_of_fit() -> None:
    labels, right, p = world(n=500)
    known = np.where(np.arange(500) % 9 == 0, right, -1)
    alone = posterior.fit(labels, [p], known=known, seed=1)
    model, rates = posterior.fit_with_range(labels, [p], known=known, seed=1)
    np.testing.assert_array_equal(model.transition, alone.transition)
    np.testing.assert_array_equal(model.exponents, alone.exponents)
    assert model.sharpness == alone.sharpness
    assert rates() == rates() != posterior.fit_with_range(labels[::-1], [p], seed=1)[1]()


def test_the_interval_holds_the_rate() -> None:
    for noise in (0.05, 0.3):
        labels, _, p = world(n=3000, noise=noise, sharp=4.0)
        model = posterior.fit(labels, [p])
        rate = float(judging.judge(model, labels, [p]).wrong.mean())
        low, high = interval(labels, [p], rate)
        assert low < noise < high
        assert low < rate < high


def test_both_ends_of_the_interval_at_once_are_those_of_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of predictions that are far from sure enough, too, whose powers are lifted in place."""
    labels, _, p = world(n=20_000, K=20, noise=0.3, sharp=4.0)
    p = p ** (1 / 8)
    p /= p.sum(axis=1, keepdims=True)
    model = posterior.fit(labels, [p])
    assert model.exponents.sum() > posterior._FAR
    at_once = [interval(labels, [p], 0.3) for _ in range(5)]
    monkeypatch.setattr(
        posterior, "in_threads", lambda work, n, width: [work(rows) for rows in blocks.blocks(n, width)]
    )
    assert at_once == [interval(labels, [p], 0.3)] * 5


def test_many_classes_a_rare_one_and_half_precision() -> None:
    labels, right, p = world(n=3000, K=300, sharp=4.0)
    for one in (p, p.astype(np.float16)):
        found = judging.judge(posterior.fit(labels, [one]), labels, [one])
        assert np.isfinite(found.wrong).all()
        assert found.wrong[labels != right].mean() > found.wrong[labels == right].mean() + 0.4


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_the_decision_has_the_best_expected_f1(p: list[float]) -> None:
    scores = np.array(p)
    mask = decision.best_f1(scores)
    if scores.sum() < 0.5:  # nothing is expected to be wrong
        assert not mask.any()
        return
    best = np.sort(scores)[::-1][: twin.best_f1(scores)]
    assert mask.sum() == (best >= decision.LEAST).sum()
    f1 = 2 * best.sum() / (len(best) + scores.sum())
    assert (best >= f1 / 2 - 1e-9).all()  # what is taken lies above half of it, what is not below
    assert (scores[~mask] <= max(f1 / 2, decision.LEAST) + 1e-9).all()


def test_where_a_label_is_called_wrong() -> None:
    """From a tenth on, and where half a label at least is expected to be."""
    assert decision.best_f1(np.full(10, 0.1)).all()
    assert not decision.best_f1(np.full(20, 0.09)).any()
    assert decision.best_f1(np.array([0.25, 0.25])).all()
    assert not decision.best_f1(np.array([0.25, 0.2])).any()
    assert decision.best_f1(np.array([0.2, 1.0, 0.9])).tolist() == [False, True, True]
    assert decision.with_precision(np.full(3, 0.5), 0.5).all()
    assert decision.with_recall(np.full(2, 0.5), 0.5).sum() == 1
    for off, forgiven in ((8e-10, True), (1.5e-9, False)):  # rounding, of a billionth
        assert decision.with_precision(np.array([0.5 - off]), 0.5).any() == forgiven
        assert decision.with_recall(np.full(2, 0.5), 0.5 * (1 + off)).sum() == (1 if forgiven else 2)


def test_decisions_by_precision_recall_and_number() -> None:
    p = np.array([0.9, 0.1, 0.8, 0.5, 0.0])
    assert decision.with_precision(p, 0.85).tolist() == [True, False, True, False, False]
    assert decision.with_precision(p, 0.95).sum() == 0
    assert decision.with_recall(p, 0.9).tolist() == [True, False, True, True, False]
    assert decision.with_recall(p, 1.0).sum() == 4
    assert not decision.with_recall(np.zeros(3), 0.9).any()
    assert decision.most_suspicious(p, 2).tolist() == [True, False, True, False, False]


@settings(deadline=None, max_examples=80)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=12), st.integers(1, 8), st.integers(0, 12))
def test_decisions_are_the_largest_or_least_that_do(eighths: list[int], asked: int, top: int) -> None:
    """By sums of eighths, which are exact: the first k in falling order, equal ones in theirs."""
    p, n, share = np.array(eighths) / 8, len(eighths), asked / 8
    order = sorted(range(n), key=lambda i: -p[i])
    sums = [sum(p[i] for i in order[:k]) for k in range(n + 1)]
    precise = max(k for k in range(n + 1) if sums[k] >= share * k)
    enough = min(k for k in range(n + 1) if sums[k] >= share * sums[n])
    for mask, k in (
        (decision.with_precision(p, share), precise), (decision.with_recall(p, share), enough),
        (decision.most_suspicious(p, top), min(n, top)),
    ):  # fmt: skip
        assert mask.dtype == bool
        assert sorted(order[:k]) == np.flatnonzero(mask).tolist()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 16), st.booleans()), min_size=1, max_size=30), st.integers(1, 9))
def test_reliability_equals_loops_over_its_bins(drawn: list[tuple[int, bool]], bins: int) -> None:
    p, outcome = np.array([one / 16 for one, _ in drawn]), np.array([was for _, was in drawn])
    found, rows = reliability(p, outcome, bins), []
    for b in range(bins):
        own = [i for i, one in enumerate(p) if b <= one * bins < b + 1 or (b == bins - 1 and one == 1)]
        if own:
            rows.append((np.mean(p[own]), np.mean(outcome[own]), len(own)))
    np.testing.assert_allclose(np.array([found.said, found.found, found.count]).T, rows)
    assert found.error == pytest.approx(sum(n * abs(said - was) for said, was, n in rows) / len(p))


@pytest.mark.parametrize("block", [1, 9, 64])
def test_blocks_of_rows_do_not_matter(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    labels, right, p = world(n=60, K=3)
    known = np.where(np.arange(60) % 7 == 0, right, -1)

    def whole() -> tuple[posterior.NoiseModel, judging.Findings, tuple[float, float]]:
        model = posterior.fit(labels, [p, p[:, ::-1]], known=known)
        return model, judging.judge(model, labels, [p, p[:, ::-1]]), interval(labels, [p], 0.1)

    before = whole()
    monkeypatch.setattr(blocks, "_BLOCK", block)
    after = whole()
    np.testing.assert_allclose(after[0].transition, before[0].transition, rtol=1e-4)
    for name in ("wrong", "suggested", "confidence", "joint"):
        np.testing.assert_allclose(getattr(after[1], name), getattr(before[1], name), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(after[2], before[2], rtol=1e-3)
    found = after[1]
    assert (found.wrong.dtype, found.confidence.dtype, found.suggested.dtype) == (np.float32, np.float32, np.int32)
    np.testing.assert_allclose(found.joint.sum(axis=0), np.bincount(labels, minlength=3), rtol=1e-4)


def test_reliability_by_hand() -> None:
    found = reliability(np.array([0.05, 0.05, 0.95, 0.95]), np.array([0, 0, 1, 0]), bins=10)
    np.testing.assert_allclose(found.said, [0.05, 0.95])
    np.testing.assert_allclose(found.found, [0.0, 0.5])
    assert found.error == pytest.approx((2 * 0.05 + 2 * 0.45) / 4)


def test_fifteen_bins_of_equal_width_the_last_with_its_end() -> None:
    found = reliability(np.array([0.064, 0.07, 1.0, 0.95]), np.array([0, 1, 1, 1]))
    np.testing.assert_allclose(found.said, [0.064, 0.07, 0.975])
    assert found.count.tolist() == [1, 1, 2]
    assert found.error == pytest.approx((0.064 + 0.93 + 2 * 0.025) / 4)


def test_samples_are_those_of_seed_0_unless_another_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posterior, "_SAMPLE", 100)
    labels, _, p = world(n=300)
    models = [posterior.fit(labels, [p], **given) for given in ({}, {"seed": 0}, {"seed": 1})]
    np.testing.assert_array_equal(models[0].transition, models[1].transition)
    assert (models[0].transition != models[2].transition).any()
    ends = [interval(labels, [p], 0.2, **given) for given in ({}, {"seed": 0}, {"seed": 1})]
    assert ends[0] == ends[1] != ends[2]

"""What is said of labels by features: linear models, and neighbours in tables."""

from __future__ import annotations

import numpy as np
import pytest

from noiseproof.auditing.features import linear, neighbours_in_table


def test_a_linear_model_centres_what_it_judges_as_what_it_learned_from() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    features = (4 * np.eye(3)[labels] + rng.normal(size=(300, 3)) + [50, -20, 0]).astype(np.float32)
    rest, part = np.arange(200), np.arange(200, 300)
    classes, probability = linear(features, labels)(rest, part)
    assert classes.tolist() == [0, 1, 2]
    assert (probability.argmax(axis=1) == labels[part]).mean() > 0.9


@pytest.mark.parametrize("sign", [1, -1])
def test_neighbours_in_a_table_by_spreads_of_which_three_count(sign: int) -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(60, 2)) * [1, 1000]
    features[:3, 0] = np.array([30, 40, 50]) * sign
    z = np.clip((features - features.mean(axis=0)) / (features.std(axis=0) + 1e-6), -3, 3)
    apart = np.linalg.norm(z[:, None] - z, axis=2) + np.diag(np.full(60, np.inf))  # (n, n)
    distance, at = neighbours_in_table(features, k=5)
    np.testing.assert_allclose(distance, np.sort(apart, axis=1)[:, :5], atol=1e-6)
    assert (at[3:] == np.argsort(apart, axis=1)[3:, :5]).mean() > 0.99
    assert np.abs(z[:3, 0]).max() == 3

"""Each option takes the values at the ends of its range, and none beyond them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import noiseproof as nf
from noiseproof import methods, pretraining
from noiseproof.errors import InputError

LEAST, MOST, INSIDE = 1e-9, 1 - 1e-9, 0.5
NOT_NEGATIVE = [0, LEAST, 40.0], [-LEAST]
POSITIVE = [LEAST, 40.0], [0, -LEAST]
UP_TO_ONE = [LEAST, INSIDE, 1], [0, 1 + LEAST]  # (0, 1]
BELOW_ONE = [0, INSIDE, MOST], [-LEAST, 1]  # [0, 1)
UNIT = [0, INSIDE, 1], [-LEAST, 1 + LEAST]  # [0, 1]
BETWEEN = [LEAST, MOST], [0, 1]  # (0, 1)
COUNT = [1, 2, 40], [0, 1.5]
FROM_ZERO = [0, 1, 40], [-1, 1.5]
NEGATIVE = [-40.0, -LEAST], [0, LEAST]

FIT = {
    "cores(beta={})": NOT_NEGATIVE, "cores(consistency={})": NOT_NEGATIVE, "cores(warmup={})": COUNT,
    "d2l(lam={})": NOT_NEGATIVE, "d2l(neighbours={})": ([2, 3], [1, 2.5]), "d2l(window={})": ([2, 3], [1]),
    "dmi(scale={})": POSITIVE, "dmi(warmup={})": COUNT, "pes(warmup={})": COUNT,
    "incv(ce, rounds={})": COUNT, "incv(ce, share={})": BETWEEN, "incv(ce, remove={})": ([True, False], [1]),
    "joint(alpha={})": NOT_NEGATIVE, "joint(beta={})": NOT_NEGATIVE, "joint(memory={})": COUNT,
    "mentornet(percentile={})": BETWEEN, "mentornet(decay={})": BELOW_ONE, "mentornet(band={})": NOT_NEGATIVE,
    "mentornet(dropout={})": BELOW_ONE, "mentornet(warmup={})": COUNT, "joint(warmup={})": COUNT,
    "self_adaptive(alpha={})": BELOW_ONE, "self_adaptive(warmup={})": COUNT,
    "t_revision(lr={})": NOT_NEGATIVE, "t_revision(quantile={})": UP_TO_ONE, "t_revision(warmup={})": COUNT,
    "co_teaching(forget_rate={})": BELOW_ONE, "co_teaching(warmup={})": COUNT, "co_teaching(exponent={})": POSITIVE,
    "co_teaching_plus(forget_rate={})": BELOW_ONE, "co_teaching_plus(warmup={})": COUNT,
    "co_teaching_plus(agree={})": FROM_ZERO, "decoupling(warmup={})": FROM_ZERO, "decoupling(least={})": UNIT,
    "jocor(forget_rate={})": BELOW_ONE, "jocor(lam={})": UNIT, "jocor(warmup={})": COUNT,
    "elr_plus(beta={})": BELOW_ONE, "elr_plus(lam={})": NOT_NEGATIVE, "elr_plus(alpha={})": POSITIVE,
    "elr_plus(ema={})": BELOW_ONE, "elr_plus(ramp={})": UNIT,
    "dividemix(warmup={})": COUNT, "dividemix(threshold={})": BELOW_ONE, "dividemix(temperature={})": UP_TO_ONE,
    "dividemix(alpha={})": POSITIVE, "dividemix(lam_u={})": NOT_NEGATIVE, "dividemix(ramp={})": NOT_NEGATIVE,
    "dividemix(lam_r={})": NOT_NEGATIVE, "dividemix(penalty={})": NOT_NEGATIVE,
    "dividemix(views={})": ([1, 16], [0, 17]),
    "forward(warmup={})": COUNT, "backward(quantile={})": UP_TO_ONE,
    "crust(ce, fraction={})": UP_TO_ONE, "crust(ce, warmup={})": COUNT, "crust(ce, every={})": COUNT,
    "crust(ce, selection='central', mixup={})": NOT_NEGATIVE,
    "early_stop(ce, patience={})": COUNT, "early_stop(ce, criterion='distance({})')": POSITIVE,
    "early_stop(ce, criterion='knee({})')": BETWEEN, "early_stop(ce, criterion='theory({})')": POSITIVE,
    "early_stop(ce, criterion='theory(momentum={})')": BELOW_ONE,
    "elr(beta={})": BELOW_ONE, "elr(lam={})": NOT_NEGATIVE, "gce(q={})": UP_TO_ONE,
    "label_noise(ce, rate={})": BELOW_ONE, "mixup(alpha={})": POSITIVE, "pull(ce, strength={})": NOT_NEGATIVE,
    "refine(m1={})": NOT_NEGATIVE, "refine(m2={})": NOT_NEGATIVE, "refine(sharpness={})": UP_TO_ONE,
    "refine(ramp={})": NOT_NEGATIVE, "refine(views={})": ([1, 2], [0, 3]),
    "sce(alpha={})": NOT_NEGATIVE, "sce(beta={})": NOT_NEGATIVE, "sce(A={})": NEGATIVE,
    "sop(lr_u={})": NOT_NEGATIVE, "sop(lr_v={})": NOT_NEGATIVE, "sop(visits={})": ([1, 1.5, 40], [MOST]),
    "sop(std={})": ([1.2e-38, 1e-8, MOST], [1e-38, 1]),
    "sop_plus(consistency={})": NOT_NEGATIVE, "sop_plus(balance={})": NOT_NEGATIVE, "sop_plus(prior=[1, {}])": POSITIVE,
}  # fmt: skip
PRETRAIN = {
    "moco(temperature={})": POSITIVE, "moco(dictionary_size={})": COUNT, "moco(ema={})": UNIT, "moco(groups={})": COUNT,
    "simclr(temperature={})": POSITIVE, "byol(ema={})": UNIT, "byol(hidden={})": COUNT, "byol(rate={})": POSITIVE,
    "imix(alpha={})": POSITIVE, "imix(ema={})": UNIT,
    "sane(lam={})": UNIT, "sane(sharpness={})": UP_TO_ONE, "sane(m1={})": NOT_NEGATIVE, "sane(m2={})": NOT_NEGATIVE,
    "sane(kappa={})": POSITIVE, "sane(crops={})": ([0, 1, 64], [-1, 65, 0.5]),
}  # fmt: skip
LOSSES: dict[Callable[[Any], Any], tuple[list[Any], list[Any]]] = {
    lambda x: nf.ELRLoss(x, 3): COUNT, lambda x: nf.ELRLoss(5, x): ([2, 3], [1, 2.5]),
    lambda x: nf.ELRLoss(5, 3, beta=x): BELOW_ONE, lambda x: nf.ELRLoss(5, 3, lam=x): NOT_NEGATIVE,
    lambda x: nf.GCELoss(q=x): UP_TO_ONE, lambda x: nf.SCELoss(alpha=x): NOT_NEGATIVE,
    lambda x: nf.SCELoss(beta=x): NOT_NEGATIVE, lambda x: nf.SCELoss(A=x): NEGATIVE,
    lambda x: nf.SOPLoss(x, 3): COUNT, lambda x: nf.SOPLoss(5, x): ([2, 3], [1, 2.5]),
    lambda x: nf.SOPLoss(5, 3, seed=x): ([0, 1], [-1]),
}  # fmt: skip


def check(make: Callable[[Any], Any], values: tuple[list[Any], list[Any]]) -> None:
    taken, refused = values
    for value in taken:
        make(value)
    for value in refused:
        with pytest.raises(InputError, match="must be"):
            make(value)


@pytest.mark.parametrize("text", FIT)
def test_options_of_methods(text: str) -> None:
    check(lambda value: methods.build(text.format(repr(value))), FIT[text])


@pytest.mark.parametrize("text", PRETRAIN)
def test_options_of_pre_training(text: str) -> None:
    check(lambda value: pretraining.build(text.format(repr(value))), PRETRAIN[text])


@pytest.mark.parametrize("make", LOSSES)
def test_arguments_of_losses(make: Callable[[Any], Any]) -> None:
    check(make, LOSSES[make])

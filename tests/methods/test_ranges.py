"""Each option takes the values at the ends of its range, and none beyond them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import noiseproof as nf
from noiseproof import methods, pretraining
from noiseproof.errors import InputError
from noiseproof.method import Wrapper

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

FIT = [
    (NOT_NEGATIVE, """
        cores.beta cores.consistency d2l.lam joint.alpha joint.beta mentornet.band t_revision.lr elr_plus.lam
        dividemix.lam_u dividemix.ramp dividemix.lam_r dividemix.penalty elr.lam pull.strength refine.m1 refine.m2
        refine.ramp sce.alpha sce.beta sop_plus.consistency sop_plus.balance
    """),
    (COUNT, """
        cores.warmup dmi.warmup pes.warmup incv.rounds left_out.rounds joint.memory mentornet.warmup joint.warmup
        self_adaptive.warmup t_revision.warmup co_teaching.warmup co_teaching_plus.warmup jocor.warmup dividemix.warmup
        forward.warmup crust.warmup crust.every early_stop.patience
    """),
    (POSITIVE, "dmi.scale co_teaching.exponent elr_plus.alpha dividemix.alpha mixup.alpha"),
    (BETWEEN, "incv.share mentornet.percentile"),
    (BELOW_ONE, """
        mentornet.decay mentornet.dropout self_adaptive.alpha co_teaching.forget_rate co_teaching_plus.forget_rate
        jocor.forget_rate elr_plus.beta elr_plus.ema dividemix.threshold elr.beta label_noise.rate
    """),
    (UP_TO_ONE, "t_revision.quantile dividemix.temperature backward.quantile crust.fraction gce.q refine.sharpness"),
    (FROM_ZERO, "co_teaching_plus.agree decoupling.warmup"),
    (UNIT, "decoupling.least jocor.lam elr_plus.ramp"),
    (NEGATIVE, "sce.A"),
]  # fmt: skip
PRETRAIN = [
    (POSITIVE, "moco.temperature simclr.temperature byol.rate imix.alpha sane.kappa"),
    (COUNT, "moco.dictionary_size moco.groups byol.hidden"),
    (UNIT, "moco.ema byol.ema imix.ema sane.lam"),
    (UP_TO_ONE, "sane.sharpness"),
    (NOT_NEGATIVE, "sane.m1 sane.m2"),
]  # fmt: skip
ODD = {
    "d2l(neighbours={})": ([2, 3], [1, 2.5]),
    "d2l(window={})": ([2, 3], [1]),
    "incv(ce, remove={})": ([True, False], [1]),
    "dividemix(views={})": ([1, 16], [0, 17]),
    "crust(ce, selection='central', mixup={})": NOT_NEGATIVE,
    "early_stop(ce, criterion='distance({})')": POSITIVE,
    "early_stop(ce, criterion='knee({})')": BETWEEN,
    "early_stop(ce, criterion='theory({})')": POSITIVE,
    "early_stop(ce, criterion='theory(momentum={})')": BELOW_ONE,
    "refine(views={})": ([1, 2], [0, 3]),
    "sop(lr_u={}, lr_v=1)": NOT_NEGATIVE,
    "sop(lr_u=1, lr_v={})": NOT_NEGATIVE,
    "sop(lr_u='auto', lr_v='auto', visits={})": ([1, 1.5, 40], [MOST]),
    "sop(lr_u='auto', lr_v='auto', std={})": ([1.2e-38, 1e-8, MOST], [1e-38, 1]),
    "sop_plus(prior=[1, {}])": POSITIVE,
    "sane(crops={})": ([0, 1, 64], [-1, 65, 0.5]),
    "byol(hidden={})": ([1, 10**6], [0, 10**6 + 1]),
}


def every(table: list[tuple[Any, str]]) -> dict[str, Any]:
    """`method.option` as text to be filled in, `method(option={})`, and the values of its range."""
    return {_text(*one.split(".")): values for values, names in table for one in names.split()}


def _text(name: str, option: str) -> str:
    wrapper = name in methods.registry() and issubclass(methods.registry()[name], Wrapper)
    return f"{name}({'ce, ' if wrapper else ''}{option}={{}})"


OPTIONS = every(FIT) | every(PRETRAIN) | ODD
LOSSES: dict[Callable[[Any], Any], tuple[list[Any], list[Any]]] = {
    lambda x: nf.ELRLoss(x, 3): COUNT, lambda x: nf.ELRLoss(5, x): ([2, 3], [1, 2.5]),
    lambda x: nf.ELRLoss(5, 3, beta=x): BELOW_ONE, lambda x: nf.ELRLoss(5, 3, lam=x): NOT_NEGATIVE,
    lambda x: nf.ELRLoss(5, 3, seed=x): ([0, 1], [-1]),
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


@pytest.mark.parametrize("text", OPTIONS)
def test_options_of_methods(text: str) -> None:
    build = methods.build if text.partition("(")[0] in methods.registry() else pretraining.build
    check(lambda value: build(text.format(repr(value))), OPTIONS[text])


@pytest.mark.parametrize("make", LOSSES)
def test_arguments_of_losses(make: Callable[[Any], Any]) -> None:
    check(make, LOSSES[make])

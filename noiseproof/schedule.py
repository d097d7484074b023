"""Learning-rate schedules: pure functions from where a run stands to a factor on the base rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from noiseproof.errors import InputError
from noiseproof.spec import build_call


class Clock(NamedTuple):
    """Where a run stands."""

    epoch: float  # epochs completed, with the fraction of the current one
    epochs: int  # epochs planned
    lowest_loss: float = math.inf  # the lowest mean training loss of any completed epoch


Schedule = Callable[[Clock], float]


def constant() -> Schedule:
    """The base rate throughout."""
    return lambda clock: 1.0


def multi_step(milestones: Sequence[float], gamma: float = 0.1) -> Schedule:
    """Times `gamma` at each milestone, given in epochs."""
    rising = isinstance(milestones, list | tuple) and all(isinstance(one, int | float) for one in milestones)
    if not rising or not milestones or list(milestones) != sorted(milestones):
        raise InputError(f"milestones must be a list of epochs in rising order, got {milestones!r}; e.g. [40, 80]")
    _check_number("gamma", gamma, above=0)
    return lambda clock: gamma ** sum(clock.epoch >= milestone for milestone in milestones)


def cosine(final: float = 0.0, warmup: float = 0.0) -> Schedule:
    """Half a cosine from 1 to `final`, after a linear rise over `warmup` epochs."""
    _check_number("final", final)
    _check_number("warmup", warmup)

    def factor(clock: Clock) -> float:
        if clock.epoch < warmup:
            return (clock.epoch + 1e-3) / warmup
        share = (clock.epoch - warmup) / max(clock.epochs - warmup, 1e-9)
        return final + (1 - final) * (1 + math.cos(math.pi * min(share, 1.0))) / 2

    return factor


def anneal_on_loss(threshold: float, factor: float = 0.1) -> Schedule:
    """Times `factor` from the epoch after the mean training loss of an epoch first reaches `threshold`, for good.

    The loss may rise again afterwards: the clock carries the lowest loss so far, so the drop happens exactly once.
    """
    _check_number("threshold", threshold, above=-math.inf)
    _check_number("factor", factor, above=0)
    return lambda clock: factor if clock.lowest_loss <= threshold else 1.0


def _check_number(name: str, value: object, above: float | None = None) -> None:
    """A finite number: 0 or more, or above a bound."""
    fits = isinstance(value, int | float) and math.isfinite(value) and (value >= 0 if above is None else value > above)
    if not fits:
        allowed = "0 or more" if above is None else "finite" if above == -math.inf else f"above {above:g}"
        raise InputError(f"{name} of a schedule must be a number, {allowed}, got {value!r}")


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "multi_step": multi_step,
    "cosine": cosine,
    "anneal_on_loss": anneal_on_loss,
}


def parse(text: str) -> Schedule:
    """A schedule from text: `cosine`, `multi_step([40, 80])`, `anneal_on_loss(0.5, factor=0.1)`."""
    return build_call(text, SCHEDULES, kind="schedule")

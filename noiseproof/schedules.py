"""Learning-rate schedules: pure functions from where a run stands to a factor on the base rate; `Rate` runs one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from noiseproof import checks
from noiseproof.calls import build_call
from noiseproof.errors import InputError, shown

LOSSES = ("running", "epoch", "full")


class Clock(NamedTuple):
    """Where a run stands."""

    epoch: float  # epochs completed, with the fraction of the current one
    epochs: int  # epochs planned
    lowest_loss: float = math.inf  # the lowest training loss so far, measured as the schedule's `loss` says


@dataclass(frozen=True)
class Schedule:
    """A factor on the base rate, and what the loop should know beside it.

    The functions are pure. A clock carries the lowest loss so far, which never rises: what it triggers happens once.
    """

    factor: Callable[[Clock], float]
    drops: Callable[[Clock], int] = lambda clock: 0  # sudden drops so far: they are marked in history and pictures
    ended: Callable[[Clock], bool] = lambda clock: False  # after an epoch: end the run here?
    # the loss that clocks carry: "epoch", the mean over each epoch of what the method minimises; "running", the same as
    # a running mean, seen after every step (on a GPU the loop then waits for each); "full", the history's `train_loss`
    loss: str | None = None  # None: it does not look
    memory: float = 1.0  # epochs that a running mean looks back
    plans: bool = True  # goes by the epochs planned: a run can be given no more of them

    def __call__(self, clock: Clock) -> float:
        return self.factor(clock)


@dataclass
class Rate:
    """A schedule over one run, with what it remembers of it."""

    schedule: Schedule
    epochs: int  # planned
    running_loss: float = 0.0  # kept only where the schedule looks at it
    lowest_loss: float = math.inf  # of the schedule's kind
    drops: int = 0  # so far
    annealed: float | None = None  # when the rate dropped, if it did in the current epoch; in epochs

    def factor(self, epoch: float) -> float:
        """The factor on the base rate at this moment, in epochs."""
        clock = self._clock(epoch)
        drops = self.schedule.drops(clock)
        if drops > self.drops:
            self.drops, self.annealed = drops, epoch
        return checks.number("the factor of the schedule", self.schedule(clock), 0)

    def see_step(self, loss: float, step: int, steps: int) -> None:
        """Take the loss of the step-th step, of so many in an epoch, into the running mean.

        That is of all steps at first, then with a memory of the schedule's.
        """
        share = max(1 / step, 1 / max(self.schedule.memory * steps, 1))
        self.running_loss += share * (loss - self.running_loss)
        self.lowest_loss = min(self.lowest_loss, self.running_loss)

    def see_epoch(self, record: dict[str, Any]) -> None:
        """Look at an epoch's losses, and mark in its record when the rate dropped."""
        if self.annealed is not None:
            record["annealed"], self.annealed = self.annealed, None
        key = {"epoch": "loss", "full": "train_loss"}.get(self.schedule.loss or "")
        if key is not None:
            self.lowest_loss = min(self.lowest_loss, record[key])

    def ended(self, epoch: float) -> bool:
        """After an epoch: end the run here?"""
        return self.schedule.ended(self._clock(epoch))

    def _clock(self, epoch: float) -> Clock:
        return Clock(epoch, self.epochs, self.lowest_loss)

    def state_dict(self) -> dict[str, Any]:
        """What it remembers."""
        return {name: getattr(self, name) for name in ("running_loss", "lowest_loss", "drops", "annealed")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Remember what was saved."""
        for name in self.state_dict():
            setattr(self, name, state[name])


def _number(name: str, value: Any, low: float = 0, ends: str = "[]") -> None:
    checks.number(f"{name} of a schedule", value, low, ends=ends)


def constant() -> Schedule:
    """The base rate throughout."""
    return Schedule(lambda clock: 1.0, plans=False)


def multi_step(milestones: Sequence[float], gamma: float = 0.1) -> Schedule:
    """Times `gamma` at each milestone, given in epochs."""
    rising = isinstance(milestones, list | tuple) and all(isinstance(one, int | float) for one in milestones)
    if not rising or not milestones or list(milestones) != sorted(milestones):
        raise InputError(f"milestones must be a list of epochs in rising order, got {shown(milestones)}; e.g. [40, 80]")
    _number("gamma", gamma, ends="()")
    return _falling(gamma, lambda clock: sum(clock.epoch >= milestone for milestone in milestones), plans=False)


def anneal_at(share: float, factor: float = 0.1) -> Schedule:
    """Times `factor` from this share of the run on: `anneal_at(0.1)` after a tenth of the epochs planned."""
    _number("share", share)
    if share >= 1:
        raise InputError(
            f"share of a schedule must be a number in [0, 1), got {share!r}; for epochs write multi_step([40])"
        )
    _number("factor", factor)
    return _falling(factor, lambda clock: int(clock.epoch / clock.epochs >= share))


def cosine(final: float = 0.0, warmup: float = 0.0) -> Schedule:
    """Half a cosine from 1 to `final`, after a linear rise over `warmup` epochs."""
    _number("final", final)
    _number("warmup", warmup)

    def factor(clock: Clock) -> float:
        if clock.epoch < warmup:
            return (clock.epoch + 1e-3) / warmup
        share = (clock.epoch - warmup) / max(clock.epochs - warmup, 1e-9)
        return final + (1 - final) * (1 + math.cos(math.pi * min(share, 1.0))) / 2

    return Schedule(factor)


def anneal_on_loss(
    threshold: float, factor: float = 0.1, stop: float | None = None, loss: str = "running", memory: float = 1.0
) -> Schedule:
    """Times `factor` once the training loss first reaches `threshold`, for good; the run ends once it reaches `stop`.

    "Until the training loss reaches q log 2 + ε₁ the large rate, then the small one until ε₂": Sec. 3.1 of Wei, Ren and
    Du (2022), whose loss is that of all examples with their labels as given: `loss="full"`. The run ends with the epoch
    in which `stop` was reached.

    Args:
        threshold, stop: losses, `stop` below `threshold`.
        factor: above 0.
        loss: "running", a running mean of what the method minimises, looked at after each step; "epoch", its mean over
            each epoch; "full", `train_loss`, measured after each epoch without augmentation and added noise.
        memory: epochs that the running mean looks back, above 0.
    """
    _number("threshold", threshold, low=-math.inf)
    _number("factor", factor, ends="()")
    _number("memory", memory, ends="()")
    checks.choice("loss of a schedule", loss, LOSSES)
    if stop is not None:
        _number("stop", stop, low=-math.inf)
        if stop >= threshold:
            raise InputError(f"stop must lie below the threshold, at which the rate falls, got {stop} and {threshold}")
    return _falling(
        factor,
        lambda clock: int(clock.lowest_loss <= threshold),
        ended=lambda clock: stop is not None and clock.lowest_loss <= stop,
        loss=loss,
        memory=memory,
        plans=False,
    )


def _falling(factor: float, drops: Callable[[Clock], int], **more: Any) -> Schedule:
    """Times `factor` at each drop."""
    return Schedule(lambda clock: factor ** drops(clock), drops, **more)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "multi_step": multi_step,
    "anneal_at": anneal_at,
    "cosine": cosine,
    "anneal_on_loss": anneal_on_loss,
}


def of(schedule: str | Callable[[Clock], float]) -> Schedule:
    """A schedule from its text, from a function of a clock, or as it is."""
    if isinstance(schedule, str):
        return parse(schedule)
    return schedule if isinstance(schedule, Schedule) else Schedule(schedule, loss="epoch")


def parse(text: str) -> Schedule:
    """A schedule from text: `cosine`, `multi_step([40, 80])`, `anneal_on_loss(0.5, factor=0.1)`."""
    schedule = build_call(text, SCHEDULES, kind="schedule")
    assert isinstance(schedule, Schedule)
    return schedule

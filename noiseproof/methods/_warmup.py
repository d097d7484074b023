"""How long to train plainly first: enough to learn the classes, too little to memorise wrong labels."""

from __future__ import annotations

from noiseproof import checks
from noiseproof.errors import InputError
from noiseproof.method import Method, Run

_STEPS = 80  # by which a network has learned something


def early(run: Run) -> int:
    """A twentieth of a run, but five epochs; of fewer than fifty a tenth, if that is two epochs and eighty steps.

    By then a network has learned the classes and not yet the noise: on digits with 40 % symmetric noise the mean of the
    transition's diagonal, 0.6 in truth, was estimated as 0.63, 0.69, 0.74 and 0.93 after 5, 10, 20 and 33 of 100
    epochs. In 20 epochs of 42 steps on frozen features most wrong labels are learned by the fifth, and two are enough
    (docs/methods/dmi.md); in two epochs of 8 steps on 240 digits nothing is. Never more than half of a run.
    """
    steps = max(1, run.total_steps // run.epochs)  # of an epoch
    return max(run.epochs // 20, tenth(run.epochs, most=5, least=min(5, -(-_STEPS // steps))))


def tenth(epochs: int, *, most: int, least: int = 2) -> int:
    """A tenth of a run, at least two epochs and `least`, at most `most` and half of the run."""
    return min(max(2, least, min(most, epochs // 10)), max(1, epochs // 2))


option = checks.optional(checks.integer, low=1)  # the check of `warmup`, a whole number or None for `early`


class WarmsUp(Method):
    """A method that trains plainly first, for `warmup` epochs, an option of its own; None: for `early` ones."""

    warmup: int | None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.plans = self.plans or self.warmup is None

    def start(self, run: Run) -> None:
        check(self.warmup, run.epochs)

    def warm_epochs(self, run: Run) -> int:
        return length(self.warmup, run)


def check(warmup: int | None, epochs: int, name: str = "warmup") -> None:
    """A warm-up, an option of that name, must leave epochs for what comes after it.

    Raises:
        InputError: it leaves none.
    """
    if warmup is not None and warmup >= epochs:
        raise InputError(f"{name} must be below epochs={epochs}, got {warmup}; nothing would come after it")


def length(warmup: int | None, run: Run) -> int:
    """Epochs of warm-up: those given, or `early`."""
    return early(run) if warmup is None else warmup

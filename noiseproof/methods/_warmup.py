"""How long to train plainly first: enough to learn the classes, too little to memorise wrong labels."""

from __future__ import annotations

from noiseproof import checks
from noiseproof.errors import InputError
from noiseproof.method import Method, Run


def early(epochs: int) -> int:
    """A twentieth of a run, but five epochs or half of a shorter run.

    By then a network has learned the classes and not yet the noise: on digits with 40 % symmetric noise the mean of the
    transition's diagonal, 0.6 in truth, was estimated as 0.63, 0.69, 0.74 and 0.93 after 5, 10, 20 and 33 of 100
    epochs.
    """
    return min(max(5, epochs // 20), max(1, epochs // 2))


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
        return length(self.warmup, run.epochs)


def check(warmup: int | None, epochs: int, name: str = "warmup") -> None:
    """A warm-up, an option of that name, must leave epochs for what comes after it.

    Raises:
        InputError: it leaves none.
    """
    if warmup is not None and warmup >= epochs:
        raise InputError(f"{name} must be below epochs={epochs}, got {warmup}; nothing would come after it")


def length(warmup: int | None, epochs: int) -> int:
    """Epochs of warm-up: those given, or `early`."""
    return early(epochs) if warmup is None else warmup

"""From positions in the training set to batches a model takes: gather, move, augment, normalise."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from noiseproof import distributed
from noiseproof.data import LabeledData, Normalize
from noiseproof.data.augment import Augmentation, Compose
from noiseproof.data.sources import Ahead
from noiseproof.errors import InputError
from noiseproof.method import Batch, Selection
from noiseproof.methods.index_guard import check_index
from noiseproof.training.shuffling import by_pieces, step_sizes

APART = 1_000_003  # between the seeds of two processes
_SMALL = 64 * 2**20  # bytes of normalised inputs worth keeping, rather than normalising them in each epoch
_RESIDENT = 2 * 2**30  # bytes of raw inputs worth keeping on an accelerator


class Piece:
    """The examples of a step: those of all processes, and this one's."""

    def __init__(self, rows: Tensor, weight: Tensor | None) -> None:
        self.rows, self.weight = rows, weight  # (size,) on the CPU; (size,) or None
        self.sizes = distributed.sizes_of(len(rows))
        self.own = rows[distributed.own_part(self.sizes)]  # (B,)


class Batches:
    """Makes batches. Its generator draws the order of the examples and their augmentation, and nothing else does."""

    def __init__(
        self,
        data: LabeledData,
        normalize: Normalize,
        augments: tuple[Augmentation | None, ...],
        device: torch.device,
        seed: int,
        even: bool = False,
        shuffle: str = "examples",
    ) -> None:
        self.data, self.device, self.even = data, device, even
        self.places = None if isinstance(data.inputs, Tensor) or shuffle == "examples" else data.inputs.places()
        if shuffle != "examples" and self.places is None:
            raise InputError(f"shuffle={shuffle!r} is for images in tar files; leave it out, and any order is quick")
        self.views = [normalize if augment is None else Compose([augment, normalize]) for augment in augments]
        self.generator = torch.Generator().manual_seed(seed + 1 + APART * distributed.rank())
        self.labels = data.labels.to(device)
        self.ahead = Ahead(data.inputs)
        self.take: Callable[[Tensor], Tensor] = self.ahead.take
        values = len(data)
        for size in data.input_shape:
            values *= size
        self.ready = 4 * values <= _SMALL and augments == (None,) * len(augments)
        if self.ready or (device.type != "cpu" and isinstance(data.inputs, Tensor) and data.inputs.nbytes <= _RESIDENT):
            inputs = data.take(torch.arange(len(data))).to(device)
            inputs = normalize(inputs) if self.ready else inputs
            self.take = lambda rows: inputs.index_select(0, rows.to(device, non_blocking=True))

    def shuffled(self, rows: Tensor, size: int) -> Tensor:
        """The places of `rows` (m,) in a new order, the same in all processes, for steps of `size` examples.

        As many of them as the processes can share evenly, if they must.
        """

        def draw() -> Tensor:
            if self.places is None:
                return torch.randperm(len(rows), generator=self.generator)
            return by_pieces(self.places[rows.numpy()], size, self.generator)

        order = distributed.from_main(draw)
        return order[: len(rows) - len(rows) % distributed.world()] if self.even else order

    def split(self, order: Tensor, weight: Tensor | None, size: int) -> list[Piece]:
        """`order` in pieces, one for each step."""
        least = 2 * distributed.world()
        if len(order) < least > 2:
            raise InputError(
                f"the epoch has {len(order)} example(s) for {distributed.world()} processes; start fewer of them"
            )
        sizes = step_sizes(len(order), size)
        weights = [None] * len(sizes) if weight is None else weight.split(sizes)
        pieces = [Piece(rows, one) for rows, one in zip(order.split(sizes), weights, strict=True)]
        self.ahead.announce([piece.own for piece in pieces])
        return pieces

    def load(self, piece: Piece) -> Batch:
        """This process's part of the batch of a piece."""
        views, part = self.inputs(piece.own), distributed.own_part(piece.sizes)
        rows = piece.own.to(self.device, non_blocking=True)
        weight = None if piece.weight is None else piece.weight[part]
        return Batch(views, self.labels.index_select(0, rows), rows, weight, sizes=piece.sizes, on_host=piece.own)

    def inputs(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The views of the examples `rows`, augmented and normalised."""
        raw = self.take(rows)
        if self.ready:
            return (raw,) * len(self.views)
        raw = raw.to(self.device, non_blocking=True)
        views = tuple(view(raw, self.generator) for view in self.views)
        self.ahead.read_on()
        return views


def check_selection(selection: Selection, num_examples: int) -> None:
    """Check that a method selects some of `num_examples` examples, each once, with weights that mean something.

    Raises:
        InputError: it does not.
    """
    index, weight = selection.index, selection.weight
    check_index(index, num_examples)
    if len(index) == 0:
        raise InputError("a selection is empty; select at least one example, or return None for all")
    if weight is not None and (weight.shape != index.shape or not (weight >= 0).all() or not weight.sum() > 0):
        raise InputError(
            f"the weights of a selection must be ({len(index)},), not negative and not all zero, "
            f"got shape {tuple(weight.shape)} and a sum of {float(weight.sum()):g}"
        )

"""Progressive early stopping: later layers memorise first, so they are renewed, and trained for fewer epochs.

Yingbin Bai, Erkun Yang, Bo Han, Yanhua Yang, Jiatong Li, Yinian Mao, Gang Niu and Tongliang Liu, "Understanding and
Improving Early Stopping for Learning with Noisy Labels", NeurIPS 2021. A network of three parts in the order of its
layers: all of it is trained for T₁ epochs; then the second and third part from new weights for T₂, the first held
fixed; then the third for T₃, the others fixed. From there on all is trained, in each epoch on the examples whose label
the network predicts,

    S = {i: argmax_k p_ik = y_i},   of weight mean_c |S_c| / |S_{y_i}|
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from noiseproof import checks
from noiseproof.errors import InputError
from noiseproof.method import Batch, Run, Selection
from noiseproof.methods import _warmup
from noiseproof.methods._selected import share_right
from noiseproof.methods._snapshot import Snapshot, tensors_of

_MIDDLE = 0.25  # of the layers before the last: the second part, as the last of four blocks in the authors' code
_SHARES = (0.28, 0.2)  # T₂ and T₃ in units of T₁: the paper's 7 and 5 of 25


def layers(model: nn.Module) -> list[nn.Module]:
    """The modules that hold parameters themselves, in the order in which the network registers them."""
    return [module for module in model.modules() if next(module.parameters(recurse=False), None) is not None]


def parts(model: nn.Module) -> tuple[list[nn.Module], list[nn.Module], list[nn.Module]]:
    """The `layers` in three parts: the third is the last of them, the second a quarter of those before.

    Raises:
        InputError: fewer than two layers.
    """
    found = layers(model)
    if len(found) < 2:
        raise InputError(f"pes trains a network layer by layer, this one has {len(found)}; take another model")
    middle = -(-(len(found) - 1) // round(1 / _MIDDLE))
    return found[: -1 - middle], found[-1 - middle : -1], found[-1:]


def confident(probability: Tensor, label: Tensor) -> Selection | None:
    """The examples (m,) whose label is predicted, of like weight in each class; None where there are none.

    Of probabilities (n, K) and labels (n,).
    """
    index = (probability.argmax(dim=1) == label).nonzero().squeeze(1)  # (m,)
    if len(index) == 0:
        return None
    size = torch.bincount(label[index], minlength=probability.shape[1]).float()  # (K,) |S_c|
    return Selection(index, (size[size > 0].mean() / size)[label[index]])


@dataclass(kw_only=True, eq=False, repr=False)
class PES(_warmup.WarmsUp):
    """Train first all layers, then renew and train the later ones alone; then all on the examples it agrees with.

    Bai et al. (2021), its form for confident examples; that with a semi-supervised learner is not here.

    Differs from the paper: T₁ is a twentieth of the run, at least 5 epochs, or a tenth of fewer than 50, and T₂
    and T₃ are shares of it, for 25, 7 and 5 of 200 there. Renewed layers get their initial weights back, in place of
    new ones. They are trained by the run's optimizer and rate, where it has Adam at 1e-4, and predictions are of
    examples as they are, without views.
    Differs from the authors' code: there T₂ and T₃ are 7 by default.

    Args:
        warmup: T₁, at least 1; None: a twentieth of all epochs, at least 5, or fewer in a run below 50.

    Raises:
        InputError: an argument outside its range, or a network of one layer.
    """

    name = "pes"
    paper = "Bai et al. 2021"
    cost = "share agreed with + ⅓"

    warmup: int | None = checks.option(None, _warmup.option)
    chosen: Tensor = field(init=False)

    def start(self, run: Run) -> None:
        super().start(run)
        self.register_buffer("chosen", torch.ones(len(run.data), dtype=torch.bool))  # (n,) those of the epoch
        _, *later = parts(run.model)
        self.initial = nn.ModuleList(Snapshot(_tensors(part)) for part in later)

    def _ends(self, run: Run) -> tuple[int, int, int]:
        """The epochs in which the three stages are over."""
        first = self.warm_epochs(run)
        second, third = (max(1, round(share * first)) for share in _SHARES)
        return first, first + second, first + second + third

    def before_epoch(self, run: Run) -> Selection | None:
        first, second, third = self._ends(run)
        _, *later = parts(run.model)
        renewed = {first: (0, 1), second: (1,)}.get(run.epoch, ())
        for i in renewed:
            snapshot = self.initial[i]
            assert isinstance(snapshot, Snapshot)
            snapshot.restore(_tensors(later[i]))
        if run.epoch < third:
            return None
        selection = confident(run.predict(), run.data.labels.cpu())
        if selection is not None:
            self.chosen.zero_()
            self.chosen[selection.index.to(self.chosen.device)] = True
        return selection

    def loss(self, run: Run, batch: Batch) -> Tensor:
        held = self._held(run)
        fixed = {key: p.detach() for key, p in run.model.named_parameters() if id(p) in held}
        logits = checks.single(
            functional_call(run.model, fixed, (batch.views[0],)) if fixed else run.model(batch.views[0])
        )
        return batch.mean(F.cross_entropy(logits, batch.label, reduction="none"))

    def _held(self, run: Run) -> set[int]:
        """The parameters, by identity, that the epoch holds fixed: without a gradient, the optimizer skips them."""
        first, second, third = self._ends(run)
        if not first <= run.epoch < third:
            return set()
        early, middle, _ = parts(run.model)
        return {id(p) for layer in early + middle * (run.epoch >= second) for p in layer.parameters(recurse=False)}

    def figures(self, run: Run) -> dict[str, float]:
        return share_right(run, self.chosen)


def _tensors(part: list[nn.Module]) -> dict[str, Tensor]:
    """Parameters and buffers of some layers, by position and name."""
    return {f"{i}.{key}": value for i, layer in enumerate(part) for key, value in tensors_of(layer).items()}

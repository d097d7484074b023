"""Our losses in a Lightning Trainer: one callback.

noisy = NoisyLabels(nf.SOPLoss(len(train), num_classes=10))
module = YourModule(loss=noisy.loss)                    # called as loss(logits, label), as before
L.Trainer(callbacks=[noisy]).fit(module, DataLoader(nf.indexed(train), batch_size=128, shuffle=True))
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from noiseproof.data.indexed import KEY, Indexed
from noiseproof.errors import InputError
from noiseproof.loops._carrier import Carrier

try:
    from lightning.pytorch import Callback
except ImportError:  # the same under its older name
    try:
        from pytorch_lightning import Callback  # type: ignore[no-redef,unused-ignore]
    except ImportError as error:
        raise InputError("this needs Lightning; pip install 'noiseproof[lightning]'") from error


class NoisyLabels(Callback):  # type: ignore[misc,unused-ignore]
    """Carries the positions from the batch to the loss, steps it when the optimizer has, and checkpoints its state.

    The batches are those of `nf.indexed(dataset)`: the callback takes the positions off before `training_step` sees
    them, so that x, y = batch goes on to work. With `accumulate_grad_batches` the loss is stepped when the optimizer
    is. Outside of training (validation, test) `loss` is plain cross-entropy.

    Args:
        criterion: a loss of ours; one that needs no index works, too.

    Raises:
        InputError: several processes, where the loss remembers each example; batches without positions.
    """

    def __init__(self, criterion: nn.Module) -> None:
        super().__init__()
        self.carrier = Carrier(criterion)
        self.index: Tensor | None = None  # (B,) of the batch
        self.training, self.epoch, self.lr, self.steps = False, 0, 0.0, 0

    def loss(self, logits: Tensor, label: Tensor) -> Tensor:
        """The loss of a batch; for `training_step`."""
        if not self.training:
            return F.cross_entropy(logits, label)
        return self.carrier.loss(logits, label, self.index, self.epoch)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self.carrier.refuse_processes(trainer.world_size)
        self.carrier.criterion.to(pl_module.device)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.steps = trainer.global_step  # of a resumed run it is known now, and not before

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.training, self.epoch = True, trainer.current_epoch
        self.lr = trainer.optimizers[0].param_groups[0]["lr"]  # before a schedule moves it
        self.index = _taken_off(batch, isinstance(getattr(trainer.train_dataloader, "dataset", None), Indexed))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.training, self.index = False, None
        if trainer.global_step != self.steps:
            self.steps = trainer.global_step
            self.carrier.step(self.lr)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.carrier.criterion.state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.carrier.load(state_dict, "the checkpoint")


def _taken_off(batch: Any, indexed: bool) -> Tensor | None:
    """The positions of a batch, which has them no more; None where it has none."""
    if isinstance(batch, dict):
        return batch.pop(KEY, None)
    if not indexed:
        return None
    if not isinstance(batch, list):
        raise InputError(
            f"a batch of an indexed dataset must be a list or a dict, got a {type(batch).__name__}; pass your own "
            "collate_fn as collate_fn=dataset.collate(your_own)"
        )
    return batch.pop()

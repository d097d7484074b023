"""The Lightning callback: positions, steps, state; against a loop written by hand."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import noiseproof as nf
from noiseproof.errors import InputError

with warnings.catch_warnings():  # of what it imports
    warnings.simplefilter("ignore")
    L = pytest.importorskip("lightning")
    from noiseproof.loops.lightning import NoisyLabels

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning gives advice on workers and logging
N, D, K, BATCH = 26, 5, 3, 8


def train_set() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(N, D, generator=generator), torch.randint(0, K, (N,), generator=generator))


def loader(data: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(data, batch_size=BATCH, shuffle=True, generator=torch.Generator().manual_seed(7), **options)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(D, K)


class Module(L.LightningModule):
    """As people have them: (x, y) in, a loss by an attribute."""

    def __init__(self, loss: Any) -> None:
        super().__init__()
        self.network, self.own_loss, self.validated = network(), loss, []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return self.own_loss(self.network(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch[:2]
        self.validated.append((self.own_loss(self.network(x), y), nn.functional.cross_entropy(self.network(x), y)))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


def trainer(noisy: NoisyLabels, folder: Path, **options: Any) -> Any:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return L.Trainer(callbacks=[noisy], default_root_dir=folder, **{"max_epochs": 3} | quiet | options)


def sop(**options: Any) -> nf.SOPLoss:
    return nf.SOPLoss(N, K, lr_u=10.0, lr_v=100.0, std=0.01, **options)


def by_hand(criterion: nn.Module, epochs: int, parts: int) -> tuple[nn.Module, nn.Module]:
    """The same in a loop of one's own."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    batches = loader(nf.indexed(train_set()))
    if hasattr(criterion, "accumulate"):
        criterion.accumulate = parts
    for _ in range(epochs):
        for count, (x, y, index) in enumerate(batches, 1):
            (criterion(model(x), y, index) / parts).backward()
            if count % parts == 0 or count == len(batches):
                optimizer.step()
                optimizer.zero_grad()
                if hasattr(criterion, "step"):
                    criterion.step(optimizer.param_groups[0]["lr"])
        schedule.step()
    return model, criterion


def assert_equal(one: nn.Module, other: nn.Module) -> None:
    torch.testing.assert_close(dict(one.state_dict()), dict(other.state_dict()))


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("make", [sop, lambda: sop(variant="paper"), lambda: nf.ELRLoss(N, K)])
def test_as_a_loop_by_hand(make: Any, parts: int, tmp_path: Path) -> None:
    noisy = NoisyLabels(make())
    module = Module(noisy.loss)
    fitted = trainer(noisy, tmp_path, accumulate_grad_batches=parts, enable_checkpointing=False)
    fitted.fit(module, loader(nf.indexed(train_set())), loader(train_set()))
    model, criterion = by_hand(make(), 3, parts)
    assert_equal(module.network, model)
    assert_equal(noisy.carrier.criterion, criterion)
    assert module.validated
    for own, plain in module.validated:  # outside of training it is plain cross-entropy
        assert torch.equal(own, plain)


@pytest.mark.parametrize("parts", [1, 3])
def test_the_checkpoint_has_the_state_of_the_loss(parts: int, tmp_path: Path) -> None:
    whole = NoisyLabels(sop())
    unbroken = Module(whole.loss)
    options = {"accumulate_grad_batches": parts}
    fitted = trainer(whole, tmp_path / "a", enable_checkpointing=False, **options)
    fitted.fit(unbroken, loader(nf.indexed(train_set())))

    first = NoisyLabels(sop())
    batches = loader(nf.indexed(train_set()))
    begun = trainer(first, tmp_path / "b", max_epochs=1, **options)
    begun.fit(Module(first.loss), batches)
    begun.save_checkpoint(tmp_path / "one.ckpt")
    second = NoisyLabels(sop(seed=5))
    module = Module(second.loss)
    trainer(second, tmp_path / "b", **options).fit(module, batches, ckpt_path=tmp_path / "one.ckpt")
    assert_equal(module.network, unbroken.network)
    assert_equal(second.carrier.criterion, whole.carrier.criterion)
    other = NoisyLabels(nf.SOPLoss(N + 1, K))
    with pytest.raises(InputError, match=r"the checkpoint does not fit SOPLoss .*for as many examples"):
        trainer(other, tmp_path / "b").fit(Module(other.loss), batches, ckpt_path=tmp_path / "one.ckpt")


def test_losses_without_an_index_and_with_an_epoch(tmp_path: Path) -> None:
    for criterion in (nf.GCELoss(), nf.RefineLoss(ramp=2)):
        noisy = NoisyLabels(criterion)
        trainer(noisy, tmp_path, enable_checkpointing=False).fit(Module(noisy.loss), loader(train_set()))
        assert noisy.epoch == 2


def as_dict(items: list[Any]) -> tuple[Any, ...]:
    return tuple(torch.utils.data.default_collate(items))


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        (
            loader(train_set()),
            r"the batch carries no positions, which SOPLoss needs; wrap the training set: nf\.indexed",
        ),
        (loader(nf.indexed(train_set()), collate_fn=as_dict), "must be a list or a dict, got a tuple; pass your own"),
    ],
)
def test_mistakes(batches: Any, words: str, tmp_path: Path) -> None:
    noisy = NoisyLabels(sop())
    with pytest.raises(InputError, match=words):
        trainer(noisy, tmp_path, enable_checkpointing=False).fit(Module(noisy.loss), batches)


def test_more_mistakes() -> None:
    with pytest.raises(InputError, match="criterion must be a loss"):
        NoisyLabels("sop")  # type: ignore[arg-type]
    noisy = NoisyLabels(sop())
    with pytest.raises(InputError, match="SOPLoss remembers each example in one process, got 2; train in one"):
        noisy.carrier.refuse_processes(2)
    NoisyLabels(nf.GCELoss()).carrier.refuse_processes(2)


def test_half_precision(tmp_path: Path) -> None:
    noisy = NoisyLabels(sop())
    module = Module(noisy.loss)
    fitted = trainer(noisy, tmp_path, precision="bf16-mixed", enable_checkpointing=False)
    fitted.fit(module, loader(nf.indexed(train_set())))
    state = noisy.carrier.criterion.state_dict()
    assert all(bool(one.isfinite().all()) for one in state.values())
    assert (state["model.v"].abs() > 0.02).any()

"""The mixin for the Trainer of transformers: positions, steps, state; against a loop written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import noiseproof as nf
from noiseproof.errors import InputError

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from noiseproof.loops.huggingface import NoisyLabelsMixin  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
N, K, LENGTH, BATCH = 26, 3, 6, 4


class RobustTrainer(NoisyLabelsMixin, transformers.Trainer):  # type: ignore[misc,name-defined]
    pass


class Texts(Dataset[Any]):
    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> dict[str, Any]:
        tokens = torch.randint(5, 20, (LENGTH,), generator=torch.Generator().manual_seed(i))
        return {
            "input_ids": tokens,
            "attention_mask": torch.ones(LENGTH, dtype=torch.long),
            "labels": i % K,
            "text": "a",
        }


def bert() -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
        max_position_embeddings=8, num_labels=K, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def arguments(folder: Path, **options: Any) -> Any:
    usual = {
        "num_train_epochs": 2, "per_device_train_batch_size": BATCH, "learning_rate": 0.1, "optim": "sgd",
        "lr_scheduler_type": "linear", "max_grad_norm": 0.0, "report_to": [], "disable_tqdm": True, "use_cpu": True,
        "save_strategy": "no", "seed": 3, "logging_strategy": "no",
    }  # fmt: skip
    return transformers.TrainingArguments(str(folder), **usual | options)


def sop(seed: int = 0) -> nf.SOPLoss:
    return nf.SOPLoss(N, K, lr_u=10.0, lr_v=100.0, std=0.01, variant="paper", seed=seed)


@pytest.mark.parametrize("parts", [1, 2])
def test_as_a_loop_by_hand(parts: int, tmp_path: Path) -> None:
    trainer = RobustTrainer(
        bert(), arguments(tmp_path, gradient_accumulation_steps=parts), train_dataset=Texts(), criterion=sop()
    )
    orders: list[list[int]] = []
    inner = trainer.data_collator
    trainer.data_collator = lambda items: orders.append([item["index"] for item in items]) or inner(items)
    trainer.train()

    model, criterion, data = bert().train(), sop(), nf.indexed(Texts())
    criterion.accumulate = parts
    per_epoch = len(orders) // 2
    total = 2 * -(-per_epoch // parts)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 0, total)
    for epoch in range(2):
        batches = orders[epoch * per_epoch : (epoch + 1) * per_epoch]
        for first in range(0, per_epoch, parts):
            group = batches[first : first + parts]
            for order in group:
                batch = torch.utils.data.default_collate([data[i] for i in order])
                logits = model(batch["input_ids"], batch["attention_mask"]).logits
                (criterion(logits, batch["labels"], batch["index"]) / len(group)).backward()
            optimizer.step()
            optimizer.zero_grad()
            criterion.step(optimizer.param_groups[0]["lr"])
            schedule.step()
    assert sorted(i for order in orders[:per_epoch] for i in order) == list(range(N))
    torch.testing.assert_close(dict(trainer.model.state_dict()), dict(model.state_dict()))
    torch.testing.assert_close(dict(trainer.carrier.criterion.state_dict()), dict(criterion.state_dict()))


def test_checkpoints_have_the_state_of_the_loss(tmp_path: Path) -> None:
    options = {"save_strategy": "epoch"}
    whole = RobustTrainer(bert(), arguments(tmp_path, **options), train_dataset=Texts(), criterion=sop())
    whole.train()
    first = min(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    assert (first / "criterion.safetensors").is_file()
    again = RobustTrainer(bert(), arguments(tmp_path / "b", **options), train_dataset=Texts(), criterion=sop(seed=9))
    again.train(resume_from_checkpoint=str(first))
    torch.testing.assert_close(dict(again.model.state_dict()), dict(whole.model.state_dict()))
    own, expected = (dict(one.carrier.criterion.state_dict()) for one in (again, whole))
    torch.testing.assert_close(own, expected)
    other = RobustTrainer(bert(), arguments(tmp_path), train_dataset=Texts(), criterion=nf.SOPLoss(N + 1, K))
    with pytest.raises(InputError, match=r"criterion.safetensors does not fit SOPLoss"):
        other.train(resume_from_checkpoint=True)  # the last one
    (first / "criterion.safetensors").unlink()
    with pytest.raises(InputError, match="the checkpoint is of another Trainer; train anew"):
        again.train(resume_from_checkpoint=str(first))


def test_evaluation_and_losses_without_an_index(tmp_path: Path) -> None:
    for criterion in (nf.GCELoss(), nf.RefineLoss(), nf.ELRLoss(N, K)):
        options = arguments(tmp_path, num_train_epochs=1, eval_strategy="epoch", bf16=True)
        trainer = RobustTrainer(bert(), options, train_dataset=Texts(), eval_dataset=Texts(), criterion=criterion)
        trainer.train()
        found = trainer.evaluate()
        model = trainer.model.eval()
        batch = torch.utils.data.default_collate([Texts()[i] for i in range(N)])
        plain = nn.functional.cross_entropy(model(batch["input_ids"], batch["attention_mask"]).logits, batch["labels"])
        assert found["eval_loss"] == pytest.approx(float(plain), abs=2e-2)  # of bfloat16
        assert trainer.predict(Texts()).predictions.shape == (N, K)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return (Texts()[i] for i in range(N))


def test_a_stream_for_a_loss_without_an_index(tmp_path: Path) -> None:
    RobustTrainer(bert(), arguments(tmp_path, max_steps=3), train_dataset=Stream(), criterion=nf.GCELoss()).train()
    with pytest.raises(InputError, match="indexed takes a map-style dataset"):
        RobustTrainer(bert(), arguments(tmp_path, max_steps=3), train_dataset=Stream(), criterion=sop())


class Unlabelled(Texts):
    def __getitem__(self, i: int) -> dict[str, Any]:
        return {key: value for key, value in super().__getitem__(i).items() if key != "labels"}


def test_mistakes(tmp_path: Path) -> None:
    trainer = RobustTrainer(bert(), arguments(tmp_path), train_dataset=Unlabelled(), criterion=sop())
    with pytest.raises(InputError, match=r"the batch has no labels \(its keys are .*name the column 'labels'"):
        trainer.train()
    trainer = RobustTrainer(bert(), arguments(tmp_path), train_dataset=Texts(), criterion=sop())
    with pytest.raises(InputError, match=r"there is no checkpoint in .* to go on from; train anew"):
        trainer.train(resume_from_checkpoint=True)
    with pytest.raises(InputError, match="criterion must be a loss"):
        RobustTrainer(bert(), arguments(tmp_path), train_dataset=Texts(), criterion="sop")

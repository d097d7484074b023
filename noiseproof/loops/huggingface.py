"""Our losses in the Trainer of Hugging Face's transformers: one mixin.

class RobustTrainer(NoisyLabelsMixin, transformers.Trainer): ...

trainer = RobustTrainer(model, args, train_dataset=train, criterion=nf.SOPLoss(len(train), num_classes=10))
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from noiseproof.data.indexed import KEY, Collate, indexed
from noiseproof.data.tokenizing import transformers
from noiseproof.errors import InputError
from noiseproof.loops._carrier import Carrier
from noiseproof.models.adapters import logits_of

FILE = "criterion.safetensors"  # in a checkpoint's folder
_Trainer: Any = object  # what is mixed in stands before a Trainer


class NoisyLabelsMixin(_Trainer):
    """A Trainer that trains with one of our losses: it carries positions, steps the loss, and checkpoints its state.

    Positions, where the loss asks for them, are those in `train_dataset`; the model does not see them. The loss is
    stepped after each step of the optimizer, so that `gradient_accumulation_steps` works. Evaluation has the model's
    own loss.

    Args:
        criterion: a loss of ours; one that needs no index works, too. Everything else is the Trainer's.

    Raises:
        InputError: several devices, where the loss remembers each example; a batch without labels; a checkpoint of
            another loss.
    """

    train_dataset: Any
    data_collator: Any
    loss_is_scaled_for_ga = False  # of criterion: the mean of a batch, which the Trainer divides

    def __init__(self, *args: Any, criterion: nn.Module, **kwargs: Any) -> None:
        self.carrier = Carrier(criterion)
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = False  # the same, to versions without the attribute above
        self.carrier.refuse_processes(max(self.args.world_size, self.args.n_gpu))
        self.carrier.criterion.to(self.args.device)
        if self.train_dataset is not None and "index" in self.carrier.asks:
            self.train_dataset = indexed(self.train_dataset)
        self.data_collator = _CollateSome(self.data_collator)
        self.add_callback(_callback(self))

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        index = inputs.pop(KEY, None)
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, **kwargs)
        if "labels" not in inputs:
            raise InputError(f"the batch has no labels (its keys are {', '.join(inputs)}); name the column 'labels'")
        label = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs[0] if isinstance(outputs, tuple) else logits_of(outputs)
        loss = self.carrier.loss(logits, label, index, self.state.epoch or 0)
        return (loss, outputs) if return_outputs else loss

    def train(self, resume_from_checkpoint: Any = None, **kwargs: Any) -> Any:
        """Train, or go on from a checkpoint, which has the loss's state, too."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = transformers().trainer_utils.get_last_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise InputError(f"there is no checkpoint in {self.args.output_dir} to go on from; train anew")
        if resume_from_checkpoint:
            from safetensors.torch import load_file

            path = Path(resume_from_checkpoint) / FILE
            if not path.is_file():
                raise InputError(f"there is no {path}: the checkpoint is of another Trainer; train anew")
            self.carrier.load(load_file(path), str(path))
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

    def save_criterion(self, folder: Path) -> None:
        from safetensors.torch import save_file

        state = self.carrier.criterion.state_dict()
        save_file({key: value.cpu().contiguous() for key, value in state.items()}, folder / FILE)

    def _set_signature_columns_if_needed(self) -> None:  # else the Trainer drops the positions as an unused column
        super()._set_signature_columns_if_needed()
        if KEY not in self._signature_columns:
            self._signature_columns.append(KEY)


class _CollateSome(Collate):
    """The Trainer has one collator for all sets: positions are those of the training set alone."""

    def __call__(self, items: list[Any]) -> Any:
        return super().__call__(items) if isinstance(items[0], dict) and KEY in items[0] else self.own(items)


def _callback(trainer: Any) -> Any:
    """What is done after a step of the optimizer, and beside a checkpoint."""

    class Steps(transformers().TrainerCallback):  # type: ignore[misc]
        def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            trainer.carrier.step(trainer.optimizer.param_groups[0]["lr"])

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            trainer.save_criterion(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    return Steps()

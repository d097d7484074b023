"""The one training loop. It knows no method by name: all that varies is behind the hooks of method.py."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noiseproof import checks, distributed, schedules
from noiseproof.device import kept_memory
from noiseproof.errors import InputError
from noiseproof.method import Method, Run
from noiseproof.runs.folder import RunFolder
from noiseproof.runs.structure import Damaged
from noiseproof.training import optimizers, saved_state
from noiseproof.training.batches import APART, Batches, check_selection
from noiseproof.training.callbacks import Callbacks
from noiseproof.training.gradients import Gradients
from noiseproof.training.interrupt import Interrupted, Signals
from noiseproof.training.progress import Progress
from noiseproof.training.rows import Rows
from noiseproof.training.settings import Training


@dataclass
class Position:
    """Where the loop stands within an epoch, and what it has counted; `Run` has the epochs and steps completed."""

    order: Tensor | None = None  # (m,) examples of the current epoch; None between epochs
    weight: Tensor | None = None  # (m,)
    batches_done: int = 0  # of the current epoch
    loss_sum: Tensor = field(default_factory=lambda: torch.zeros(()))  # over the epoch's examples so far
    seconds: float = 0.0  # spent in steps
    epoch_seconds: float = 0.0
    stopped: bool = False  # ended before its epochs were over: by the method, the schedule or a callback

    def to(self, device: torch.device) -> Position:
        """With what steps work on there; the order stays on the CPU."""
        self.loss_sum = self.loss_sum.to(device)
        self.weight = None if self.weight is None else self.weight.to(device)
        return self

    def state_dict(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}


class Loop:
    """A run's moving parts. All of its state is in `state`, so a killed run goes on as if nothing had happened."""

    def __init__(
        self,
        call: Training,
        run: Run,
        method: Method,
        batches: Batches,
        evaluate: Callable[[Run], dict[str, float]],
        progress: Progress,
        schedule: schedules.Schedule,
        folder: RunFolder | None,
    ) -> None:
        self.call, self.run, self.method, self.batches = call, run, method, batches
        self.evaluate, self.progress, self.folder = evaluate, progress, folder
        run.inputs = batches.inputs
        distributed.share(run.models)  # before the method copies them
        method.start(run)
        self.rows = Rows(method, len(run.data), sharded=getattr(call, "state", "") == "sharded")
        method.to(run.device)  # of sharded rows, a part
        distributed.share(method, besides=self.rows.parts())
        rates = (call.lr, call.momentum, call.weight_decay, call.backbone_rate)
        optimizer = optimizers.build(call.optimizer, run.models, *rates)
        self.optimizers = [optimizer, *method.optimizers()]
        self.base_lr = [group["lr"] for group in optimizer.param_groups]
        self.rate = schedules.Rate(schedule, run.epochs)
        self.parameters = [p for p in run.models.parameters() if p.requires_grad]
        self.initial = [p.detach().clone() for p in self.parameters]
        # layers the caller put into eval mode inside a model in train mode, e.g. frozen batch norm, stay so
        self.frozen = [m for model in run.models if model.training for m in model.modules() if not m.training]
        self.position = Position().to(run.device)
        track = call.track if distributed.is_main() else None
        self.callbacks = Callbacks(call.callbacks, track, None if folder is None else folder.path)
        self.saved = time.monotonic()
        self.debugs = distributed.debugs()
        if distributed.rank() > 0:  # dropout: a mask of each process's own
            torch.manual_seed(call.seed + APART * distributed.rank())

    def open(self, description: dict[str, Any]) -> None:
        """Begin the run's folder, or take up the run that is in it."""
        if self.folder is None:
            return
        if self.call.resume:
            self.folder.resume(description, self.restore, planned=self.planned())
            self.initial = self.folder.load_initial(self.initial)
            if self.position.stopped and self.folder.lengthened:
                warnings.warn(f"the run ended by itself in epoch {self.run.epoch}: more change nothing", stacklevel=2)
        else:
            self.folder.create(description, self.call.notes)
            self.folder.save_initial(self.initial, self.run.models, self.run.normalize)
            self.save()

    def train(self) -> int | None:
        """All epochs that are left, then the method's `finish`, whose answer it gives."""
        run, method, position = self.run, self.method, self.position
        self.progress.start(run, method.title())
        try:
            with kept_memory(), Signals() as signals:
                while not self.over():
                    if position.order is None:
                        self.begin_epoch()
                    self.steps(signals)
                    position.stopped, stop = distributed.anyone(self.end_epoch(), signals.requested)
                    self.tell()
                    if stop and not self.over():
                        self.pause(signals)
            self.save()
        finally:
            self.progress.close()
            self.callbacks.close()
        kept = method.finish(run)
        self.rows.collect()
        run.models.eval()
        return kept

    def planned(self) -> str | None:
        """What of the run goes by the number of its epochs, so that more cannot be added; None: nothing."""
        return "its schedule" if self.rate.schedule.plans else "its method" if self.method.plans else None

    def over(self) -> bool:
        """Was the last epoch the last?"""
        return self.position.stopped or self.run.epoch >= self.run.epochs

    def tell(self) -> None:
        """Tell the callbacks of the last epoch; one may end the run. Should one fail, the run is saved."""
        hint = "pass out=... to be able to go on" if self.folder is None else self.folder.hint
        try:
            self.position.stopped |= distributed.from_main(lambda: self.callbacks.tell(self.run.history[-1], hint))
        except InputError:
            self.save()
            raise

    def begin_epoch(self) -> None:
        """Choose and shuffle the examples of an epoch."""
        run, position, selection = self.run, self.position, self.method.before_epoch(self.run)
        run.held_out = None
        distributed.share(self.method, besides=self.rows.not_shared())  # what was chosen is chosen once
        if selection is None:
            position.order, position.weight = self.batches.shuffled(torch.arange(len(run.data)), run.batch_size), None
        else:
            check_selection(selection, len(run.data))
            chosen = selection
            selection = distributed.from_main(lambda: chosen)
            shuffle = self.batches.shuffled(index := selection.index.cpu(), run.batch_size)
            position.order = index[shuffle]
            if selection.weight is not None:
                weight = selection.weight.to(run.device, torch.float32)
                position.weight = (weight / weight.mean())[shuffle]
        position.batches_done, position.epoch_seconds = 0, 0.0
        position.loss_sum.zero_()

    def steps(self, signals: Signals) -> None:
        """The steps that are left of the current epoch."""
        run, method, position = self.run, self.method, self.position
        assert position.order is not None
        run.models.train()
        for module in self.frozen:
            module.training = False
        learned = [p for optimizer in self.optimizers for group in optimizer.param_groups for p in group["params"]]
        statistics = distributed.running_statistics(run.models, method)
        pieces = self.batches.split(position.order, position.weight, run.batch_size)
        gradients, flags = Gradients(learned), distributed.Flags()
        began = time.perf_counter()
        for number in range(position.batches_done, len(pieces)):
            batch = self.batches.load(pieces[number])
            self.rows.fetch(pieces[number], batch)
            self.set_rate(run.epoch + number / len(pieces))
            with run.precision():
                loss = method.loss(run, batch)
            if not (checks.is_dense(loss) and loss.ndim == 0 and loss.is_floating_point()):
                raise InputError(f"the method's loss must be a scalar, got {checks.describe(loss)}; average it")
            if not loss.requires_grad:
                raise InputError("the loss depends on no trainable weight: the network returns logits without gradient")
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            gradients.begin()
            loss.backward()
            loss = loss.detach()
            gradients.finish(*statistics, loss)
            if self.call.clip is not None:
                nn.utils.clip_grad_norm_(self.parameters, self.call.clip)
            for optimizer in self.optimizers:
                optimizer.step()
            method.after_step(run, batch)
            self.rows.exchange(pieces[number], batch)

            position.loss_sum.add_(loss, alpha=batch.size)
            run.step += 1
            if self.rate.schedule.loss == "running":
                self.rate.see_step(loss.item(), run.step, len(pieces))
            position.batches_done = number + 1
            self.progress.step(run, run.epoch + position.batches_done / len(pieces))
            stop, due = flags.anyone(signals.requested, self.is_due())
            if stop or due:
                position.epoch_seconds += time.perf_counter() - began
                self.pause(signals if stop else None)
                began = time.perf_counter()
        flags.answer(2)  # all will be asked again after the epoch
        gradients.close()
        position.epoch_seconds += time.perf_counter() - began

    def is_due(self) -> bool:
        """Is it time for a checkpoint?"""
        if self.folder is None:
            return False
        by_steps = self.call.checkpoint_steps is not None and self.run.step % self.call.checkpoint_steps == 0
        return by_steps or time.monotonic() - self.saved >= self.call.checkpoint_seconds

    def save(self) -> None:
        """Save a checkpoint, if there is a folder for it."""
        if self.folder is not None:
            self.folder.save(self.state(), self.rows.split(self.method.state_dict())[1])
            distributed.wait()
            self.saved = time.monotonic()

    def pause(self, asked: Signals | None) -> None:
        """Save between two steps; leave, if asked to."""
        self.save()
        if asked is not None:
            epoch = min(self.run.epoch + 1, self.run.epochs)
            where = f"stopped after step {self.run.step} (epoch {epoch} of {self.run.epochs})"
            unsaved = "nothing was saved: pass out=... to be able to resume"
            saved = unsaved if self.folder is None else f"saved; {self.folder.hint}"
            raise Interrupted(f"{where}; {saved}", by_hand=asked.by_hand)

    def end_epoch(self) -> bool:
        """Evaluate, add the epoch's record to the history, and say whether the run ends with it, early."""
        run, position = self.run, self.position
        assert position.order is not None
        loss = position.loss_sum.item() / len(position.order)
        distance = self.distance()
        if not math.isfinite(loss + distance):
            what = f"training loss became {loss}" if not math.isfinite(loss) else f"weights became {distance}"
            remedy = f"set clip=1.0 or lower lr (now {self.base_lr[0]})"
            raise InputError(f"the {what} in epoch {run.epoch + 1}; {remedy}")
        position.seconds += position.epoch_seconds
        run.epoch += 1
        record: dict[str, Any] = {
            "epoch": run.epoch, "step": run.step, "lr": run.lr, "loss": loss,
            "examples": len(position.order), "distance": distance,
            "examples_per_second": len(position.order) / max(position.epoch_seconds, 1e-9),
            "seconds": position.seconds,
        }  # fmt: skip
        record |= self.evaluate(run)
        self.rate.see_epoch(record)
        position.order = position.weight = None
        run.history.append(record)
        stopped = self.method.stop(run) or self.rate.ended(run.epoch)
        record |= self.method.figures(run)
        told = record | {}
        record |= distributed.from_main(lambda: told)
        if self.folder is not None:
            self.folder.log(record)
        self.progress.epoch(run)
        if self.debugs:
            self.check_replicas()
        return stopped

    def check_replicas(self) -> None:
        """All processes must hold the same networks, method, rate and random states."""
        run = self.run
        parts = {
            "model": run.models.state_dict(),
            "method": self.rows.split(self.method.state_dict())[0],
            "rate": self.rate.state_dict() | {"lr": run.lr},
            "random state": {"of the run": run.generator.get_state()},
        }
        values = {f"{part} {name}": value for part, held in parts.items() for name, value in held.items()}
        remedy = "average what comes of a process's own examples, and draw at random from run.generator alone"
        distributed.check_same(values, f" after epoch {run.epoch}", remedy)

    def set_rate(self, epoch: float) -> None:
        """The learning rate of this moment."""
        factor = self.rate.factor(epoch)
        for group, base in zip(self.optimizers[0].param_groups, self.base_lr, strict=True):
            group["lr"] = base * factor
        self.run.lr = self.base_lr[0] * factor

    def distance(self) -> float:
        """‖θ − θ₀‖ over all trainable parameters."""
        squares = [(p.detach() - p0).square().sum() for p, p0 in zip(self.parameters, self.initial, strict=True)]
        return torch.stack(squares).sum().sqrt().item()

    def state(self) -> dict[str, Any]:
        """Everything a checkpoint must hold."""
        run = self.run
        random = [self.batches.generator.get_state(), torch.get_rng_state()]
        if run.device.type == "cuda":
            random.append(torch.cuda.get_rng_state(run.device))
        return {
            "models": run.models.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "method": self.rows.split(self.method.state_dict())[0],
            "rate": self.rate.state_dict(),
            "generators": [run.generator.get_state(), *(distributed.gather(one[None]) for one in random)],  # of each
            "epoch": run.epoch, "step": run.step, "history": run.history, "told": run.told,
            "parts": distributed.world() if self.rows.sharded else 0,  # of the rows, each in a file of its own
            "position": self.position.state_dict(),
        }  # fmt: skip

    def restore(self, path: Path, state: dict[str, Any], parts: Sequence[dict[str, Tensor]]) -> None:
        """Put the saved state of a file, and of the parts beside it, back.

        Raises:
            Damaged: it is not the state of such a run.
        """
        run = self.run
        state["method"] = self.rows.restored(path, state["method"], parts)
        own = self.state() | {"method": self.method.state_dict()}
        saved_state.check(path, state, own, self.optimizers, run, whole=isinstance(self.call.model, str))
        run.models.load_state_dict(state["models"])
        self.method.load_state_dict(state["method"])
        self.rate.load_state_dict(state["rate"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
            saved_state.restore_layout(optimizer)
        run.lr = self.optimizers[0].param_groups[0]["lr"]
        own, *others = state["generators"]
        try:
            run.generator.set_state(own)
            if distributed.rank() < len(others[0]):  # else there were fewer processes: it goes on as it began
                random = [one[distributed.rank()].clone() for one in others]
                self.batches.generator.set_state(random[0])
                torch.set_rng_state(random[1])
                if run.device.type == "cuda":
                    torch.cuda.set_rng_state(random[2], run.device)
        except RuntimeError as error:
            raise Damaged(path, error) from error
        run.epoch, run.step, run.history = state["epoch"], state["step"], state["history"]
        run.told = state["told"]
        self.position = Position(**state["position"]).to(run.device)

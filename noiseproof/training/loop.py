"""The one training loop. It knows no method by name: all that varies is behind the hooks of method.py."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from noiseproof import schedules
from noiseproof.errors import InputError
from noiseproof.method import Method, Run
from noiseproof.methods.index_guard import check_selection
from noiseproof.runs.folder import RunDir
from noiseproof.training import distributed
from noiseproof.training.batches import Feed
from noiseproof.training.interrupt import Interrupted, Signals
from noiseproof.training.progress import Progress


class Loop:
    """A run's moving parts. All of its state is in `state`, so a killed run goes on as if nothing had happened."""

    def __init__(
        self,
        run: Run,
        method: Method,
        optimizer: torch.optim.Optimizer,
        rate: schedules.Schedule,
        feed: Feed,
        *,
        clip: float | None,
        autocast: torch.dtype | None,
        evaluate: Callable[[Run], dict[str, float]],
        rundir: RunDir | None,
        progress: Progress,
    ) -> None:
        self.run, self.method, self.rate, self.feed = run, method, rate, feed
        self.clip, self.autocast, self.evaluate = clip, autocast, evaluate
        self.rundir, self.progress = rundir, progress
        run.inputs = feed.inputs
        method.start(run)
        method.to(run.device)
        self.optimizers = [optimizer, *method.optimizers()]
        self.base_lr = [group["lr"] for group in optimizer.param_groups]
        self.parameters = [p for p in run.models.parameters() if p.requires_grad]
        self.initial = [p.detach().clone() for p in self.parameters]
        # layers the caller put into eval mode inside a model in train mode, e.g. frozen batch norm, stay so
        self.frozen = [m for model in run.models if model.training for m in model.modules() if not m.training]
        self.order: Tensor | None = None  # (m,) examples of the current epoch; None between epochs
        self.weight: Tensor | None = None  # (m,)
        self.batches_done = 0  # of the current epoch
        self.loss_sum = torch.zeros((), device=run.device)  # over the current epoch's examples
        self.running_loss = 0.0  # kept only where the schedule looks at it
        self.lowest_loss = math.inf  # of the schedule's kind
        self.drops = 0  # of the rate, so far
        self.annealed: float | None = None  # when the rate dropped, if it did in the current epoch; in epochs
        self.seconds = 0.0  # spent in steps
        self.epoch_seconds = 0.0
        self.finished = False

    def open(self, call: dict[str, Any], resume: bool, notes: dict[str, Any] | None) -> None:
        """Begin the run directory, or take up the run that is in it."""
        if self.rundir is None:
            return
        if resume:
            self.restore(self.rundir.resume(call))
            self.initial = self.rundir.load_initial(self.initial)
        else:
            self.rundir.create(call, notes)
            self.rundir.save_initial(self.initial, dict(self.run.models.named_buffers()))
            self.rundir.save(self.state())

    def train(self) -> None:
        """All epochs that are left, then the method's `finish`."""
        run, method = self.run, self.method
        self.progress.start(run, method.title())
        try:
            with Signals() as signals:
                while not self.finished:
                    if self.order is None:
                        self.begin_epoch()
                    self.steps(signals)
                    self.end_epoch()
                    self.finished = (
                        method.stop(run) or run.epoch >= run.epochs or self.rate.ended(self.clock(run.epoch))
                    )
                    (stop,) = distributed.anyone(signals.requested)
                    if stop and not self.finished:
                        self.pause(stop)
            if self.rundir is not None:
                self.rundir.save(self.state())
        finally:
            self.progress.close()
        method.finish(run)
        run.models.eval()

    def begin_epoch(self) -> None:
        """Choose and shuffle the examples of an epoch."""
        selection = self.method.before_epoch(self.run)
        if selection is None:
            self.order, self.weight = self.feed.shuffled(len(self.run.data)), None
        else:
            check_selection(selection, len(self.run.data))
            shuffle = self.feed.shuffled(len(selection.index))
            self.order = selection.index.cpu()[shuffle]
            if selection.weight is not None:
                weight = selection.weight.to(self.run.device, torch.float32)
                self.weight = (weight / weight.mean())[shuffle]
        self.batches_done = 0
        self.loss_sum.zero_()
        self.epoch_seconds = 0.0

    def steps(self, signals: Signals) -> None:
        """The steps that are left of the current epoch."""
        assert self.order is not None
        run, method, optimizers = self.run, self.method, self.optimizers
        run.models.train()
        for module in self.frozen:
            module.training = False
        batches = self.feed.batches(self.order, self.weight, run.batch_size)
        began = time.perf_counter()
        for number in range(self.batches_done, len(batches)):
            batch = self.feed.load(*batches[number])
            self.set_rate(run.epoch + number / len(batches))
            with self.precision():
                loss = method.loss(run, batch)
            if not loss.requires_grad:
                raise InputError("the loss depends on no trainable weight: the network returns logits without gradient")
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            distributed.average_gradients(self.parameters)
            if self.clip is not None:
                nn.utils.clip_grad_norm_(self.parameters, self.clip)
            for optimizer in optimizers:
                optimizer.step()
            method.after_step(run, batch)

            self.loss_sum.add_(loss.detach(), alpha=len(batch.label))
            run.step += 1
            if self.rate.loss == "running":
                self.watch(loss.item(), len(batches))
            self.batches_done = number + 1
            self.progress.step(run, run.epoch + self.batches_done / len(batches))
            due = self.rundir is not None and self.rundir.is_due(run.step)
            stop, due = distributed.anyone(signals.requested, due)
            if stop or due:
                self.epoch_seconds += time.perf_counter() - began
                self.pause(stop)
                began = time.perf_counter()
        self.epoch_seconds += time.perf_counter() - began

    def pause(self, stop: bool) -> None:
        """Save between two steps; leave, if asked to."""
        if self.rundir is not None:
            self.rundir.save(self.state())
        if stop:
            epoch = min(self.run.epoch + 1, self.run.epochs)
            where = f"stopped after step {self.run.step} (epoch {epoch} of {self.run.epochs})"
            saved = "nothing was saved: pass out=... to be able to resume"
            raise Interrupted(f"{where}; {self.rundir.how_to_resume() if self.rundir is not None else saved}")

    def end_epoch(self) -> None:
        """Evaluate, and add the epoch's record to the history."""
        assert self.order is not None
        run = self.run
        loss = distributed.total(self.loss_sum).item() / len(self.order)
        distance = self.distance()
        if not math.isfinite(loss + distance):
            what = f"training loss became {loss}" if not math.isfinite(loss) else f"weights became {distance}"
            remedy = f"set clip=1.0 or lower lr (now {self.base_lr[0]})"
            raise InputError(f"the {what} in epoch {run.epoch + 1}; {remedy}")
        self.seconds += self.epoch_seconds
        run.epoch += 1
        record: dict[str, Any] = {
            "epoch": run.epoch, "step": run.step, "lr": run.lr, "loss": loss,
            "examples": len(self.order), "distance": distance,
            "examples_per_second": len(self.order) / max(self.epoch_seconds, 1e-9), "seconds": self.seconds,
        }  # fmt: skip
        if len(self.order) < len(run.data) and run.data.wrong is not None:
            record["selected_right"] = 1 - float(run.data.wrong[self.order].float().mean())
        if self.annealed is not None:
            record["annealed"], self.annealed = self.annealed, None
        record |= distributed.from_main(lambda: self.evaluate(run))
        if self.rate.loss in ("epoch", "full"):
            self.lowest_loss = min(self.lowest_loss, record["loss" if self.rate.loss == "epoch" else "train_loss"])
        run.history.append(record)
        self.order = self.weight = None
        if self.rundir is not None:
            self.rundir.log(run.history[-1])
        self.progress.epoch(run)

    def watch(self, loss: float, steps: int) -> None:
        """Take a step's loss into the running mean: of all steps at first, then with a memory of the schedule's."""
        share = max(1 / self.run.step, 1 / max(self.rate.memory * steps, 1))
        self.running_loss += share * (loss - self.running_loss)
        self.lowest_loss = min(self.lowest_loss, self.running_loss)

    def clock(self, epoch: float) -> schedules.Clock:
        """Where the run stands."""
        return schedules.Clock(epoch, self.run.epochs, self.lowest_loss)

    def set_rate(self, epoch: float) -> None:
        """The learning rate of this moment."""
        clock = self.clock(epoch)
        factor, drops = self.rate(clock), self.rate.drops(clock)
        if drops > self.drops:
            self.drops, self.annealed = drops, epoch
        for group, base in zip(self.optimizers[0].param_groups, self.base_lr, strict=True):
            group["lr"] = base * factor
        self.run.lr = self.base_lr[0] * factor

    def precision(self) -> AbstractContextManager[Any]:
        """The context of a forward pass."""
        return nullcontext() if self.autocast is None else torch.autocast(self.run.device.type, dtype=self.autocast)

    def distance(self) -> float:
        """‖θ − θ₀‖ over all trainable parameters."""
        squares = [(p.detach() - p0).square().sum() for p, p0 in zip(self.parameters, self.initial, strict=True)]
        return torch.stack(squares).sum().sqrt().item()

    def state(self) -> dict[str, Any]:
        """Everything a checkpoint must hold."""
        run = self.run
        cuda = run.device.type == "cuda"
        feeds = distributed.gather(self.feed.generator.get_state().to(run.device)[None]).cpu()  # of each process
        return {
            "models": run.models.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "method": self.method.state_dict(),
            "generators": [run.generator.get_state(), feeds, torch.get_rng_state()]
            + ([torch.cuda.get_rng_state(run.device)] if cuda else []),
            "epoch": run.epoch, "step": run.step, "history": run.history,
            "order": self.order, "weight": self.weight, "batches_done": self.batches_done, "loss_sum": self.loss_sum,
            "running_loss": self.running_loss, "lowest_loss": self.lowest_loss, "drops": self.drops,
            "annealed": self.annealed, "seconds": self.seconds, "epoch_seconds": self.epoch_seconds,
            "finished": self.finished,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Put a saved state back."""
        run = self.run
        run.models.load_state_dict(state["models"])
        self.method.load_state_dict(state["method"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
            _restore_layout(optimizer)
        run.lr = self.optimizers[0].param_groups[0]["lr"]
        run.generator.set_state(state["generators"][0])
        self.feed.generator.set_state(state["generators"][1][distributed.rank()].clone())
        torch.set_rng_state(state["generators"][2])
        if run.device.type == "cuda":
            torch.cuda.set_rng_state(state["generators"][3], run.device)
        run.epoch, run.step, run.history = state["epoch"], state["step"], state["history"]
        self.order, self.batches_done = state["order"], state["batches_done"]
        self.weight = None if state["weight"] is None else state["weight"].to(run.device)
        self.loss_sum.copy_(state["loss_sum"])
        self.running_loss, self.lowest_loss = state["running_loss"], state["lowest_loss"]
        self.drops, self.annealed = state["drops"], state["annealed"]
        self.seconds, self.epoch_seconds = state["seconds"], state["epoch_seconds"]
        self.finished = state["finished"]


def _restore_layout(optimizer: torch.optim.Optimizer) -> None:
    """Give loaded optimizer state the strides of its parameter: the fused kernels walk both side by side."""
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                state[key] = torch.empty_like(parameter).copy_(value)

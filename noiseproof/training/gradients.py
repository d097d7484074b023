"""Gradients averaged over the processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from noiseproof import distributed

_MESSAGE = 8 * 2**20  # bytes of gradients in a message, which leaves while the others are computed


class Gradients:
    """Averages gradients over the processes while they are computed.

    Parameters are put into messages in the order in which backward reaches them; a message leaves as soon as its
    gradients are there, so that most of the exchange hides behind what is left of backward. This is the reducer of
    DistributedDataParallel without the module around the network: methods call a network never, once or several times
    in a step, ask it for features, and add terms in the weights themselves, and `run.model` stays what the caller gave.

    A parameter that has no gradient in a step must have none in all processes.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.messages: list[list[nn.Parameter]] = []
        self.handles: list[Any] = []
        self.listens = False
        if distributed.world() == 1:
            return
        size = 0
        for parameter in reversed(list(parameters)):
            like = self.messages[-1][0] if self.messages else None
            if like is None or size > _MESSAGE or (like.dtype, like.device) != (parameter.dtype, parameter.device):
                self.messages.append([])
                size = 0
            self.messages[-1].append(parameter)
            size += parameter.numel() * parameter.element_size()
        self.place = {id(one): at for at, message in enumerate(self.messages) for one in message}
        self.handles = [
            one.register_post_accumulate_grad_hook(self._ready) for message in self.messages for one in message
        ]

    def begin(self) -> None:
        """Before backward."""
        self.missing = [len(message) for message in self.messages]
        self.sent: list[tuple[list[Tensor], Tensor, Any]] = []
        self.listens = True

    def _ready(self, parameter: Tensor) -> None:
        if not self.listens:  # a method goes backward by itself
            return
        self.missing[self.place[id(parameter)]] -= 1
        while len(self.sent) < len(self.messages) and self.missing[len(self.sent)] == 0:
            self._send(len(self.sent))

    def _send(self, at: int) -> None:
        gradients = [one.grad for one in self.messages[at] if one.grad is not None]
        flat = torch.cat([one.flatten() for one in gradients]) if gradients else torch.zeros(1)
        self.sent.append((gradients, flat, dist.all_reduce(flat, async_op=True)))

    def finish(self, *others: Tensor) -> None:
        """After backward: the gradients, and other tensors, are the means over all processes."""
        if distributed.world() == 1:
            return
        while len(self.sent) < len(self.messages):
            self._send(len(self.sent))
        distributed.average(others)
        for gradients, flat, work in self.sent:
            work.wait()
            if gradients:
                distributed.put_back(gradients, flat)
        self.listens = False

    def close(self) -> None:
        """Leave the parameters as they were."""
        for handle in self.handles:
            handle.remove()

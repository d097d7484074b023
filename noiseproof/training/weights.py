"""Examples that count more or less than others: any method, with the weights of the data."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

from noiseproof.data import LabeledData
from noiseproof.errors import unknown
from noiseproof.method import Run, Selection, Wrapper


def by_class(data: LabeledData, weight: str | Mapping[Any, float] | None) -> LabeledData:
    """The data, each example weighing what its class does, times its own weight.

    Args:
        weight: "balanced", n / (K n_k) for a class of n_k among n examples, as scikit-learn has it: all classes count
            alike; or weights by the classes' names, 1 for those left out. None: the data as it is.

    Raises:
        InputError: there is no class of such a name.
    """
    if weight is None:
        return data
    names = {name: k for k, name in enumerate(data.class_names)}
    each = torch.ones(data.num_classes)  # (K,)
    if isinstance(weight, str):
        count = torch.bincount(data.labels, minlength=data.num_classes)  # (K,)
        each = len(data) / (data.num_classes * count.clamp_min(1).float())
    else:
        for name, value in weight.items():
            if str(name) not in names:
                raise unknown("class in class_weight", str(name), names)
            each[names[str(name)]] = value
    weighed = copy.copy(data)
    weighed.weights = each[data.labels] * (1 if data.weights is None else data.weights)  # (n,)
    return weighed


class Weighted(Wrapper):
    """Let each example weigh as the data says (`LabeledData.weights`), beside what the inner method selects.

    An example of weight 0 is never visited. `fit` puts this around the method where the data has weights.
    """

    name = "weighted"

    def before_epoch(self, run: Run) -> Selection:
        chosen = self.inner.before_epoch(run)
        assert run.data.weights is not None
        index = torch.arange(len(run.data)) if chosen is None else chosen.index.cpu()
        weight = run.data.weights[index]
        if chosen is not None and chosen.weight is not None:
            weight = weight * chosen.weight.cpu()
        return Selection(index[weight > 0], weight[weight > 0])

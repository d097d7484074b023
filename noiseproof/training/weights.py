"""Examples that count more or less than others: any method, with the weights of the data."""

from __future__ import annotations

import torch

from noiseproof.method import Run, Selection, Wrapper


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

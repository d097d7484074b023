"""Classifiers of Hugging Face's transformers, by their folder or by a name that was downloaded before."""

from __future__ import annotations

from torch import nn

from noiseproof.data.packing import Packing
from noiseproof.data.tokenizing import local, transformers
from noiseproof.models.adapters import adapt


def build(path: str, num_classes: int, packing: Packing | None, *, pretrained: bool = True) -> nn.Module:
    """The model at `path` with a head for so many classes; with its weights, or to be filled with others.

    Raises:
        InputError: transformers is not installed, or there is no such model here.
    """
    library = transformers()
    maker = library.AutoModelForSequenceClassification
    if pretrained:
        model = local(maker.from_pretrained, path, num_labels=num_classes, ignore_mismatched_sizes=True)
    else:
        model = maker.from_config(local(library.AutoConfig.from_pretrained, path, num_labels=num_classes))
    return adapt(model.float(), packing)

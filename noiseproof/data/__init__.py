"""Labelled data: the container, one reader per file format, known corruptions, batched augmentation."""

from noiseproof.data import noise
from noiseproof.data.augment import Normalize
from noiseproof.data.corrupt import corrupt_table
from noiseproof.data.images import LazyImages
from noiseproof.data.indexed import indexed
from noiseproof.data.labeled import LabeledData
from noiseproof.data.packing import Tokens
from noiseproof.data.readers import load, load_labels, load_pair, read_label_file, texts_of
from noiseproof.data.sources import InputSource

__all__ = [
    "InputSource",
    "LabeledData",
    "LazyImages",
    "Normalize",
    "Tokens",
    "corrupt_table",
    "indexed",
    "load",
    "load_labels",
    "load_pair",
    "noise",
    "read_label_file",
    "texts_of",
]

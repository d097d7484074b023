"""Labelled data: the container, one reader per file format, known corruptions, batched augmentation."""

from noiseproof.data import noise as noise
from noiseproof.data.augment import Normalize as Normalize
from noiseproof.data.corrupt import corrupt_table as corrupt_table
from noiseproof.data.images import LazyImages as LazyImages
from noiseproof.data.indexed import indexed as indexed
from noiseproof.data.labeled import LabeledData as LabeledData
from noiseproof.data.packing import Tokens as Tokens
from noiseproof.data.readers import load as load
from noiseproof.data.readers import load_labels as load_labels
from noiseproof.data.readers import load_pair as load_pair
from noiseproof.data.readers import read_label_file as read_label_file
from noiseproof.data.readers import texts_of as texts_of
from noiseproof.data.sources import InputSource as InputSource

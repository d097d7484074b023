"""Pre-training without labels: MoCo, SANE, SimCLR, BYOL, i-Mix under the one training loop, and probes of features.

result = pretrain("resnet18", data, "sane", epochs=200, out="runs/sane")
probe.knn(bank, labels, queries)                    class probabilities by nearest neighbours
fit("resnet18", noisy, "elr", init="runs/sane")     start any method from the backbone
"""

from noiseproof.pretraining import probes
from noiseproof.pretraining import probes as probe
from noiseproof.pretraining.byol import BYOL
from noiseproof.pretraining.imix import IMix
from noiseproof.pretraining.moco import MoCo
from noiseproof.pretraining.result import PretrainResult
from noiseproof.pretraining.sane import SANE
from noiseproof.pretraining.simclr import SimCLR
from noiseproof.pretraining.train import build, pretrain

__all__ = ["BYOL", "SANE", "IMix", "MoCo", "PretrainResult", "SimCLR", "build", "pretrain", "probe", "probes"]

"""Pre-training without labels: MoCo and SANE under the one training loop, and probes of what they learnt.

result = pretrain("resnet18", data, "sane", epochs=200, out="runs/sane")
probe.knn(bank, labels, queries)                    class probabilities by nearest neighbours
fit("resnet18", noisy, "elr", init="runs/sane")     start any method from the backbone
"""

from noiseproof.pretraining import probes
from noiseproof.pretraining import probes as probe
from noiseproof.pretraining.moco import MoCo
from noiseproof.pretraining.result import PretrainResult
from noiseproof.pretraining.sane import SANE
from noiseproof.pretraining.train import build, pretrain

__all__ = ["SANE", "MoCo", "PretrainResult", "build", "pretrain", "probe", "probes"]

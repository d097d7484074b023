"""Pre-training without labels: MoCo and SANE under the one training loop, and probes of what they learnt.

result = pretrain("resnet18", data, "sane", epochs=200, out="runs/sane")
probe.knn(bank, labels, queries)                    class probabilities by nearest neighbours
fit("resnet18", noisy, "elr", init="runs/sane")     start any method from the backbone
"""

from noiseproof.pretrain import probes
from noiseproof.pretrain import probes as probe
from noiseproof.pretrain.moco import MoCo
from noiseproof.pretrain.result import PretrainResult
from noiseproof.pretrain.sane import SANE
from noiseproof.pretrain.train import build, pretrain

__all__ = ["SANE", "MoCo", "PretrainResult", "build", "pretrain", "probe", "probes"]

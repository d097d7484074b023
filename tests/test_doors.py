"""Wrong calls of the public names, some hundreds: each is an InputError of one line, never an error from inside."""

from __future__ import annotations

import inspect
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import noiseproof as nf
from noiseproof import schedules
from noiseproof.auditing import neighbours
from noiseproof.data import load_labels, read_label_file
from noiseproof.data.augment import Normalize
from noiseproof.data.input_form import InputForm
from noiseproof.errors import InputError
from noiseproof.method import Method
from noiseproof.models.registry import ENTRIES
from noiseproof.pretraining import probes
from noiseproof.pretraining.train import METHODS

N, D, K = 12, 4, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = np.arange(N) % K
FEATURES, LABELS, INDEX = torch.tensor(X), torch.tensor(Y), torch.arange(N)
LOGITS = FEATURES[:, :K].clone()
DATA = nf.LabeledData(X, Y)
IMAGES = nf.LabeledData(RNG.integers(256, size=(N, 3, 8, 8), dtype=np.uint8), Y)


def odd_tensors() -> list[torch.Tensor]:
    """Tensors that are no ordinary ones: sparse, nested, quantised, without values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            FEATURES.to_sparse(),
            torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)]),
            torch.quantize_per_tensor(FEATURES, 0.1, 0, torch.quint8),
            torch.empty(N, D, device="meta"),
        ]


class Hostile:
    """What fails wherever one looks."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no array")


HUGE = 10**5000
ODD = odd_tensors()
NOTHING = [None, object(), Hostile()]
NO_NUMBER = [*NOTHING, "x", "²", [1], {}, np.ones(2), torch.ones(2), HUGE, math.nan]
NO_TEXT = [5, [["x"]], object(), Hostile(), b"x", np.ones(2)]
NO_ARRAY = [*NOTHING, "x", 5, {}, *ODD, [[1], [1, 2]], [object()] * N]
NO_TENSOR = [*NOTHING, "x", 5, [1, 2], X, *ODD]
NO_SEED = [value for value in NO_NUMBER if value is not HUGE]
NO_LIST = [5, object(), "abc", Hostile(), {1: 2}]
NO_DATA = [5, "x", X, object(), (X, Y[:3]), {"a": [1]}, Hostile()]
NO_FLAG = [None, "yes", 1, 0.5, [], np.ones(2)]
NO_PATH = [5, None, object(), ["x"], X]


def model(forward: Callable[[nn.Linear, torch.Tensor], Any]) -> nn.Module:
    """A network with weights, whose forward pass is anything."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(D, K)

        def forward(self, x: torch.Tensor) -> Any:
            return forward(self.layer, x)

    return Model()


class BadLoss(Method):
    """A method whose loss is what it is told."""

    name = "bad_loss"

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def loss(self, run: Any, batch: Any) -> Any:
        return self.value

    def describe(self) -> str:
        return "bad_loss()"


MODELS = [
    model(lambda layer, x: layer(x).mean(0, keepdim=True)),  # (1, K)
    model(lambda layer, x: layer(x)[:2]),  # fits for two examples alone
    model(lambda layer, x: layer(x.mean(0)).expand(2, K)),
    model(lambda layer, x: layer(x)[: max(2, len(x) - 2)]),
    model(lambda layer, x: (layer(x), x)),
    model(lambda layer, x: layer(x).to_sparse()),
    model(lambda layer, x: layer(x).argmax(1)),
    model(lambda layer, x: None),
    model(lambda layer, x: layer(x.flatten())),
    model(lambda layer, x: layer(x).detach()),
    model(lambda layer, x: layer(x)).half(),
    nn.Identity(),
]
AUGMENTS = [
    lambda x, g: None,
    lambda x, g: x.numpy(),
    lambda x, g: x[:1],
    lambda x, g: x * math.nan,
    lambda x, g: x.mean(),
    lambda x, g: x[:, :2],
    lambda x, g: x.to_sparse(),
    lambda x, g: x > 0,
    lambda x: x,
    lambda x, g: 1 / 0,
]
SCHEDULES = [lambda c: None, lambda c: math.nan, lambda c: "x", lambda c: -1, lambda c: [1], lambda c: torch.ones(2)]

FIT = {"model": "mlp", "data": DATA, "method": "ce", "epochs": 1, "device": "cpu"}
PRETRAIN = {"model": "cnn3", "data": IMAGES, "method": "moco", "epochs": 1, "batch_size": 4, "device": "cpu"}
TRAINING: dict[str, list[Any]] = {
    "model": [*NOTHING, 5, [], "", "mlp(", "mlp(widths=5)", "mlp(widths=[0])", "mlp(widths=['x'])", "mlp(dropout=2)",
              f"mlp(widths=[{10**12}])", f"mlp(widths=[{10**30}])", "mlp(" * 500 + ")" * 500, "x" * 5000, nn.Linear,
              lambda: None, lambda: 5, nn.Linear(3, 3)],
    "data": [*NO_DATA, None],
    "method": [*NOTHING, 5, "", "erl", "elr(", "elr(beta=2)", "elr(beta='x')", "elr(beta=[1])", "elr(beta={[]: 1})",
               "elr(" * 3000, "early_stop(" * 300 + "ce" + ")" * 300, "x" * 5000, f"elr(beta={'9' * 5000})", "elr\0",
               nf.ELR, nn.Identity()],
    "epochs": [*NO_NUMBER, 0, -1, 1.5], "batch_size": [*NO_NUMBER, 1, 2.5], "lr": [*NO_NUMBER, 0, math.inf],
    "momentum": [*NO_NUMBER, 1], "weight_decay": [*NO_NUMBER, -1], "clip": [*NO_NUMBER[1:], 0],
    "optimizer": [*NOTHING, 5, "sdg", torch.optim.LBFGS, nn.Linear, lambda: None, lambda p: None, lambda p: 5],
    "schedule": [*NOTHING, 5, "cosin", "multi_step(5)", "multi_step([2, 1])", "cosine(final='x')", *SCHEDULES],
    "precision": [*NO_TEXT, "float8", None], "seed": [*NO_NUMBER, -1, 2**64], "device": [*NO_TEXT, "gpu", None, 0.5],
    "test": [*NO_DATA, nf.LabeledData(X[:, :2], Y)], "out": [5, object(), ["x"], "a\0b", X],
    "resume": [*NO_FLAG, True], "progress": [5, "x", None, object()], "notes": [5, "x", {"x": object()}, {1j: 1}],
    "checkpoint_seconds": [*NO_NUMBER, 0], "checkpoint_steps": [*NO_NUMBER[1:], 0],
    "augment": [*NOTHING, 5, [], [5], "wek", ["none", "none", "none"]],
    "callbacks": [*NOTHING, 5, "x", [5], [print, 5], {}, lambda: None, lambda record: 1 / 0],
    "track": [*NO_TEXT, "wandb", "tensorboard"], "backbone_rate": [*NO_NUMBER, 0, -1, math.inf],
}  # fmt: skip
PROBABILITIES = 0.1 + 0.7 * np.eye(K)[Y]
REPORT = nf.audit(Y, PROBABILITIES)
TRANSITION = 0.7 * torch.eye(K) + 0.1
BATCH = {"logits": [*NO_TENSOR, LABELS, LOGITS[:3]], "label": [*NO_TENSOR, LABELS + 9, LABELS.float()]}
PLACED = BATCH | {"index": [*NO_TENSOR, INDEX + 9, INDEX * 0, INDEX.float()]}
MODEL = nf.Predictor(nn.ModuleList([nn.Linear(D, K)]), Normalize([0.0] * D, [1.0] * D), tuple("abc"), InputForm((D,)))


def classified(sample_weight: Any = None, **options: Any) -> nf.RobustClassifier:
    """As scikit-learn has it; what is wrong with X and y, its own checks say."""
    return nf.RobustClassifier(**{"epochs": 1} | options).fit(X, Y, sample_weight)


def stepped(lr: Any) -> None:
    loss = nf.SOPLoss(N, K)
    loss(LOGITS.clone().requires_grad_(), LABELS, INDEX).backward()
    loss.step(lr)


# what is called: (good arguments, wrong values of each)
DOORS: dict[Callable[..., Any], tuple[dict[str, Any], dict[str, list[Any]]]] = {
    nf.LabeledData: ({"inputs": X, "labels": Y}, {
        "inputs": [*NO_ARRAY, X > 0, X.astype(complex), np.array("x"), np.empty((0, 2)), X * math.nan],
        "labels": [*NO_ARRAY[1:], np.ones((N, 2)), [math.nan] * N, [-1] * N, [HUGE] * N, [2**64] * N, [None] * N],
        "true_labels": [*NO_ARRAY[1:], ["a"] * N], "class_names": [*NO_LIST, ["a", "a"], ["a"]],
        "ids": [*NO_LIST, [[1]] * N, [1] * N, [{}] * N, ["a"], np.ones((N, 2))],
        "feature_names": [*NO_LIST, ["a"], ["a"] * D], "allow_empty": NO_FLAG,
        "weights": [*NO_ARRAY[1:], [-1] * N, [math.nan] * N, [0] * N, [1], np.ones((N, 2))],
        "kinds": [*NO_LIST, {"a": "x"}, {"x": 5}],
    }),
    DATA.split: ({"fraction": 0.5}, {"fraction": [*NO_NUMBER, 0, 1], "seed": [*NO_SEED, -1]}),
    DATA.limit: ({"count": 5}, {"count": [*NO_NUMBER, 0, 1.5], "seed": [*NO_SEED, -1]}),
    DATA.subset: ({"index": [0, 1]}, {"index": [*NO_ARRAY, [N], [-1], [0.5], [], [True]]}),
    DATA.with_labels: ({"labels": Y}, {"labels": [*NO_ARRAY, [9] * N]}),
    DATA.with_class_names: ({"class_names": list("abc")}, {"class_names": [*NO_LIST, None, ["a"], ["a"] * K]}),
    nf.load: ({"source": "digits"}, {
        "source": [*NO_PATH, "", "\0", "x" * 5000, X], "split": [*NO_TEXT, None, "tset"], "label_column": NO_TEXT,
        "image_column": NO_TEXT, "feature_columns": [5, object()], "image_size": [*NO_NUMBER[1:], 0, (1,), 2**40],
        "memory_limit": [*NO_NUMBER[1:], 0], "limit": [*NO_NUMBER[1:], 0], "labels": [*NO_TEXT, "no.csv", "\0"],
        "true_labels": NO_TEXT,
        "labeled": NO_FLAG, "class_names": NO_LIST, "progress": [5, "x"],
    }),
    read_label_file: ({"path": "x"}, {"path": [*NO_PATH, "no.csv", "\0"]}),
    load_labels: ({"path": "x", "column": None, "n": 3}, {"path": [*NO_PATH, "no.csv"]}),
    nf.noise.symmetric: ({"labels": Y, "rate": 0.5}, {
        "labels": [*NO_ARRAY, []], "rate": [*NO_NUMBER, 2], "num_classes": [*NO_NUMBER[1:], 0, 1, 2**60],
        "seed": [*NO_SEED, -1], "include_self": NO_FLAG, "exact": NO_FLAG,
    }),
    nf.noise.pair_flip: ({"labels": Y, "rate": 0.5}, {"labels": NO_ARRAY, "rate": NO_NUMBER, "exact": NO_FLAG}),
    nf.noise.asymmetric: ({"labels": Y, "rate": 0.5, "mapping": {0: 1}}, {
        "labels": NO_ARRAY, "mapping": [*NO_LIST[:4], {0: 9}, {"a": 1}, {0: None}, [0.5, 1], [[1]], None],
    }),
    nf.noise.instance_dependent: ({"labels": Y, "rate": 0.5, "inputs": X}, {
        "inputs": [*NO_ARRAY, X[:3], X * math.nan], "spread": [*NO_NUMBER, 0],
    }),
    nf.noise.from_transition: ({"labels": Y, "transition": np.eye(K)}, {
        "transition": [*NO_ARRAY, np.ones((K, K)), []], "exact": NO_FLAG,
    }),
    nf.noise.apply: ({"data": DATA, "spec": "pair:0.2"}, {"data": NO_DATA, "spec": [*NO_TEXT, None, "x", "pair:²"]}),
    nf.noise.derangement: ({"num_classes": 4}, {"num_classes": [*NO_NUMBER, 1], "seed": NO_SEED}),
    nf.coreset.facility_location: ({"features": FEATURES, "k": 3}, {
        "features": [*NO_TENSOR, LABELS, FEATURES * math.nan, FEATURES[:0]],
        "k": [*NOTHING, "x", {}, HUGE, math.nan, -1, 99, torch.ones(2), [1, 2], [[1]]],
        "algorithm": [*NO_TEXT, None, "lzy"], "groups": [5, "x", X, *ODD, LABELS - 5, LABELS * 10**6], "seed": NO_SEED,
        "memory": [*NO_NUMBER, -1], "threads": [*NO_NUMBER[1:], 0], "progress": [5, "x"],
    }),
    nf.ELRLoss: ({"num_examples": N, "num_classes": K}, {
        "num_examples": [*NO_NUMBER, 0], "num_classes": [*NO_NUMBER, 1], "beta": NO_NUMBER[1:], "lam": NO_NUMBER,
        "reduction": [*NO_TEXT, None, "men"],
    }),
    nf.GCELoss: ({}, {"q": [*NO_NUMBER, 0, 2], "reduction": [*NO_TEXT, "x"]}),
    nf.SCELoss: ({}, {"alpha": NO_NUMBER, "beta": NO_NUMBER, "reduction": NO_TEXT}),
    nf.ForwardLoss: ({"transition": torch.eye(K)}, {"transition": [*NO_TENSOR[:5], *ODD], "reduction": NO_TEXT}),
    nf.ELRLoss(N, K): ({"logits": LOGITS, "label": LABELS, "index": INDEX}, PLACED),
    nf.SOPLoss: ({"num_examples": N, "num_classes": K}, {
        "num_examples": [*NO_NUMBER, 0], "num_classes": [*NO_NUMBER, 1], "lr_u": NO_NUMBER, "lr_v": NO_NUMBER,
        "variant": [*NO_TEXT, None, "x"], "visits": [*NO_NUMBER[1:], -1], "std": [*NO_NUMBER, -1], "full_u": NO_FLAG,
        "reduction": [*NO_TEXT, None, "x"], "seed": [*NO_SEED, -1], "accumulate": [*NO_NUMBER, 0],
    }),
    nf.SOPLoss(N, K): ({"logits": LOGITS, "label": LABELS, "index": INDEX}, PLACED),
    stepped: ({"lr": 0.1}, {"lr": [*NO_NUMBER[1:], -1]}),
    nf.RefineLoss: ({}, {
        "m1": NO_NUMBER, "m2": NO_NUMBER, "sharpness": NO_NUMBER, "ramp": NO_NUMBER, "reduction": [*NO_TEXT, "x"],
    }),
    nf.RefineLoss(): ({"logits": LOGITS, "label": LABELS, "epoch": 1}, BATCH | {
        "epoch": [*NO_NUMBER, -1], "other": [*NO_TENSOR[1:], LOGITS[:3], LABELS],
    }),
    nf.BackwardLoss: ({"transition": TRANSITION}, {
        "transition": [*NO_TENSOR[:5], *ODD, torch.ones(K, K) / K], "reduction": NO_TEXT,
    }),
    nf.BackwardLoss(TRANSITION): ({"logits": LOGITS, "label": LABELS}, BATCH),
    nf.ForwardLoss(TRANSITION): ({"logits": LOGITS, "label": LABELS}, BATCH),
    nf.GCELoss(): ({"logits": LOGITS, "label": LABELS}, BATCH),
    nf.SCELoss(): ({"logits": LOGITS, "label": LABELS}, BATCH),
    nf.DMILoss(): ({"logits": LOGITS, "label": LABELS}, BATCH),
    nf.ELR: ({}, {"beta": NO_NUMBER[1:], "lam": NO_NUMBER}), nf.GCE: ({}, {"q": NO_NUMBER}),
    nf.MixUp: ({}, {"alpha": NO_NUMBER}), nf.CoTeaching: ({}, {"forget_rate": NO_NUMBER[1:], "warmup": NO_NUMBER[1:]}),
    nf.EarlyStop: ({"inner": nf.ELR()}, {"inner": [*NOTHING, 5, "x"], "criterion": NO_TEXT}),
    nf.CRUST: ({"inner": nf.ELR()}, {"inner": [*NOTHING, 5], "selection": NO_TEXT, "by": NO_TEXT}),
    neighbours.knn: ({"bank": FEATURES, "labels": LABELS, "queries": FEATURES}, {
        "bank": NO_TENSOR, "labels": [*NO_TENSOR, LABELS.float()], "queries": [*NO_TENSOR[1:], FEATURES[:, :2]],
        "k": [*NO_NUMBER, 0], "temperature": [*NO_NUMBER, 0], "num_classes": [*NO_NUMBER[1:], 1],
    }),
    probes.linear: ({"features": FEATURES, "labels": LABELS, "queries": FEATURES}, {
        "features": NO_TENSOR, "labels": NO_TENSOR, "queries": NO_TENSOR, "decay": NO_NUMBER, "steps": NO_NUMBER,
    }),
    nf.probe.probe: ({"features": 5, "train": DATA, "test": DATA}, {}),
    MODEL.predict_proba: ({"inputs": X}, {"inputs": [*NO_ARRAY, X[:, :2], X * math.nan]}),
    nf.load_model: ({"run": "nowhere"}, {
        "run": ["no such run", "\0", 5, None, b"run"], "model": [5, "x", object()], "device": [5, "gpu"],
    }),
    nf.load_backbone: ({"run": "nowhere"}, {"run": [*NO_PATH, "\0", "no such run"], "device": [5, "gpu"]}),
    nf.load_encoder: ({"path": "nowhere"}, {"path": [*NO_PATH, "\0", "no.json"]}),
    nf.load_pair: ({"source": "digits"}, {"source": [*NO_PATH, "", "\0"], "limit": [*NO_NUMBER[1:], 0]}),
    nf.indexed: ({"dataset": [(1, 2)]}, {"dataset": [*NOTHING, 5, iter([1]), DATA]}),
    nf.review: ({"folder": "nowhere", "data": DATA}, {
        "folder": [*NO_PATH, "\0", "no such run"], "data": [*NO_DATA, None], "test": NO_DATA, "who": NO_TEXT,
        "port": [*NO_NUMBER, -1, 70_000], "browser": NO_FLAG,
    }),
    nf.export: ({"trained": MODEL, "path": "model.pt2"}, {
        "trained": [*NOTHING, 5, "no such run", X], "path": [*NO_PATH, "\0", "", "model", "model.txt"],
        "softmax": NO_FLAG, "dtype": [*NO_TEXT, None, "int8"],
    }),
    nf.audit: ({"what": Y, "pred_probs": PROBABILITIES}, {
        "what": [*NO_ARRAY, [HUGE] * N, [math.nan] * N, [-1] * N, [2**64] * N, [None] * N, Y * 0, Y[:3], []],
        "pred_probs": [*NO_ARRAY[1:], PROBABILITIES[:3], PROBABILITIES * math.nan, PROBABILITIES * 0, -PROBABILITIES,
                       PROBABILITIES[:, :1], [PROBABILITIES, PROBABILITIES[:, :2]], [], X > 0, X.astype(complex)],
        "features": [*NO_ARRAY[1:], X[:3], X * math.nan, "imagnet", X.astype(complex)],
        "model": [5, object(), "mlp", nn.Linear(D, K)], "class_names": [*NO_LIST, ["a"], ["a"] * K],
        "known": [*NO_LIST, [9] * N, ["x"] * N, [HUGE] * N, [Hostile()] * N, [0.5] * N],
        "true_labels": [*NO_LIST, [9] * N, [HUGE] * N, [0], X], "ids": [*NO_LIST, [1] * N, ["a"], [Hostile()] * N],
        "precision": [*NO_NUMBER[1:], 2, -1, 0], "recall": [*NO_NUMBER[1:], 2], "top": [*NO_NUMBER[1:], -1, 1.5],
        "threshold": [*NO_NUMBER[1:], 2], "seed": [*NO_SEED, -1], "progress": [5, "x"], "epochs": [3],
    }),
    REPORT.decide: ({"top": 2}, {"precision": [*NO_NUMBER[1:], 2], "recall": [0], "top": NO_NUMBER[1:]}),
    REPORT.apply: ({"data": DATA}, {"data": [*NO_DATA, DATA.subset(range(6))], "confidence": [*NO_NUMBER, 2, -1]}),
    REPORT.soft_labels: ({"rows": [0, 0]}, {"rows": [object(), Hostile(), "x", [N], [-1], [0.5], [[1]]]}),
    REPORT.to_parquet: ({"path": "labels.parquet"}, {"path": [*NO_PATH, "\0", f"{__file__}/labels.parquet"]}),
    REPORT.to_html: ({"path": "report.html"}, {"path": [*NO_PATH, "\0", f"{__file__}/report.html"]}),
    REPORT.save: ({"folder": "audit"}, {"folder": [*NO_PATH, "\0", __file__]}),
    classified: ({}, {
        "method": TRAINING["method"][1:], "model": [5, "", "mlp(", "mlp(widths=[0])", lambda: 5],
        "epochs": [*NO_NUMBER[1:], 0], "batch_size": [*NO_NUMBER, 0, 1], "lr": [*NO_NUMBER, 0],
        "weight_decay": [*NO_NUMBER, -1], "kinds": [5, "x", object(), {"zip": "number"}], "device": [5, "gpu"],
        "sample_weight": [[-1] * N],
    }),
    nf.augment.policy: ({"name": "weak", "image_size": 8}, {"name": [*NO_TEXT, None, "wek"], "image_size": NO_NUMBER}),
    nf.models.build: ({"name": "mlp", "input_shape": (4,), "num_classes": 3}, {
        "name": [*NO_TEXT, None, "mpl"], "input_shape": [None, 5, "x", (0,), (HUGE,), ("x",), (10**12,)],
        "num_classes": [*NO_NUMBER, 1, 10**12], "widths": [*NO_NUMBER[:4], [0], [10**12]], "dropout": NO_NUMBER,
    }),
    nf.fit: (FIT, TRAINING | {
        "model": [*TRAINING["model"], *MODELS], "augment": [*TRAINING["augment"], *AUGMENTS],
        "val": ["x", object(), 2, -1, math.nan, True, X], "init": [5, object(), X, "no such run"],
        "eval_examples": [*NO_NUMBER[1:], -1], "freeze": [*NO_TEXT, "head"],
        "weights": [5, object(), X, "no.pth", "\0", __file__],
        "class_weight": [5, object(), X, Hostile(), "x", "", {}, {"a": "x"}, {"a": -1}, {0: math.nan}, {"q": 2}, [1, 2],
                         {0: 0, 1: 0, 2: 0}, {0: HUGE}, {Hostile(): 1}],
        "state": [*NO_TEXT, None, "x"], "sync_batch_norm": NO_FLAG, "audit_features": [*NO_TEXT, None, "x"],
        "score_test": NO_FLAG,
        "method": [*TRAINING["method"], *map(BadLoss, (None, 5, torch.ones(3), torch.tensor(1.0)))],
    }),
    nf.pretrain: (PRETRAIN, TRAINING | {
        "method": [*NOTHING, 5, "mcoo", "sane(crops=10000)", "sane(lam=2)", "sane(mixup='x')", nf.ELR],
        "augment": [*TRAINING["augment"], *AUGMENTS], "mix_augment": [5, object()], "test": NO_DATA,
        "model": [*NOTHING, 5, "mlp(", nn.Linear(3, 3), f"cnn3(width={10**9})"],
        "crop_sizes": [5, "x", [0], [[1]], ["²"], [10**9]], "dim": [*NO_NUMBER, 1, 10**12],
        "hidden": [*NO_NUMBER[1:], 0, 10**9], "probe_every": [*NO_NUMBER[1:], -1], "probe_examples": [*NO_NUMBER, 9],
    }),
}  # fmt: skip


GOOD_OPTIONS = {
    "multi_step": {"milestones": [1]}, "anneal_at": {"share": 0.5}, "anneal_on_loss": {"threshold": 0.5},
    "Cutout": {"size": 2}, "RandomResizedCrop": {"size": 4}, "Normalize": {"mean": [0.0], "std": [1.0]},
    "Compose": {"operations": []},
}  # fmt: skip


def names(make: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(make).parameters)


def wrong_calls() -> Iterator[Any]:
    for door, (good, wrong) in DOORS.items():
        name = getattr(door, "__qualname__", type(door).__name__)
        for argument, values in wrong.items():
            for place, value in enumerate(values):
                yield pytest.param(door, good | {argument: value}, id=f"{name}-{argument}-{place}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("door", "arguments"), list(wrong_calls()))
def test_a_wrong_call_is_refused_in_one_sentence(door, arguments):
    with pytest.raises(InputError) as caught:
        door(**arguments)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_the_good_calls_are_good(tmp_path, monkeypatch):
    unmade = (nf.load_model, nf.load_backbone, nf.load_encoder, nf.review, read_label_file, load_labels)
    monkeypatch.chdir(tmp_path)
    for door, (good, wrong) in DOORS.items():
        if wrong and door not in unmade:
            door(**good)


OPTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any], list[str]]] = {  # (made by, good arguments, options)
    **{name: (method, {"inner": nf.ELR()} if "inner" in names(method) else {}, names(method))
       for name, method in (nf.methods.registry() | METHODS).items()},
    **{kind.__name__: (kind, GOOD_OPTIONS.get(kind.__name__, {}), names(kind)) for kind in vars(nf.augment).values()
       if isinstance(kind, type) and issubclass(kind, nf.augment.Operation | Normalize) and vars(kind).get("__init__")},
    **{name: (partial(nf.models.build, name, (3, 32, 32), K), {}, entry.options)
       for name, entry in ENTRIES.items() if "pretrained" not in entry.options},
    **{name: (make, GOOD_OPTIONS.get(name, {}), names(make)) for name, make in schedules.SCHEDULES.items()},
    "recipe": (nf.recipe, {"name": "sop-cifar10-sym"}, ["name", "verb"]),
}  # fmt: skip
NONSENSE = [*NOTHING, "", "x", [[1]], {}, np.ones(2), torch.ones(2), HUGE, 2**70, math.nan, -1, b"x", (1, 2, 3)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_taken_or_refused_in_one_sentence(name):
    make, good, options = OPTIONS[name]
    said = []
    with torch.device("meta" if name in ENTRIES else "cpu"):  # weights need not be drawn
        for option, value in itertools.product(options, NONSENSE):
            try:
                make(**good | {option: value})
            except InputError as error:
                said.append(str(error))
    assert not any("\n" in sentence for sentence in said)

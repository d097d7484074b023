"""A saved model predicts what the trained one did."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from noiseproof.data import LabeledData
from noiseproof.data.sources import Rows
from noiseproof.errors import InputError
from noiseproof.runs import checkpoint
from noiseproof.runs.loading import load_backbone, load_model
from noiseproof.training.fit import fit


@pytest.mark.parametrize("method", ["ce", "co_teaching", "early_stop(elr)"])
def test_load_model_predicts_the_same(digits, method, tmp_path):
    result = fit("mlp", digits[0], method, epochs=2, val=0.2, out=tmp_path, device="cpu")
    loaded = load_model(tmp_path)
    inputs = digits[1].inputs
    np.testing.assert_array_equal(loaded.predict_proba(inputs), result.predict_proba(inputs))
    np.testing.assert_array_equal(loaded.predict(inputs.numpy()), result.predict(inputs))
    assert loaded.class_names == digits[0].class_names
    np.testing.assert_array_equal(loaded.predict_proba(inputs.long()), result.predict_proba(inputs))
    assert loaded.predict_proba(inputs[:0]).shape == (0, 10)
    assert "epochs" in repr(result)
    rows = torch.arange(5)
    np.testing.assert_array_equal(loaded.predict_proba(Rows(inputs, rows)), loaded.predict_proba(inputs[:5]))


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def test_a_network_of_ones_own(digits, tmp_path):
    result = fit(network(), digits[0], epochs=1, out=tmp_path, device="cpu")
    with pytest.raises(InputError, match="pass model="):
        load_model(tmp_path)
    with pytest.raises(InputError, match="does not fit the network"):
        load_model(tmp_path, model=lambda: nn.Linear(3, 10))
    loaded = load_model(tmp_path / "model.safetensors", model=network)
    np.testing.assert_array_equal(loaded.predict(digits[1].inputs), result.predict(digits[1].inputs))


def test_mistakes(digits, tmp_path):
    with pytest.raises(InputError, match="pass the folder of a finished run"):
        load_model(tmp_path)
    fit("mlp(widths=[8])", digits[0], "ce", epochs=1, out=tmp_path, device="cpu")
    assert len(load_model(tmp_path).predict(digits[1].inputs)) == len(digits[1])
    with pytest.raises(InputError, match="holds no trained model"):
        load_model(tmp_path / "checkpoint.safetensors")
    with pytest.raises(InputError, match="must be a function that makes the network"):
        load_model(tmp_path, model=network())
    with pytest.raises(InputError, match="device 'gpu' cannot be used here"):
        load_model(tmp_path, device="gpu")
    result = fit("mlp", digits[0], epochs=1, device="cpu")
    with pytest.raises(InputError, match=r"inputs must be \(n, 1, 8, 8\), got \(3, 64\)"):
        result.predict(torch.zeros(3, 64))


def test_a_model_is_loaded_without_what_trains_it():
    code = "import sys, noiseproof.runs.loading; print([name for name in sys.modules if 'noiseproof.training' in name])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_columns_are_matched_by_name(tmp_path):
    """Two columns the other way round are the same table."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 300)
    table = {"far": rng.normal(size=300), "near": rng.normal(size=300) + 3 * labels, "count": rng.integers(0, 9, 300)}
    fit("mlp", LabeledData(table, labels), "ce", epochs=5, out=tmp_path)
    model = load_model(tmp_path)
    expected = model.predict_proba(np.column_stack(list(table.values())))
    turned = {name: table[name] for name in ("note", "count", "near", "far") if name in table} | {"label": labels}
    np.testing.assert_array_equal(model.predict_proba(turned), expected)
    np.testing.assert_array_equal(model.predict_proba(LabeledData(turned, labels)), expected)
    assert (model.predict(turned) == labels).mean() > 0.85
    with pytest.raises(InputError, match="the feature 'near' is missing; the columns are far, count"):
        model.predict_proba({name: table[name] for name in ("far", "count")})
    assert model.predict_proba({name: [] for name in table}).shape == (0, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architecture": "mlp(widths=[1000000000])"}, "takes at least 1,118 GiB|has 75,000,000,010 numbers"),
        ({"architecture": f"mlp(widths=[{10**18}])"}, "needs more memory than there is"),
        ({"architecture": 5}, "damaged or no checkpoint .*/architecture is int"),
        ({"input_shape": [1, 2**30, 2**30]}, "needs more memory than there is"),
        ({"input_shape": "8"}, "/input_shape is str"),
        ({"class_names": [1, 2]}, "/class_names/0 is int"),
        ({"models": []}, "holds no trained model"),
        ({"models": [{"head.bias": 1}]}, "/models/0/head.bias is int"),
        ({"normalize": {"mean": torch.zeros(1)}}, "/normalize/std is missing"),
        ({"normalize": {"mean": torch.zeros(3), "std": torch.ones(3)}}, "3 means for inputs of shape"),
    ],
)
def test_a_file_that_was_tampered_with(trained, tmp_path, change, words):
    """What it declares is compared with what it holds, before memory is taken for it."""
    checkpoint.save(tmp_path / "model.safetensors", checkpoint.load(trained / "model.safetensors") | change)
    with pytest.raises(InputError, match=words):
        load_model(tmp_path)
    if "class_names" not in change and "models" not in change:
        with pytest.raises(InputError):
            load_backbone(tmp_path)


@pytest.fixture(scope="module")
def trained(digits, tmp_path_factory):
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("trained")
    fit("mlp(widths=[8])", digits[0], "ce", epochs=1, out=folder, device="cpu")
    return folder


def test_a_byte_that_changed_is_found_by_the_checksum(trained, tmp_path):
    content = bytearray((trained / "model.safetensors").read_bytes())
    content[-5] ^= 1
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="its checksum is another"):
        load_model(tmp_path)


@pytest.mark.parametrize("table", [False, True])
def test_an_answer_that_is_none_is_refused(table):
    values = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32) * 1e-3
    inputs = pd.DataFrame({"a": values[:, 0], "b": ["x", "y"] * 20}) if table else values
    result = fit("mlp", (inputs, values[:, 0] > 0), "ce", epochs=1)
    inputs = inputs.assign(a=inputs["a"].where(np.arange(40) != 7, 3e38)) if table else inputs.copy()
    if not table:
        inputs[7] = 3e38
    with pytest.raises(InputError, match=r"no answer to the input at row 7 \(1 such in all\)"):
        result.predict(inputs)

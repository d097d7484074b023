"""Pre-training as a user meets it: the folder, the command line, starting a fit from it, and the exported names."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from noiseproof import models
from noiseproof.data import LabeledData, Normalize, noise
from noiseproof.data.input_form import InputForm
from noiseproof.errors import InputError
from noiseproof.models import Backbone
from noiseproof.pretraining import MoCo, probe
from noiseproof.pretraining.moco import crowded
from noiseproof.pretraining.report import settings
from noiseproof.pretraining.train import probe_sets, projection_head
from noiseproof.runs import loading
from noiseproof.runs.export import write_weights
from noiseproof.runs.folder import RunFolder
from noiseproof.runs.loading import load_model
from noiseproof.runs.trained import Features
from noiseproof.training.fit import fit


def test_a_run_leaves_a_backbone_and_a_report(run, pictures, tmp_path):
    result = run("sane", out=tmp_path / "run", probe_every=1)
    assert len([record for record in result.history if "knn_accuracy" in record]) == 2
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"backbone.safetensors", "curves.png", "embedding.png", "neighbours.png", "report.html"} <= names
    assert (tmp_path / "run/report.html").read_text().count("data:image/png;base64,") == 3
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["random"] == result.at_random
    assert set(result.at_random) == {"knn_accuracy", "linear_accuracy"} <= set(summary["last"])
    loaded = loading.load_backbone(tmp_path / "run")
    assert torch.equal(loaded(pictures[1]), result.features(pictures[1]))
    assert loaded(pictures[1], torch.tensor([5, 3])).shape == (2, 32)
    assert set(probe.probe(loaded, *pictures)) == {"knn", "linear"}


def test_the_report_says_the_settings(run, tmp_path):
    class Odd(Own):
        """A network whose name is no HTML."""

    Odd.__qualname__ = "Odd<b>"
    options = {"epochs": 1, "probe_every": 0, "model": Odd, "mix_augment": "sane-strong", "crop_sizes": [8]}
    folder = RunFolder(tmp_path / "run", command={"data": "/data/<i>photos"})
    result = run(
        "sane(crops=1)",
        augment="simclr",
        out=folder,
        schedule="constant",
        **options,
    )
    shown = settings(tmp_path / "run", result)
    assert shown == {
        "data": "<i>photos: 120 examples of 1 × 8 × 8",
        "model": "Odd<b>, 824 weights with its projection head",
        "epochs": "1", "batch size": "32", "rate": "0.05, constant",
        "optimizer": "sgd, momentum 0.9, weight decay 0.0001",
        "augmentation": "2 × simclr, sane-strong at 8 × 8",
        "seed": "3", "dictionary": "120 keys (4,096 were asked for)",
    }  # fmt: skip
    page = (tmp_path / "run/report.html").read_text()
    assert "<td>Odd&lt;b&gt;, 824 weights" in page
    assert "Odd<b>" not in page
    assert "<i>photos" not in page
    assert page.count("own last key as a negative") == 1
    result.save(tmp_path / "elsewhere")  # no config.json
    assert settings(tmp_path / "elsewhere", result) == {}
    assert "Settings" not in (tmp_path / "elsewhere/report.html").read_text()


def test_a_large_dictionary_is_noted():
    assert crowded(MoCo(dictionary_size=50), 100) is None
    assert "holds 51 keys of 100 images" in crowded(MoCo(dictionary_size=51), 100)
    assert "holds 100 keys of 100 images" in crowded(MoCo(), 100)
    assert crowded(MoCo(dictionary_size=100, symmetric=True), 100) is None  # two keys of each of 50 images


def test_the_command_line_notes_a_large_dictionary_once(command):
    words = ["--epochs", 2, "--augment", "weak", "--device", "cpu", "--model", "mlp(widths=[4])", "--limit", 60]
    small = ["--method", "moco(dictionary_size=30)"]
    for more, times in (([], 1), (["--quiet"], 0), (small, 0)):
        code, _, err = command("pretrain", "digits", "--out", f"run{len(more)}{times}", *words, *more)
        assert (code, err.count("note: the dictionary holds 60 keys")) == (0, times)
        assert "own last key" in err or not times


def test_the_probe_is_that_of_the_features(run, pictures):
    result = run("moco")
    bank, queries = result.features(pictures[0]), result.features(pictures[1])
    guess = probe.knn(bank, pictures[0].labels, queries)
    assert probe.accuracy(guess, pictures[1].labels) == pytest.approx(result.history[-1]["knn_accuracy"])
    found = {key.removesuffix("_accuracy"): result.history[-1][key] for key in ("knn_accuracy", "linear_accuracy")}
    assert probe.probe(result.features, *pictures) == pytest.approx(found)
    alone = run("moco", test=None)
    assert len(alone.bank) + len(alone.queries) == len(pictures[0])


def test_probes_by_default_are_twenty_over_a_run(run, monkeypatch):
    """Each epoch of a short run; every second of 43, and after the last."""
    monkeypatch.setattr("noiseproof.pretraining.train.probe", lambda *_: {"knn": 0.5, "linear": 0.5})
    for epochs, every in ((3, 1), (39, 1), (43, 2)):
        result = run("moco(dictionary_size=8)", epochs=epochs, batch_size=120, model="mlp(widths=[2])")
        probed = [record["epoch"] for record in result.history if "knn_accuracy" in record]
        assert probed == sorted({*range(every, epochs + 1, every), epochs})


def test_the_sets_of_the_probes(pictures):
    """At most so many examples, under their true labels; without a test set a fifth of them is held out."""
    train, test = noise.apply(pictures[0], "symmetric:0.5"), pictures[1]
    bank, queries = probe_sets(train, test, 120)
    assert torch.equal(bank.inputs, train.inputs)
    assert torch.equal(bank.labels, pictures[0].labels)
    assert torch.equal(queries.inputs, test.inputs)
    assert [len(part) for part in probe_sets(train, test, 50)] == [50, 50]
    assert [len(part) for part in probe_sets(train, None, 120)] == [96, 24]
    assert [len(part) for part in probe_sets(train, None, 50)] == [40, 10]


def test_the_head_has_three_layers():
    """Of the features' width by default; batch norm and ReLU behind each hidden one, which needs no bias then."""
    for hidden, width in ((None, 5), (7, 7)):
        head = projection_head(5, 3, hidden)
        kinds = [type(layer).__name__ for layer in head]
        assert kinds == ["Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d", "ReLU", "Linear"]
        assert [tuple(head[i].weight.shape) for i in (0, 3, 6)] == [(width, 5), (width, width), (3, width)]
        assert [head[i].bias is None for i in (0, 3, 6)] == [True, True, False]


def test_a_batch_holds_two_images_for_each_process(run, monkeypatch):
    monkeypatch.setattr("noiseproof.distributed.world", lambda: 3)
    for size in (3, 5, 7):
        with pytest.raises(InputError, match="a multiple of the 3 processes, two images or more for each"):
            run("moco", batch_size=size)


def test_fit_starts_from_a_backbone_with_a_fresh_head(run, pictures, tmp_path):
    result = run("moco", model="mlp(widths=[32])", out=tmp_path / "run")
    settings = {"epochs": 1, "lr": 1e-12, "momentum": 0.0, "weight_decay": 0.0, "device": "cpu"}
    fitted = fit("mlp(widths=[32])", pictures[0], "ce", init=tmp_path / "run", out=tmp_path / "fit", **settings)
    for (key, a), b in zip(
        fitted.model.body.state_dict().items(), result.backbone.body.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(a, b, msg=key)
    assert fitted.model.head.out_features == 10
    fresh = fit("mlp(widths=[32])", pictures[0], "ce", **settings)
    torch.testing.assert_close(fitted.model.head.weight, fresh.model.head.weight)
    again = loading.load_backbone(tmp_path / "fit")  # the backbone of a fit
    torch.testing.assert_close(again.backbone.body[1].weight, result.backbone.body[1].weight)
    assert load_model(tmp_path / "fit").architecture == "mlp(widths=[32])"
    two = fit("mlp(widths=[32])", pictures[0], "co_teaching", init=result.features, **settings)  # without a folder
    torch.testing.assert_close(two.run.models[1].body[1].weight, result.backbone.body[1].weight)
    for model, words in (("mlp(widths=[33])", "does not fit"), ("mlp(widths=[32, 32])", "does not fit")):
        with pytest.raises(InputError, match=words):
            fit(model, pictures[0], "ce", init=tmp_path / "run", **settings)
        with pytest.raises(InputError, match=words):
            fit(model, pictures[0], "ce", init=result.features, **settings)
    with pytest.raises(InputError, match="there is no"):
        fit("mlp", pictures[0], "ce", init=tmp_path, **settings)


def block_names(kind: str, blocks: int, inputs: int, channels: int, stage: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of one stage of torchvision's residual networks, written down from its documentation."""
    found: dict[str, tuple[int, ...]] = {}
    expansion = 4 if kind == "bottleneck" else 1
    for i in range(blocks):
        at = f"layer{stage}.{i}"
        wide = channels * expansion
        if kind == "bottleneck":
            convolutions = [(channels, inputs, 1), (channels, channels, 3), (wide, channels, 1)]
        else:
            convolutions = [(channels, inputs, 3), (channels, channels, 3)]
        for number, (outs, ins, size) in enumerate(convolutions, start=1):
            found[f"{at}.conv{number}.weight"] = (outs, ins, size, size)
            found |= norm_names(f"{at}.bn{number}", outs)
        if i == 0 and (stage > 1 or inputs != wide):
            found[f"{at}.downsample.0.weight"] = (wide, inputs, 1, 1)
            found |= norm_names(f"{at}.downsample.1", wide)
        inputs = wide
    return found


def norm_names(at: str, channels: int) -> dict[str, tuple[int, ...]]:
    parts = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (channels,))
    return {f"{at}.{part}": shape for part, shape in parts.items()} | {f"{at}.num_batches_tracked": ()}


@pytest.mark.parametrize(
    ("name", "kind", "depths"),
    [
        ("resnet18", "basic", (2, 2, 2, 2)),
        ("resnet34", "basic", (3, 4, 6, 3)),
        ("resnet50", "bottleneck", (3, 4, 6, 3)),
    ],
)
def test_exported_weights_have_torchvisions_names(name, kind, depths, tmp_path):
    backbone = models.build(f"{name}", (3, 224, 224), 10)
    normalize = Normalize([0.5] * 3, [0.2] * 3)
    write_weights(Features(backbone, normalize, InputForm((3, 224, 224))), tmp_path / "w.safetensors")
    expected = {"conv1.weight": (64, 3, 7, 7)} | norm_names("bn1", 64)
    inputs = 64
    for stage, blocks in enumerate(depths, start=1):
        expected |= block_names(kind, blocks, inputs, 64 * 2 ** (stage - 1), stage)
        inputs = 64 * 2 ** (stage - 1) * (4 if kind == "bottleneck" else 1)
    weights = load_file(tmp_path / "w.safetensors")
    assert {key: tuple(value.shape) for key, value in weights.items()} == expected
    assert torch.equal(weights["layer4.0.conv1.weight"], backbone.get_parameter("layer4.0.conv1.weight"))


class Own(Backbone):
    """A network that has no name here."""

    num_features = 8

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8))
        self.head = torch.nn.Linear(8, 10)

    def features(self, x):
        return self.body(x)


def test_a_network_of_ones_own(run, pictures, tmp_path):
    result = run("moco", model=Own, out=tmp_path / "run", epochs=1)
    with pytest.raises(InputError, match="pass model="):
        loading.load_backbone(tmp_path / "run")
    loaded = loading.load_backbone(tmp_path / "run", model=Own)
    assert torch.equal(loaded(pictures[1]), result.features(pictures[1]))
    with pytest.raises(InputError, match="no name here"):
        loading.untrained(loaded.architecture, loaded.normalize, loaded.form)
    with pytest.raises(InputError, match="bring both to one size"):
        loaded(pictures[1].__class__(torch.zeros(4, 1, 9, 9), [0, 1, 0, 1]))


def test_the_command_line_from_pretrain_to_fit(command):
    quick = ["--device", "cpu", "--quiet", "--model", "mlp(widths=[32])", "--limit", "100"]
    code, out, err = command(
        "pretrain", "digits", "--epochs", 1, "--batch-size", 50, "--augment", "weak", "--out", "run", *quick
    )
    assert (code, err) == (0, "")
    assert "random weights" in out
    assert "report.html" in out
    code, out, err = command("probe", "run", "--limit", 80, "--export", "w.safetensors", "--quiet")
    assert (code, err) == (0, "")
    assert "linear" in out
    assert "80 labelled examples" in out
    assert set(load_file("w.safetensors")) == {"body.1.weight", "body.1.bias"}
    code, out, err = command("probe", "run", "--limit", 80, "--protocol", "imagenet", "--no-random", "--quiet")
    assert (code, err) == (0, "")
    code, _, err = command("probe", "run", "--protocol", "imagnet", "--quiet")
    assert (code, "did you mean 'imagenet'" in err) == (2, True)
    code, out, err = command("probe", "run", "--doubts", "doubts.parquet", "--no-random", "--quiet")
    assert (code, err) == (0, "")
    doubts = pq.read_table("doubts.parquet").to_pydict()
    assert doubts["split"].count("train") == 100
    assert doubts["probability_wrong"] == sorted(doubts["probability_wrong"], reverse=True)
    code, _, err = command("fit", "digits", "--method", "ce", "--epochs", 1, "--init", "run", "--out", "fit", *quick)
    assert (code, err) == (0, "")
    assert json.loads(Path("fit/config.json").read_text())["call"]["init"] == str(Path("run").absolute())
    words = ["--method", "ce", "--epochs", 1, "--init", "w.safetensors", "--out", "plain", *quick]
    assert command("fit", "digits", *words)[0] == 0  # weights alone, as exported
    assert command("pretrain", "--out", "run", "--resume", "--quiet")[0] == 0  # finished: writes its report again
    config = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps(config | {"command": None}))  # as of a run begun in Python
    assert command("probe", "run", "digits", "--limit", 80, "--no-random", "--quiet")[0] == 0
    assert "pass the data" in command("probe", "run")[2]
    Path("run/config.json").write_text(json.dumps(config))
    code, _, err = command("pretrain", "digits", "--out", "run")
    assert (code, "already holds a run" in err) == (2, True)
    for words, message in (
        (["pretrain"], "give the data"),
        (["pretrain", "digits", "--method", "sano"], "did you mean 'sane'"),
        (["pretrain", "digits", "--crop-sizes", "a"], "whole numbers"),
        (["probe", "nowhere"], "there is no"),
        (["probe", "run", "--doubts", "doubts.csv"], "ends in .parquet"),
        (["probe", "run", "--doubts", "doubts.parquet"], "is there already"),
        (["probe", "run", "--export", "run/backbone.safetensors"], "is there already"),
        (["probe", "w.safetensors"], "is a file; pass the folder"),
        (["pretrain", "digits", "--method", "sane(crops=5)", "--epochs", 1, "--out", "crops"], "give crop_sizes"),
        (["fit", "--out", "run", "--resume"], "not begun by noiseproof fit"),
        (["fit", "digits", "--init", "run/checkpoint.safetensors", "--model", "mlp(widths=[32])"], "holds no backbone"),
        (["fit", "digits", "--init", "run/report.html", "--model", "mlp(widths=[32])"], "or a .safetensors file"),
        (["fit", "digits", "--init", "run", "--model", "mlp"], "it was trained with, mlp(widths=[32])"),
        (["fit", "digits", "--init", "nowhere", "--model", "mlp"], "there is no"),
    ):
        code, _, err = command(*words)
        assert code == 2
        assert message in err
    assert not Path("crops").exists()


def test_the_labels_of_other_data_are_probed_as_they_are(command):
    quick = ["--device", "cpu", "--quiet", "--model", "mlp(widths=[32])", "--limit", "100"]
    command("fit", "digits", "--noise", "symmetric:0.4", "--method", "ce", "--epochs", 1, "--out", "noisy", *quick)
    assert command("probe", "noisy", "digits", "--doubts", "a.parquet", "--no-random", "--quiet")[0] == 0
    assert command("probe", "noisy", "--doubts", "b.parquet", "--no-random", "--quiet")[0] == 0
    assert "true_label" not in pq.read_table("a.parquet").column_names
    assert "true_label" in pq.read_table("b.parquet").column_names  # the run's own labels, with its noise


def test_images_without_labels(command, pictures):
    from PIL import Image

    for i in range(60):
        Path("photos").mkdir(exist_ok=True)
        Image.fromarray(pictures[0].inputs[i, 0].numpy()).save(f"photos/{i}.png")
    quick = ["--device", "cpu", "--quiet", "--model", "mlp(widths=[32])"]
    short = ["--epochs", 1, "--batch-size", 20, "--augment", "weak", *quick]
    code, out, err = command("pretrain", "photos", "--out", "run", *short)
    assert (code, err) == (0, "")
    assert "60 examples" in out
    assert "k-NN" not in out
    assert loading.load_backbone("run").form.shape == (1, 8, 8)
    assert command("pretrain", "--out", "run", "--resume", "--quiet")[0] == 0
    assert command("probe", "run", "digits", "--limit", 80, "--no-random", "--quiet")[0] == 0
    assert command("probe", "run", "--export", "w.safetensors", "--quiet")[0] == 0
    for words, message in (
        (["probe", "run"], "has no labels to probe with"),
        (["pretrain", "photos", "--test", "digits", "--out", "b", *short], "has no labels to tell those of digits by"),
        (["pretrain", "photos", "--probe-every", 1, "--out", "b", *short], "drop test and probe_every"),
        (["fit", "photos", "--out", "b", *quick], "no folder per class"),
    ):
        code, _, err = command(*words)
        assert (code, message in err) == (2, True), err
    assert not Path("b").exists()


def test_weights_of_torchvision_or_timm(tmp_path, pictures):
    """Their names are those of our residual networks, with a head called fc."""
    theirs = models.build("resnet18", (3, 32, 32), 4)
    weights = {key.replace("head.", "fc."): value for key, value in theirs.state_dict().items()}
    save_file(weights, tmp_path / "resnet18.safetensors")
    ours = models.build("resnet18", (3, 32, 32), 7)
    head = ours.head.weight.clone()
    loading.start_from([ours], tmp_path / "resnet18.safetensors")
    assert torch.equal(ours.conv1.weight, theirs.conv1.weight)
    assert torch.equal(ours.head.weight, head)
    with pytest.raises(InputError, match="holds weights alone"):
        loading.load_backbone(tmp_path / "resnet18.safetensors")


def test_one_feature_and_a_schedule_that_ends_early(run, tmp_path):
    run("moco", model="mlp(widths=[1])", epochs=1, out=tmp_path / "run")
    assert (tmp_path / "run/embedding.png").exists()
    result = run("moco", epochs=8, probe_every=8, schedule="anneal_on_loss(1000, stop=100)")
    assert result.run.epoch < 8
    assert "knn_accuracy" in result.history[-1]


def test_features_of_a_table_go_by_name(tmp_path: Path) -> None:
    x = torch.randn(20, 3)
    table = LabeledData(x, [0, 1] * 10, feature_names=["a", "b", "c"])
    found = loading.untrained("mlp", Normalize.of(table.take, 20, image=False), InputForm.of(table))
    found.save(tmp_path / "backbone.safetensors")
    loaded = loading.load_backbone(tmp_path)
    assert loaded.form == InputForm((3,), True, ("a", "b", "c"))
    other = LabeledData(x[:, [2, 0, 1]], [0, 1] * 10, feature_names=["c", "a", "b"])
    assert torch.equal(loaded(other), found(table))
    with pytest.raises(InputError, match="the feature 'b' is missing"):
        loaded(LabeledData(x, [0, 1] * 10, feature_names=["c", "a", "z"]))

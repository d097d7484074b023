"""What the pictures of a pre-training run show."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from noiseproof.data import LabeledData
from noiseproof.pretraining import BYOL, MoCo, report
from noiseproof.runs.drawing import new_figure

AT_RANDOM = {"knn_accuracy": 0.2, "linear_accuracy": 0.3}


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn."""
    drawn = []

    def figure(*size):
        drawn.append(new_figure(*size))
        return drawn[-1]

    monkeypatch.setattr(report, "new_figure", figure)
    return drawn


def history(epochs: int, every: int) -> list[dict]:
    records = [{"epoch": i, "loss": 5 - i} for i in range(1, epochs + 1)]
    for record in records:
        if record["epoch"] % every == 0:
            record |= {"knn_accuracy": record["epoch"] / 10, "linear_accuracy": record["epoch"] / 5}
    return records


def points(line) -> tuple[list[float], list[float]]:
    return [float(x) for x in line.get_xdata()], [float(y) for y in line.get_ydata()]


def size_of(path) -> tuple[int, int]:
    with Image.open(path) as picture:
        return picture.size


def is_wider_than_high(figure) -> bool:
    """Each part of a picture, which lie side by side."""
    width, height = figure.get_size_inches()
    return 1.2 < width / height / len(figure.axes) < 2


def test_curves(figures, tmp_path):
    report.plot_curves(SimpleNamespace(history=history(4, 2), at_random=AT_RANDOM), tmp_path / "curves.png")
    [figure] = figures
    loss, accuracy = figure.axes
    assert [axis.get_xlabel() for axis in figure.axes] == ["epoch", "epoch"]
    assert [axis.get_ylabel() for axis in figure.axes] == ["loss", "accuracy, %"]
    [line] = loss.lines
    assert points(line) == ([1, 2, 3, 4], [4, 3, 2, 1])
    assert line.get_marker() == ""
    names = [text.get_text() for text in accuracy.get_legend().get_texts()]
    assert names == [line.get_label() for line in accuracy.lines]
    assert [name.endswith("random weights") for name in names] == [False, True, False, True]
    assert points(accuracy.lines[0]) == ([2, 4], [20, 40])
    assert points(accuracy.lines[2]) == ([2, 4], [40, 80])
    assert [accuracy.lines[i].get_ydata()[0] for i in (1, 3)] == pytest.approx([20, 30])
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert is_wider_than_high(figure)


def test_one_epoch_is_a_dot_and_without_probes_there_is_one_picture(figures, tmp_path):
    report.plot_curves(SimpleNamespace(history=history(1, 2), at_random={}), tmp_path / "curves.png")
    [axis] = figures[0].axes
    assert [line.get_marker() for line in axis.lines] == ["."]
    assert is_wider_than_high(figures[0])


def test_principal_components_are_the_directions_of_most_variance():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(200, 6, generator=rng) * torch.tensor([1.0, 4.0, 2.0, 1.0, 1.0, 1.0])
    found = report.principal_components(x)
    unit = x.double() / x.double().norm(dim=1, keepdim=True)
    centred = (unit - unit.mean(dim=0)).numpy()
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(np.abs(found.numpy()), np.abs(u[:, :2] * s[:2]), atol=1e-10)
    one = report.principal_components(x[:, :1])
    assert one.shape == (200, 2)
    assert (one[:, 1] == 0).all()


@pytest.mark.parametrize("classes", [3, 10, 11, 20, 21])
def test_the_plane_has_a_colour_for_each_class(figures, tmp_path, classes):
    labels = torch.arange(2 * classes) % classes
    features = torch.randn(2 * classes, 4, generator=torch.Generator().manual_seed(1))
    data = LabeledData(features, labels)
    report.plot_embedding(features, data, tmp_path / "embedding.png")
    [axis] = figures[0].axes
    assert len({to_hex(line.get_color()) for line in axis.lines}) == len(axis.lines) == classes
    plane = report.principal_components(features)
    for label, line in enumerate(axis.lines):
        np.testing.assert_allclose(np.array(points(line)).T, plane[labels == label])
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("first principal component", "second")
    assert bool(figures[0].legends) == (classes <= 20)
    assert is_wider_than_high(figures[0])
    few = LabeledData(features, labels, class_names=[f"class {i}" for i in range(classes)])
    report.plot_embedding(features, few, tmp_path / "embedding.png", limit=5)
    assert sum(len(line.get_xdata()) for line in figures[1].axes[0].lines) == 5
    assert [line.get_label() for line in figures[1].axes[0].lines[:2]] == ["class 0", "class 1"]


def test_neighbours_are_framed_by_agreement(tmp_path):
    """A class in turn at the left; green where the label of a neighbour agrees."""
    bank = torch.eye(4)[[0, 0, 1, 1, 2]] + torch.tensor([[0.0], [0.1], [0.0], [0.1], [0.0]])
    known = LabeledData(torch.arange(5)[:, None, None, None].expand(5, 1, 8, 8).to(torch.uint8) * 40, [0, 1, 1, 1, 2])
    asked = LabeledData(torch.full((3, 1, 8, 8), 250, dtype=torch.uint8), [1, 0, 1])
    queries = torch.eye(4)[[1, 0, 1]]
    report.plot_neighbours(queries, asked, bank, known, tmp_path / "n.png", rows=2, columns=2)
    picture = np.asarray(Image.open(tmp_path / "n.png").convert("RGB"))
    side, gap = 8 * 8 + 2 * 2 * 3, 16  # two frames of three pixels, and what lies between
    assert picture.shape == (2 * side, 3 * side + gap, 3)
    colour = {name: tuple(round(255 * one) for one in to_rgb(getattr(report, name))) for name in ("GREEN", "RED")}
    frames = [[tuple(picture[row * side + 3, gap + column * side + side // 2]) for column in (1, 2)] for row in (0, 1)]
    assert frames == [[colour["GREEN"], colour["RED"]], [colour["GREEN"], colour["GREEN"]]]
    shades = [
        [int(picture[row * side + side // 2, gap + column * side + side // 2, 0]) for column in (1, 2)]
        for row in (0, 1)
    ]
    assert shades == [[0, 40], [80, 120]]  # the first two of the bank, then the next two
    assert report._one_of_each(torch.tensor([2, 2, 0, 1, 0]), 4).tolist() == [2, 3, 0, 4]


def test_pictures_fit_a_page(figures, tmp_path):
    """Their size in pixels, and lines that can be told from one another."""
    for every, name, size in ((2, "both.png", (1118, 403)), (9, "loss.png", (598, 403))):
        run = SimpleNamespace(history=history(4, every), at_random=AT_RANDOM)
        report.plot_curves(run, tmp_path / name)
        assert size_of(tmp_path / name) == size
    loss, accuracy = figures[0].axes
    assert [line.get_linewidth() for line in (*loss.lines, *accuracy.lines)] == [1.6, 1.6, 1.0, 1.6, 1.0]
    assert [line.get_linestyle() for line in accuracy.lines] == ["-", ":", "-", ":"]
    assert all(axis.yaxis.get_gridlines()[0].get_visible() for axis in (loss, accuracy))
    assert not accuracy.get_legend().get_frame_on()
    features = torch.randn(2001, 3, generator=torch.Generator().manual_seed(1))
    report.plot_embedding(features, LabeledData(features, torch.arange(2001) % 2), tmp_path / "plane.png")
    assert size_of(tmp_path / "plane.png") == (832, 598)
    dots = figures[2].axes[0].lines
    assert sum(len(line.get_xdata()) for line in dots) == 2000
    assert {(line.get_markersize(), line.get_alpha()) for line in dots} == {(3.5, 0.7)}
    assert not figures[2].legends[0].get_frame_on()
    assert [one.get_fontsize() for one in (*accuracy.get_legend().texts, *figures[2].legends[0].texts)] == [8.0] * 6
    assert not any(figures[2].axes[0].spines[side].get_visible() for side in ("top", "right"))


def test_ten_rows_of_nine_neighbours(tmp_path):
    """An image of 8 × 8 pixels is shown at 64, one of 100 as it is."""
    data = LabeledData(torch.zeros(12, 1, 8, 8, dtype=torch.uint8), torch.arange(12) % 2)
    features = torch.randn(12, 3, generator=torch.Generator().manual_seed(1))
    report.plot_neighbours(features, data, features, data, tmp_path / "n.png")
    assert size_of(tmp_path / "n.png") == (10 * 76 + 16, 10 * 76)
    assert report.framed(torch.zeros(1, 100, 50, dtype=torch.uint8), "#333333").shape == (112, 62, 3)
    assert report.framed(torch.zeros(1, 10, 30, dtype=torch.uint8), "#333333").shape == (32, 72, 3)


def test_the_table_of_a_run():
    """The probes before and after, by so many labels; without them the loss, of its first and its last epoch."""
    result = SimpleNamespace(history=history(4, 4), at_random=AT_RANDOM, bank=range(1234))
    assert report.figures(result) == (
        ["accuracy by 1,234 labels", "k-NN", "linear"],
        [["random weights", "20.0 %", "30.0 %"], ["pre-trained", "40.0 %", "80.0 %"]],
    )
    result = SimpleNamespace(history=history(3, 9), at_random={})
    assert report.figures(result) == (["", "loss"], [["epoch 1", "4.000"], ["epoch 3", "2.000"]])
    result.history = result.history[:1]
    assert report.figures(result) == (["", "loss"], [["epoch 1", "4.000"]])


@pytest.mark.parametrize(("kept", "words"), [(1000, "1,000 keys (4,096 were asked for)"), (4096, "4,096 keys")])
def test_the_settings_name_the_dictionary_that_was_kept(kept, words, monkeypatch, tmp_path):
    method = MoCo()
    method.dictionary = torch.zeros(kept, 2)
    monkeypatch.setattr(report.report, "settings", lambda folder: {"seed": "3"} if folder == tmp_path else {})
    assert report.settings(tmp_path, SimpleNamespace(method=method)) == {"seed": "3", "dictionary": words}
    assert report.settings(tmp_path, SimpleNamespace(method=BYOL())) == {"seed": "3"}
    assert report.settings(tmp_path / "other", SimpleNamespace(method=method)) == {}


@pytest.mark.parametrize("image", [True, False])
@pytest.mark.parametrize("labeled", [True, False])
def test_the_sections_of_a_page(image, labeled, monkeypatch, tmp_path):
    pages, generator = [], torch.Generator().manual_seed(0)
    monkeypatch.setattr(report.report, "write_page", lambda *given: pages.append(given))
    monkeypatch.setattr(report.report, "settings", lambda folder: {"seed": "3"})
    shape = (8, 1, 4, 4) if image else (8, 3)
    bank, queries = (
        LabeledData(torch.rand(shape, generator=generator), [0, 1] * 4 if labeled else None) for _ in range(2)
    )
    method = MoCo(dictionary_size=6)
    method.dictionary = torch.zeros(6, 2)
    run, asked = SimpleNamespace(data=range(8)), []
    result = SimpleNamespace(
        run=run, method=method, bank=bank, queries=queries, at_random={}, history=history(2, 9),
        features=lambda data: asked.append(data) or data.inputs.flatten(1),
    )  # fmt: skip
    report.write_report(tmp_path, result)
    [(path, its_run, its_method, sections)] = pages
    assert (path, its_run, its_method) == (tmp_path / "report.html", run, method)
    assert asked == [bank, queries]
    names = ["curves", "embedding", *["neighbours"] * image]
    titles = ["", "", "Settings", "Over the epochs", "The features in the plane", *["Nearest neighbours"] * image]
    assert [section.title for section in sections] == titles
    assert (sections[0].header, sections[0].rows) == report.figures(result)
    assert sections[1].about.startswith("Note: the dictionary holds 6 keys of 8 images")
    assert sections[2].rows == [("seed", "3"), ("dictionary", "6 keys")]
    assert [section.picture for section in sections[3:]] == [(tmp_path / f"{one}.png").read_bytes() for one in names]
    assert "coloured by label" in sections[4].about if labeled else sections[4].about.endswith("components.")
    assert not image or ("labels agree" in sections[5].about) == labeled
    run.data = range(100)
    report.write_report(tmp_path, result)
    assert pages[1][3][1].about == ""


@pytest.mark.parametrize("classes", [10, 11])
def test_ten_classes_have_colours_of_their_own_and_more_share_a_scale(figures, tmp_path, classes):
    data = LabeledData(torch.eye(classes), torch.arange(classes))
    report.plot_embedding(torch.eye(classes), data, tmp_path / "plane.png")
    scale = colormaps["tab10"] if classes == 10 else colormaps["turbo"]
    expected = [scale(i) if classes == 10 else scale(i / 10) for i in range(classes)]
    [axis] = figures[0].axes
    assert [to_hex(line.get_color()) for line in axis.lines] == [to_hex(colour) for colour in expected]
    assert len(axis.get_xticks()) == len(axis.get_yticks()) == 0
    assert figures[0].legends[0].markerscale == 2.5


def test_features_without_labels_have_no_legend(figures, tmp_path):
    features = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    report.plot_embedding(features, LabeledData(features, None), tmp_path / "plane.png")
    assert not figures[0].legends
    assert [len(line.get_xdata()) for line in figures[0].axes[0].lines] == [9]


def test_more_components_than_features_are_zero():
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    for count in (1, 2, 4, 6):
        found = report.principal_components(x, count)
        assert found.shape == (30, count)
        assert (found[:, 4:] == 0).all()
        torch.testing.assert_close(found[:, :1], report.principal_components(x, 1))
        variance = found.var(dim=0)
        assert (variance.diff() <= 1e-12).all()  # falling


def test_the_probes_have_colours_and_random_weights_are_dotted(figures, tmp_path):
    report.plot_curves(SimpleNamespace(history=history(4, 2), at_random=AT_RANDOM), tmp_path / "curves.png")
    loss, accuracy = figures[0].axes
    colours = [line.get_color() for line in (*loss.lines, *accuracy.lines)]
    assert colours == [report.BLUE, report.GREEN, report.GREEN, report.BLUE, report.BLUE]
    assert [line.get_marker() for line in accuracy.lines[::2]] == [".", "."]
    assert [line.get_label() for line in accuracy.lines] == [
        "k-NN", "k-NN, random weights", "linear", "linear, random weights",
    ]  # fmt: skip


def colour_of(name: str) -> list[int]:
    return [round(255 * one) for one in to_rgb(name)]


@pytest.mark.parametrize(("height", "width", "times"), [(1, 1, 64), (3, 5, 13), (28, 28, 2), (42, 43, 1), (32, 8, 2)])
def test_an_image_is_enlarged_to_about_64_pixels_in_a_frame_on_white(height, width, times):
    image = torch.randint(256, (1, height, width), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    tile = report.framed(image, report.RED)
    assert tile.shape == (times * height + 12, times * width + 12, 3)
    inner = image[0].repeat_interleave(times, 0).repeat_interleave(times, 1)
    assert (tile[6:-6, 6:-6] == inner.numpy()[..., None]).all()
    assert (tile[:3] == 255).all()
    assert (tile[:, -3:] == 255).all()
    assert (tile[3:6, 3:-3] == colour_of(report.RED)).all()
    assert (tile[3:-3, -6:-3] == colour_of(report.RED)).all()


def test_neighbours_without_labels_are_not_judged(tmp_path):
    """And no more of them are shown than there are."""
    data = LabeledData(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), None)
    report.plot_neighbours(torch.eye(3), data, torch.eye(3)[:2], data.subset(torch.arange(2)), tmp_path / "n.png")
    picture = np.asarray(Image.open(tmp_path / "n.png").convert("RGB"))
    assert picture.shape == (3 * 76, 3 * 76 + 16, 3)
    assert (picture[:, 76:92] == 255).all()  # the gap behind the first
    for left in (0, 92, 168):
        assert (picture[3:6, left + 3 : left + 73] == colour_of(report.NEUTRAL)).all()

"""What the pictures of a pre-training run show."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from noiseproof.data import LabeledData
from noiseproof.pretraining import report
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

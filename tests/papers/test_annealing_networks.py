"""The annealing experiments at toy size: their cells, their figures, their picture and table."""

from __future__ import annotations

from pathlib import Path

from papers.support import shown

from noiseproof import recipes
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.experiment import Done
from noiseproof_papers.label_noise.network_figures import COLOURS, Figure2, Stacks


def test_equally_many_iterations_and_the_papers_recipes() -> None:
    experiment = Figure2()
    for cell in experiment.cells("small", 1):
        options = cell["fit"]
        assert options["epochs"] * experiment.examples / options["batch_size"] == experiment.iterations
    for cell in experiment.cells("paper", 1):
        options = cell["fit"]
        assert options == recipes.recipe(cell["method"])
        assert options["epochs"] * 50_000 / options["batch_size"] == 400_000


class Toy(Figure2):
    """The three algorithms on digits."""

    examples, iterations = 256, 48
    sets = {"digits": (None, 8)}  # noqa: RUF012

    def small(self, name: str, width: int) -> dict:
        return super().small(name, width) | {"model": "mlp"}


def test_figure_2(tmp_path: Path) -> None:
    experiment = Toy()
    done = [Done(cell, experiment.run(cell, DataDir())) for cell in experiment.cells("small", 2)]
    [row] = shown(experiment, done, tmp_path)
    assert row[0] == "digits"
    assert row[-1].endswith("of 2 seeds")
    for one in done:
        assert len(one.figures["curves"]["test_accuracy"]) == one.cell["fit"]["epochs"]
    assert [one.cell["method"] for one in done[::2]] == list(COLOURS)
    assert done[-1].figures["last"] > 0.3


def test_the_order_is_counted_by_seed() -> None:
    accuracy = {"lnsgd-ls": (0.9, 0.8), "lnsgd-s": (0.8, 0.85), "fbgd-ls": (0.7, 0.7)}
    done = [
        Done({"data": "d", "method": name, "examples": 10}, {"last": values[seed], "fitted": 1.0})
        for name, values in accuracy.items()
        for seed in range(2)
    ]
    [[*_, versus_s, versus_fbgd, order]] = Figure2().table(done)[1]
    assert (versus_s, versus_fbgd, order) == ("+2.5 ± 10.6", "+15.0 ± 7.1", "in 1 of 2 seeds")


class Few(Stacks):
    """One kind of noise, two stacks, digits."""

    noises = ("symmetric:0.4",)
    stacks = {"ce": "ce", "label_noise(ce)": "ce"}  # noqa: RUF012
    sets = {"digits": {"epochs": 3}}  # noqa: RUF012
    examples = 300


def test_stacks(tmp_path: Path) -> None:
    experiment = Few()
    done = [Done(cell, experiment.run(cell, DataDir())) for cell in experiment.cells("small", 2)]
    plain, noisy = shown(experiment, done, tmp_path)
    assert "(" not in plain[-1]
    assert "(+" in noisy[-1] or "(-" in noisy[-1]

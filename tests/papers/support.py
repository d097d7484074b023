"""What the tests of experiments share: run a grid as the log keeps it, and look at what it draws."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from noiseproof_papers.datadir import DataDir
from noiseproof_papers.experiment import Cell, Done, Experiment


def run(experiment: Experiment, cells: list[Cell]) -> list[Done]:
    """Every cell, through JSON as the log keeps it; without a folder of data sets."""
    data, done = DataDir(None), []
    for cell in json.loads(json.dumps(cells)):
        done.append(Done(cell, json.loads(json.dumps(experiment.run(cell, data)))))
    return done


def shown(experiment: Experiment, done: list[Done], folder: Path) -> list[list[str]]:
    """The rows of the table; the picture must open and be more than blank."""
    path = folder / "picture.png"
    experiment.draw(done, path)
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 300
        assert len(np.unique(np.asarray(picture.convert("L")))) > 20
    table = experiment.table(done)
    assert table is not None
    header, rows = table
    assert all(len(row) == len(header) for row in rows)
    return rows

"""A run as one self-contained HTML page: figures, settings, pictures, and the most suspicious labels.

A page is a list of `Section`s, each a heading with what it has of a line about it, a table, a picture and examples. One
more section is one more entry in the list that `write_report` makes, here or in pretraining/report.py.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from noiseproof import files
from noiseproof.data.augment import POLICIES, policy
from noiseproof.data.labeled import LabeledData, is_table
from noiseproof.errors import InputError
from noiseproof.method import Method, Run
from noiseproof.runs.drawing import pixels
from noiseproof.runs.folder import RunFolder
from noiseproof.runs.label_report import LabelReport
from noiseproof.runs.result import FitResult
from noiseproof.runs.values import Values

_WIDEST, _TEXT = 1000, 300  # features of a row whose values are looked at; characters shown of a text
_MOST = 2**26  # values that are held to compare with: of more, as they may lie on disk, none are told
Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # header, rows


class Linked(NamedTuple):
    """An entry of a table that leads to another place of the page, or is such a place."""

    text: str
    to: str | None
    hint: str = ""
    name: str | None = None  # of this place

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Section:
    """A part of a page; what is empty is left out."""

    title: str = ""
    about: str = ""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str | Linked]] = ()  # figures below a header, words where there is none
    picture: bytes | None = None  # a PNG
    suspects: Sequence[Mapping[str, Any]] = ()  # rows of the label table, each with its image's PNG or None
    names: bool = False  # the second column has names too, as the first


def write_page(path: Path, run: Run, method: Method, sections: Sequence[Section], facts: Sequence[str] = ()) -> None:
    """Write a page about a run to `path`, atomically: the method, with some facts in a line, and the sections."""
    write_html(path, f"{method.title()} on {len(run.data):,} examples", method.describe(), facts, sections)


def write_html(path: Path, title: str, method: str, facts: Sequence[str], sections: Sequence[Section]) -> None:
    """Write a page of sections to `path`, atomically."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(loader=PackageLoader("noiseproof.runs", ""), autoescape=True, trim_blocks=True)
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    template = environment.get_template("report.html.j2")
    files.write_text(path, template.render(title=title, method=method, facts=facts, sections=sections))


def write_report(path: Path, result: FitResult, *, picture: Path, table: Table | None = None, count: int = 48) -> None:
    """Write the page of a run of `fit` to `path`, atomically.

    Args:
        result: the run whose labels are shown.
        picture: a PNG with the curves.
        table: header and rows to show instead of the run's own figures.
        count: how many of the most suspicious examples to show.
    """
    data = result.data
    facts = [f"{data.num_classes} classes"]
    if data.noise_rate is not None:
        facts.append(f"{100 * data.noise_rate:.1f} % of the labels are wrong")
    sections = [
        Section("", " ".join(filter(None, (caution(result), waited(result.history)))), *(table or figures(result))),
        Section("Settings", rows=list(settings(path.parent).items())),
        Section("Curves", picture=picture.read_bytes()),
        Section(
            "The labels to look at first",
            f"{found(result.report)} Label as given, struck out where another is likelier, and how likely it is wrong.",
            suspects=suspects(result.report, np.argsort(-result.report.scores, kind="stable")[:count].tolist()),
        ),
    ]
    write_page(path, result.run, result.method, sections, facts)


def waited(history: Sequence[Mapping[str, Any]]) -> str | None:
    """Of a method that waits until the network memorises, from when on it was robust; None of others."""
    awake = [bool(record["awake"]) for record in history if "awake" in record]
    if not awake:
        return None
    if not awake[-1]:
        return "It did not turn robust: the network was not seen to memorise."
    return f"Robust from epoch {1 + awake.index(True)} on, when the network began to memorise or was about to."


def found(report: LabelReport) -> str:
    """The answer of an audit in a sentence."""
    low, high = report.interval
    issues = int(report.issues.sum())
    sure = f"; about {100 * report.scores[report.issues].mean():.0f} % of those are" if issues else ""
    rate = f"{100 * report.noise_rate:.1f} % of all are wrong ({100 * low:.1f} to {100 * high:.1f} %)"
    return f"{issues:,} of {len(report):,} labels look wrong{sure}. By estimate {rate}."


def figures(result: FitResult) -> Table:
    """The figures worth reporting of one run."""
    keys = {"test_accuracy": "test accuracy", "val_accuracy": "held-out accuracy", "train_memorised": "noise memorised"}
    names = {"last": "last epoch", "best": "best held-out epoch", "final": "model kept"}
    rows = []
    summary = result.summary()
    for name, meaning in names.items():
        if name in summary:
            record = summary[name]
            cells = ["–" if record.get(key) is None else f"{100 * record[key]:.1f} %" for key in keys]
            rows.append([meaning, str(record.get("epoch", "–")), *cells])
    return ["", "epoch", *keys.values()], rows


def caution(result: FitResult) -> str | None:
    """What the figures do not say of themselves."""
    if result.test is None or result.test.true_labels is not None:
        return None
    return "The test labels are as given: some may be wrong too, unless you checked them (--test takes a checked set)."


def settings(folder: Path) -> dict[str, str]:
    """The settings of a run by name, as its folder's config.json holds them; none where there is no such file."""
    try:
        config = RunFolder(folder).config()
    except InputError:
        return {}
    call, command = config["call"], config["command"] or {}
    source = f"{Path(command['data']).name}: " if command.get("data") else ""
    shape = " × ".join(map(str, call["data"]["input_shape"]))
    head = " with its projection head" if "dim" in call else ""
    views = [call["augment"]] if isinstance(call["augment"], str) else call["augment"]
    shown = {
        "data": f"{source}{call['data']['examples']:,} examples of {shape}",
        "noise": command.get("noise"),
        "model": f"{call['model']}, {call['weights']:,} weights{head}",
        "start": call.get("init"),
        "epochs": call["epochs"],
        "batch size": call["batch_size"],
        "rate": f"{call['lr']:g}, {call['schedule']}",
        "optimizer": f"{call['optimizer']}, momentum {call['momentum']:g}, weight decay {call['weight_decay']:g}",
        "augmentation": _views(views),
        "seed": str(call["seed"]),
    }
    given = {name: value for name, value in shown.items() if value is not None}
    return {name: f"{value:,}" if isinstance(value, int) else value for name, value in given.items()}


def _views(augments: Sequence[str]) -> str:
    """`2 × simclr, sane-strong at 96 × 96`: the augmentation of each view, from its description."""
    counts = [(name, len(list(same))) for name, same in groupby(map(_named, augments))]
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts)


def _named(augment: str) -> str:
    """A policy of a size of its own by its name; anything else as it is."""
    size = re.search(r"size=\((\d+), (\d+)\)", augment)
    if size is not None:
        height, width = int(size[1]), int(size[2])
        for name in POLICIES:
            if repr(policy(name, (height, width))) == augment:
                return f"{name} at {height} × {width}"
    return augment


def suspects(report: LabelReport, rows: Sequence[int]) -> list[dict[str, Any]]:
    """Examples of a report as the page shows them: the columns of their labels, and their images."""
    data, table = report.data, report.columns()
    images = [None] * len(rows) if data is None or not data.is_image else map(_png, data.take(torch.tensor(rows)))
    words = _words(report, rows)
    return [
        {name: column[i] for name, column in table.items()} | {"image": image, "words": text}
        for i, image, text in zip(rows, images, words, strict=True)
    ]


def _words(report: LabelReport, rows: Sequence[int]) -> list[str]:
    """Of rows of a table their texts and the values that speak against the label; nothing of images."""
    data = report.data
    if data is None or not (is_table(data.inputs) or _are_few(data)):
        return [""] * len(rows)
    values = Values(data, report.labels, len(report.class_names))
    told = []
    for i in rows:
        found = values.of(i, int(report.labels[i]), int(report.suggested[i]), {})
        texts = [one["value"][:_TEXT] for one in found if "given" not in one]
        speak = [f"{one['name']} {one['value']} (usual: {one['given']})" for one in found if one.get("against")]
        told.append(" · ".join(texts + ([f"against it: {', '.join(speak[:3])}"] if speak else [])))
    return told


def _are_few(data: LabeledData) -> bool:
    """Whether inputs are features, not too many to look at."""
    width = data.input_shape[0]
    return len(data.input_shape) == 1 and width <= _WIDEST and len(data) * width <= _MOST


def _png(image: Tensor) -> bytes:
    """An image (C, H, W) as a PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels(image)).save(buffer, format="PNG")
    return buffer.getvalue()

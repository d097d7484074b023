"""The page of an audit: how many labels are wrong, of which classes, the worst of each pair, and how sure that is."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noiseproof.runs.drawing import BLUE, faint_grid, name_axes, new_figure
from noiseproof.runs.report import Section, found, suspects, write_html

if TYPE_CHECKING:
    from noiseproof.runs.label_report import LabelReport

_PAIRS, _EACH = 8, 12  # confusions shown, and examples of each
_LARGEST = 30  # classes that a picture of all pairs holds


def write_audit_page(path: Path, report: LabelReport) -> None:
    """Write the page of a report to `path`, atomically: self-contained, and inert whatever classes are called."""
    facts = [f"{len(report.class_names)} classes", f"{len(report):,} labels"]
    sections = [Section("", found(report)), _classes(report), _confusions(report), *_worst(report), *_kinds(report)]
    calibration = report.reliability()
    if calibration is not None:
        about = (
            "Of labels that were said to be wrong with this probability, the share that is. Mean distance from the "
            f"diagonal: {calibration.error:.3f}."
        )
        sections.append(Section("How sure it is", about, picture=_picture(_draw_reliability, report, 5.0, 4.0)))
    write_html(path, "Which labels are wrong", "audit", facts, sections)


def _classes(report: LabelReport) -> Section:
    """A row for each class, the noisiest first."""
    given = np.bincount(report.labels, minlength=len(report.class_names))
    issues = np.bincount(report.labels[report.issues], minlength=len(report.class_names))
    order = np.argsort(-report.class_noise, kind="stable")[:50]
    rows = [
        [report.class_names[k], f"{given[k]:,}", f"{issues[k]:,}", f"{100 * report.class_noise[k]:.1f} %"]
        for k in order.tolist()
    ]
    return Section("Classes", header=["label", "given", "look wrong", "wrong by estimate"], rows=rows)


def _confusions(report: LabelReport) -> Section:
    """All pairs as a picture, or the most frequent ones in a table where the classes are too many for it."""
    rows = [[pair.given, pair.right, f"{pair.count:,.0f}"] for pair in report.pairs[:15]]
    about = "Labels by what they should be: how many, by estimate."
    picture = None if len(report.class_names) > _LARGEST else _picture(_draw_matrix, report, 6.4, 5.4)
    return Section("Taken for each other", about, ["given", "right", "labels"], rows, picture, names=True)


def _worst(report: LabelReport) -> list[Section]:
    """The likeliest wrong labels of the most frequent confusions."""
    sections = []
    place = {name: k for k, name in enumerate(report.class_names)}
    for pair in report.pairs[:_PAIRS]:
        own = (report.labels == place[pair.given]) & (report.suggested == place[pair.right]) & report.issues
        rows = np.flatnonzero(own)
        rows = rows[np.argsort(-report.scores[rows], kind="stable")][:_EACH]
        if len(rows):
            title = f"{pair.given}, rather {pair.right}"
            sections.append(Section(title, f"{own.sum():,} labels.", suspects=suspects(report, rows.tolist())))
    return sections


def _kinds(report: LabelReport) -> list[Section]:
    """Near-duplicates side by side, and what no class fits."""
    sections = []
    if report.group is not None and (report.group >= 0).any():
        rows = np.flatnonzero(report.group >= 0)
        rows = rows[np.argsort(report.group[rows], kind="stable")][: 4 * _EACH]
        about = "The same thing, it seems, under different labels; groups one after the other."
        sections.append(Section("Near-duplicates", about, suspects=suspects(report, rows.tolist())))
    if report.off_topic is not None and report.off_topic.any():
        rows = np.flatnonzero(report.off_topic)[: 2 * _EACH]
        about = "Far from all other examples: perhaps none of the classes."
        sections.append(Section("Off topic?", about, suspects=suspects(report, rows.tolist())))
    return sections


def _picture(draw: Any, report: LabelReport, width: float, height: float) -> bytes:
    """What `draw` draws on an axis, as a PNG."""
    figure = new_figure(width, height)
    draw(figure, figure.subplots(), report)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=120, format="png")
    return buffer.getvalue()


def _draw_matrix(figure: Any, axis: Any, report: LabelReport) -> None:
    """p(right | given) off the diagonal, in %."""
    share = 100 * report.inverse
    np.fill_diagonal(share, np.nan)
    shown = axis.imshow(share, cmap="OrRd", vmin=0)
    names = [name.replace("$", r"\$")[:20] for name in report.class_names]
    axis.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    if len(names) <= 12:
        for given, right in np.argwhere(share >= 0.5):
            dark = share[given, right] > 0.6 * np.nanmax(share)
            axis.text(right, given, f"{share[given, right]:.0f}", ha="center", va="center", fontsize=7,
                      color="white" if dark else "0.2")  # fmt: skip
    name_axes(axis, "What labels should be", "right", "given")
    figure.colorbar(shown, ax=axis, label="% of the labels given", shrink=0.8)


def _draw_reliability(figure: Any, axis: Any, report: LabelReport) -> None:
    """Said against found, the area of a point its number of labels."""
    calibration = report.reliability()
    assert calibration is not None
    axis.plot([0, 1], [0, 1], color="0.6", lw=1, ls=":")
    size = 200 * np.sqrt(calibration.count / calibration.count.max()) + 5
    axis.scatter(calibration.said, calibration.found, s=size, color=BLUE, alpha=0.8)
    axis.plot(calibration.said, calibration.found, color=BLUE, lw=1)
    name_axes(axis, "", "probability that the label is wrong", "share that is wrong")
    faint_grid(axis)

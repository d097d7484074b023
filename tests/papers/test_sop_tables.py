"""The tables of SOP at the paper's scale: its recipes, and its noise."""

from __future__ import annotations

import pytest

from noiseproof.benching.cells import key
from noiseproof.methods import build
from noiseproof_papers import fits
from noiseproof_papers.crust.tables import Table1 as CrustTable1
from noiseproof_papers.fits import Compared, Trained
from noiseproof_papers.sop.medium import DefaultsMedium
from noiseproof_papers.sop.tables import CIFAR10N, Figure1, Table1, Table2, Table5


@pytest.mark.parametrize("kind", [Figure1, Table1, Table2, Table5])
def test_symmetric_noise_is_drawn_from_all_classes_at_the_papers_scale(kind: type[Table1]) -> None:
    for scale, name in (("small", "symmetric"), ("paper", "symmetric-any")):
        found = {one["noise"].split(":")[0] for one in kind().cells(scale, 1) if one["noise"] is not None}
        assert found == ({name, "asymmetric"} if kind is Table2 else {name})


def test_networks_are_the_authors() -> None:
    models = {(one["method"], one["fit"]["model"]) for one in Table2().cells("paper", 1)}
    others = {(method, "resnet34") for method in ("ce", "mixup", "elr", "sop")}
    assert models == {*others, ("sop_plus", "preact_resnet18(variant='sop')")}
    assert {one["fit"]["model"] for one in Figure1().cells("paper", 1)} == {"preact_resnet18(variant='sop')"}


@pytest.mark.parametrize("kind", [Figure1, Table1, Table2, CIFAR10N, DefaultsMedium, CrustTable1])
def test_the_medium_scale_has_all_images_and_methods_in_full(kind: type[Trained]) -> None:
    for one in kind().cells("medium", 1):
        assert (one["data"], one["size"], one["examples"], one["tested"]) == ("cifar10", None, None, None)
        assert (one["fit"]["model"], one["fit"]["audit_features"]) == ("quicknet(widths=[32, 128, 256])", "none")
        assert one["fit"]["augment"] == (["weak", "strong"] if one["method"] == "sop_plus" else "weak")
        assert build(one["fit"]["method"]).describe() == one["fit"]["method"], "another default is another cell"


@pytest.mark.parametrize("kind", [Table1, CIFAR10N, CrustTable1])
def test_on_features_methods_are_in_full_and_see_an_example_once(kind: type[Compared]) -> None:
    cells = kind().cells("features", None)
    assert {one["seed"] for one in cells} == {0, 1, 2}
    assert {one["method"] for one in cells} == set(kind.methods) - {"sop_plus"}
    for one in cells:
        assert (one["data"], one["size"], one["examples"], one["tested"]) == ("cifar10-features", None, 10_000, 5_000)
        assert (one["fit"]["model"], one["fit"]["augment"]) == ("mlp(widths=[128])", "none")
        assert build(one["fit"]["method"]).describe() == one["fit"]["method"], "another default is another cell"


def test_the_medium_tables_share_their_runs() -> None:
    grids = [kind().cells("medium", 1) for kind in (Table1, CIFAR10N, Figure1, Table2)]
    known = {key(one) for cells in grids for one in cells}
    ours = DefaultsMedium().cells("medium", 1)
    alone = {(one["noise"], one["labels"], one["method"]) for one in ours if key(one) not in known}
    settings = {(one["noise"], one["labels"]) for one in ours}
    former = {"elr(lam=3)", "sop(lr_u='auto', lr_v='auto')", "auto"}
    assert len(settings) == 4
    assert {one for one in alone if one[2] in former} == {(*setting, name) for setting in settings for name in former}
    assert {one for one in alone if one[2] not in former} == {
        ("symmetric:0.4", None, "sop_plus"), (None, None, "elr"), (None, None, "sop_plus"),
        ("symmetric:0.4", None, "mixup"), (None, "random_label1", "mixup"), (None, None, "mixup"),
    }  # fmt: skip
    first = [(one["noise"], one["method"]) for one in ours[:4]]
    assert first == [("symmetric:0.4", method) for method in ("ce", "sop", "elr", "sop_plus")]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("elr", "elr(lam=3.0)"),
        ("label_noise(elr)", "label_noise(elr(lam=3.0))"),
        ("sop", "sop(lr_u='auto', lr_v='auto')"),
        ("sop(visits=8)", "sop(lr_u='auto', lr_v='auto', visits=8)"),
        ("label_noise(sop)", "label_noise(sop(lr_u='auto', lr_v='auto'))"),
        *((same, same) for same in ("ce", "elr(lam=7)", "elr_plus", "sop_plus(lr_u=10, lr_v=10)", "crust(ce)")),
    ],
)
def test_published_cells_have_the_rates_they_were_run_with(method: str, expected: str) -> None:
    assert fits.with_rates(method) == expected
    build(expected)

"""The tables of SOP at the paper's scale: its recipes, and its noise."""

from __future__ import annotations

from typing import Any

import pytest

from noiseproof.benching.cells import key
from noiseproof.methods import build
from noiseproof_papers import fits
from noiseproof_papers.crust.tables import Table1 as CrustTable1
from noiseproof_papers.fits import Trained
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


def test_the_medium_tables_share_their_runs() -> None:
    def named(one: dict[str, Any]) -> tuple[Any, ...]:
        return one["noise"], one["labels"], one["method"]

    others = [one for kind in (Table1, CIFAR10N, Figure1, Table2) for one in kind().cells("medium", 1)]
    ours = DefaultsMedium().cells("medium", 1)
    known = {key(one) for one in others}
    assert {named(one) for one in ours if key(one) in known} == {named(one) for one in ours} & set(map(named, others))
    assert sum(key(one) in known for one in ours) == 22
    assert len({named(one)[:2] for one in ours}) == 5
    first = [(one["noise"], one["method"]) for one in ours[:3]]
    assert first == [("symmetric:0.4", method) for method in ("ce", "sop", "elr")]


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

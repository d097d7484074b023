"""The tables of SOP at the paper's scale: its recipes, and its noise."""

from __future__ import annotations

import pytest

from noiseproof_papers.sop.tables import Figure1, Table1, Table2, Table5


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

"""Tables that fit the terminal, or lose nothing where they cannot."""

from __future__ import annotations

import pytest

from noiseproof.cli import console
from noiseproof.cli.console import fitted, show, table

HEADER = ["method", "agreement with held-out labels", "agreement of the candidates", "accuracy by the audit", "between"]
ROWS = [["early_stop(ce)", "80.8", "82.2", "95.2", "91.8–98.6"], ["ce", "80.0", "82.1", "94.4", "90.7–98.2"]]


def test_room_goes_to_what_lacks_most() -> None:
    assert fitted([3, 5], [4, 50], 100) == [4, 50]
    assert fitted([3, 5], [4, 50], 20) == [3, 17]
    assert fitted([3, 5], [4, 50], 2) == [3, 5]  # never below the least


@pytest.mark.parametrize("width", [80, 120, 40])
def test_a_table_fits_or_runs_over_but_is_never_cut(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console.console, "_width", width)
    show(table("Candidates", HEADER, ROWS))
    told = capsys.readouterr().out
    for word in [word for cell in [*HEADER, *ROWS[0], *ROWS[1]] for word in cell.split()]:
        assert word in told
    assert width < 80 or max(map(len, told.splitlines())) <= width


def test_names_are_no_markup(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(console.console, "_width", 120)
    show(table("of [/red]", ["[bold]", "rather"], [["[UNK]", "[/b]"], ["a", "[red]b"]], caption="by [dim]"))
    told = capsys.readouterr().out
    for word in ("of [/red]", "[bold]", "[UNK]", "[/b]", "[red]b", "by [dim]"):
        assert word in told

"""The ledger is whole, is what its generator writes, and the docs quote results as they are."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
from papers.citing import MARK, Quoted, cells, mistake, quoted, table
from scipy.stats import ttest_ind
from typer.testing import CliRunner

from noiseproof.cli import app
from noiseproof.errors import InputError
from noiseproof_papers import experiments, grid, ledger, results
from noiseproof_papers.datadir import DataDir
from noiseproof_papers.experiment import Cell, Done, Experiment, Missing, Table, crossed, group, spreads

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
# pages about the papers; the others measure what is our own
METHODS = [f"methods/{name}.md" for name in ("crust", "early_stop", "label_noise", "sop", "sop_plus")]
ABOUT = [ROOT / "docs" / name for name in ("experiments.md", "pretrain.md", *METHODS)]
ABOUT += sorted((ROOT / "docs" / "theory").glob("*.md"))
NUMBERED = {  # transcribed from the papers
    "sop": """Theorem 3.1, Proposition 3.2, Proposition 3.3, Proposition 3.5, Theorem B.6, Figure 1, Figure 2, Figure 3,
        Figure 4, Table 1, Table 2, Table 3, Table 4, Table 5, Table A.1""",
    "crust": "Theorem 4.1, Corollary A.1, Lemma A.2, Corollary A.3, Figure 1, Table 1, Table 2, Table 3",
    "early_stopping": """Theorem 2.2, Theorem 2.3, Theorem 2.4, Lemma 2.5, Theorem 3.2, Theorem 3.3, Theorem 6.7,
        Theorem 6.8, Theorem 6.12, Theorem 6.13, Figure 1, Figure 2, Figure 3, Figure 4, Figure 5, Figure 6, Table 1""",
    "label_noise": """Theorem 4, Theorem 5, Theorem 6, Proposition 21, Proposition 24, Proposition 39, Proposition 40,
        Proposition 41, Proposition 43, Figure 1, Figure 2""",
    "sane": """Theorem 1, Theorem 2, Theorem 3, Theorem 4, Theorem 5, Theorem 6, Theorem 7, Theorem 8, Table 1, Table 2,
        Table 3, Table 4, Table 5, Table 6""",
}
KNOWN = results.load()
LINES = [(paper, line) for paper, (_, lines) in ledger.lines().items() for line in lines]


def test_the_page_is_what_the_command_writes() -> None:
    assert (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8") == ledger.page(), (
        "write it again: noiseproof reproduce ledger --out docs/ledger.md"
    )


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_numbered_item_has_a_line(paper: str) -> None:
    wanted = {" ".join(one.split()) for one in NUMBERED[paper].split(",")}
    items = [line.item for _, line in LINES if _ == paper]
    assert not wanted - set(items)
    assert "Abstract" in items
    assert all(items.count(one) == 1 for one in wanted)


@pytest.mark.parametrize(("paper", "line"), LINES, ids=lambda one: one if isinstance(one, str) else one.item)
def test_a_line_says_what_was_run(paper: str, line: ledger.Line) -> None:
    assert line.verdict in ledger.VERDICTS
    assert line.why or line.verdict == "reproduced"
    found = ledger.effects(line, KNOWN)
    assert bool(found) + bool(line.command) == (line.verdict != "not attempted"), "cite results, or say a command"
    if line.verdict == "reproduced":
        for one in found:  # a difference is seen only beyond its interval
            assert one.difference is None or abs(one.difference[0]) > one.difference[1]
    for command in [line.command, *(one.results.command for one in found)]:
        if name := re.match(r"noiseproof reproduce (\S+)", command):
            assert name[1] in experiments()
        if test := re.match(r"pytest (\S+)", command):
            assert (ROOT / test[1]).is_file()


def test_files_of_results_are_of_experiments() -> None:
    known = experiments()
    for one in KNOWN.values():
        assert one.scale in known[one.experiment].scales
        assert bool(one.cells) == (one.source == "run")
        assert len(set(one.header)) == len(one.header)
        assert all(len(row) == len(one.header) for row in one.rows)
        assert one.seeds >= 1


def test_every_file_of_results_is_cited() -> None:
    cited = {one.results.name for _, line in LINES for one in ledger.effects(line, KNOWN)}
    assert not set(KNOWN) - cited


def test_single_runs_are_marked() -> None:
    page = ledger.page()
    lines = [line for line in page.splitlines() if "sop-fig1`" in line]
    assert lines
    assert all("**one run**" in line for line in lines)
    assert "table of 057b701" in page


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT / "docs").as_posix())
def test_docs_quote_their_results(path: Path) -> None:
    mistakes = [found for one in quoted(path.read_text(encoding="utf-8")) if (found := mistake(one, KNOWN))]
    assert not mistakes, "\n".join(mistakes)


@pytest.mark.parametrize("path", ABOUT, ids=lambda path: path.relative_to(ROOT / "docs").as_posix())
def test_tables_with_a_spread_cite_results(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").split("\n")
    starts = [i for i, line in enumerate(lines) if line.startswith("|") and not lines[i - 1].startswith("|")]
    for start in starts:
        if any("±" in cell for row in table(lines, start) for cell in cells(row)):
            assert MARK.search(lines[start - 1]), f"line {start + 1}: say whose results these are"


@pytest.mark.parametrize(
    ("row", "entry", "wrong"),
    [
        ("`sop`", "**42.2 ± 0.7** (41.1 ± 2.1)", None),
        ("`sop`", "42.2", None),
        ("`sop`", "42.2, 41.1", None),
        ("`sop` (ours)", "42 ± 1", None),
        ("`sop`", "42.3 ± 0.7 (41.1 ± 2.1)", "does not have 42.3 ± 0.7"),
        ("`sop`", "42.2 ± 2.1", "does not have 42.2 ± 2.1"),
        ("`sop`", "41.1, 42.2", "does not have 41.1, 42.2"),
        ("`elr`", "42.2 ± 0.7", "row '`elr`' does not have"),
        ("`lrt`", "42.2 ± 0.7", "has no row"),
    ],
)
def test_a_wrong_quotation_is_noticed(row: str, entry: str, wrong: str | None) -> None:
    found = mistake(Quoted(1, "sop-table1-small", row, [entry]), KNOWN)
    assert found is None if wrong is None else wrong in str(found)


def test_all_cells_before_the_first_number_name_the_row() -> None:
    text = "<!-- result: sop-cifar10n-small -->\n| | | test |\n|---|---|---|\n| random1 | `{}` | 48.6 ± 0.9 |\n"
    assert [mistake(one, KNOWN) for one in quoted(text.format("sop"))] == [None]
    (other,) = quoted(text.format("elr"))
    assert (other.line, "does not have" in str(mistake(other, KNOWN))) == (4, True)


def test_numbers_in_prose_are_quotations_too() -> None:
    text = "it ends at 20.2 ± 2.7 %<!-- result: sop-table1-small, sop --> there, not at 3e-7."
    (one,) = quoted(text)
    assert one == Quoted(1, "sop-table1-small", "sop", ["20.2 ± 2.7"])
    assert mistake(one, KNOWN) is None
    assert mistake(one._replace(entries=["20.3 ± 2.7"]), KNOWN) is not None


class Coin(Experiment):
    """Heads or tails, by two methods."""

    name, title, paper, scales = "coin", "a coin", "nobody 2026", ("paper", "small")

    def cells(self, scale: str, seeds: int | None) -> list[Cell]:
        return [
            {"method": method, "seed": seed, "fit": {"method": method, "epochs": 3}}
            for method in ("one", "two")
            for seed in range(seeds or 4)
        ]

    def run(self, cell: Cell, data: DataDir) -> dict[str, object]:
        return {"last": (0.5 if cell["method"] == "one" else 0.3) + 0.01 * cell["seed"] ** 2, "curve": [0.1] * 20}

    def draw(self, done: list[Done], path: Path) -> None:
        path.write_bytes(b"picture")

    def table(self, done: list[Done]) -> Table:
        return ["", "test"], [[key, *spreads(fs, "last")] for key, fs in group(done, lambda c: c["method"]).items()]


def test_a_finished_grid_becomes_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = grid.reproduce(Coin(), out=tmp_path / "run", seeds=3, progress=False)
    path = results.publish(Coin(), outcome.results, tmp_path / "coins" / "results")
    monkeypatch.setattr(results, "__file__", str(tmp_path / "results.py"))
    one = results.load()["coin-paper"]
    assert path == tmp_path / "coins/results/coin-paper.json"
    assert (one.source, one.seeds, one.command) == ("run", 3, "noiseproof reproduce coin --seeds 3")
    assert one.cells[1] == {"where": {"method": "two"}, "seeds": [0, 1, 2], "figures": {"last": [0.3, 0.31, 0.34]}}
    assert one.rows == [["one", "51.7 ± 2.1"], ["two", "31.7 ± 2.1"]]
    found, half = one.difference("one", "two", "test")
    sample = [100 * value for value in one.cells[0]["figures"]["last"]]
    oracle = ttest_ind(sample, [value - 20 for value in sample], equal_var=False).confidence_interval(0.95)
    assert found - half == pytest.approx(oracle.low, abs=0.1)
    assert found + half == pytest.approx(oracle.high, abs=0.1)
    for row, column in (("three", "test"), ("one", "rest")):
        with pytest.raises(InputError, match="name one of each"):
            one.entry(row, column)


class Tossed(Coin):
    """A table of it may have gaps; what was tossed is noted."""

    gapped = True
    tossed: ClassVar[list[Cell]] = []

    def run(self, cell: Cell, data: DataDir) -> dict[str, object]:
        self.tossed.append(cell)
        return super().run(cell, data)

    def table(self, done: list[Done]) -> Table:
        return crossed(done, "", lambda c: c["method"], lambda c: "test", lambda fs: spreads(fs, "last")[0])


@pytest.fixture
def tossed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """Results are published in a folder of this test's own; the cells that are run."""
    monkeypatch.setattr(results, "__file__", str(tmp_path / "papers" / "results.py"))
    monkeypatch.setattr(results.inspect, "getfile", lambda kind: str(tmp_path / "papers" / "coins" / "table.py"))
    monkeypatch.setattr(Tossed, "tossed", [])
    return Tossed.tossed


@pytest.mark.parametrize("kind", [None, "coin"])
def test_an_unfinished_grid_is_published_and_gone_on_with_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tossed: list[Cell], kind: str | None, capsys: Any
) -> None:
    monkeypatch.setattr(Tossed, "kind", kind)
    outcome = grid.reproduce(Tossed(), out=tmp_path / "here" / "run", seeds=3, progress=False, most=2)
    assert (len(outcome.done), outcome.picture, len(tossed)) == (2, None, 2)
    results.publish(Tossed(), outcome.results)
    one = results.load()["coin-paper"]
    assert (one.done, one.seeds, one.command) == ((2, 6), 2, "noiseproof reproduce coin --seeds 3")
    assert one.rows == [["one", "50.5 ± 0.7 (2 of 3)"], ["two", "–"]]
    there: dict[str, Any] = {"out": tmp_path / "there" / "run", "seeds": 3}
    outcome = grid.reproduce(Tossed(), **there)
    assert "2 of 6 cells taken over from published results" in capsys.readouterr().err
    assert len(tossed) == 6  # each once
    assert outcome.picture is not None
    results.publish(Tossed(), outcome.results)
    one = results.load()["coin-paper"]
    assert (one.done, one.seeds, one.rows[1]) == (None, 3, ["two", "31.7 ± 2.1"])
    log = (tmp_path / "papers" / "coins" / "results" / "coin-paper.jsonl").read_text()
    assert len(log.splitlines()) == 6
    assert "published" not in log
    grid.reproduce(Tossed(), **there, fresh=True, progress=False, most=1)  # the two that were taken over
    assert tossed[6:] == [one.cell for one in outcome.done[:1]]
    grid.reproduce(Tossed(), **there, fresh=True, progress=False)  # goes on
    assert tossed[6:] == [one.cell for one in outcome.done[:2]]
    grid.reproduce(Tossed(), **there, fresh=True, progress=False)
    assert len(tossed) == 8
    grid.reproduce(Tossed(), out=tmp_path / "new" / "run", seeds=1, fresh=True, progress=False)
    assert len(tossed) == 10


def test_other_parameters_are_other_cells(tmp_path: Path, tossed: list[Cell], monkeypatch: pytest.MonkeyPatch) -> None:
    results.publish(Tossed(), grid.reproduce(Tossed(), out=tmp_path / "a", seeds=2, progress=False).results)
    cells = Tossed().cells("paper", 2)
    longer = [{**one, "fit": {**one["fit"], "epochs": 4}} for one in cells]
    monkeypatch.setattr(Tossed, "cells", lambda self, scale, seeds: longer)
    grid.reproduce(Tossed(), out=tmp_path / "b", progress=False)
    assert tossed == cells + longer


def test_what_cannot_be_published(tmp_path: Path, tossed: list[Cell], monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = grid.reproduce(Tossed(), out=tmp_path / "a", progress=False, most=0)
    with pytest.raises(InputError, match="no cell of coin is done; run some"):
        results.publish(Tossed(), outcome.results)
    monkeypatch.setattr(Tossed, "gapped", False)
    outcome = grid.reproduce(Tossed(), out=tmp_path / "a", progress=False, most=1)
    with pytest.raises(InputError, match="no table of an unfinished grid; finish it"):
        results.publish(Tossed(), outcome.results)


GAPPED = [one for one in experiments().values() if one.gapped]


@pytest.mark.parametrize("experiment", GAPPED, ids=lambda one: one.name)
def test_tables_that_can_have_gaps(experiment: Experiment) -> None:
    figures = dict.fromkeys(("last", "best", "fitted", "memorised", "auroc", "auprc"), 0.5) | {"curves": {}}
    for scale in experiment.scales:
        cells = experiment.cells(scale, 2)
        for done in (0, 1, 2):  # of the runs of each setting
            table = experiment.table([Done(one, figures if one["seed"] < done else Missing()) for one in cells])
            assert table is not None
            entries = [entry for row in table[1] for entry in row]
            assert ("–" in entries) == (done == 0) or experiment.name == "defaults-medium"  # of ce nothing is explained
            assert any("(1 of 2)" in entry for entry in entries) == (done == 1)


def test_an_unfinished_grid_is_marked_in_the_ledger() -> None:
    one = results.Results("a", "medium", "run", "c", 1, "", [], [], [], done=(5, 24))
    assert ledger._sizes([one]) == "medium, **one run**, **5 of 24 cells so far**"


def test_the_command_writes_the_page_and_publishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = CliRunner().invoke(app, ["reproduce", "ledger", "--out", str(tmp_path / "new" / "ledger.md")])
    assert asked.exit_code == 0, asked.output
    assert (tmp_path / "new" / "ledger.md").read_text(encoding="utf-8") == ledger.page()
    monkeypatch.setattr("noiseproof_papers.build", lambda name: {"coin": Coin()}[name])
    monkeypatch.setattr(results.inspect, "getfile", lambda kind: str(tmp_path / "coins" / "table.py"))
    words = ["reproduce", "coin", "--scale", "small", "--seeds", "2", "--out", str(tmp_path / "run"), "--publish", "-q"]
    asked = CliRunner().invoke(app, words)
    assert asked.exit_code == 0, asked.output
    content = (tmp_path / "coins" / "results" / "coin-small.json").read_text(encoding="utf-8")
    assert '"command": "noiseproof reproduce coin --scale small --seeds 2"' in content
    monkeypatch.setattr("noiseproof_papers.build", lambda name: {"coin": Tossed()}[name])
    words = ["reproduce", "coin", "--out", str(tmp_path / "part"), "--cells", "3", "-q"]
    asked = CliRunner().invoke(app, words)
    assert asked.exit_code == 0, asked.output
    assert "3 of 8 cells; the same command without --cells goes on" in " ".join(asked.output.split())
    assert "two" in asked.output
    asked = CliRunner().invoke(app, [*words, "--fresh", "--publish"])
    assert asked.exit_code == 0, asked.output
    assert '"done": [\n  6,\n  8\n ]' in (tmp_path / "coins" / "results" / "coin-paper.json").read_text(
        encoding="utf-8"
    )


def test_one_run_has_no_interval() -> None:
    one = results.Results("a", "small", "run", "c", 1, "", ["", "x"], [["p", "4.0"], ["q", "3.0 ± 1.0"]], [])
    assert one.difference("p", "q", "x")[0] == 1.0
    assert math.isnan(one.difference("p", "q", "x")[1])
    assert results.mean_and_spread("+0.141 ± 0.049 (3)") == (0.141, 0.049)
    with pytest.raises(InputError, match="no number"):
        results.mean_and_spread("–")

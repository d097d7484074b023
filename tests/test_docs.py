"""The documentation tells the truth: its Python runs, its links lead somewhere, and every method has a page."""

from __future__ import annotations

import re
import shlex
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from noiseproof import fit, methods
from noiseproof import pretraining as pretrain
from noiseproof import schedules as schedule
from noiseproof.cli import app
from noiseproof.cli.sets import noises_of
from noiseproof.data import LabeledData, noise

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SKIP = "<!-- no test -->"  # on the line before a fence: a block that only illustrates
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OTHERS = ("lightning", "transformers", "skorch")  # libraries of extras, whose pages are skipped where they are absent
LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)\)")


class Block(NamedTuple):
    line: int  # of its first line of code, from 1
    code: str


def python_blocks(text: str) -> Iterator[Block]:
    """The Python blocks of a page, those marked with SKIP left out."""
    for fence in FENCE.finditer(text):
        before = text[: fence.start()].splitlines()
        if fence[1] == "python" and (not before or before[-1].strip() != SKIP):
            yield Block(text.count("\n", 0, fence.start(2)) + 1, fence[2])


def run_page(path: Path) -> dict[str, Any]:
    """Execute the blocks of a page in order, in one namespace; errors point to the line of the page."""
    module = types.ModuleType(f"page_{path.stem}")
    sys.modules[module.__name__] = module  # where classes look for the annotations of their methods
    try:
        for block in python_blocks(path.read_text(encoding="utf-8")):
            source = "\n" * (block.line - 1) + block.code
            exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))
    finally:
        del sys.modules[module.__name__]
    return vars(module)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


WITH_CODE = [path for path in PAGES if any(python_blocks(path.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("path", WITH_CODE, ids=name_of)
def test_python_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "".join(block.code for block in python_blocks(path.read_text(encoding="utf-8")))
    others = [name for name in OTHERS if re.search(rf"^(import|from) {name}\b", code, re.MULTILINE)]
    with warnings.catch_warnings():
        if others:
            warnings.simplefilter("ignore")  # theirs
        for name in others:
            pytest.importorskip(name)
        run_page(path)


def test_pages_with_code_are_found() -> None:
    names = {name_of(path) for path in WITH_CODE}
    assert {"README.md", "CONTRIBUTING.md", "docs/fit.md", "docs/data.md", "docs/methods/elr.md"} <= names


def test_blocks_are_found_and_skipped() -> None:
    page = f"a\n```python\nx = 1\n```\n```\nnot python\n```\n{SKIP}\n```python\nignored\n```\n```python\ny = 2\n```\n"
    assert list(python_blocks(page)) == [Block(3, "x = 1\n"), Block(13, "y = 2\n")]


def test_contributed_method_trains(digits: tuple[LabeledData, LabeledData]) -> None:
    smoothing = run_page(ROOT / "CONTRIBUTING.md")["LabelSmoothing"]
    result = fit("mlp", digits[0], smoothing(epsilon=0.2), epochs=5, lr=0.05, test=digits[1], device="cpu")
    assert result.history[-1]["loss"] < result.history[0]["loss"]
    assert smoothing(epsilon=0.2).describe() == "label_smoothing(epsilon=0.2)"


def command_lines(text: str) -> list[list[str]]:
    """The words of each `noiseproof …` line in the plain blocks of a page; brackets around options are dropped."""
    blocks = [fence[2].replace("\\\n", " ") for fence in FENCE.finditer(text) if not fence[1]]  # long lines in one
    lines = [line for block in blocks for line in block.splitlines()]
    plain = [re.sub(r"\[(--[^]]*)\]", r"\1", line) for line in lines if line.startswith("noiseproof ")]
    return [shlex.split(line, comments=True)[1:] for line in plain]


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_command_lines_parse(path: Path) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, *words in command_lines(path.read_text(encoding="utf-8")):
        given = commands[name].make_context(name, words).params  # an unknown option raises
        method = pretrain.build if name == "pretrain" else methods.build
        corrupt = noises_of if name == "bench" else noise.parse
        parsers = {"method": method, "noise": corrupt, "schedule": schedule.parse}
        for key, parse in parsers.items():
            if given.get(key) is not None:
                parse(given[key])


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def links(path: Path) -> list[tuple[Path, str]]:
    """Where a page's links lead, and to which heading there."""
    targets = [target.partition("#") for target in LINK.findall(prose(path)) if not re.match(r"[a-z]+:", target)]
    return [((path.parent / file).resolve() if file else path, heading) for file, _, heading in targets]


def headings(path: Path) -> set[str]:
    """The headings of a page, as a link names them."""
    plain = [re.sub(r"[^\w\- ]", "", one.lower()) for one in re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)]
    return {one.strip().replace(" ", "-") for one in plain}


@pytest.mark.parametrize("path", [*PAGES, ROOT / "CHANGELOG.md"], ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    missing = [
        f"{target} {heading}"
        for target, heading in links(path)
        if not target.exists() or (target.suffix == ".md" and heading and heading not in headings(target))
    ]
    assert not missing, f"{name_of(path)} links to {', '.join(missing)}"


def test_everything_is_reached_from_the_readme() -> None:
    found, left = {ROOT / "README.md"}, [ROOT / "README.md"]
    while left:
        new = {target for target, _ in links(left.pop())} - found
        found |= new
        left += [target for target in new if target.suffix == ".md"]
    unreached = set((ROOT / "docs").rglob("*.*")) - found
    assert not unreached, f"no page links to {', '.join(map(name_of, sorted(unreached)))}"


def test_every_method_has_a_page() -> None:
    folder = ROOT / "docs" / "methods"
    pages = {path.stem for path in folder.glob("*.md")} - {"README"}
    assert pages == set(methods.registry())
    index = (folder / "README.md").read_text(encoding="utf-8")
    for row in methods.table():
        assert f"| [`{row.name}`]({row.name}.md) | `{row.cls}` |" in index, f"{row.name} is not in the table"
        page = (folder / f"{row.name}.md").read_text(encoding="utf-8")
        for option in row.options:
            assert f"`{option}`" in page, f"{row.name}.md does not say what {option} is"

"""Imports point one way, and what begins with an underscore stays in its folder. CONTRIBUTING.md has the order."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import noiseproof
import noiseproof_papers

ROOT, PAPERS = (Path(str(package.__file__)).parent for package in (noiseproof, noiseproof_papers))
LAYERS = (  # each imports from those before it, and from itself
    "errors checks calls device distributed files jit schedules", "data", "models", "auditing", "coreset", "method",
    "methods", "loops runs", "training", "pretraining", "jacobian", "recipes estimator", "benching reviewing", "cli",
)  # fmt: skip
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names.split()}
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or not path.name.startswith("__"))


def imported(path: Path) -> Iterator[str]:
    """The dotted names that a file imports of this package, lazily or not, or for types alone."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    own = path.relative_to(ROOT).with_suffix("").parts
    for name in imported(path):
        package, _, rest = name.partition(".")
        assert package != "noiseproof_papers", f"{path} imports {name}: the product knows nothing of the papers"
        part = rest.split(".")
        if package != "noiseproof" or part[0] == "__version__":
            continue
        assert RANK[part[0]] <= RANK[own[0]], f"{path} imports {name}, from a layer above it"
        hidden = [place for place, word in enumerate(part) if word.startswith("_") and not word.startswith("__")]
        if hidden:
            assert tuple(part[: hidden[0]]) == own[: hidden[0]], f"{path} imports {name}, private to another folder"


@pytest.mark.parametrize("path", sorted(PAPERS.rglob("*.py")), ids=lambda path: str(path.relative_to(PAPERS)))
def test_papers_keep_to_what_is_public(path: Path) -> None:
    own = ("noiseproof_papers", *path.relative_to(PAPERS).with_suffix("").parts)
    for part in (name.split(".") for name in imported(path)):
        hidden = [place for place, word in enumerate(part) if word.startswith("_") and not word.startswith("__")]
        if part[0].startswith("noiseproof") and hidden:
            assert tuple(part[: hidden[0]]) == own[: hidden[0]], f"{path} imports {'.'.join(part)}, which is private"


def test_every_module_has_its_layer() -> None:
    assert {path.relative_to(ROOT).with_suffix("").parts[0] for path in FILES} == set(RANK)


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import noiseproof.cli", "torch"),
        ("import noiseproof; noiseproof.load_model", "noiseproof.training.loop"),
        ("import noiseproof; noiseproof.fit", "noiseproof_papers"),
    ],
)
def test_nothing_heavy_is_imported_in_passing(statement: str, absent: str) -> None:
    code = f"{statement}; import sys; sys.exit({absent!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

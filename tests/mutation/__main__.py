"""Mutation testing: make one mistake at a time in the code, and see whether a test notices.

    python tests/mutation --out build/mutation

Mutants are drawn by a seed, each package's share apart, and run on a copy of the tree. One session of pytest collects
all tests once; each mutant is a process forked from it, whose function gets another code and which runs the tests that
call that function (recorded first), the quickest first, until one fails. What numba compiles is written into the copy
and tried in a new session. Outcomes are appended to a file: stopped, it goes on where it was. Ends with the share
killed, and exit code 1 where that is below `--least`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from mutation.report import share, table  # noqa: E402
from mutation.running import PACKAGES, TESTS, Mutating, arguments, package_of  # noqa: E402

PARTS = ("noiseproof", "noiseproof_papers", "tests", "pyproject.toml", "README.md", "CONTRIBUTING.md", "docs")


def copy(tree: Path) -> None:
    """Bring the copy up to date; the times of files stay, so that what is compiled from them holds."""
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.rmtree(tree / part, ignore_errors=True)
            shutil.copytree(ROOT / part, tree / part)
        else:
            shutil.copy2(ROOT / part, tree / part)


def elsewhere(paths: list[str], prefix: str = sys.prefix) -> list[str]:
    """The paths to import from that are not of this tree; a virtual environment in it, as `make` has it, is kept."""
    return [path for path in paths if not Path(path).is_relative_to(ROOT) or Path(path).is_relative_to(prefix)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build/mutation", help="folder of the copy and the outcomes")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--part", type=float, default=1.0, help="of the numbers of mutants of the packages")
    parser.add_argument("--least", type=float, default=0.9, help="share killed that is enough")
    parser.add_argument("--again", action="store_true", help="copy the tree anew, and try what survived once more")
    parser.add_argument("--only", default="", help="packages with this in their names, and their own tests")
    given = parser.parse_args()
    for name in [name for name in PACKAGES if given.only not in name]:
        del PACKAGES[name]
    tests = {path for _, own in PACKAGES.values() for path in own} if given.only else TESTS
    out = given.out.absolute()
    if given.again or not (out / "tree").exists():
        (out / "tree").mkdir(parents=True, exist_ok=True)
        copy(out / "tree")
    os.chdir(out / "tree")
    sys.path[:] = [str(out / "tree"), *elsewhere(sys.path)]
    importlib.invalidate_caches()
    mutating = Mutating(out, given.seed, given.part, again=given.again)
    code = pytest.main([*arguments(out), *sorted(tests)], plugins=[mutating])
    if code != pytest.ExitCode.OK:
        sys.exit(f"the tests cannot be collected: {code!r}")
    found = mutating.found
    print(table({name: [one for one in found if package_of(one.module) == name] for name in PACKAGES}))
    sys.exit(share(found) < given.least)


if __name__ == "__main__":
    main()

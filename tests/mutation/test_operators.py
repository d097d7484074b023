"""The mistakes that mutation testing makes: each is one, and each is put where it is said to be."""

from __future__ import annotations

import ast
import json
import os
import sys
from pathlib import Path

import pytest
from mutation import live
from mutation.operators import Mutant, mutants
from mutation.recording import Record, Recorder
from mutation.report import Outcome, share, table, wilson
from mutation.running import PACKAGES, package_of

from noiseproof import pretraining

ROOT = Path(__file__).parents[2]
SOURCE = '''"""Two, 2."""
LIMIT = 3


class Sum:
    """1 + 1."""

    @staticmethod
    def of(x: int = 4, *, y: float = 0.5) -> int:
        """x < y."""
        if not x < LIMIT and y:
            raise ValueError(f"{x + 1}")
        self.total -= pow(x, y)
        return "a" if x is None else [max(i, x) for i in range(x)]
'''


def test_each_operator_changes_what_it_is_for() -> None:
    found = mutants("sum.py", SOURCE.encode())
    assert {(one.operator, one.before, one.after) for one in found} == {
        ("constant", "3", "(4)"), ("constant", "3", "(2)"), ("constant", "4", "(5)"), ("constant", "4", "(3)"),
        ("constant", "0.5", "(1.0)"), ("constant", "0.5", "(0.25)"),
        ("condition", "not x < LIMIT and y", "(not (not x < LIMIT and y))"),
        ("boolean", "not x < LIMIT and y", "(not x < LIMIT or y)"),
        ("sign", "not x < LIMIT", "(x < LIMIT)"), ("comparison", "x < LIMIT", "(x <= LIMIT)"),
        ("statement", 'raise ValueError(f"{x + 1}")', "pass"),
        ("arithmetic", "self.total -= pow(x, y)", "self.total += pow(x, y)"),
        ("statement", "self.total -= pow(x, y)", "pass"), ("arguments", "pow(x, y)", "(pow(y, x))"),
        ("comparison", "x is None", "(x is not None)"),
    }  # fmt: skip
    assert {(one.function, one.body) for one in found} == {(0, False), (8, False), (8, True)}
    assert {one.before for one in found if not one.body} == {"3", "4", "0.5"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_mutant_is_another_module_that_python_reads(package: str) -> None:
    files = [ROOT / package, *(ROOT / package).glob("*.py")]
    path = max((file for file in files if file.is_file()), key=lambda file: file.stat().st_size)
    source = path.read_bytes()
    plain, keys = ast.dump(ast.parse(source)), set()
    for mutant in mutants(path.name, source)[::7]:
        assert ast.dump(ast.parse(mutant.applied(source))) != plain
        keys.add(mutant.key)
    assert len(keys) == len(mutants(path.name, source)[::7]) > 10


LIVE = """
from dataclasses import dataclass
LIMIT = 3
def above(x, least=LIMIT, *, strict=True):
    return x > least if strict else x >= least
@dataclass(kw_only=True)
class Options:
    rate: float = 0.5
    def double(self):
        return 2 * self.rate
"""


def test_constants_defaults_and_code_are_exchanged_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was imported from the module before the mutation shows it as well."""
    (tmp_path / "noiseproof").mkdir()
    (tmp_path / "noiseproof/odd_module.py").write_text(LIVE)
    monkeypatch.syspath_prepend(tmp_path / "noiseproof")
    monkeypatch.setattr(live, "_name", lambda path: Path(path).stem)
    functions = live.Functions(tmp_path, ("noiseproof",))
    import odd_module as module

    above, options = module.above, module.Options
    every = {(one.before, one.after): one for one in mutants("noiseproof/odd_module.py", LIVE.encode())}
    assert (above(3), above(3, strict=False), options().double()) == (False, True, 1.0)
    for key, expected in (
        (("0.5", "(1.0)"), (False, True, 2.0)), (("3", "(2)"), (True, True, 1.0)),
        (("True", "False"), (True, True, 1.0)), (("x > least", "(x >= least)"), (True, True, 1.0)),
        (("2 * self.rate", "(2 / self.rate)"), (False, True, 4.0)),
    ):  # fmt: skip
        child = os.fork()
        if child == 0:  # as each mutant: what it changes is gone with it
            done = functions.mutate(every[key])
            os._exit(0 if done and (above(3), above(3, strict=False), options().double()) == expected else 1)
        assert os.waitpid(child, 0)[1] == 0, key


def test_a_module_belongs_to_the_longest_name() -> None:
    assert package_of("noiseproof/coreset/greedy.py") == "noiseproof/coreset"
    assert package_of("noiseproof/coreset/kernels.py") == "noiseproof/coreset/kernels.py"
    assert package_of("noiseproof/auditing/new.py") == "noiseproof/auditing"
    assert package_of("noiseproof/cli/fit.py") == ""


def test_a_mutant_meets_the_tests_that_call_it(tmp_path: Path) -> None:
    lines = [
        '["call", "a.py::slow", "p/m.py", 3]', '["call", "a.py::quick", "p/m.py", 3]',
        '["call", "b.py::other", "p/m.py", 9]', '["call", "b.py::asks", "p/__init__.py", 1]',
        '["time", "a.py::slow", 2.0, "passed"]', '["time", "a.py::quick", 1.0, "passed"]',
        '["time", "b.py::other", 0.1, "passed"]', '["time", "b.py::gone", 0.1, "passed"]',
        '["time", "b.py::asks", 0.2, "passed"]',
    ]  # fmt: skip
    (tmp_path / "record").write_text("\n".join(lines))
    record = Record.read(tmp_path / "record", {"a.py::slow", "a.py::quick", "b.py::other", "b.py::asks"})

    def tests(module: str, function: int, body: bool, default: str = "nowhere") -> list[str]:
        return record.tests(Mutant(module, function, body, 1, "sign", 0, 1, "a", "b"), (default,))

    assert tests("p/m.py", 3, True) == ["a.py::quick", "a.py::slow"]
    assert tests("p/m.py", 3, False) == ["b.py::asks", "a.py::quick", "a.py::slow"]  # a default
    assert tests("p/m.py", 0, False) == ["b.py::other", "b.py::asks", "a.py::quick", "a.py::slow"]
    assert tests("q/compiled.py", 5, True, "a.py") == ["a.py::quick", "a.py::slow"]
    (tmp_path / "record").write_text('["time", "a.py::slow", 2.0, "failed"]')
    with pytest.raises(SystemExit, match="fails without any mutation"):
        Record.read(tmp_path / "record", {"a.py::slow"})


def test_the_share_and_its_interval() -> None:
    found = [Outcome(f"p/m.py:{i}:0:a -> b", "sign", "survived" if i < 2 else "killed", "", 1, 0.0) for i in range(10)]
    assert share(found) == 0.8
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert "| `p` | 10 | 8 | 80.0% | 49.0% to 94.3% |" in table({"p": found})
    assert "| all | 20 | 16 |" in table({"p": found, "q": found})
    assert table({"p": found}).count("survived: p/m.py:") == 2


def test_a_virtual_environment_within_the_tree_is_imported_from() -> None:
    from mutation.__main__ import elsewhere

    own, installed = str(ROOT / "tests"), str(ROOT / ".venv/lib/site-packages")
    assert elsewhere([own, installed, "/lib"], str(ROOT / ".venv")) == [installed, "/lib"]


def test_a_mistake_that_keeps_a_module_from_being_imported_is_left_to_a_new_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "LIMIT = [3][0]\n"
    (tmp_path / "noiseproof").mkdir()
    (tmp_path / "noiseproof/odd_limit.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path / "noiseproof")
    monkeypatch.setattr(live, "_name", lambda path: Path(path).stem)
    functions = live.Functions(tmp_path, ("noiseproof",))
    [beyond] = [one for one in mutants("noiseproof/odd_limit.py", source.encode()) if one.after == "(1)"]
    assert not functions.mutate(beyond)


def test_who_makes_a_dataclass_may_notice_its_defaults(tmp_path: Path) -> None:
    recorder = Recorder(ROOT, ("noiseproof/methods", "noiseproof/pretraining"), tmp_path / "record")
    recorder.test = "a.py::makes"
    before = sys.gettrace()
    sys.settrace(recorder.trace)
    try:
        pretraining.IMix()
        pretraining.IMix()
    finally:
        sys.settrace(before)
    made = [json.loads(line)[2] for line in (tmp_path / "record").read_text().splitlines() if line.endswith("-1]")]
    assert made == ["noiseproof/pretraining/imix.py", "noiseproof/pretraining/moco.py"]

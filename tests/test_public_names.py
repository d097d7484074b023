"""The public names of `__init__.pyi` can be got, in an interpreter that has imported nothing else."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import noiseproof

STUB = Path(noiseproof.__file__).with_suffix(".pyi")


def in_a_fresh_interpreter(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_name_of_the_stub_can_be_got() -> None:
    imports = [node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ImportFrom)]
    names = sorted(alias.asname or alias.name for node in imports for alias in node.names)
    assert {"LabeledData", "data", "fit", "methods", "models"} <= set(names)
    code = f"import noiseproof as nf; print([name for name in {names} if not hasattr(nf, name) or name not in dir(nf)])"
    assert in_a_fresh_interpreter(code) == "[]"


def test_folders_are_got_without_importing_them_first() -> None:
    for expression, expected in (
        ("nf.data.InputSource.__name__", "InputSource"),
        ("nf.methods.__name__", "noiseproof.methods"),
        ("nf.models.__name__", "noiseproof.models"),
    ):
        assert in_a_fresh_interpreter(f"import noiseproof as nf; print({expression})") == expected

"""Mutants of functions that are imported already: another code object in the place of theirs."""

from __future__ import annotations

import gc
import importlib
from collections import defaultdict
from pathlib import Path
from types import CodeType, FunctionType

from mutation.operators import Mutant


class Functions:
    """Every function of some packages, by its file and its first line; decorators do not hide them."""

    def __init__(self, root: Path, packages: tuple[str, ...]) -> None:
        self.root = root
        for package in packages:
            for path in sorted((root / package).rglob("*.py")):
                importlib.import_module(
                    ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
                )
        self.at: dict[tuple[str, int], list[FunctionType]] = defaultdict(list)
        for one in gc.get_objects():
            if type(one) is FunctionType and one.__code__.co_filename.startswith(f"{root}/"):
                module = one.__code__.co_filename.removeprefix(f"{root}/")
                self.at[module, one.__code__.co_firstlineno].append(one)

    def holds(self, mutant: Mutant) -> bool:
        """Whether the mutant is of a function's code, and that is run as it is; numba looks at it but once."""
        jit = b"compiled(" in (self.root / mutant.module).read_bytes()
        return mutant.body and not jit and bool(self.at[mutant.module, mutant.function])

    def mutate(self, mutant: Mutant) -> bool:
        """Put the mutant's code into the function it is of; False where that is not the whole of it."""
        path = self.root / mutant.module
        source = path.read_bytes()
        found = self.at[mutant.module, mutant.function]
        if not self.holds(mutant):
            return False
        codes = list(_codes(compile(mutant.applied(source), str(path), "exec"), mutant.function))
        for function in found:
            [code] = [one for one in codes if one.co_name == function.__code__.co_name] or [None]
            if code is None or code.co_freevars != function.__code__.co_freevars:
                return False
            function.__code__ = code
        return True


def _codes(code: CodeType, line: int) -> list[CodeType]:
    """The code objects, within a module's, of functions that begin at a line."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    own = [one for one in inner if one.co_firstlineno == line]
    return [*own, *(found for one in inner if one not in own for found in _codes(one, line))]

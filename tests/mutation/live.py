"""Mutants of modules that are imported already: other code, defaults and constants in the place of theirs."""

from __future__ import annotations

import gc
import importlib
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from mutation.operators import Mutant

PLAIN = (bool, int, float, tuple)


class Functions:
    """Every function of some packages, by its file and its first line; decorators do not hide them."""

    def __init__(self, root: Path, packages: tuple[str, ...]) -> None:
        self.root = root
        for path in sorted((root / "noiseproof").rglob("*.py")):
            if str(path.relative_to(root)).startswith(packages):
                importlib.import_module(_name(str(path.relative_to(root))))
        self.at: dict[tuple[str, int], list[FunctionType]] = defaultdict(list)
        for one in gc.get_objects():
            if type(one) is FunctionType and one.__code__.co_filename.startswith(f"{root}/"):
                module = one.__code__.co_filename.removeprefix(f"{root}/")
                self.at[module, one.__code__.co_firstlineno].append(one)

    def compiled(self, mutant: Mutant) -> bool:
        """Whether it is of a module whose loops numba compiles: it looks at their code but once."""
        return b"compiled(" in (self.root / mutant.module).read_bytes()

    def mutate(self, mutant: Mutant) -> bool:
        """Make the mistake; False where that cannot be done here."""
        if self.compiled(mutant):
            return False
        path = self.root / mutant.module
        code = compile(mutant.applied(path.read_bytes()), str(path), "exec")
        if not mutant.body:  # a constant, or a default
            other = ModuleType(_name(mutant.module))
            other.__file__ = str(path)
            try:
                exec(code, vars(other))
            except Exception:  # so that nobody can import it: a new session will say so
                return False
            return carry(sys.modules[other.__name__], vars(other), other.__name__) > 0
        codes, found = _codes(code, mutant.function), self.at[mutant.module, mutant.function]
        for function in found:
            [new] = [one for one in codes if one.co_name == function.__code__.co_name] or [None]
            if new is None or new.co_freevars != function.__code__.co_freevars:
                return False
            function.__code__ = new
        return bool(found)


def carry(to: Any, names: Mapping[str, Any], module: str) -> int:
    """Give a module or class the constants, and its functions the defaults, of another; how many of them are new."""
    changed = 0
    for name, value in names.items():
        old = vars(to).get(name)
        if isinstance(value, PLAIN) and type(value) is type(old) and value != old:
            setattr(to, name, value)
            changed += 1
        elif isinstance(value, type) and value.__module__ == module and isinstance(old, type):
            changed += carry(old, dict(vars(value)), module)
        elif isinstance(value, FunctionType) and isinstance(old, FunctionType):
            before = old.__defaults__, old.__kwdefaults__
            if repr(before) != repr((value.__defaults__, value.__kwdefaults__)):
                old.__defaults__, old.__kwdefaults__ = value.__defaults__, value.__kwdefaults__
                changed += 1
    return changed


def _name(path: str) -> str:
    """noiseproof/methods/sop.py -> noiseproof.methods.sop"""
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _codes(code: CodeType, line: int) -> list[CodeType]:
    """The code objects, within a module's, of functions that begin at a line."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    own = [one for one in inner if one.co_firstlineno == line]
    return [*own, *(found for one in inner if one not in own for found in _codes(one, line))]

"""noiseproof: train on labels you can't trust.

    import noiseproof as nf

    data = nf.load("digits")
    noisy = data.with_labels(nf.noise.symmetric(data.labels, 0.4).labels)
    result = nf.fit("mlp", noisy, "elr", epochs=50)

The public names stand in `__init__.pyi`, for editors and type checkers and for this file alike: each is imported when
it is first used, so that `import noiseproof` and the command line stay quick.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def _public_names() -> dict[str, str]:
    """Each public name with the module it lives in."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_NAMES = _public_names()
__all__ = ["__version__", *_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'noiseproof' has no attribute {name!r}")
    where = _NAMES[name]
    if where == __name__:  # a subpackage
        return importlib.import_module(f"{where}.{name}")
    value = getattr(importlib.import_module(where), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

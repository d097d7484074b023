"""Review labels in a browser: a local page, and a store of what was decided. See docs/review.md.

`noiseproof.data.decisions` reads the store, for whoever wants to learn from it.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noiseproof import checks
from noiseproof.errors import InputError

if TYPE_CHECKING:
    from noiseproof.data import LabeledData

EXTRA = ("starlette", "uvicorn")


def need_extra() -> None:
    """Raise an InputError if the libraries of the server are missing."""
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise InputError(f"review needs {' and '.join(missing)}; run: pip install 'noiseproof[review]'")


def review(
    folder: str | os.PathLike[str],
    data: LabeledData,
    *,
    test: LabeledData | None = None,
    who: str = "",
    port: int = 0,
    browser: bool = True,
) -> None:
    """Review labels in a browser, until Ctrl-C; what is decided goes at once to decisions.sqlite in the folder.

    Args:
        folder: of a finished `fit` or audit, with its labels.parquet.
        data: what was fitted or audited; joined by its ids, or by its positions where it has none.
        test: the test set, where its labels are listed too.
        who: the reviewer's name, kept with each decision.
        port: to listen at, on this machine alone; 0: one that is free.
        browser: open the page in one; without it the link is printed.

    Raises:
        InputError: no labels.parquet, other data, a taken port, or the extra `review` is not installed.
    """
    from noiseproof.data import LabeledData

    need_extra()
    checks.require(isinstance(folder, str | os.PathLike), "folder", folder, "a path")
    checks.require(isinstance(who, str), "who", who, "a name")
    checks.integer("port", port, 0, 65535)
    checks.boolean("browser", browser)
    for name, value in (("data", data), ("test", test)):
        if not isinstance(value, LabeledData) and not (name == "test" and value is None):
            raise InputError(f"{name} must be LabeledData, got {type(value).__name__}; read a path with nf.load")
    _serve(Path(folder), data, test, who=who, port=port, browser=browser)


def _serve(folder: Path, data: LabeledData, test: LabeledData | None, **options: Any) -> None:
    from noiseproof.reviewing.examples import Examples
    from noiseproof.reviewing.items import LABELS, Items
    from noiseproof.reviewing.review import Review
    from noiseproof.reviewing.server import serve

    items = Items(folder / LABELS, data.class_names)
    one = Review(folder, items, Examples(items, data, test), title=folder.name, who=options.pop("who"))
    try:
        serve(one, **options)
    finally:
        one.close()

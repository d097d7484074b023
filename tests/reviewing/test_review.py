"""`nf.review`: its arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noiseproof as nf

DATA = nf.LabeledData(np.eye(3, dtype=np.float32), ["a", "b", "a"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"data": "photos/"}, "data must be LabeledData, got str; read a path with nf.load"),
        ({"data": DATA, "test": 5}, "test must be LabeledData"),
        ({"data": DATA, "folder": "nowhere"}, "does not exist"),
        ({"data": DATA, "folder": 5}, "folder must be a path"),
        ({"data": DATA, "port": "x"}, "port must be a whole number"),
        ({"data": DATA, "who": 5}, "who must be a name"),
        ({"data": DATA, "browser": 1}, "browser must be True or False"),
    ],
)
def test_a_wrong_call_is_refused_in_one_sentence(tmp_path: Path, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(nf.InputError, match=said):
        nf.review(**{"folder": tmp_path, "data": DATA, "browser": False} | arguments)

"""A review of digits in a folder of images, and the server of its page, on a port of this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from reviewing.support import digit_folder, write_audit

from noiseproof.cli.options import Source
from noiseproof.training.settings import settings_of

NO_OPTIONS: dict[str, Any] = dict.fromkeys(("data", *settings_of(Source)))


@pytest.fixture
def review(tmp_path: Path) -> Iterator[Any]:
    from noiseproof.cli.review import opened

    photos, rows = digit_folder(tmp_path / "photos", 120)
    one = opened(write_audit(tmp_path / "audit", rows, photos), NO_OPTIONS, "Ada")
    yield one
    one.close()


@pytest.fixture
def served(review: Any) -> Iterator[Any]:
    """The server behind its door; `ask` is a browser that came in by the link, `stranger` one that did not."""
    httpx, uvicorn = pytest.importorskip("httpx"), pytest.importorskip("uvicorn")
    from noiseproof.reviewing.door import Door
    from noiseproof.reviewing.server import Answers

    links: list[str] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        door = Door(Answers(review).app(), listener.getsockname()[1], links.append)
        server = uvicorn.Server(uvicorn.Config(door, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        own = {"base_url": base, "headers": {"origin": base}}
        with httpx.Client(**own) as ask, httpx.Client(**own) as stranger:
            assert ask.get(door.link).status_code == 200
            yield SimpleNamespace(ask=ask, stranger=stranger, door=door, review=review, links=links, base=base)
        server.should_exit = True
        thread.join()

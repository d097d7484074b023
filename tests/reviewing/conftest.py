"""A review of digits in a folder of images, and the server of its page, on a port of this machine."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
    one.items.stamp = 0  # so that a decision need not ask for it
    yield one
    one.close()


@contextmanager
def running(review: Any) -> Iterator[Any]:
    """The server of a review, on a port of its own; gives its door."""
    uvicorn = pytest.importorskip("uvicorn")
    from noiseproof.reviewing.door import Door
    from noiseproof.reviewing.server import Answers

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        door = Door(Answers(review).app(), listener.getsockname()[1])
        server = uvicorn.Server(uvicorn.Config(door, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield door
        finally:
            server.should_exit = True
            thread.join(10)


@pytest.fixture
def served(review: Any) -> Iterator[Any]:
    """The server behind its door; `ask` is a browser that came in by the link, `stranger` one that did not."""
    httpx = pytest.importorskip("httpx")
    with running(review) as door:
        base, links = f"http://127.0.0.1:{door.port}", []
        door.announce = links.append
        own = {"base_url": base, "headers": {"origin": base}}
        with httpx.Client(**own) as ask, httpx.Client(**own) as stranger:
            assert ask.get(door.link).status_code == 200
            yield SimpleNamespace(ask=ask, stranger=stranger, door=door, review=review, links=links, base=base)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Debian's Chromium, driven by playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright: pip install it")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("the browser tests need Chromium: apt-get install chromium")
    quiet = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    more = "--disable-component-update --disable-sync"
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=[*quiet.split(), *more.split()])
        yield browser
        browser.close()


@pytest.fixture
def browse(chromium: Any) -> Iterator[Any]:
    """Open a link in a fresh browser; what the page complains of fails the test."""
    contexts, said = [], []

    def opened(link: str, width: int = 1280, height: int = 800, **options: Any) -> Any:
        context = chromium.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.goto(link)
        page.wait_for_selector(".card .line, #single .labels")
        return page

    opened.said = said  # type: ignore[attr-defined]
    yield opened
    for context in contexts:
        context.close()
    assert [one for one in said if "ERR_CONNECTION_REFUSED" not in one] == []  # a page may outlive its server

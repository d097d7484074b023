"""The server of the review page: what it answers, and how it runs. Who may ask is up to door.py."""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from noiseproof.errors import InputError
from noiseproof.files import parse_json
from noiseproof.reviewing.door import Door, TooLarge
from noiseproof.reviewing.review import Review

PAGE = Path(__file__).parent / "page"
_FILES = {path.name for path in PAGE.iterdir()}
_BY_WHOM: dict[str, type] = {"who": str, "session": str}
_DECISION = {"rows": list, "seen": list, "action": str, "label": str, "looked": bool, "stamp": int, **_BY_WHOM}
_FEW = 20  # decisions that are made at once
_SIZES = (96, 192, 768)  # pixels of the longest side that pictures are made at


class Answers:
    """What the server answers, by path."""

    def __init__(self, review: Review) -> None:
        self.review = review

    def app(self) -> Starlette:
        routes = [
            Route("/", self.page),
            Route("/page/{name}", self.page),
            Route("/facts", self.facts),
            Route("/rows", self.rows),
            Route("/items", self.items),
            Route("/detail/{row:int}", self.detail),
            Route("/picture/{row:int}", self.picture),
            Route("/progress", self.progress),
            Route("/changes", self.changes),
            Route("/decide", self.decide, methods=["POST"]),
            Route("/undo", self.undo, methods=["POST"]),
            Route("/export", self.export, methods=["POST"]),
            Route("/refresh", self.refresh, methods=["POST"]),
            Route("/refreshing", self.refreshing),
            Route("/decisions.csv", self.decisions),
        ]
        return Starlette(routes=routes, exception_handlers={InputError: _refused, TooLarge: _refused})

    async def page(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        return FileResponse(PAGE / name) if name in _FILES else _nothing()

    async def facts(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self.review.facts))

    async def rows(self, request: Request) -> Response:
        """The rows that pass the filters, then the version of each, as uint32, little-endian: 100,000 are 800 kB."""
        rows, versions = await run_in_threadpool(self.review.find, dict(request.query_params))
        both = rows.astype("<u4").tobytes() + versions.astype("<u4").tobytes()
        return Response(both, media_type="application/octet-stream")

    async def items(self, request: Request) -> Response:
        text = request.query_params.get("rows", "")
        rows = [int(one) for one in text.split(",") if one.isdecimal() and len(one) < 10][:500]
        return JSONResponse([self.review.describe(row) for row in rows if row < len(self.review.items)])

    async def detail(self, request: Request) -> Response:
        row = self._row(request)
        return _nothing() if row is None else JSONResponse(await run_in_threadpool(self.review.detail, row))

    async def picture(self, request: Request) -> Response:
        row, size = self._row(request), request.query_params.get("size", "")
        if row is None or size not in map(str, _SIZES):
            return _nothing()
        picture = await run_in_threadpool(self.review.examples.picture, row, int(size))
        if picture is None:
            return _nothing()
        return Response(
            picture.content, media_type=picture.kind, headers={"Cache-Control": "private, max-age=86400, immutable"}
        )

    def _row(self, request: Request) -> int | None:
        row = request.path_params["row"]
        return row if row < len(self.review.items) else None

    async def progress(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self.review.progress))

    async def changes(self, request: Request) -> Response:
        """What was decided since a version, by anybody."""
        since = request.query_params.get("since", "0")
        if not since.isdecimal() or len(since) > 15:
            raise InputError("since must be a version")
        return JSONResponse(await run_in_threadpool(self.review.changes, int(since)))

    async def decide(self, request: Request) -> Response:
        """One decision is not made in a thread: it takes as long as the disk, and to change threads may take longer."""
        asked = await _asked(request, _DECISION)
        if len(asked["rows"]) < _FEW:
            return JSONResponse(self.review.decide(**asked))
        return JSONResponse(await run_in_threadpool(self.review.decide, **asked))

    async def undo(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self.review.undo, **await _asked(request, _BY_WHOM)))

    async def export(self, request: Request) -> Response:
        await _asked(request, {})
        return JSONResponse(await run_in_threadpool(self.review.export))

    async def refresh(self, request: Request) -> Response:
        await _asked(request, {})
        return JSONResponse(await run_in_threadpool(self.review.refresh))

    async def refreshing(self, request: Request) -> Response:
        return JSONResponse(self.review.refreshing)

    async def decisions(self, request: Request) -> Response:
        text = await run_in_threadpool(self.review.decisions_csv)
        headers = {"Content-Disposition": "attachment; filename=decisions.csv"}
        return Response(text, media_type="text/csv", headers=headers)


def _nothing() -> Response:
    return JSONResponse({"error": "there is no such thing"}, status_code=404)


def _refused(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_code=413 if isinstance(error, TooLarge) else 400)


async def _asked(request: Request, kinds: dict[str, type]) -> dict[str, Any]:
    """The JSON object that a request holds: these keys, of these types, and no text longer than a name."""
    try:
        asked = parse_json(await request.body())
    except ValueError:
        raise InputError("the request is no JSON") from None
    if not isinstance(asked, dict) or set(asked) != set(kinds):
        raise InputError(f"the request must hold {', '.join(kinds) or 'nothing'}")
    for name, kind in kinds.items():
        if type(asked[name]) is not kind or (kind is str and len(asked[name]) > 300):
            raise InputError(f"{name} must be a {kind.__name__} of sensible length")
    return asked


def serve(review: Review, *, port: int = 0, browser: bool = True, announce: Callable[[str], None] = print) -> None:
    """Serve the page of a review on this machine until Ctrl-C.

    Args:
        port: to listen at; 0: one that is free.
        browser: open the page in one.
        announce: is called with each link that opens the page, the next one when the last was used.

    Raises:
        InputError: the port is taken.
    """
    # named as TCP, so that asyncio turns Nagle's algorithm off: else each answer waits 40 ms for an acknowledgement
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen()
        except OSError as error:
            raise InputError(
                f"port {port} cannot be used ({error.strerror}); leave --port out for a free one"
            ) from error
        door = Door(Answers(review).app(), listener.getsockname()[1], announce)
        announce(door.link)
        if browser:
            threading.Thread(target=webbrowser.open, args=(door.link,), daemon=True).start()
        config = uvicorn.Config(
            door, log_level="warning", access_log=False, lifespan="off", ws="none", timeout_graceful_shutdown=1
        )
        with suppress(KeyboardInterrupt):  # which is how it ends: all that was decided is on the disk
            uvicorn.Server(config).run(sockets=[listener])

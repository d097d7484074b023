"""Who may talk to the server: a browser on this machine that was given a link.

The link holds a token that opens once: it is exchanged for a cookie, and the next link is announced. Requests with a
Host that is not this server's (a foreign name that resolves here), from a page of another origin, or with a body that
is too large are refused before anything else is looked at. Answers let the page load nothing but what this server
sends, and let no other page frame it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST = 4 << 20  # bytes of a body
_TOO_LARGE = f"A request may hold {LARGEST:,} bytes at most."
_WELCOME = '<link rel="icon" href="/page/icon.svg"><meta http-equiv="refresh" content="0; url=/">'
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class TooLarge(Exception):
    """A body beyond the limit; the application answers it with 413."""

    def __init__(self) -> None:
        super().__init__(_TOO_LARGE)


class Door:
    """Around the application: lets in who may come in.

    Args:
        app: what is behind it.
        port: that the server listens at.
        announce: is called with each link that can be used.
    """

    def __init__(self, app: ASGIApp, port: int, announce: Callable[[str], None] = lambda link: None) -> None:
        self.app, self.port, self.announce = app, port, announce
        self.cookie = f"noiseproof-{port}"  # cookies are shared between the ports of a host
        self.pass_key = secrets.token_urlsafe(32)
        self.token = secrets.token_urlsafe(32)
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    @property
    def link(self) -> str:
        """The link that opens the page, once."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)  # the server's own start and end
            return
        headers = Headers(scope=scope)
        refused = self._refusal(scope, headers)
        if refused is not None:
            await PlainTextResponse(refused[1], status_code=refused[0], headers=_HEADERS)(scope, receive, send)
            return
        if self._is_new(scope):
            await self._admit()(scope, receive, send)
            return
        if not self._knows(headers):
            said = "Open the link that noiseproof review printed last; each works once."
            await PlainTextResponse(said, status_code=403, headers=_HEADERS)(scope, receive, send)
            return
        await self.app(scope, _limited(receive), _with_headers(send))

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Why a request is not looked at, whoever sent it."""
        if headers.get("host") not in self.hosts:
            return 403, "This is not a name of this server."
        origin = headers.get("origin")
        own = {f"http://{host}" for host in self.hosts}
        if (origin is not None or scope["method"] not in ("GET", "HEAD")) and origin not in own:
            return 403, "Requests from other pages are refused."
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and scope["path"] != "/":
            return 403, "Requests from other pages are refused."
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST:
            return 413, _TOO_LARGE
        return None

    def _is_new(self, scope: Scope) -> bool:
        """Whether this is the browser with the link."""
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        return scope["path"] == "/" and scope["method"] == "GET" and secrets.compare_digest(
            token.encode(), self.token.encode()
        )  # fmt: skip

    def _admit(self) -> HTMLResponse:
        """The cookie, on a page that goes on by itself: after a redirect, a link from elsewhere would not bring it."""
        self.token = secrets.token_urlsafe(32)
        self.announce(self.link)
        response = HTMLResponse(_WELCOME, headers=_HEADERS)
        response.set_cookie(self.cookie, self.pass_key, httponly=True, samesite="strict")
        return response

    def _knows(self, headers: Headers) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return cookie is not None and secrets.compare_digest(cookie.value.encode(), self.pass_key.encode())


def _limited(receive: Receive) -> Receive:
    """Count what comes in: a body need not say its length."""
    got = 0

    async def limited() -> Message:
        nonlocal got
        message = await receive()
        got += len(message.get("body", b""))
        if got > LARGEST:
            raise TooLarge
        return message

    return limited


def _with_headers(send: Send) -> Send:
    async def with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return with_headers

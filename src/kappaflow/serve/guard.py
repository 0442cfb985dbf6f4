"""Who may talk to the server: this page only, under a name that is ours; and what a browser may do with an answer.

A page of the outside world that the same browser has open can send requests to 127.0.0.1. It cannot read the answers,
unless a name of its own resolves to 127.0.0.1 (DNS rebinding): hence only addresses, `localhost` and names the user
gave are taken as Host. And it cannot set a header of its own without asking first (CORS), which is never allowed: hence
every change needs one.
"""

import hmac
import ipaddress
import json
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kappaflow.serve.serve_settings import ServeSettings

__all__ = ["CHANGE_HEADER", "TOKEN", "Guard", "is_our_name"]

CHANGE_HEADER = "x-kappaflow"
TOKEN = "kappaflow-token"  # noqa: S105 (the cookie's name)
_SAFE = {"GET", "HEAD"}
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}


def is_our_name(host: str, names: tuple[str, ...] = ()) -> bool:
    """Whether a Host header names us: an address (no DNS in it), localhost, or one of `names`.

    Examples
    --------
    >>> [is_our_name(h) for h in ("127.0.0.1:8765", "localhost", "[::1]:80", "evil.example", "127.0.0.1.evil.example")]
    [True, True, True, False, False]
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
        urlsplit(f"//{host}").port  # noqa: B018 (raises where it is no number)
    except ValueError:
        return False
    if name == "localhost" or name in {known.lower() for known in names}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """ASGI middleware: refuses what is not ours, and puts the headers on every answer.

    With a `token` (a server that others can reach) every request needs it, once in the address, then as a cookie.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings, token: str | None = None) -> None:
        self.app, self.names, self.token = app, settings.names, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        cookie: list[tuple[bytes, bytes]] = []

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                ours = [(k.encode(), v.encode()) for k, v in _HEADERS.items() if k.encode() not in there]
                message = {**message, "headers": [*message["headers"], *ours, *cookie]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None and self.token is not None:
            allowed, fresh = self._admitted(scope)
            refusal = None if allowed else (401, "open the address that kappaflow serve printed, with its token")
            if fresh:
                cookie.append((b"set-cookie", f"{TOKEN}={self.token}; HttpOnly; SameSite=Lax; Path=/".encode()))
        if refusal is None:
            await self.app(scope, receive, with_headers)
            return
        status, told = refusal
        body = json.dumps({"error": told}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await with_headers(
            {"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]}
        )
        await with_headers({"type": "http.response.body", "body": body})

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return status and sentence for a request that is not of our page; None for one that may be."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not is_our_name(hosts[0], self.names):
            return 421, "this name is not the server's; open it by its address, or start it with --name NAME"
        for origin in headers.get("origin", []):
            if urlsplit(origin).netloc.lower() != hosts[0].lower():
                return 403, "a request of another page; only this server's own page may do that"
        if any(site not in ("same-origin", "none") for site in headers.get("sec-fetch-site", [])):
            if not (scope["method"] == "GET" and headers.get("sec-fetch-mode") == ["navigate"]):
                return 403, "a request of another page; only this server's own page may do that"
        if scope["method"] not in _SAFE and CHANGE_HEADER not in headers:
            return 403, f"no {CHANGE_HEADER} header; only this server's own page may change anything"
        return None

    def _admitted(self, scope: Scope) -> tuple[bool, bool]:
        """Whether the request has the token, and whether in its address (a cookie then keeps it)."""
        assert self.token is not None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if any(hmac.compare_digest(one.encode(), self.token.encode()) for one in given):
            return True, True
        jar: SimpleCookie = SimpleCookie()
        for name, value in scope["headers"]:
            if name.lower() == b"cookie":
                try:
                    jar.load(value.decode("latin-1"))
                except CookieError:
                    continue
        kept = jar[TOKEN].value if TOKEN in jar else ""
        return hmac.compare_digest(kept.encode(), self.token.encode()), False

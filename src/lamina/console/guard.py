"""Who may ask, judged before anything else; and the headers of every answer.

host     bound to this machine, the page answers only under names of this machine: another name
         that leads here is an attack (DNS rebinding)
origin   a page of another site can neither change nor read anything: browsers say where a request
         comes from, and what they send from elsewhere is refused, except following a link
token    bound elsewhere: in the address once, then in a cookie that no script and no other site has
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lamina.console.settings import Access, is_loopback

TOKEN = "token"  # noqa: S105  the name of a parameter
METHODS = frozenset({"GET", "HEAD", "POST"})
SAFE = frozenset({"GET", "HEAD"})
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
HOW_TO_ENTER = (
    "This page needs the token that `lamina ui` printed when it was started:\n"
    "open the address that it printed, or send the header `Authorization: Bearer TOKEN`.\n"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a request goes on; if not, the answer."""

    refusal: Response | None = None

    @property
    def is_fine(self) -> bool:
        return self.refusal is None


class Guard:
    """Stands before the whole application."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        query = scope["query_string"].decode("latin-1")
        verdict = judge(self._access, scope["method"], scope["path"], query, Headers(scope=scope))
        answer = self._app if verdict.refusal is None else verdict.refusal
        await answer(scope, receive, with_headers)


def judge(access: Access, method: str, path: str, query: str, headers: Headers) -> Verdict:
    """Host, then origin, then token. Pure."""
    if method not in METHODS:
        return _refused(HTTPStatus.METHOD_NOT_ALLOWED, "this page is only read, or posted to")
    if access.is_loopback and not _is_local_name(headers.get("host", "")):
        message = "this page answers only as localhost: another name leads here"
        return _refused(HTTPStatus.MISDIRECTED_REQUEST, message)
    if not _is_own(method, headers):
        return _refused(HTTPStatus.FORBIDDEN, "a page of another site has sent this request")
    return _judge_token(access, method, path, query, headers)


def cookie_name(access: Access) -> str:
    """Browsers send cookies to every port of a host."""
    return f"lamina_ui_{access.port}"


def cookie_value(token: str) -> str:
    """Proves that somebody had the token, and is not the token."""
    return hmac.new(token.encode(), b"lamina ui cookie", sha256).hexdigest()


def _judge_token(access: Access, method: str, path: str, query: str, headers: Headers) -> Verdict:
    if not access.token:
        return Verdict()
    given = parse_qsl(query, keep_blank_values=True)
    offered = next((value for name, value in given if name == TOKEN), None)
    if offered is not None and method in SAFE:
        if not _same(offered, access.token):
            return _refused(HTTPStatus.UNAUTHORIZED, f"this is not the token\n\n{HOW_TO_ENTER}")
        return Verdict(_with_cookie(access, path, given))
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and _same(bearer.strip(), access.token):
        return Verdict()
    cookies = cookie_parser(headers.get("cookie", ""))
    if _same(cookies.get(cookie_name(access), ""), cookie_value(access.token)):
        return Verdict()
    return _refused(HTTPStatus.UNAUTHORIZED, HOW_TO_ENTER)


def _with_cookie(access: Access, path: str, query: list[tuple[str, str]]) -> Response:
    """To the same address without the token: it stays out of the history and out of logs."""
    rest = urlencode([(name, value) for name, value in query if name != TOKEN])
    target = f"/{path.lstrip('/')}" + (f"?{rest}" if rest else "")
    answer = RedirectResponse(target, HTTPStatus.SEE_OTHER)
    answer.set_cookie(
        cookie_name(access), cookie_value(access.token), httponly=True, samesite="strict", path="/"
    )
    return answer


def _is_own(method: str, headers: Headers) -> bool:
    """Whether a request comes from a page of ours, from a person, or from a script."""
    origin = headers.get("origin")
    if origin is not None and method not in SAFE:
        return urlsplit(origin).netloc == headers.get("host", "")
    site = headers.get("sec-fetch-site", "none")
    if site in ("same-origin", "none"):
        return True
    return method in SAFE and headers.get("sec-fetch-mode") == "navigate"


def _is_local_name(host: str) -> bool:
    if "@" in host:
        return False
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name)


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _refused(status: HTTPStatus, why: str) -> Verdict:
    return Verdict(PlainTextResponse(f"{status.phrase}: {why}\n", status))

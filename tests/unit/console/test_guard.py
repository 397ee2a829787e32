"""Who may ask: names of this machine, our own pages, and whoever has the token."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from lamina.console.guard import HEADERS, cookie_name, cookie_value, judge
from lamina.console.settings import Access, is_loopback
from tests.support.consoles import Project, client

TOKEN = "correct-horse-battery"
OPEN = Access(port=8650)
CLOSED = Access(host="0.0.0.0", port=8650, token=TOKEN)


def status(access: Access, method: str = "GET", query: str = "", **headers: str) -> int:
    """What the guard answers; 0 if the request goes on."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    found = judge(access, method, "/p/x", query, Headers({"host": "localhost:8650", **named}))
    return found.refusal.status_code if found.refusal else 0


@pytest.mark.parametrize("host", ["localhost:8650", "127.0.0.1:8650", "[::1]:1", "localhost"])
def test_names_of_this_machine_are_answered(host: str) -> None:
    assert status(OPEN, host=host) == 0


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8650",
        "127.0.0.1.evil.example",
        "",
        "localhost@evil.example",
        "[::1",
        "[x]:1",
    ],
)
def test_another_name_that_leads_here_is_refused(host: str) -> None:
    """DNS rebinding: the page of evil.example asks evil.example, which is now this machine."""
    assert status(OPEN, host=host) == 421


def test_a_page_of_another_site_can_neither_post_nor_read() -> None:
    evil = "https://evil.example"
    assert status(OPEN, "POST", origin=evil) == 403
    assert status(OPEN, "POST", origin="null") == 403
    assert status(OPEN, "POST", sec_fetch_site="cross-site", sec_fetch_mode="navigate") == 403
    assert status(OPEN, "POST", sec_fetch_site="same-site") == 403
    assert status(OPEN, sec_fetch_site="cross-site", sec_fetch_mode="no-cors") == 403
    assert status(OPEN, sec_fetch_site="cross-site", sec_fetch_mode="cors") == 403


def test_a_link_from_elsewhere_may_be_followed_and_our_own_pages_work() -> None:
    assert status(OPEN, sec_fetch_site="cross-site", sec_fetch_mode="navigate") == 0
    assert status(OPEN, "POST", origin="http://localhost:8650", sec_fetch_site="same-origin") == 0
    assert status(OPEN, sec_fetch_site="same-origin", sec_fetch_mode="cors") == 0
    assert status(OPEN, "POST") == 0  # a script: it has to know the token of the form


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_other_methods_are_refused(method: str) -> None:
    assert status(OPEN, method) == 405


def test_without_the_token_nothing_is_told() -> None:
    assert status(CLOSED) == 401
    assert status(CLOSED, query="token=wrong") == 401
    assert status(CLOSED, query="token=") == 401
    assert status(CLOSED, authorization=f"Bearer {TOKEN}x") == 401
    assert status(CLOSED, cookie=f"{cookie_name(CLOSED)}={TOKEN}") == 401  # the token is no cookie
    assert status(CLOSED, "POST", query=f"token={TOKEN}") == 401
    assert status(CLOSED, authorization="Bearer ÄÖÜ") == 401


def test_the_token_once_then_the_cookie() -> None:
    first = judge(CLOSED, "GET", "/p/x", f"page=2&token={TOKEN}", Headers({"host": "h"})).refusal
    assert first is not None
    assert (first.status_code, first.headers["location"]) == (303, "/p/x?page=2")
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    kept = f"{cookie_name(CLOSED)}={cookie_value(TOKEN)}"
    assert status(CLOSED, cookie=kept, host="server.example:8650") == 0
    assert status(CLOSED, authorization=f"Bearer {TOKEN}") == 0


def test_a_token_does_not_redirect_to_another_site() -> None:
    found = judge(CLOSED, "GET", "//evil.example/x", f"token={TOKEN}", Headers({"host": "h"}))
    assert found.refusal is not None
    assert found.refusal.headers["location"] == "/evil.example/x"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("server.example", False),
    ],
)
def test_what_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_every_answer_has_the_headers(tmp_path_factory: pytest.TempPathFactory) -> None:
    project = Project(tmp_path_factory.mktemp("empty"))
    project.file("orders").write_text("")
    with client(project.subjects()) as page:
        for path in ("/", "/p/nobody", "/static/console.js", "/static/../app.py", "/%00"):
            answer = page.get(path)
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS, path
        assert page.get("/p/orders").headers["cache-control"] == "no-store"
        refused = page.get("/", headers={"host": "evil.example"})
        assert {name: refused.headers[name] for name in HEADERS} == HEADERS
    assert "'unsafe" not in HEADERS["Content-Security-Policy"]

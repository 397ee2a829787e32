"""Templates with what they may call. Everything is escaped; markup comes from drawing/ alone."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from lamina.console.context import Console, Watched
from lamina.console.drawing.sql import highlight
from lamina.console.views import words
from lamina.front.words import counted, size, utc
from lamina.version import __version__

TABS = (
    ("", "Pipeline"),
    ("epochs", "Epochs"),
    ("checkpoints", "Checkpoints"),
    ("state", "State"),
    ("recovery", "Recovery"),
    ("wal", "Log"),
)


class Pages:
    """Renders a template for one console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._environment = Environment(
            loader=PackageLoader("lamina.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "ago": words.ago,
            "bytes": size,
            "clock": words.clock,
            "counted": counted,
            "duration": words.duration,
            "event_time": words.event_time,
            "short": words.short,
            "sql": highlight,
            "utc": utc,
            "whole": words.whole,
        }
        self._environment.globals |= {
            "allow_actions": console.access.allow_actions,
            "form_token": console.form_token,
            "tabs": TABS,
            "url": address,
            "version": __version__,
        }

    def page(
        self,
        template: str,
        *,
        title: str,
        watched: Watched | None = None,
        tab: str | None = None,
        status: int = HTTPStatus.OK,
        **values: Any,
    ) -> HTMLResponse:
        text = self._environment.get_template(template).render(
            title=title,
            subject=watched.subject if watched else None,
            tab=tab,
            pipelines=[each.subject for each in self._console.pipelines.values()],
            now_ms=self._console.clock.now_ms(),
            **values,
        )
        return HTMLResponse(text, status)


def address(*parts: str, **query: Any) -> str:
    """An address of ours, whatever is in the parts; what is None or empty is left out."""
    path = "/" + "/".join(quote(part, safe="") for part in parts if part)
    given: Mapping[str, Any] = {n: v for n, v in query.items() if v not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path

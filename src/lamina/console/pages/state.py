"""Keyed state, page by page, by key, at any point; and what differs between two points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lamina.console.context import Console, Watched
from lamina.console.reading.look import Look, Trouble
from lamina.console.reading.states import is_large, place_of_view
from lamina.console.render import Pages
from lamina.console.views.listing import newest_first
from lamina.errors import LaminaError
from lamina.inspect import OperatorInfo, View
from lamina.inspect.cells import cells_of, is_number
from lamina.inspect.paging import Cursor

ROWS = 50
KEY = "key."
AT_CHARACTERS_MAX = 300


@dataclass(frozen=True, slots=True)
class Table:
    columns: tuple[tuple[str, str, bool], ...]  # name, type, whether it is a number
    rows: tuple[tuple[str, ...], ...]
    after: str = ""  # where the next page begins


def routes(console: Console, pages: Pages) -> list[BaseRoute]:
    def browse(request: Request) -> Response:
        watched = console.find(request.path_params["key"])
        look = watched.look()
        asked = request.query_params
        at = asked.get("at", "").strip()[:AT_CHARACTERS_MAX]
        found: dict[str, Any] = {"operators": [], "place": "", "epoch": None, "table": None}
        trouble = None
        try:
            with watched.states.view(at, look.logs_seen) as view:
                found = _browse(watched, view, request)
        except LaminaError as error:
            trouble = Trouble.of("state", error)
        operator = asked.get("operator", "")
        return pages.page(
            "state.html",
            title=f"State of {watched.subject.name}",
            watched=watched,
            tab="state",
            live=False,
            at=at,
            operator=operator,
            keys=_keys(request),
            key_fields={n: v for n, v in asked.items() if n.startswith(KEY)},
            is_first="after" not in asked,
            trouble=trouble,
            points=points_of(look),
            **({"info": None, "is_large": False} | found),
        )

    return [
        Route("/p/{key}/state", browse),
    ]


def _browse(watched: Watched, view: View, request: Request) -> dict[str, Any]:
    asked = request.query_params
    infos = [view.info(name) for name in view.operators]
    found: dict[str, Any] = {
        "operators": infos,
        "not_keyed": view.not_keyed,
        "place": place_of_view(view),
        "epoch": view.epoch,
        "view_checkpoint": str(view.checkpoint or ""),
        "replayed": len(view.commits),
        "table": None,
    }
    operator = asked.get("operator", "")
    if not operator:
        return found
    info = view.info(operator)
    found["info"] = info
    if is_large(info) and "fetch" not in asked:
        return found | {"is_large": True}
    return found | {"table": _table(watched, view, info, request)}


def _table(watched: Watched, view: View, info: OperatorInfo, request: Request) -> Table:
    given = request.query_params.get("after", "")
    after = Cursor.parse(given) if given else None
    page = watched.states.page(view, info.name, _keys(request), after=after, rows_max=ROWS)
    if page is None:
        columns = tuple((each.name, each.type, False) for each in (*info.key, *info.value))
        return Table(columns, ())
    columns = tuple((f.name, str(f.type), is_number(f.type)) for f in page.schema)
    rows = tuple(row for batch in page.batches for row in cells_of(batch))
    return Table(columns, rows, str(page.after) if page.after else "")


def _keys(request: Request) -> Mapping[str, str | None]:
    """Fields that were left empty ask for nothing; `null` is written as such."""
    given = {n.removeprefix(KEY): v for n, v in request.query_params.items() if n.startswith(KEY)}
    return {name: None if text == "null" else text for name, text in given.items() if text}


def points_of(look: Look) -> list[tuple[str, str]]:
    """What can be asked for, with words: savepoints, then checkpoints."""
    if look.history is None:
        return []
    pins = look.history.pins
    found = [(name, "savepoint") for name in sorted(pins)]
    newest = newest_first(look.history)[:50]
    return found + [(str(each.epoch), f"checkpoint {each.id}") for each in newest]

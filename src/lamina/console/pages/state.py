"""Keyed state, page by page, by key, at any point; and what differs between two points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.progress import Report
from lamina.console.answers import read_form, see
from lamina.console.context import Console, Watched
from lamina.console.reading.look import Look, Trouble
from lamina.console.reading.states import is_large, place_of_view
from lamina.console.render import Pages, address
from lamina.console.subjects import Subject
from lamina.console.views.listing import newest_first
from lamina.errors import LaminaError, UsageError
from lamina.inspect import Counts, OperatorInfo, View, diff, open_archive
from lamina.inspect.cells import cells_of, is_number
from lamina.inspect.export import limited
from lamina.inspect.paging import Cursor

ROWS = 50
DIFF_ROWS = 50
KEY = "key."
AT_CHARACTERS_MAX = 300


@dataclass(frozen=True, slots=True)
class Table:
    columns: tuple[tuple[str, str, bool], ...]  # name, type, whether it is a number
    rows: tuple[tuple[str, ...], ...]
    after: str = ""  # where the next page begins


@dataclass(frozen=True, slots=True)
class Difference:
    operator: str
    counts: Counts
    table: Table | None


@dataclass(frozen=True, slots=True)
class Differences:
    a: str
    b: str
    operators: tuple[Difference, ...]
    not_keyed: tuple[str, ...]


def routes(console: Console, pages: Pages) -> list[BaseRoute]:
    def browse(request: Request) -> Response:
        watched = console.find(request.path_params["key"])
        look = watched.look()
        asked = request.query_params
        at = asked.get("at", "").strip()[:AT_CHARACTERS_MAX]
        found: dict[str, Any] = {"operators": [], "place": "", "epoch": None, "table": None}
        trouble = None
        try:
            with watched.states.view(at) as view:
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
            points=_points(look),
            **({"info": None, "is_large": False} | found),
        )

    def compare(request: Request) -> Response:
        watched = console.find(request.path_params["key"])
        asked = request.query_params
        a, b = (asked.get(name, "")[:AT_CHARACTERS_MAX] for name in ("a", "b"))
        job = console.jobs.find(_diff_name(watched, a, b)) if a and b else None
        return pages.page(
            "diff.html",
            title=f"Difference of two states of {watched.subject.name}",
            watched=watched,
            tab="state",
            live=False,
            a=a,
            b=b,
            job=job,
            points=_points(watched.look()),
        )

    async def start(request: Request) -> Response:
        watched = console.find(request.path_params["key"])
        form = await read_form(request, console.form_token)
        a, b = (form.get(name, "").strip()[:AT_CHARACTERS_MAX] for name in ("a", "b"))
        if not a or not b:
            raise UsageError("two states are compared: name both")

        def work(report: Report) -> Differences:
            return _compare(watched.subject, a, b, report)

        await run_in_threadpool(
            console.jobs.start, _diff_name(watched, a, b), f"comparing {a} and {b}", work
        )
        return see(address("p", watched.subject.key, "diff", a=a, b=b))

    return [
        Route("/p/{key}/state", browse),
        Route("/p/{key}/diff", compare, methods=["GET"]),
        Route("/p/{key}/diff", start, methods=["POST"]),
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


def _points(look: Look) -> list[tuple[str, str]]:
    """What can be asked for, with words: savepoints, then checkpoints."""
    if look.history is None:
        return []
    pins = look.history.pins
    found = [(name, "savepoint") for name in sorted(pins)]
    newest = newest_first(look.history)[:50]
    return found + [(str(each.epoch), f"checkpoint {each.id}") for each in newest]


def _diff_name(watched: Watched, a: str, b: str) -> str:
    return f"{watched.subject.key}/diff/{a}\0{b}"


def _compare(subject: Subject, a: str, b: str, report: Report) -> Differences:
    """With an archive of its own: what others look at meanwhile does not wait for it."""
    checkpointer = Checkpointer(subject.open_store(), subject.paths, vnode_count=None)
    with open_archive(checkpointer, home=subject.home or None) as archive:
        left, right = archive.view(a), archive.view(b)
        names = sorted({*left.operators, *right.operators})
        return Differences(
            _said(left),
            _said(right),
            tuple(_difference(left, right, name, report) for name in names),
            tuple(sorted({*left.not_keyed, *right.not_keyed})),
        )


def _difference(left: View, right: View, operator: str, report: Report) -> Difference:
    found = diff(left, right, operator, report=report)
    counts = found.counts(report)
    if counts.equal or found.columns is None:
        return Difference(operator, counts, None)
    columns = tuple((f.name, str(f.type), is_number(f.type)) for f in found.schema)
    rows = tuple(row for b in limited(found.batches(), DIFF_ROWS) for row in cells_of(b))
    return Difference(operator, counts, Table(columns, rows))


def _said(view: View) -> str:
    of = f"checkpoint {view.checkpoint}" if view.checkpoint else "the log"
    return f"epoch {view.epoch} ({of}{f' and {len(view.commits)} COMMITs' if view.commits else ''})"

"""What differs between two states: a job reads both, the page shows what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.progress import Report
from lamina.console.answers import read_form, see
from lamina.console.context import Console, Watched
from lamina.console.pages.state import AT_CHARACTERS_MAX, Table, points_of
from lamina.console.render import Pages, address
from lamina.console.subjects import Subject
from lamina.errors import UsageError
from lamina.inspect import Counts, View, diff, open_archive
from lamina.inspect.cells import cells_of, is_number
from lamina.inspect.export import limited

DIFF_ROWS = 50


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
            points=points_of(watched.look()),
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
        Route("/p/{key}/diff", compare, methods=["GET"]),
        Route("/p/{key}/diff", start, methods=["POST"]),
    ]


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

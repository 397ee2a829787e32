"""Recovery and the write-ahead log: how the pipeline started last, how it would start now."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lamina.console.context import Console
from lamina.console.reading.look import Look, Trouble
from lamina.console.render import Pages
from lamina.console.views.glance import glance_of
from lamina.console.views.listing import Pager
from lamina.errors import LaminaError, Unsupported, WalDamaged
from lamina.format.home_names import CoreSegment, parse_segment
from lamina.wal.reader import Clean, Torn
from lamina.wal.survey import Survey

SEGMENTS_PER_PAGE = 100
DAMAGE = frozenset({WalDamaged.code, Unsupported.code})


@dataclass(frozen=True, slots=True)
class SegmentLine:
    path: str
    core: str
    generation: int | None
    records: int
    entries: int
    epochs: str
    size: int
    state: str  # clean, torn, unsupported or damaged
    said: str


def routes(console: Console, pages: Pages) -> list[BaseRoute]:
    def recovery(request: Request) -> Response:
        watched = console.find(request.path_params["key"])
        look = watched.look()
        return pages.page(
            "recovery.html",
            title=f"Recovery of {watched.subject.name}",
            watched=watched,
            tab="recovery",
            live=True,
            look=look,
            glance=glance_of(look),
            last=watched.logs.last_start() if watched.subject.home else None,
            trouble=_plan_trouble(look),
            verify=console.jobs.find(f"{watched.subject.key}/verify"),
        )

    def wal(request: Request) -> Response:
        watched = console.find(request.path_params["key"])
        lines: list[SegmentLine] = []
        home, trouble = "", None
        damage = [t for t in watched.look().troubles if t.code in DAMAGE]
        try:
            home, found = watched.logs.segments()
            lines = [_line(each) for each in found]
        except LaminaError as error:
            trouble = Trouble.of("home", error)
        pager = Pager.of(request.query_params.get("page", "1"), len(lines), SEGMENTS_PER_PAGE)
        start = (pager.page - 1) * SEGMENTS_PER_PAGE
        return pages.page(
            "wal.html",
            title=f"Log of {watched.subject.name}",
            watched=watched,
            tab="wal",
            live=True,
            home=home,
            trouble=trouble,
            damage=[] if trouble is not None else damage,
            bad=[line for line in lines if line.state not in ("clean", "torn")],
            torn=[line for line in lines if line.state == "torn"],
            total=sum(line.size for line in lines),
            lines=lines[start : start + SEGMENTS_PER_PAGE],
            largest=max((line.size for line in lines), default=1),
            pager=pager,
        )

    return [Route("/p/{key}/recovery", recovery), Route("/p/{key}/wal", wal)]


def _plan_trouble(look: Look) -> Trouble | None:
    """Why there is no plan."""
    if look.rehearsal is not None:
        return None
    return next((each for each in look.troubles if each.part in ("plan", "home", "store")), None)


def _line(found: Survey) -> SegmentLine:
    name = parse_segment(found.path)
    state, said = _end(found.end)
    return SegmentLine(
        path=found.path,
        core=str(name.core) if isinstance(name, CoreSegment) else "driver",
        generation=found.header.generation if found.header else None,
        records=found.records,
        entries=found.entries,
        epochs=_epochs(found.epochs),
        size=found.size,
        state=state,
        said=said,
    )


def _end(end: Clean | Torn | LaminaError) -> tuple[str, str]:
    match end:
        case Clean():
            return "clean", ""
        case Torn(at, count, reason):
            return "torn", f"at byte {at:,}: {count:,} bytes, {reason}"
        case Unsupported():
            return "unsupported", f"{end.message} ({end.where})"
    return "damaged", f"{end.message} ({end.where})"


def _epochs(epochs: tuple[int, int] | None) -> str:
    if epochs is None:
        return "—"
    first, last = epochs
    return f"{first:,}" if first == last else f"{first:,} — {last:,}"

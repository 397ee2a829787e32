"""The list of checkpoints, a page of it: each with its place in the lineage. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from lamina.console.drawing.lineage import Link, draw_row, lanes, width_of
from lamina.console.reading.catalog import Facts
from lamina.format.log import Committed
from lamina.ids import CheckpointId
from lamina.protocol.history import History

PER_PAGE = 25


@dataclass(frozen=True, slots=True)
class Pager:
    """Which part of a list is shown; pages count from one."""

    page: int
    pages: int
    total: int

    @classmethod
    def of(cls, asked: str, total: int, per_page: int) -> Pager:
        pages = max(1, -(-total // per_page))
        number = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else 1
        return cls(min(max(number, 1), pages), pages, total)


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    checkpoint: Committed
    facts: Facts
    savepoints: tuple[str, ...]
    is_newest: bool
    is_branch: bool  # not built on the one before it
    lane: Markup

    @property
    def kind(self) -> str:
        return "full" if self.checkpoint.entry.parent is None else "delta"

    @property
    def share(self) -> float:
        """How much of what a restore needs this checkpoint had to upload."""
        total = self.checkpoint.entry.total_size
        return min(self.facts.own_bytes / total, 1.0) if total else 0.0


def newest_first(history: History) -> list[Committed]:
    return sorted(history.checkpoints, key=lambda c: c.seq, reverse=True)


def shown_of(checkpoints: Sequence[Committed], pager: Pager) -> Sequence[Committed]:
    start = (pager.page - 1) * PER_PAGE
    return checkpoints[start : start + PER_PAGE]


def rows_of(
    shown: Sequence[Committed], facts: Mapping[CheckpointId, Facts], history: History
) -> list[CheckpointRow]:
    """Of the part that is shown, newest first."""
    placed = lanes([Link(each.id, each.entry.parent) for each in shown])
    width = width_of(placed)
    before = {each.id: older for each, older in pairwise(shown)}
    newest = history.newest
    rows = []
    for each, row in zip(shown, placed, strict=True):
        is_newest = newest is not None and newest.id == each.id
        error = facts[each.id].error
        kind = "damaged" if error else "newest" if is_newest else "other"
        older = before.get(each.id)
        parent = each.entry.parent
        rows.append(
            CheckpointRow(
                each,
                facts[each.id],
                history.pinned(each.id),
                is_newest,
                is_branch=parent is not None and older is not None and parent != older.id,
                lane=draw_row(row, kind=kind, width=width),
            )
        )
    return rows

"""`lamina diff`: which keys two states of a pipeline do not share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from lamina.cli.state.rows import TABLE_ROWS, first_rows, print_json, print_table
from lamina.cli.state.target import StateTarget, opened, state_target, view_shape, view_text
from lamina.cli.support import shapes
from lamina.cli.support.exits import Exit
from lamina.cli.support.rows import row_shapes
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.target import Target
from lamina.errors import UsageError
from lamina.inspect import Archive, Counts, OperatorDiff, View, diff
from lamina.inspect.diff import ADDED, REMOVED
from lamina.inspect.export import limited

COLUMNS = ("OPERATOR", ">ADDED", ">REMOVED", ">CHANGED", ">SAME")
Compared = list[tuple[OperatorDiff, Counts]]


@click.command("diff")
@state_target
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.argument("operator", metavar="[OPERATOR]", required=False)
@click.option("--with", "other", metavar="STORE", help="Where B is, if not in STORE: a fork, say.")
@click.option(
    "--with-home",
    metavar="PATH|URL",
    help="Write-ahead log of that store; needed for epochs between checkpoints.",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    help="Maximum number of rows per operator (20 for a table).",
)
@json_option
def diff_command(
    *,
    target: StateTarget,
    a: str,
    b: str,
    operator: str | None,
    other: str | None,
    with_home: str | None,
    limit: int | None,
    screen: Screen,
) -> None:
    """Show what differs between two epochs or checkpoints.

    Compares A with B in STORE, for one OPERATOR or for all. A and B are checkpoints (id,
    savepoint, epoch or "latest") or, with --home, epochs that the log still reaches ("head" is the
    last). Exits with 0 if they are equal, with 1 if they differ.
    """
    with opened(target) as archive, _opened_too(target, other, with_home) as second:
        views = archive.view(a), (second or archive).view(b)
        names = [operator] if operator is not None else _operators(*views)
        found: Compared = []
        with screen.progress("comparing") as report:
            for name in names:
                each = diff(*views, name, report=report)
                found.append((each, each.counts(report)))
        equal = all(counts.equal for _, counts in found)
        if screen.as_json:
            place = shapes.place(archive.checkpointer)
            print_json(place | _head(views, found, equal=equal), _json_rows(found, limit))
        else:
            _print(screen, views, found, TABLE_ROWS if limit is None else limit)
    if not equal:
        click.get_current_context().exit(Exit.FINDINGS)


@contextmanager
def _opened_too(
    target: StateTarget, other: str | None, home: str | None
) -> Iterator[Archive | None]:
    """The store that B is in, opened with the same options; None if it is that of A."""
    if other is None:
        if home is not None:
            raise UsageError("--with-home is the log of the store that --with names")
        yield None
        return
    with opened(StateTarget(Target(other, "", target.store.options), home)) as archive:
        yield archive


def _operators(left: View, right: View) -> list[str]:
    return sorted({*left.operators, *right.operators})


def _not_keyed(left: View, right: View) -> list[str]:
    return sorted({*left.not_keyed, *right.not_keyed})


def _head(views: tuple[View, View], found: Compared, *, equal: bool) -> shapes.Shape:
    return {
        "a": view_shape(views[0]),
        "b": view_shape(views[1]),
        "equal": equal,
        "operators": [{"name": each.operator} | _shape(counts) for each, counts in found],
        "not_keyed": _not_keyed(*views),
    }


def _shape(counts: Counts) -> shapes.Shape:
    return {
        "added": counts.added,
        "removed": counts.removed,
        "changed": counts.changed,
        "same": counts.same,
    }


def _json_rows(found: Compared, limit: int | None) -> Iterator[dict[str, Any]]:
    """Each key that differs, with its values before and after; null where it is not there."""
    for each, counts in found:
        if counts.equal or each.columns is None:
            continue
        keys, values = each.columns.key.names, each.columns.value.names
        for batch in limited(each.batches(), limit):
            for change, *cells in row_shapes(batch):
                rest = cells[len(keys) :]
                old, new = (dict(zip(values, rest[at::2], strict=True)) for at in (0, 1))
                yield {
                    "operator": each.operator,
                    "change": change,
                    "key": dict(zip(keys, cells, strict=False)),
                    "old": None if change == ADDED else old,
                    "new": None if change == REMOVED else new,
                }


def _print(screen: Screen, views: tuple[View, View], found: Compared, limit: int) -> None:
    for name, view in zip("AB", views, strict=True):
        screen.line(f"{name}: {view_text(view)}")
    rows = [(each.operator, *map(str, _shape(counts).values())) for each, counts in found]
    if rows:
        screen.table(COLUMNS, rows)
    for name in _not_keyed(*views):
        screen.line(f"{name}: not keyed state, not compared")
    for each, counts in found:
        if counts.equal or not limit:
            continue
        screen.line()
        screen.line(f"{each.operator}:")
        shown, _ = first_rows(limited(each.batches(), limit), limit)
        more = counts.added + counts.removed + counts.changed - len(shown)
        print_table(screen, each.schema, shown, more)

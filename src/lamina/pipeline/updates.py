"""Streams that emit on update: which of their rows may be left out.

A row of such a stream replaces the one before it with the same key. If a condition leaves out the
new one, the old one stays the newest, and nobody learns that it is wrong. A condition over keys
alone is harmless: it says the same of every version of a row.
"""

from __future__ import annotations

from collections.abc import Iterable

from lamina.pipeline.aggregates import has_aggregate
from lamina.pipeline.expressions import Words, is_reference
from lamina.pipeline.keys import Names, read_keys
from lamina.pipeline.model import DeclaredSource, Emit
from lamina.pipeline.nesting import Graph, column_of, has_star, name_of, plain_column
from lamina.pipeline.shapes import Shape
from lamina.pipeline.tokens import Word

ADVICE = (
    "Write EMIT CHANGES: then rows are taken back. A condition over keys alone can stand in a "
    "WHERE; windows that EMIT ON WINDOW CLOSE can have any"
)


def check_over_changes(shape: Shape, changing: str) -> None:
    """A group over changes may lose its last row: its readers must learn of it."""
    select = shape.select
    if shape.stream.emit is Emit.ON_UPDATE and (select.keys or select.ranked is not None):
        raise select.script.bad(
            f"EMIT ON UPDATE over the changes of {changing!r}: a row of which nothing is left "
            "could not be taken back",
            select.table,
            "Write EMIT CHANGES",
        )


def check_every(shape: Shape, sources: Iterable[DeclaredSource]) -> None:
    """Intervals are those of event time, and groups have something to wait."""
    stream, bad = shape.stream, shape.select.script.bad
    if stream.every_us is None:
        return
    if not stream.every_us or stream.emit is Emit.ON_WINDOW_CLOSE:
        advice = "Write EMIT EVERY INTERVAL ..., or EMIT ON WINDOW CLOSE without EVERY"
        raise bad(
            "EMIT EVERY with no interval, or with windows that emit when they close", 0, advice
        )
    if any(key.is_session for key in shape.keys):
        advice = "Write EMIT CHANGES, or EMIT ON WINDOW CLOSE"
        raise bad("EMIT EVERY with sessions: their bounds change meanwhile", 0, advice)
    for source in sources:
        if source.watermark is None:
            raise bad(
                f"EMIT EVERY over {source.name!r}, which has no watermark: its intervals are those "
                "of event time",
                0,
                "Write WATERMARK ... in CREATE SOURCE; for intervals of processing time, on a "
                "column at TIMESTAMP METADATA FROM 'epoch_time'",
            )


def check_window_over_changes(shape: Shape, inner: Shape, at: Word) -> None:
    """Rows of *inner* must not change once a window over them has closed."""
    if inner.stream.emit is Emit.CHANGES and any(key.is_session for key in inner.keys):
        raise shape.select.script.bad(
            f"a window over the changes of sessions, {inner.stream.name!r}: the end of a session "
            "can move on after a window over it has closed",
            at,
            f"Let {inner.stream.name!r} EMIT ON WINDOW CLOSE",
        )
    if inner.stream.emit is Emit.CHANGES and not inner.has_window:
        name = inner.stream.name
        raise shape.select.script.bad(
            f"a window over the changes of {name!r}, which has none: its rows could change after "
            "the window has closed",
            at,
            f"GROUP BY window(time, ...) in {name!r}, and use its window.end here",
        )


def kept_columns(name: str, graph: Graph) -> frozenset[str] | None:
    """Columns of an updating stream, or of one over it, that are keys; None of a source."""
    select = graph.select(name)
    if select is None:
        return None
    named = {name_of(item): item.words for item in select.items}
    if select.keys:
        # In `max(a) AS g ... GROUP BY g` the key is a column of the input, and the item is none.
        own = select.own
        named = {name: words for name, words in named.items() if not has_aggregate(words, own)}
        keys = [key.words for key in read_keys(select, ())]
        return frozenset(each for each, words in named.items() if each and _is_key(words, keys))
    if select.ranked is not None:
        keys = list(select.ranked.partition)
        item = select.ranked.item
        rank = None if item is None else select.items[item].alias
        ranked = {each for each, words in named.items() if each and _is_key(words, keys)}
        plain = {plain_column(select, words) for words in keys} if has_star(select) else set()
        passed = {each for each in plain if each is not None and each not in named}
        return frozenset(ranked | passed | ({rank.lower()} if rank else set()))
    before = kept_columns(graph.inputs(name)[0], graph)
    if before is None:
        return None
    kept = {each for each, words in named.items() if each and column_of(words) in before}
    return frozenset(kept | (before - set(named) if has_star(select) else set()))


def is_over(words: Words, columns: frozenset[str], qualifier: str) -> bool:
    """Whether a condition reads no other columns than these."""
    elements = Names(qualifier, columns).elements(words)
    return all(
        words[each.last].text.lower() in columns
        for each in elements
        if each.first != each.last or is_reference(words, each.first)
    )


def _is_key(words: Words, keys: list[Words]) -> bool:
    """Whether an item is a key as it stands, or the start or end of the window that is one."""
    names = Names("", ())
    mine = [each.normal for each in names.elements(words)]
    if mine[:1] == ["window"] and mine[1:] in ([], [".", "start"], [".", "end"]):
        return True
    return any(mine == [each.normal for each in names.elements(key)] for key in keys)

"""Checks of joins that need no Spark: rows that never change, with a watermark on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lamina.errors import BadPipeline
from lamina.pipeline.model import DeclaredSource, JoinOf, Stream
from lamina.pipeline.python_checks import NO_WATERMARK
from lamina.pipeline.table_joins import over_changes
from lamina.pipeline.tokens import bad_at


def check_join(
    stream: Stream,
    changed: str | None,
    sources_of: Callable[[str], Iterable[DeclaredSource]],
    file: str,
) -> None:
    """*changed* is a stream that it reads whose rows replace others, or are taken back."""
    of = stream.join
    assert of is not None

    if of.is_table:
        if changed is not None:
            raise over_changes(changed, of, file)
        return
    if changed is not None:
        raise rows_replace(changed, of, file)
    for name in (of.left, of.right):
        for source in sources_of(name):
            if source.watermark is None:
                message = f"a join over {source.name!r}, which has no watermark"
                said = f"{message}: its rows would be kept for ever"
                raise bad_at(said, file, of.on_place, NO_WATERMARK)


def rows_replace(name: str, of: JoinOf, file: str) -> BadPipeline:
    return bad_at(
        f"a join over {name!r}, whose rows replace others: what came out of the old ones would "
        "stay",
        file,
        of.on_place,
        "Join rows that never change: a stream with EMIT ON WINDOW CLOSE, or without groups",
    )

"""Checks of joins that need no Spark: what each side keeps must be able to go again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lamina.errors import BadPipeline
from lamina.pipeline.expressions import Words
from lamina.pipeline.model import DeclaredSource, JoinOf, Stream
from lamina.pipeline.python_checks import NO_WATERMARK
from lamina.pipeline.table_joins import over_changes
from lamina.pipeline.tokens import Script, bad_at


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is known of the inputs of a join; a table is none."""

    updating: str | None  # a stream that one of them reads, or is, whose rows replace others
    changing: Sequence[str | None]  # for each what it reads, or is, whose rows are taken back
    sources: Callable[[str], Iterable[DeclaredSource]]


def check_join(stream: Stream, inputs: Inputs, file: str) -> None:
    """BadPipeline at a side whose rows could not be kept, or that would be kept for ever."""
    of = stream.join
    assert of is not None
    changed = next((each for each in inputs.changing if each is not None), inputs.updating)
    if of.is_table:
        if changed is not None:
            raise over_changes(changed, of, file)
        return
    if inputs.updating is not None:
        raise rows_replace(inputs.updating, of, file)
    if changed is not None:
        left, right = (each is not None for each in inputs.changing)
        check_sides(of, (left, right), file)
        return
    for name in (of.left, of.right):
        for source in inputs.sources(name):
            if source.watermark is None:
                message = f"a join over {source.name!r}, which has no watermark"
                said = f"{message}: its rows would be kept for ever"
                raise bad_at(said, file, of.on_place, NO_WATERMARK)


def check_sides(of: JoinOf, changing: tuple[bool, bool], file: str) -> None:
    """Of a join over changes: rows of both sides go when they are taken back."""
    if of.asof is not None:
        raise _no_versions(of.left if changing[0] else of.right, of, file)
    if all(changing):
        return
    grows, changes = (of.right, of.left) if changing[0] else (of.left, of.right)
    if of.is_value:
        raise _value_changes(grows, of, file)
    raise bad_at(
        f"a join over {grows!r}, whose rows are never taken back, with the changes of {changes!r}: "
        "they would be kept for ever",
        file,
        of.on_place,
        "Keep one row of each key, as changes: GROUP BY key EMIT CHANGES, or QUALIFY row_number() "
        "OVER (PARTITION BY key ORDER BY time DESC) = 1 EMIT CHANGES",
    )


def _value_changes(name: str, of: JoinOf, file: str) -> BadPipeline:
    """A query inside an expression, of which one side is never complete."""
    what = "its value changes with the rows that come" if name == of.left else "its rows only grow"
    return bad_at(
        f"a query inside an expression over {name!r}: {what}, and a row that has come out with "
        "another value is not taken back",
        file,
        of.on_place,
        "Compare rows of closed windows with a query over closed windows, WHERE inner.window_end = "
        "outer.window_end, EMIT ON WINDOW CLOSE; or let both be changes: groups in FROM and in the "
        "query, EMIT CHANGES. Over a CREATE TABLE any query will do",
    )


def _no_versions(name: str, of: JoinOf, file: str) -> BadPipeline:
    return bad_at(
        f"an ASOF or temporal join over {name!r}, whose rows are replaced or taken back: that has "
        "no event time of its own, and of several versions in an epoch only the last is there",
        file,
        of.on_place,
        "Let versions be rows that are only added, each with its time: a source of events, or a "
        "stream with EMIT ON WINDOW CLOSE, by its window.end",
    )


def rows_replace(name: str, of: JoinOf, file: str) -> BadPipeline:
    if of.asof is not None:
        return _no_versions(name, of, file)
    return bad_at(
        f"a join over {name!r}, whose rows replace others: what came out of the old ones would "
        "stay",
        file,
        of.on_place,
        f"Let {name!r} EMIT CHANGES, then its old rows are taken back; or EMIT ON WINDOW CLOSE",
    )


def check_window_over_asof(
    script: Script, time: Words, streams: Mapping[str, Stream], name: str
) -> None:
    """BadPipeline if a window goes by the time of versions: they may be as old as they like."""
    while (stream := streams.get(name)) is not None and stream.join is not None:
        of = stream.join
        if of.asof is not None and time[0].text.lower() == of.right_alias.lower():
            raise script.bad(
                f"a window over {script.slice(time)}, the time of the right side of an ASOF JOIN: "
                "it may be before every window that is open",
                time[0],
                "Use the event time of the left side",
            )
        name = of.left

"""Checks of joins that need no Spark: what each side keeps must be able to go again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lamina.errors import BadPipeline
from lamina.pipeline.expressions import Words
from lamina.pipeline.model import PROCTIME, DeclaredSource, JoinOf, Stream
from lamina.pipeline.python_checks import NO_WATERMARK
from lamina.pipeline.table_joins import over_changes
from lamina.pipeline.tokens import Script, bad_at


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is known of the inputs of a join; a table is none."""

    updating: str | None  # a stream that one of them reads, or is, whose rows replace others
    changing: Sequence[str | None]  # for each what it reads, or is, whose rows are taken back
    sources: Callable[[str], Iterable[DeclaredSource]]
    of_changes: Collection[str] = ()  # sources whose rows are changes


def check_join(stream: Stream, inputs: Inputs, file: str) -> bool:
    """Whether it looks rows up in the right side, as that is now.

    BadPipeline at a side whose rows could not be kept, or that would be kept for ever.
    """
    of = stream.join
    assert of is not None
    changed = next((each for each in inputs.changing if each is not None), inputs.updating)
    if of.is_table:
        if changed is not None:
            begins = any(each.name in inputs.of_changes for each in inputs.sources(of.left))
            raise over_changes(changed, of, file, is_of_source=begins)
        return False
    if inputs.updating is not None:
        raise rows_replace(inputs.updating, of, file)
    left, right = (each is not None for each in inputs.changing)
    if looks_up(of, (left, right)):
        return True
    if changed is not None:
        check_sides(of, (left, right), file)
        return False
    if of.asof is not None and of.asof.as_of == PROCTIME:
        raise _only_added(of, file)
    for name in (of.left, of.right):
        for source in inputs.sources(name):
            if source.watermark is None:
                message = f"a join over {source.name!r}, which has no watermark"
                said = f"{message}: its rows would be kept for ever"
                raise bad_at(said, file, of.on_place, NO_WATERMARK)
    return False


def looks_up(of: JoinOf, changing: tuple[bool, bool]) -> bool:
    """Whether rows of the left side, which stay, meet those that the right side has now."""
    return of.asof is not None and bool(of.asof.as_of) and changing == (False, True)


def check_sides(of: JoinOf, changing: tuple[bool, bool], file: str) -> None:
    """Of a join over changes: rows of both sides go when they are taken back."""
    if of.asof is not None:
        raise _of_changes(of, file) if changing[0] else no_versions(of.right, of, file)
    if all(changing):
        return
    grows, changes = (of.right, of.left) if changing[0] else (of.left, of.right)
    if of.is_value:
        raise _value_changes(grows, of, file)
    begin = f"FROM {grows} JOIN {changes} {_IN_EPOCH} ON ..."
    raise bad_at(
        f"a join over {grows!r}, whose rows are never taken back, with the changes of {changes!r}: "
        "they would be kept for ever",
        file,
        of.on_place,
        f"Write {begin}: each row of {grows!r} meets the rows that {changes!r} has in its epoch, "
        "once. Or keep one row of each key, as changes: GROUP BY key EMIT CHANGES, or QUALIFY "
        "row_number() OVER (PARTITION BY key ORDER BY time DESC) = 1 EMIT CHANGES",
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


_IN_EPOCH = f"FOR SYSTEM_TIME AS OF {PROCTIME}"
_ADDED = (
    "For versions by event time let them be rows that are only added, each with its time: a source "
    "of events, or a stream with EMIT ON WINDOW CLOSE, by its window.end"
)


def no_versions(name: str, of: JoinOf, file: str) -> BadPipeline:
    """The error for rows that are taken back or replaced, as versions by event time."""
    return bad_at(
        f"an ASOF or temporal join over {name!r}, whose rows are replaced or taken back: that has "
        "no event time of its own, and of several versions in an epoch only the last is there",
        file,
        of.on_place if of.asof is None else of.asof.place,
        f"Write {_IN_EPOCH}: each row of the left side meets the rows that {name!r} has in its "
        f"epoch; these must be changes (EMIT CHANGES). {_ADDED}",
    )


def _of_changes(of: JoinOf, file: str) -> BadPipeline:
    return bad_at(
        f"an ASOF or temporal join of {of.left!r}, whose rows are replaced or taken back: what "
        "came out would have to be taken back as it was, and the right side has changed since",
        file,
        of.on_place,
        "If both sides are changes, write JOIN or LEFT JOIN: what came out is put right then",
    )


def _only_added(of: JoinOf, file: str) -> BadPipeline:
    return bad_at(
        f"{_IN_EPOCH} with {of.right!r}, whose rows are never taken back: which of them are there "
        "now is not known",
        file,
        of.on_place if of.asof is None else of.asof.place,
        "Name the event time of the left side, FOR SYSTEM_TIME AS OF x.ts, for the newest row at "
        "that time. Or keep one row of each key, as changes: QUALIFY row_number() OVER (PARTITION "
        "BY key ORDER BY time DESC) = 1 EMIT CHANGES",
    )


def rows_replace(name: str, of: JoinOf, file: str) -> BadPipeline:
    if of.asof is not None:
        return no_versions(name, of, file)
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

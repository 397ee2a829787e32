"""Joins with tables of the pipeline: the stream is kept, the table is looked up.

FROM stream [LEFT | LEFT SEMI | LEFT ANTI] JOIN table ON any condition

Such a join keeps nothing: each row meets the version of the table that its epoch has chosen. So it
needs no bounds of time, and is a part of the SELECT that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from lamina.errors import BadPipeline
from lamina.pipeline.joins import JoinClause
from lamina.pipeline.model import DeclaredTable, JoinKind, JoinOf, Pipeline
from lamina.pipeline.select import Select
from lamina.pipeline.source_checks import check_columns
from lamina.pipeline.tokens import bad_at, did_you_mean

Bad = Callable[[str, DeclaredTable, str], BadPipeline]
"""The error that says this of a table, with its place and this advice."""


def with_table(of: JoinOf, clause: JoinClause, select: Select, tables: Collection[str]) -> JoinOf:
    """The join as one with a table, if its right side is one; *tables* are in lower case."""
    script = select.script
    if of.left.lower() in tables:
        raise script.bad(
            f"FROM begins with the table {of.left!r}",
            select.first.word if select.first else None,
            f"Write the stream first, as FROM stream JOIN {of.left} ON ...",
        )
    if of.right.lower() not in tables:
        return of
    if of.kind in (JoinKind.RIGHT, JoinKind.FULL):
        raise script.bad(
            f"{of.kind} JOIN with the table {of.right!r}: whether a row of it has no partner is "
            "never known, because a stream has no end",
            clause.words[0],
            "The stream is the side that is kept: write JOIN or LEFT JOIN",
        )
    if of.asof is not None:
        raise script.bad(
            f"the table {of.right!r} in an ASOF or temporal join: an epoch has one version of it",
            clause.words[0],
            "Write JOIN or LEFT JOIN for that version. Versions with a time are a source",
        )
    return replace(of, is_table=True, where="")


def check_ttl(select: Select, tables: Collection[str], *, has_values: bool) -> None:
    """STATE TTL is about rows that a join keeps; queries over streams that are values are joins."""
    if has_values or select.state_ttl_us is None:
        return
    if all(name.lower() in tables for name in select.reads[1:]):
        message = "STATE TTL, but a join with a table keeps no rows"
        words = select.joins[-1].words if select.joins else select.script.words
        raise select.script.bad(message, words[-1], "Leave it out")


def check_tables(pipeline: Pipeline, bad: Bad) -> None:
    """BadPipeline at a column that cannot be one."""
    for table in pipeline.tables.values():
        check_columns(table, bad)
        for column in table.columns:
            if column.metadata:
                message = f"the column {column.name!r} of {table.name!r} is METADATA FROM"
                raise bad(message, table, "Rows of a table have no metadata: leave it out")


def check_tables_are_read(pipeline: Pipeline, bad: Bad) -> None:
    """A table that nothing reads would be copied for nobody."""
    joins = (stream.join for stream in pipeline.streams.values() if stream.join is not None)
    read = {each.right.lower() for each in joins if each.is_table}
    for stream in pipeline.streams.values():
        read.update(stream.values.tables if stream.values is not None else ())
    for table in pipeline.tables.values():
        if table.name.lower() not in read:
            message = f"nothing reads the table {table.name!r}"
            raise bad(message, table, "Leave it out, or join a stream with it")


def unknown_input(
    name: str, select: Select, known: Iterable[str], tables: Iterable[str]
) -> Exception:
    """The error for a name in FROM that is no source and no stream."""
    if name.lower() in (each.lower() for each in tables):
        return select.script.bad(
            f"{name!r} is a table, and a stream reads a source or another stream",
            select.table,
            f"Join it to a stream: FROM stream JOIN {name} ON ...",
        )
    message = f"there is no source or stream {name!r}"
    return select.script.bad(message, select.table, did_you_mean(name, known))


def over_changes(name: str, of: JoinOf, file: str, *, is_of_source: bool) -> BadPipeline:
    """The error for rows that are taken back or replaced; in a source, or in a stream over rows
    that stay."""
    return bad_at(
        f"a join of the table {of.right!r} with {name!r}, whose rows are taken back or replaced: "
        "the table may have changed since, and then another row would be taken back than came out",
        file,
        of.on_place,
        _FROM_A_SOURCE.format(of.right) if is_of_source else _FROM_A_STREAM.format(name),
    )


_FROM_A_STREAM = (
    "Join the table before the aggregate, in what {0!r} reads, or let {0!r} EMIT ON WINDOW CLOSE"
)
_FROM_A_SOURCE = (
    "Read {!r} as changes, too: a CREATE SOURCE USING postgres_cdc or mysql_cdc, or Debezium. A "
    "join of changes with changes puts right what came out. Or write the changes to a database by "
    "their key, and let a view there join them with the table"
)

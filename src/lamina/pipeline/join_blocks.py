"""The blocks that the joins of a SELECT are, and the SELECT over the last of them."""

from __future__ import annotations

from lamina.pipeline.asof_clauses import calls_proctime
from lamina.pipeline.expressions import Words, sign
from lamina.pipeline.joins import JoinClause
from lamina.pipeline.model import PROCTIME, AsofOf, JoinKind, JoinOf
from lamina.pipeline.select import Select, quoted
from lamina.pipeline.tokens import Script

_NAMED = "Name the columns, or write x.* for all columns of one table"


def join_of(select: Select, clause: JoinClause, left: str, right: str, *, script: Script) -> JoinOf:
    """One join of a SELECT, of what is *left* of it and a table; *script* has its subqueries."""
    assert select.first is not None
    is_first = clause is next(iter(select.joins), clause)
    later = select.joins[select.joins.index(clause) + 1 :] if clause in select.joins else ()
    # A row that WHERE leaves out may be the partner of one that comes out without it: not sooner.
    has_where = clause.kind is JoinKind.INNER and not any(each.kind.judges_right for each in later)
    has_where &= not clause.asof.is_asof  # it may leave out the version that a row has
    where = select.where if has_where else ()
    return JoinOf(
        clause.kind,
        left,
        right,
        select.first.alias if is_first else "",
        clause.table.alias,
        script.slice(clause.on),
        script.place(clause.on[0].start if clause.on else clause.words[0].start),
        clause.using,
        select.script.slice(where),
        script.place(where[0].start if where else 0),
        select.state_ttl_us,
        tuple(sorted({word.text.lower() for word in script.words if word.is_name})),
        tuple(sorted(whole_tables(select))),
        clause.values,
        clause.is_inner,
        _asof_of(script, clause),
        is_value=clause.is_value,
    )


def _asof_of(script: Script, clause: JoinClause) -> AsofOf | None:
    if not clause.asof.is_asof:
        return None
    match, as_of = clause.asof.match, clause.asof.as_of
    place = script.place((match or as_of or clause.on or clause.words)[0].start)
    return AsofOf(
        script.slice(match),
        PROCTIME if calls_proctime(as_of) else script.slice(as_of),
        place,
    )


def whole_tables(select: Select) -> set[str]:
    """Tables that the SELECT takes all columns of: with a `*`, or as a value."""
    assert select.first is not None
    words = select.script.words
    aliases = {each.alias.lower() for each in (select.first, *(c.table for c in select.joins))}
    if any(_star(item.words) is not None for item in select.items):
        return aliases
    tables = range(select.table.start, select.table.end)
    found: set[str] = set()
    for index, word in enumerate(words):
        name, follows = word.text.lower(), sign(words, index + 1)
        if name in aliases and word.start not in tables and sign(words, index - 1) != ".":
            is_all = follows != "." or sign(words, index + 2) == "*"
            found |= {name} if is_all else set()
    return found


def text_over_join(select: Select) -> str:
    """The SELECT over the joined rows, which have a column for each table: `*` is all of them."""
    script = select.script
    assert select.first is not None
    others = (clause.table.alias for clause in select.joins if clause.kind.has_pairs)
    aliases = [select.first.alias, *others]
    every = ", ".join(f"{quoted(alias)}.*" for alias in aliases)
    text, end = "", 0
    for item in select.items:
        star = _star(item.words)
        if star is None:
            continue
        at = item.words[star]
        if len(item.words) > 1 or any(clause.using for clause in select.joins):
            raise script.bad("* over a join", at, _NAMED)
        text += script.text[end : at.start] + every
        end = at.end
    return text + script.text[end : select.end]


def _star(words: Words) -> int | None:
    """Where a `*` stands for all columns; that of x.* and of count(*) does not."""
    for index, word in enumerate(words):
        before, after = sign(words, index - 1), sign(words, index + 1)
        if word.upper != "*" or before == ".":
            continue
        if index and (before not in ("(", ",") or after not in (")", ",")):
            continue  # a product
        if before == "(" and sign(words, index - 2) == "COUNT":
            continue
        return index
    return None

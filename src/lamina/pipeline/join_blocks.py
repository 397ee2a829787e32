"""The blocks that the joins of a SELECT are, and the SELECT over the last of them."""

from __future__ import annotations

from lamina.pipeline.expressions import Words, sign
from lamina.pipeline.joins import JoinClause
from lamina.pipeline.model import JoinKind, JoinOf
from lamina.pipeline.select import Select, quoted

_NAMED = "Name the columns, or write x.* for all columns of one table"


def join_of(select: Select, clause: JoinClause, left: str, right: str) -> JoinOf:
    """One join of a SELECT, of what is *left* of it and a table."""
    script = select.script
    assert select.first is not None
    is_first = clause is select.joins[0]
    where = select.where if clause.kind is JoinKind.INNER else ()
    return JoinOf(
        clause.kind,
        left,
        right,
        select.first.alias if is_first else "",
        clause.table.alias,
        script.slice(clause.on),
        script.place(clause.on[0].start if clause.on else clause.words[0].start),
        clause.using,
        script.slice(where),
        script.place(where[0].start if where else 0),
        select.state_ttl_us,
    )


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

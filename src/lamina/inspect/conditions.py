"""Rows by a condition in SQL: `symbol = 'A' AND sum(volume) > 100`.

Columns are called as state shows them, so `sum(volume)` is a column and not a call. What is written
must be comparisons of columns with values: nothing is computed of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from lamina.errors import UsageError
from lamina.inspect.where import parse_value

ADVICE = (
    "Compare columns with values, for example: symbol = 'A' AND sum(volume) > 100; also IN, "
    "BETWEEN, IS NULL, NOT, OR and parentheses. A name can be put in `backquotes`"
)
Node: TypeAlias = Any  # a node of sqlglot's, whose types change with its releases
_COMPARE: dict[type[Any], Callable[[pc.Expression, pc.Expression], pc.Expression]] = {
    exp.EQ: lambda a, b: a == b,
    exp.NEQ: lambda a, b: a != b,
    exp.GT: lambda a, b: a > b,
    exp.GTE: lambda a, b: a >= b,
    exp.LT: lambda a, b: a < b,
    exp.LTE: lambda a, b: a <= b,
}
_MIRRORED: dict[type[Any], type[Any]] = {
    exp.GT: exp.LT,
    exp.LT: exp.GT,
    exp.GTE: exp.LTE,
    exp.LTE: exp.GTE,
}


def parse_condition(row: pa.Schema, text: str) -> pc.Expression:
    """What *text* says of the columns of *row*; UsageError names what cannot be understood."""
    try:
        parsed = parse_one(text, dialect="spark")
    except (SqlglotError, RecursionError) as error:
        line = str(error).splitlines()[0][:200]
        raise UsageError(f"this condition is not SQL: {line}", advice=ADVICE) from None
    return _Reader(row).condition(parsed)


class _Reader:
    def __init__(self, row: pa.Schema) -> None:
        self._fields = {_normal(field.name): field for field in row}

    def condition(self, node: Node) -> pc.Expression:
        match node:
            case exp.Paren():
                found = self.condition(node.this)
            case exp.And():
                found = self.condition(node.left) & self.condition(node.right)
            case exp.Or():
                found = self.condition(node.left) | self.condition(node.right)
            case exp.Not():
                found = ~self.condition(node.this)
            case _:
                found = self._predicate(node)
        return found

    def _predicate(self, node: Node) -> pc.Expression:
        match node:
            case exp.Is() if isinstance(node.expression, exp.Null):
                return pc.field(self._field(node.this).name).is_null()
            case exp.In() if node.expressions:
                field = self._field(node.this)
                return _any(pc.field(field.name) == _value(field, v) for v in node.expressions)
            case exp.Between():
                field = self._field(node.this)
                low, high = (_value(field, node.args[end]) for end in ("low", "high"))
                return (pc.field(field.name) >= low) & (pc.field(field.name) <= high)
            case _ if type(node) in _COMPARE:
                return self._comparison(node)
        raise _unknown(node)

    def _comparison(self, node: Node) -> pc.Expression:
        left, right = node.this, node.expression
        kind: type[Any] = type(node)
        if self._found(left) is None and self._found(right) is not None:
            kind, left, right = _MIRRORED.get(kind, kind), right, left
        field = self._field(left)
        other = self._found(right)
        value = pc.field(other.name) if other is not None else _value(field, right)
        return _COMPARE[kind](pc.field(field.name), value)

    def _found(self, node: Node) -> pa.Field | None:
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier):
            by_name = self._fields.get(node.this.name.casefold())
            if by_name is not None and not node.table:
                return by_name
        return self._fields.get(_text(node))

    def _field(self, node: Node) -> pa.Field:
        found = self._found(node.unnest())
        if found is None:
            columns = ", ".join(field.name for field in self._fields.values())
            raise UsageError(
                f"{node.sql('spark')[:80]!r} is not a column of this state",
                advice=f"Its columns: {columns}",
            )
        return found


def _any(parts: Any) -> pc.Expression:
    return reduce(lambda a, b: a | b, parts)


def _value(field: pa.Field, node: Node) -> pa.Scalar:
    """A literal as the column has it."""
    node = node.unnest()
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):  # TIMESTAMP '...'
        node = node.this
    match node:
        case exp.Literal():
            return parse_value(field, node.name)
        case exp.Neg() if isinstance(node.this, exp.Literal):
            return parse_value(field, f"-{node.this.name}")
        case exp.Boolean():
            return parse_value(field, str(node.this).lower())
    raise _unknown(node)


def _unknown(node: Node) -> UsageError:
    return UsageError(f"cannot filter by {node.sql('spark')[:80]!r}", advice=ADVICE)


def _normal(name: str) -> str:
    """A column's name as `_text` has it, however it is spaced or spelled."""
    try:
        return _text(parse_one(name, dialect="spark"))
    except (SqlglotError, RecursionError):
        return name.casefold()


def _text(node: Node) -> str:
    text: str = node.sql("spark")
    return text.replace("`", "").casefold()

"""The order of ranked rows as fields of a struct, which is sorted in one direction.

Rows of a key are kept as one sorted list of structs, and structs are compared field by field, all
in the direction of the first. A field that goes the other way is turned into one whose order is the
opposite; where nulls do not stand where this direction puts them, a field before it says so.
"""

from __future__ import annotations

from collections.abc import Callable

from lamina.pipeline.ranks import Ordered, Ranked
from lamina.pipeline.select import Select

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_HEX = "concat(translate(hex({0}), '0123456789ABCDEF', 'FEDCBA9876543210'), 'G')"
"""A text that is longer stands behind one that it begins with, so 'G' turns that around, too."""
_FLOAT = (
    "named_struct('number', NOT isnan({0}), 'value', CASE WHEN isnan({0}) THEN 0D"
    " ELSE -CAST({0} AS DOUBLE) END)"
)
_TURNED = {
    **dict.fromkeys(_WHOLE, "~({0})"),
    "boolean": "NOT ({0})",
    "date": "~unix_date({0})",
    "timestamp": "~unix_micros({0})",
    "timestamp_ntz": "~unix_micros(CAST({0} AS TIMESTAMP))",
    "string": _HEX,
    "binary": _HEX,
    "float": _FLOAT,
    "double": _FLOAT,
}


def order_fields(ranked: Ranked, select: Select, type_of: Callable[[str], str]) -> list[str]:
    """Names and expressions of the fields that rows are sorted by."""
    fields: list[str] = []
    for number, each in enumerate(ranked.order):
        text = select.text(each.words)
        is_turned = each.descending != ranked.descending
        if is_turned or each.nulls_first == ranked.descending:
            null = "IS NULL" if each.nulls_first == ranked.descending else "IS NOT NULL"
            fields.append(f"'n{number}', ({text}) {null}")
        if is_turned:
            text = _turned(each, select, text, type_of(text))
        fields.append(f"'o{number}', {text}")
    return fields


def _turned(each: Ordered, select: Select, text: str, kind: str) -> str:
    """An expression whose order is the opposite of that of *text*."""
    turned = "-({0})" if kind.startswith("decimal") else _TURNED.get(kind)
    if turned is None:
        raise select.script.bad(
            f"row_number() with ASC and DESC in one ORDER BY, over {kind}",
            each.words[0],
            "Order by numbers, texts and times, or by all in one direction",
        )
    return turned.format(text)


def said_order(ranked: Ranked, spelled: Callable[..., str]) -> str:
    """The order in one spelling; plain where all go in one direction, with nulls as usual."""
    if all(each.is_usual and each.descending == ranked.descending for each in ranked.order):
        by = ", ".join(spelled(each.words) for each in ranked.order)
        return f"by {by}{' desc' if ranked.descending else ''}"
    return f"by {', '.join(f'{spelled(each.words)} {each.said}' for each in ranked.order)}"

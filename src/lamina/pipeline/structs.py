"""Names that Spark gives to the fields of a struct, by the words that stand for them.

struct(a, t.b, sum(x), max(y) AS z)      the fields a, b, col3 and z
(a, sum(x))                              the fields a and col2

Where an expression is replaced by a column of the state, the field would get the name of that one.
"""

from __future__ import annotations

from lamina.pipeline.expressions import Words, closing, is_call, sign


def field_of(words: Words, first: int, last: int) -> str | None:
    """The name of the field that words[first..last] are; None if they are not all of a field."""
    if sign(words, first - 1) not in ("(", ",") or sign(words, last + 1) not in (",", ")"):
        return None
    depth = words[first - 1].depth if sign(words, first - 1) == "(" else words[first].depth - 1
    opened = next(
        i for i in reversed(range(first)) if words[i].depth == depth and words[i].upper == "("
    )
    commas = [
        i
        for i in range(opened + 1, closing(words, opened))
        if words[i].upper == "," and words[i].depth == words[first].depth
    ]
    is_struct = is_call(words, opened) and sign(words, opened - 1) == "STRUCT"
    is_row = not is_call(words, opened) and sign(words, opened - 1) != "IN" and bool(commas)
    if not is_struct and not is_row:
        return None
    path = words[first : last + 1]
    if len(path) % 2 and all(
        word.upper == "." if i % 2 else word.is_name for i, word in enumerate(path)
    ):
        return path[-1].text
    return f"col{1 + sum(i < first for i in commas)}"

"""Which columns tell the rows of a join apart, if it is known which do so on each side."""

from __future__ import annotations

from collections.abc import Collection

from lamina.pipeline.model import JoinKind

Columns = tuple[str, ...]
"""Each as `alias.column`."""


def keys_of_join(
    kind: JoinKind,
    keys: tuple[Columns | None, Columns | None],
    equal: tuple[Collection[str], Collection[str]],
) -> Columns | None:
    """*keys* tell the rows of each side apart, *equal* are the columns of its join keys.

    None: it is not known. If the join keys tell the rows of a side apart, a row of the other side
    has one partner at most. A FULL join may have a row of each side of which these are all null.
    """
    left, right = keys
    if not kind.has_pairs:
        return left
    if kind is JoinKind.FULL:
        return None
    if left is not None and kind is not JoinKind.RIGHT and _are_in(right, equal[1]):
        return left
    if right is not None and kind is not JoinKind.LEFT and _are_in(left, equal[0]):
        return right
    return None if left is None or right is None else (*left, *right)


def _are_in(keys: Columns | None, columns: Collection[str]) -> bool:
    known = {column.lower() for column in columns}
    return keys is not None and all(key.lower() in known for key in keys)

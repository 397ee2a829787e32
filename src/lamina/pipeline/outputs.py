"""Outputs of an aggregation that are columns of its state, as they stand."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_PLAIN = re.compile(r"\(*\s*([kp]\d+)(?:\.(start|end))?\s*\)*", re.IGNORECASE)


def key_choices(
    outputs: Sequence[str], names: Sequence[str], keys: int, *, by_end: bool
) -> tuple[frozenset[str], ...] | None:
    """Outputs that are keys; of a window its start or its end says which one it is.

    *by_end*: of those that cumulate, and of sessions, only the end does: they may begin alike.
    """
    found: list[set[str]] = [set() for _ in range(keys)]
    for text, name in zip(outputs, names, strict=True):
        plain = _PLAIN.fullmatch(text)
        if plain is None or (by_end and (plain[2] or "").lower() == "start"):
            continue
        if plain[1].lower().startswith("k"):
            found[int(plain[1][1:])].add(name)
    return tuple(map(frozenset, found)) if all(found) else None


def key_outputs(
    choices: tuple[frozenset[str], ...] | None, names: Sequence[str]
) -> tuple[str, ...] | None:
    """All outputs that say a key."""
    if choices is None:
        return None
    return tuple(name for name in names if any(name in choice for choice in choices))


def plain_columns(outputs: Sequence[str], known: Collection[str]) -> tuple[str, ...] | None:
    """Outputs that are columns of the state, by their names there; None if one is more."""
    found = [_PLAIN.fullmatch(text) for text in outputs]
    names = ["_".join(filter(None, each.groups())).lower() if each else "" for each in found]
    return tuple(names) if set(known).issuperset(names) else None

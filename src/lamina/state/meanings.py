"""What the columns of keyed state hold, in the words of the SELECT that computes them.

In runs the columns of a pipeline's state are called k0, p0 and so on. Their meanings are what
people see instead, and what tells one column from another after the SELECT has changed: `symbol`,
`sum(price * volume)`, `window(ts, '1 minute').end`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from lamina.errors import StateChanged
from lamina.state.schema import StateSchema

_WINDOW = re.compile(r"((?:session_)?window\(.*\))\.(start|end)", re.DOTALL)
_BEGIN = "Otherwise give the stream another name: it starts empty, and the old state is kept aside"


def for_people(schema: StateSchema) -> StateSchema:
    """The same columns as people call them; as they are, if nobody has said what they hold."""
    if not schema.meanings:
        return schema
    names = names_for_people(schema.row.names, schema.meanings)
    called = dict(zip(schema.row.names, names, strict=True))
    return replace(
        renamed(schema, called),
        time=None if schema.time is None else called[schema.time],
        key=pa.schema([field.with_name(called[field.name]) for field in schema.key]),
        meanings=(),
    )


def names_for_people(names: Sequence[str], meanings: Sequence[str]) -> list[str]:
    """What to call columns: what they hold, `window_start` for short; never one name twice."""
    called: list[str] = []
    for name, meaning in zip(names, meanings or names, strict=True):
        window = _WINDOW.fullmatch(meaning)
        short = f"window_{window[2]}" if window else meaning
        called.append(next(each for each in (short, meaning, name) if each not in called))
    return called


def as_stored(stored: StateSchema, today: StateSchema, what: str, *, reuse: bool) -> StateSchema:
    """Today's columns under the names that they have in *stored*.

    By one and the same definition they are in the same places. With another one meanings tell which
    column is which; what has none can only go on if no person wants to *reuse* it.
    """
    if None in (stored.definition, today.definition):
        return today
    if stored.definition != today.definition:
        can_tell = today.meanings and (reuse or stored.meanings)
        return _by_meaning(stored, today, what) if can_tell else today
    if len(stored.value) != len(today.value):
        return today
    return renamed(today, dict(zip(today.value.names, stored.value.names, strict=True)))


def _by_meaning(stored: StateSchema, today: StateSchema, what: str) -> StateSchema:
    """StateChanged, with the names, if meanings leave anything open."""
    if not stored.meanings:
        raise StateChanged(
            f"{what}: its SELECT has changed, and its state does not say what its columns hold",
            advice=f"Run the old SELECT once with this release, which records it. {_BEGIN}",
        )
    _check_keys(stored, today, what)
    before, now = _parts(stored), _parts(today)
    found = {part: before[part] for part in now if part in before}
    lost = [part for part in before if part not in now]
    new = [part for part in now if part not in before]
    if len(lost) == len(new) == 1 and lost[0][0] == new[0][0]:
        found[new[0]] = before[lost[0]]  # the one that the person speaks of
    elif lost:
        raise StateChanged(
            f"{what}: its state has {_listed(lost)}, and the SELECT has {_listed(new) or 'not'}: "
            "it is unclear which is which",
            advice="Change one aggregate at a time, or select a new expression under the old name "
            f"in a stream before this one. {_BEGIN}",
        )
    called = {
        mine: theirs
        for part, names in found.items()
        for mine, theirs in zip(now[part], names, strict=True)
    }
    free = iter(name for name in today.value.names if name not in stored.value.names)
    for name in today.value.names:
        if name not in called:
            called[name] = next(free)
    return renamed(today, called)


def check_meanings_kept(stored: StateSchema, today: StateSchema, what: str) -> None:
    """Of a step that knows its columns by their names: each holds what it held."""
    if not stored.meanings or not today.meanings:
        return
    for name in stored.row.names:
        if name in today.row.names and stored.called(name) != today.called(name):
            raise StateChanged(
                f"{what}: its state has {stored.called(name)} where the SELECT has "
                f"{today.called(name)}",
                advice=f"Write keys and aggregates in the order they had. {_BEGIN}",
            )


def renamed(schema: StateSchema, called: dict[str, str]) -> StateSchema:
    """The same value columns under other names."""
    return replace(
        schema,
        value=pa.schema([field.with_name(called[field.name]) for field in schema.value]),
        merges=tuple(
            replace(merge, columns=tuple(called[each] for each in merge.columns))
            for merge in schema.merges
        ),
    )


_Part = tuple[str, tuple[str, ...]]
"""Values that are merged together: the function, and what they hold."""


def _parts(schema: StateSchema) -> dict[_Part, tuple[str, ...]]:
    """The value columns, by what is kept in them."""
    meaning = dict(zip(schema.row.names, schema.meanings, strict=True))
    return {
        (merge.function, tuple(meaning[each] for each in merge.columns)): merge.columns
        for merge in schema.merges
    }


def _check_keys(stored: StateSchema, today: StateSchema, what: str) -> None:
    """Keys stay in their order, which their hash depends on; one of them may be rewritten."""
    before, now = (_key_meanings(schema) for schema in (stored, today))
    differ = sum(mine != theirs for mine, theirs in zip(now, before, strict=False))
    if len(before) != len(now) or differ > 1:
        raise StateChanged(
            f"{what}: the keys are {', '.join(now)}, and {', '.join(before)} in its state",
            advice=f"Write GROUP BY with the keys in the order of the state. {_BEGIN}",
        )


def _key_meanings(schema: StateSchema) -> list[str]:
    """What the keys are; a window is one of them."""
    meanings = schema.meanings[: len(schema.key)]
    whole = (match[1] if (match := _WINDOW.fullmatch(each)) else each for each in meanings)
    return list(dict.fromkeys(whole))


def _listed(parts: Sequence[_Part]) -> str:
    return ", ".join(meanings[0] for _, meanings in parts)

"""DISTINCT ON -> what of each row goes to the owner of its key (distinct_on.py).

SELECT key AS k0, time AS t, x AS c0 ... FROM input WHERE ...: a column that is a key, or the event
time, is not sent twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lamina.pipeline.compile_rows import KeptRows, after_table
from lamina.pipeline.distinct_on import ORDERED
from lamina.pipeline.expressions import Words
from lamina.pipeline.keys import Key, read_on_keys
from lamina.pipeline.plans import FirstRow, Stateless
from lamina.pipeline.select import quoted

_PREFIX = "_lamina_"
"""What columns are called beside those of the input: no name of a SELECT means one of them."""


def compile_first(rows: KeptRows, times: Collection[str]) -> FirstRow:
    """The plan of a DISTINCT ON; *times* are the event times of its input, in lower case."""
    select, names = rows.select, rows.names
    assert select.on is not None
    listed = rows.listed()
    time = next((name for name in rows.columns if name.lower() in times), None)
    if time is None:
        raise select.script.bad(
            "DISTINCT ON over rows without their event time: no key could ever be forgotten",
            select.on.at,
            "Let it read rows that have the watermark's column of the source, unchanged",
        )
    keys = read_on_keys(select, {name.lower() for name in rows.columns})
    for key, written in zip(keys, select.on.keys, strict=True):
        if key.words[-1].upper == "*":
            raise select.script.bad("a key cannot be *", written[0], "Name the columns")
    _check_order(rows, keys, time)
    texts = {f"k{number}": select.text(key.words) for number, key in enumerate(keys)}
    placed = tuple((select.text(key.words), key.words[0].start) for key in keys)
    sent: dict[str, str] = {}
    for name, key in zip(texts, keys, strict=True):
        column = _column(rows, key.words)
        if column is not None:
            sent.setdefault(column, name)
    if time.lower() not in sent:
        sent[time.lower()], texts["t"] = "t", quoted(time)
    columns: list[str] = []
    for number, each in enumerate(listed):
        name = sent.get(each.column, "") if each.column is not None else ""
        if not name:
            name = f"c{number}"
            texts[name] = each.text
        columns.append(name)
    return FirstRow(
        _sent(rows, texts),
        keys=tuple(texts)[: len(keys)],
        time=sent[time.lower()],
        columns=tuple(columns),
        outputs=tuple(each.name for each in listed),
        meanings=tuple(names.spelled(key.words) for key in keys),
        placed=placed,
    )


def _sent(rows: KeptRows, texts: dict[str, str]) -> Stateless:
    named = ", ".join(f"{text} AS {_PREFIX}{name}" for name, text in texts.items())
    outer = ", ".join(f"{_PREFIX}{name} AS {name}" for name in texts)
    before = f"SELECT {outer} FROM (SELECT {named} FROM "  # noqa: S608  the user's own text
    return Stateless(before, f"{after_table(rows.select)})")


def _column(rows: KeptRows, words: Words) -> str | None:
    """The column of the input that an expression is, if it is no more than that."""
    is_one = len(rows.names.elements(words)) == 1
    return words[-1].text.lower() if is_one and words[-1].is_name else None


def _check_order(rows: KeptRows, keys: Sequence[Key], time: str) -> None:
    """ORDER BY can say no more than what is so: by the keys, and then by event time."""
    select, names = rows.select, rows.names
    assert select.on is not None
    order, wanted = select.on.order, {names.spelled(key.words) for key in keys}
    by_keys = [names.spelled(_without(words, "ASC", "DESC")) for words in order[: len(wanted)]]
    by_time = [_column(rows, _without(words, "ASC")) for words in order[len(wanted) :]]
    if order and (set(by_keys) != wanted or by_time not in ([], [time.lower()])):
        raise select.script.bad("DISTINCT ON with an ORDER BY of its own", order[0][0], ORDERED)


def _without(words: Words, *directions: str) -> Words:
    return words[:-1] if len(words) > 1 and words[-1].upper in directions else words

"""SELECT DISTINCT ON (keys): of the rows of each key the first, as PostgreSQL writes it.

    SELECT DISTINCT ON (k1, k2) columns FROM s [ORDER BY k1, k2, time]

The first is the first by event time, so that an ORDER BY may say so and nothing else. A key is
remembered until the watermark is at the event time of its row and the delay (engine/first_rows.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from lamina.pipeline.expressions import Words, by_comma, closing, sign
from lamina.pipeline.tokens import Script, Word

ORDERED = (
    "It is the first row by event time: ORDER BY the keys and then that, or leave it out. For "
    "another order write QUALIFY row_number() OVER (PARTITION BY keys ORDER BY x) = 1"
)


@dataclass(frozen=True, slots=True)
class DistinctOn:
    """What stands behind DISTINCT ON, and behind ORDER BY if there is one."""

    at: Word
    keys: tuple[Words, ...]
    order: tuple[Words, ...] = ()


def split_order(words: Words) -> tuple[Words, Words]:
    """A query without its ORDER BY, if it has DISTINCT ON, and that."""
    if [word.upper for word in words[1:3]] != ["DISTINCT", "ON"]:
        return words, ()
    found = (i for i, word in enumerate(words) if word.upper == "ORDER BY" and word.depth == 0)
    at = next(found, len(words))
    return words[:at], words[at:]


def read_on(script: Script, words: Words, order: Words) -> tuple[DistinctOn, Words]:
    """The keys, of a list that begins with DISTINCT ON; and what follows them."""
    if sign(words, 2) != "(":
        raise script.bad("DISTINCT ON without its keys", words[1], "Write DISTINCT ON (key) ...")
    end = closing(words, 2)
    keys = tuple(by_comma(words[3:end])) if end > 3 else ()
    if not keys or not all(keys):
        raise script.bad("a key is missing in DISTINCT ON", words[2])
    if end + 1 == len(words):
        raise script.bad("the columns are missing behind DISTINCT ON (...)", words[end])
    ordered = tuple(by_comma(order[1:])) if order else ()
    if order and (len(order) == 1 or not all(ordered)):
        raise script.bad("nothing follows ORDER BY", order[0])
    return DistinctOn(words[0], keys, ordered), words[end + 1 :]

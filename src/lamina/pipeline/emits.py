"""The EMIT clause of a query: when the rows of its aggregates come out.

EMIT ON WINDOW CLOSE | EMIT ON UPDATE | EMIT CHANGES
EMIT EVERY INTERVAL n unit | EMIT ON UPDATE EVERY INTERVAL ... | EMIT CHANGES EVERY INTERVAL ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lamina.pipeline.cursor import Cursor
from lamina.pipeline.expressions import Words, ends_operand
from lamina.pipeline.intervals import read_interval
from lamina.pipeline.model import Emit
from lamina.pipeline.tokens import Script

_EMITS = "There are EMIT ON WINDOW CLOSE, EMIT ON UPDATE, EMIT CHANGES and EMIT EVERY INTERVAL ..."


@dataclass(frozen=True, slots=True)
class EmitClause:
    """What a query says; None where it says nothing."""

    emit: Emit | None = None
    every_us: int | None = None


def split_emit(script: Script, words: Words) -> tuple[Words, EmitClause]:
    """A query without its EMIT clause, and what that says; a column may be called emit."""
    said = [word.upper if word.depth == words[0].depth else "" for word in words]
    at = _every(said)
    if at is None:
        rest, emit = _split(script, words, said)
        return rest, EmitClause(emit)
    every_us = _interval(script, words[at:])
    if said[at - 1] == "EMIT":
        return words[: at - 1], EmitClause(Emit.ON_UPDATE, every_us)
    rest, emit = _split(script, words[:at], said[:at])
    if emit is Emit.ON_WINDOW_CLOSE:
        message = "EMIT ON WINDOW CLOSE EVERY: a window comes out once, when it closes"
        raise script.bad(message, words[at], "Write EMIT EVERY INTERVAL ..., or leave EVERY out")
    return rest, EmitClause(emit, every_us)


def _every(said: Sequence[str]) -> int | None:
    """Where EVERY INTERVAL stands that belongs to an EMIT."""
    for at in reversed(range(1, len(said) - 1)):
        before = (said[at - 1 : at], said[at - 2 : at], said[at - 3 : at], said[at - 4 : at])
        if said[at : at + 2] == ["EVERY", "INTERVAL"] and any(
            each[:1] == ["EMIT"] for each in before
        ):
            return at
    return None


def _interval(script: Script, words: Words) -> int:
    cursor = Cursor(script, words[1:])
    length = read_interval(cursor, after="EVERY")
    cursor.end("EMIT EVERY")
    if not length:
        raise script.bad("EMIT EVERY INTERVAL of nothing", words[0], "Write EMIT ON UPDATE")
    return length


def _split(script: Script, words: Words, said: Sequence[str]) -> tuple[Words, Emit | None]:
    at = next(
        (i for i in reversed(range(len(said) - 1)) if said[i : i + 2] == ["EMIT", "ON"]), None
    )
    if at is None:
        if len(said) > 2 and said[-2] == "EMIT" and ends_operand(words, len(words) - 3):
            if said[-1] == "CHANGES":
                return words[:-2], Emit.CHANGES
            raise script.bad(f"EMIT {said[-1]} is not known", words[-2], _EMITS)
        return words, None
    match said[at + 2 :]:
        case ["WINDOW", "CLOSE"]:
            return words[:at], Emit.ON_WINDOW_CLOSE
        case ["UPDATE"]:
            return words[:at], Emit.ON_UPDATE
        case _:
            shown = script.slice(words[at:])
            raise script.bad(f"{shown} is not known", words[at], _EMITS)

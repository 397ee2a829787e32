"""The EMIT clause of a query: when the rows of its aggregates come out."""

from __future__ import annotations

from lamina.pipeline.expressions import Words, ends_operand
from lamina.pipeline.model import Emit
from lamina.pipeline.tokens import Script

_EMITS = "There are EMIT ON WINDOW CLOSE, EMIT ON UPDATE and EMIT CHANGES"


def split_emit(script: Script, words: Words) -> tuple[Words, Emit | None]:
    """A query without its EMIT clause, and what that says; a column may be called emit."""
    said = [word.upper if word.depth == words[0].depth else "" for word in words]
    every = [i for i in range(len(said)) if said[i : i + 3] == ["EMIT", "EVERY", "INTERVAL"]]
    if every:
        raise script.bad(
            "EMIT EVERY INTERVAL: a stream emits with its epochs",
            words[every[-1]],
            "Write EMIT ON UPDATE, and `lamina run --interval SECONDS`: a row comes out once in an "
            "epoch, however often it has changed",
        )
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

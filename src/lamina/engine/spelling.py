"""Names of sources, streams and sinks in another case are the same names.

What is stored keeps the spelling it was first stored under: the paths of a checkpoint's files have
it, and the next checkpoint uses those files again. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from lamina.engine.plans import EnginePlan
from lamina.errors import Refused
from lamina.ids import fold

T = TypeVar("T")


def stored_name(name: str, stored: Iterable[str], what: str) -> str:
    """How *name* is spelled in what is stored; as it is, if it is not there.

    An older release took names in another case for others, so both may be there: then the exact
    spelling says which one is meant.
    """
    found = sorted({each for each in stored if fold(each) == fold(name)})
    if name in found or not found:
        return name
    if len(found) > 1:
        listed = ", ".join(map(repr, found))
        raise Refused(
            f"{what} {name!r}: there are {listed}, which differ only in case",
            advice="Spell the name in the pipeline exactly as the one that is meant; the other "
            "is kept aside",
        )
    return found[0]


def respelled(stored: Mapping[str, T], names: Iterable[str], what: str) -> dict[str, T]:
    """What is stored, under today's *names*; what none of them means keeps its own."""
    today = {stored_name(name, stored, what): name for name in names}
    return {today.get(name, name): value for name, value in stored.items()}


def with_stored_names(plan: EnginePlan, stored: Iterable[str]) -> EnginePlan:
    """The plan, with the state of each stream under the name it is stored under."""
    known = set(stored)
    streams = tuple(
        replace(
            stream,
            operators={
                stored_name(name, known, "the state of"): operator
                for name, operator in stream.operators.items()
            },
        )
        for stream in plan.streams
    )
    return replace(plan, streams=streams)

"""Rows that wait for an interval of which a stream no longer speaks: they come out all the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lamina.engine.model import OperatorPlan
from lamina.engine.pending import pending_name, with_pending
from lamina.engine.plans import EnginePlan
from lamina.engine.spelling import stored_name
from lamina.engine.steps import Merges
from lamina.errors import StateChanged
from lamina.pipeline.model import Emit
from lamina.recovery.operators import FoundState
from lamina.state.operator import OperatorState

_OTHER = {Emit.ON_UPDATE: Emit.CHANGES, Emit.CHANGES: Emit.ON_UPDATE}


def with_waiting(plan: EnginePlan, found: Mapping[str, FoundState]) -> EnginePlan:
    """The plan, in which a stream without EMIT EVERY still puts out what was left waiting of it."""
    streams = []
    for stream in plan.streams:
        operators: dict[str, OperatorPlan] = {}
        for name, operator in stream.operators.items():
            if isinstance(operator.step, Merges) and operator.emit in _OTHER:
                operators |= _with_waiting(name, operator, found)
            operators.setdefault(name, operator)
        streams.append(replace(stream, operators=operators))
    return replace(plan, streams=tuple(streams))


def _with_waiting(
    name: str, operator: OperatorPlan, found: Mapping[str, FoundState]
) -> dict[str, OperatorPlan]:
    if _waits(pending_name(name, _OTHER[operator.emit]), found):
        was = f"EMIT {_OTHER[operator.emit].value.upper()}"
        raise StateChanged(
            f"rows of {name!r} still wait to come out as {was} says, and it now says EMIT "
            f"{operator.emit.value.upper()}",
            advice=f"Let it {was} once more, without EVERY, for one epoch. Then change it",
        )
    own = pending_name(name, operator.emit)
    if operator.every_us is not None or not _waits(own, found):
        return {}
    made = with_pending(name, replace(operator, every_us=0))
    return {stored_name(each, found, "the state of"): plan for each, plan in made.items()}


def _waits(name: str, found: Mapping[str, FoundState]) -> bool:
    state = found.get(stored_name(name, found, "the state of"))
    schema = None if state is None else state.schema(name)
    if state is None or schema is None:
        return False
    opened = OperatorState.open(schema, 1, placed=state.placed, stored=state.stored)
    return any(batch.num_rows for batch in opened.partitions[0].scan())

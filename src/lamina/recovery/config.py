"""What only a person may decide about a recovery, and the plan that follows from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from lamina.errors import Corrupt, NotFound
from lamina.ids import CheckpointId
from lamina.protocol.recovery import Found, Plan, plan_fresh, plan_recovery

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecoveryConfig:
    """What only a person may decide, and how much to do at once."""

    lose_after: int | None = None  # give up every epoch after this one
    take_over_home: bool = False  # the home that owns the pipeline is lost for ever
    start_fresh: bool = False  # give up everything
    sinks_from_now: frozenset[str] = frozenset()  # they need not get the epochs that they lack
    same_pipeline: bool = False  # it is the one that home, store and sinks belong to
    partitions: int = 1
    max_concurrent: int = 8

    def plan(self, found: Found) -> Plan:
        """What a start would do with what was found. Pure."""
        if self.start_fresh:
            return plan_fresh(found)
        return plan_recovery(found, lose_after=self.lose_after, sinks_from_now=self.sinks_from_now)


def plan_and_take(
    found: Found, config: RecoveryConfig, take: Callable[[CheckpointId], T]
) -> tuple[Plan, T | None]:
    """A plan, and what *take* made of its checkpoint; a damaged one means another plan."""
    while True:
        plan = config.plan(found)
        if plan.checkpoint is None:
            return plan, None
        id = plan.checkpoint.id
        try:
            return plan, take(id)
        except (Corrupt, NotFound) as error:
            found = replace(found, damaged={**found.damaged, id: _why(error, id)})


def _why(error: Corrupt | NotFound, id: CheckpointId) -> str:
    return f"{error.message} (at {error.where})" if error.where else f"{error.message} ({id})"

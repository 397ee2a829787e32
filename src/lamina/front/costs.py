"""What the requests of a home in an object store cost: for `check` and `status`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.engine.plans import EngineSettings
from lamina.errors import UsageError
from lamina.front.defaults import PARTITIONS, REMOTE_INTERVAL_S
from lamina.running.request_costs import Pace, Requests

EVERY = EngineSettings().checkpoint_epochs
DECISION = Requests(puts=1)
"""Of an epoch; runs and output above 64 KiB are objects of their own, and are not counted."""


def pace_of(interval_s: float | None, *, every: int, files: int) -> Pace:
    """An epoch each *interval_s* (the default, if None), a checkpoint with *files* each *every*."""
    interval_s = REMOTE_INTERVAL_S if interval_s is None else interval_s
    if interval_s <= 0:
        raise UsageError("what requests cost depends on the interval: give --interval above 0")
    return Pace(interval_s, DECISION, checkpoint_epochs=every, checkpoint_files=files)


def files_of(plan: Mapping[str, Any], partitions: int = PARTITIONS) -> int:
    """At most: one for each partition of each state of a checked pipeline; a join has two."""
    kept = [stream for stream in plan["streams"] if stream.get("kept")]
    return partitions * sum(2 if "join" in stream["kind"] else 1 for stream in kept)

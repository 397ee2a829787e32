"""Compaction of the runs of a table beside further epochs: it reads a list that never changes."""

from __future__ import annotations

from lamina.checkpoint.background import Background
from lamina.state.local import RunFolder
from lamina.state.operator import OperatorState

LARGE_BYTES = 4 * 1024 * 1024
"""So much is compacted beside the epochs; less is done sooner than a thread has begun."""


class Compaction:
    """One compaction on its way; `wait` gives the compacted state, or raises what went wrong."""

    def __init__(self, state: OperatorState, folder: RunFolder) -> None:
        self._before = state
        self._work = Background("lamina-compaction", lambda: state.compacted(folder))

    @property
    def is_over(self) -> bool:
        return self._work.is_over

    def join(self) -> None:
        """Wait until it is over, whatever came of it."""
        self._work.join()

    def wait(self, today: OperatorState) -> OperatorState:
        """*today*'s lists, with the compacted runs in the place of those they were made of.

        A list of which the older part is another by now stays as it is.
        """
        done = self._work.wait()
        for number, before in enumerate(self._before.partitions):
            now, compacted = today.partitions[number], done.partitions[number]
            count = len(before.runs)
            same = all(a is b for a, b in zip(before.runs, now.runs, strict=False))
            if compacted is not before and same and len(now.runs) >= count:
                runs = (*compacted.runs, *now.runs[count:])
                today = today.with_partition(number, now.with_runs(runs))
        return today


def due_bytes(state: OperatorState) -> int:
    """How much the next compactions would have to read."""
    return sum(
        run.size
        for partition in state.partitions
        if (chosen := partition.plan_compaction()) is not None
        for run in partition.runs[chosen.start : chosen.stop]
    )

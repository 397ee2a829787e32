"""What a sink shows after rewinds that took rows back. Pure.

A sink that takes rows back keeps the list of the rewinds that made it do so. Which epochs it shows
follows from that list alone: so it can be put right again and again, and a rewind to an epoch that
an earlier one left behind shows that epoch again.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.format.taken_back import TakenBack


def is_shown(epoch: int, rewinds: Sequence[TakenBack]) -> bool:
    """Whether the rows of *epoch* are shown after all these *rewinds*, which are oldest first."""
    at: int | None = None  # the sink is as it was at this epoch; None: as it is now
    for rewind in reversed(rewinds):
        if at is None or rewind.epoch <= at:  # not one after the place that a later one went to
            if epoch > rewind.epoch:
                break
            at = rewind.to
    return at is None or epoch <= at

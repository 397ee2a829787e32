"""An ASOF join: each row of the left side with one row of the right side, the newest at its time.

Of the rows y of the right side with the key of a row x of the left side and

    x.at + low <= y.at <= x.at + high

x gets the newest, or, if it looks ahead, the earliest. Without *low* y may be as old as it likes. A
row x is *judged* when the watermark says that none of them can come any more: it comes out then.

The rows of the right side are *versions* of their key. One is of use until the watermark has passed
the next one; the last one of a key has no end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lamina.format.canonical import encode, sha256_hex
from lamina.pipeline.model import JoinKind
from lamina.state.merge import Merge
from lamina.state.vnodes import Mask, Rows

NEVER = int(np.iinfo(np.int64).max)
"""When the last version of a key goes."""


@dataclass(frozen=True, slots=True)
class Asof:
    """The step of an ASOF join; times are in microseconds."""

    kind: JoinKind  # INNER or LEFT
    low: int | None
    high: int
    columns: tuple[str, ...]  # of both sides: they are kept, and come out
    left: int  # so many of them are of the left side: the first
    looks_ahead: bool = False

    @property
    def merges(self) -> tuple[Merge, ...]:
        return ()

    def definition(self, of: str | None) -> str | None:
        """Rows that were kept without a column do not have it: other columns are another state."""
        join = [self.kind.value, self.low, self.high, list(self.columns), self.looks_ahead]
        return sha256_hex(encode([of, "asof", *join]))

    @property
    def delay_us(self) -> int:
        """How long after its event time a row of the left side may come out, by the watermark."""
        return max(0, self.high)

    def due(self, at: Rows) -> Rows:
        """The watermark at which no version for a row of the left side can come any more."""
        due: Rows = at + self.high + 1
        return due

    def until(self, at: Rows, is_last: Mask) -> Rows:
        """The watermark at which versions are of no more use; each is followed by the next one.

        *is_last* says of which keys they are the last.
        """
        own = np.full(len(at), NEVER)
        if self.low is not None:
            own = at - self.low + 1 + max(0, self.high)
        if self.looks_ahead or not len(at):
            return own
        following = np.r_[at[1:], 0] - self.high
        until: Rows = np.where(is_last, own, np.minimum(own, following))
        return until

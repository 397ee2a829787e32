"""A join of two streams: what it is, as a plan says it, and which rows it has to wait for.

A row x of the left side and a row y of the right side are a pair if their keys are equal and

    x.at + low <= y.at <= x.at + high

A row is kept while a row that it makes a pair with may still come. Where rows without a partner
come out too (outer joins, ANTI), or rows that have one come out once (SEMI), a row is *judged* when
no partner can come any more; so the other side is kept until then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lamina.format.canonical import encode, sha256_hex
from lamina.pipeline.model import JoinKind
from lamina.state.merge import Merge
from lamina.state.vnodes import Mask, Rows


@dataclass(frozen=True, slots=True)
class Join:
    """The step of a join; times are in microseconds."""

    kind: JoinKind
    low: int
    high: int
    columns: tuple[str, ...]  # of both sides: they are kept, and come out
    left: int  # so many of them are of the left side: the first
    asks: bool = False  # a condition on both sides says which rows have a partner

    @property
    def merges(self) -> tuple[Merge, ...]:
        return ()

    def definition(self, of: str | None) -> str | None:
        """Rows that were kept without a column do not have it: other columns are another state."""
        join = [self.kind.value, self.low, self.high, list(self.columns)]
        return sha256_hex(encode([of, "join", *join]))

    @property
    def delay_us(self) -> int:
        """How long after its event time a row may come out, by the watermark."""
        return max(0, self.high, -self.low)

    def due(self, at: Rows, is_right: Mask) -> Rows:
        """The watermark at which no partner of a row can come any more."""
        return np.where(is_right, at - self.low, at + self.high) + 1

    def until(self, at: Rows, is_right: Mask) -> Rows:
        """The watermark at which a row is of no more use: neither new rows nor judged ones ask."""
        left = max(0, -self.low) if self.kind.judges_right else 0
        right = max(0, self.high) if self.kind.judges_left else 0
        return self.due(at, is_right) + np.where(is_right, right, left)

    def is_judged(self, is_right: Mask) -> Mask:
        judged: Mask = np.where(is_right, self.kind.judges_right, self.kind.judges_left)
        return judged


@dataclass(frozen=True, slots=True)
class ChangeJoin:
    """The step of a join over changes, without times: rows are kept until they are taken back."""

    kind: JoinKind
    columns: tuple[str, ...]  # of both sides: they are kept, and come out
    left: int  # so many of them are of the left side: the first

    @property
    def merges(self) -> tuple[Merge, ...]:
        return ()

    def definition(self, of: str | None) -> str | None:
        """Rows that were kept without a column do not have it: other columns are another state."""
        join = [self.kind.value, list(self.columns)]
        return sha256_hex(encode([of, "join of changes", *join]))


@dataclass(frozen=True, slots=True)
class TemporalJoin:
    """The step of a temporal join over changes: rows meet the rows that the right side has now.

    Of the right side a row is kept until it is taken back, of the left side none is.
    """

    kind: JoinKind  # INNER or LEFT
    columns: tuple[str, ...]  # of both sides: they come out
    left: int  # how many of the first ones belong to the left side; the rest are kept

    @property
    def merges(self) -> tuple[Merge, ...]:
        return ()

    def definition(self, of: str | None) -> str | None:
        """Rows that were kept without a column do not have it: other columns are another state."""
        return sha256_hex(encode([of, "temporal join", list(self.columns[self.left :])]))

"""A join over changes as Spark runs it: new rows and rows that are taken back, as one table.

Both go to the owner of their join keys, with a column that says which is which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lamina.engine.join_rows import ALONE, RIGHT
from lamina.engine.taking_back import TAKEN_BACK
from lamina.spark.joins import JoinPlan


@dataclass(frozen=True, slots=True)
class ChangeJoinPlan(JoinPlan):
    """Two sides whose rows may be taken back; what comes out are changes."""

    @property
    def sent(self) -> tuple[str, ...]:
        return (*self.keys, RIGHT, TAKEN_BACK, ALONE, *self.columns)

    def changes(self, new: Sequence[str], old: Sequence[str]) -> str:
        """The rows of both sides, of what is *new* and of what is taken back."""
        texts = [
            side.sql(
                over,
                self.columns,
                self.types,
                is_right=bool(number),
                beside=f"{is_old} AS {TAKEN_BACK}",
            )
            for is_old, sides in (("false", new), ("true", old))
            for number, (side, over) in enumerate(zip(self.sides, sides, strict=True))
        ]
        return " UNION ALL ".join(texts)

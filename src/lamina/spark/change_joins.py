"""Joins over changes as Spark runs them: new rows and rows that are taken back, as one table.

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
                beside=_says(is_old),
            )
            for is_old, sides in (("false", new), ("true", old))
            for number, (side, over) in enumerate(zip(self.sides, sides, strict=True))
        ]
        return " UNION ALL ".join(texts)


@dataclass(frozen=True, slots=True)
class TemporalJoinPlan(JoinPlan):
    """Rows that stay, and rows of another side that may be taken back; what comes out stays."""

    @property
    def sent(self) -> tuple[str, ...]:
        return (*self.keys, RIGHT, TAKEN_BACK, ALONE, *self.columns)

    def meeting(self, left: str, right: str, taken_back: str) -> str:
        """The rows of the left side, and what the right side gets and loses."""
        mine, theirs = self.sides
        given = ((mine, left, False, "false"), (theirs, right, True, "false"))
        texts = [
            side.sql(over, self.columns, self.types, is_right=is_right, beside=_says(is_old))
            for side, over, is_right, is_old in (*given, (theirs, taken_back, True, "true"))
        ]
        return " UNION ALL ".join(texts)


def _says(is_old: str) -> str:
    return f"{is_old} AS {TAKEN_BACK}"

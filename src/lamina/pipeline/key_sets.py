"""Groups by several sets of keys, in one state: GROUPING SETS, ROLLUP and CUBE.

A key that a set leaves out is null in its groups, and so may be a value. So the state has one more
key, after all others, that says which set a group is of: Spark's grouping_id(), with a bit for each
key that is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lamina.pipeline.keys import Key, Names
from lamina.pipeline.select import Select

MEANING = "grouping_id()"


@dataclass(frozen=True, slots=True)
class KeySets:
    select: Select
    keys: tuple[Key, ...]
    window: int | None  # which key is one

    def __bool__(self) -> bool:
        """Whether there are several sets."""
        return bool(self.select.grouping.sets)

    @property
    def columns(self) -> tuple[str, ...]:
        """The key that tells sets apart; none if there is only one set."""
        return (self._column,) if self else ()

    @property
    def _column(self) -> str:
        return f"k{len(self.keys)}"

    @property
    def texts(self) -> tuple[str, ...]:
        """grouping_id() in words that count a window as one key, although it is two columns."""
        count = len(self.keys)
        bits = (
            f"shiftleft(CAST(grouping({self.select.text(key.words)}) AS BIGINT), {count - 1 - i})"
            for i, key in enumerate(self.keys)
            if i != self.window
        )
        return (" + ".join(bits),) if self else ()

    @property
    def counts_where(self) -> str:
        """Which partials count the rows: those of one set, because each row is in all of them."""
        if not self:
            return ""
        count = len(self.keys)
        left_out = set(range(count)) - set(self.select.grouping.sets[0])
        return f"{self._column} = {sum(1 << (count - 1 - place) for place in left_out)}"

    def groups(self, texts: Callable[[Sequence[int]], list[str]]) -> str:
        """What follows the table; *texts* gives what Spark groups by for some of the keys."""
        if not self.keys:
            return ""
        if not self:
            return f" GROUP BY {', '.join(texts(range(len(self.keys))))}"
        sets = (", ".join(texts(each)) for each in self.select.grouping.sets)
        return f" GROUP BY GROUPING SETS ({', '.join(f'({each})' for each in sets)})"

    def check(self, names: Names, *, has_distincts: bool) -> None:
        """BadPipeline at what cannot be grouped by several sets."""
        if not self:
            return
        script, at = self.select.script, self.select.keys[0][0]
        if len({names.spelled(key.words) for key in self.keys}) < len(self.keys):
            message = "a key of GROUP BY is written in two ways"
            raise script.bad(message, at, "Write it the same way in each set")
        sets = self.select.grouping.sets
        if self.window is not None and any(self.window not in each for each in sets):
            raise script.bad(
                "a set of GROUP BY without the window: its rows would never be complete",
                self.select.keys[self.window][0],
                "Put the window before it: GROUP BY window(...), ROLLUP (...)",
            )
        if has_distincts:
            message = "DISTINCT in an aggregate over several sets of keys"
            raise script.bad(message, at, "Write one stream for each set")

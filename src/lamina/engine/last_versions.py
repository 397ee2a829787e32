"""Versions of rows by key, as changes: the state is the last version of every row.

What is taken back is what the state has, not what a message says was there before. So an event that
comes twice changes nothing, and no message needs the old values of its row.

Within an epoch the last version of a key counts. The order of versions is known within one place
only (a partition of a topic), so a key that comes from another place than before is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.engine.changing import PAIR
from lamina.engine.steps import Stepped, Stepping
from lamina.errors import Refused
from lamina.format.canonical import encode, sha256_hex
from lamina.state.keys import equal, normalise
from lamina.state.merge import Merge
from lamina.state.vnodes import Mask, Rows

AT, PLACE, GONE = "_lamina_at", "_lamina_place", "_lamina_gone"
"""Of a version: its order within its place, the place, and whether it says that the row is gone."""


@dataclass(frozen=True, slots=True)
class LastVersions:
    """A keyed step: of each key the row that was there and the row that is there now."""

    source: str
    columns: tuple[str, ...]  # of the rows, keys among them

    @property
    def merges(self) -> tuple[Merge, ...]:
        return ()

    def definition(self, of: str | None) -> str | None:
        return sha256_hex(encode([of, "last versions"]))

    def step(self, given: Stepping) -> Stepped:
        last = self._last(given)
        new = given.rows.take(pa.array(last))
        self._check_places(given, new.column(PLACE))
        gone = np.asarray(new.column(GONE).to_numpy(zero_copy_only=False), np.bool_)
        names = given.old.schema.names
        values = pa.RecordBatch.from_arrays(new.select(names).columns, names=names)
        numbers = np.arange(given.keys.num_rows)
        output = pa.concat_batches(
            [
                self._version(given.keys, given.old, ~numbers, given.found),
                self._version(given.keys, values, numbers, ~gone),
            ]
        )
        return Stepped(values, gone, output, same=_same(given, values, gone))

    # steps

    def _last(self, given: Stepping) -> Rows:
        """Of each key the row that is the last in its place."""
        at = given.rows.column(AT).to_numpy()
        order = np.lexsort((at, given.key_of))
        keys = given.key_of[order]
        is_last = np.append(keys[1:] != keys[:-1], [True] * bool(len(keys)))
        found: Rows = order[is_last]
        assert len(found) == given.keys.num_rows, "a key without rows is not called"
        return found

    def _check_places(self, given: Stepping, places: pa.Array) -> None:
        now = places.take(pa.array(given.key_of))  # the place of the last row of the same key
        here = pc.not_equal(given.rows.column(PLACE), now).to_numpy(zero_copy_only=False)
        if here.any():
            row = int(np.flatnonzero(here)[0])
            was = given.rows.column(PLACE)[row].as_py()
            raise self._moved(given, int(given.key_of[row]), was, now[row].as_py())
        before = given.old.column(PLACE)
        moved = pc.fill_null(pc.not_equal(before, places), False)
        moved = moved.to_numpy(zero_copy_only=False) & given.found
        if moved.any():
            key = int(np.flatnonzero(moved)[0])
            raise self._moved(given, key, before[key].as_py(), places[key].as_py())

    def _moved(self, given: Stepping, key: int, was: str, now: str) -> Refused:
        (named,) = given.keys.slice(key, 1).to_pylist()
        said = ", ".join(f"{name} {value!r}" for name, value in named.items())
        return Refused(
            f"the source {self.source!r}: versions of the row {said} come from {was} and from "
            f"{now}, and nobody knows which of them is the last",
            advice="All changes of a row must be in one partition. Was the topic given more "
            "partitions, or do two tables write it? Take a new snapshot into a new topic",
        )

    def _version(
        self, keys: pa.RecordBatch, values: pa.RecordBatch, numbers: Rows, found: Mask
    ) -> pa.RecordBatch:
        columns = [
            (keys if name in keys.schema.names else values).column(name) for name in self.columns
        ]
        rows = pa.RecordBatch.from_arrays(
            [*columns, pa.array(numbers, pa.int64())], names=[*self.columns, PAIR]
        )
        return rows.filter(pa.array(found))


def _same(given: Stepping, values: pa.RecordBatch, gone: Mask) -> Mask:
    """Keys that are as they were: nothing is written of them."""
    both = given.found & ~gone
    if not both.any():
        return np.zeros(len(gone), np.bool_)
    old, new = ([normalise(column) for column in side.columns] for side in (given.old, values))
    return np.asarray(both & equal(old, new), np.bool_)

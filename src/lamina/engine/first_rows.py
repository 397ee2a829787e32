"""The first row of each key: what has the key of an earlier row is left out.

The state is the keys that have come out, each with the time at which it is forgotten: the event
time of its row, and the delay of the watermark. It goes when the watermark is there, by the floor
of the state (decision 0010), so nothing is looked for and nothing is deleted. A key that is known
costs a look-up, and nothing is written of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.engine.planning import END_US
from lamina.engine.steps import Stepped, Stepping
from lamina.engine.task_state import TIME
from lamina.format.canonical import encode, sha256_hex
from lamina.state.keys import canonical, equal, normalise
from lamina.state.merge import Merge
from lamina.state.schema import time_values
from lamina.state.vnodes import Rows

EXPIRES = "expires"
"""The one value of a key: when it is forgotten."""
_LATEST = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class FirstRows:
    """Of the rows of a new key the earliest comes out; of several, the least by their values."""

    time: str  # the column of the rows with their event time
    delay_us: int
    values: tuple[str, ...]  # the columns by which rows of one key and time are told apart

    @property
    def merges(self) -> tuple[Merge, ...]:
        return ()

    def definition(self, of: str | None) -> str | None:
        return sha256_hex(encode([of, "first rows"]))

    def step(self, given: Stepping) -> Stepped:
        which = np.flatnonzero(~given.found[given.key_of])
        key_of, times = given.key_of[which], time_values(given.rows.column(self.time))[which]
        earliest = np.full(given.keys.num_rows, _LATEST, np.int64)
        np.minimum.at(earliest, key_of, times)
        is_first = times == earliest[key_of]
        chosen = _one_of_each(given.rows.select(self.values), which[is_first], key_of[is_first])
        expires = np.minimum(earliest, END_US - self.delay_us) + self.delay_us
        column = pa.array(expires, pa.int64()).cast(TIME)
        return Stepped(
            pa.RecordBatch.from_arrays([column], names=[EXPIRES]),
            output=given.rows.take(pa.array(chosen)),
            same=given.found,
        )


def _one_of_each(rows: pa.RecordBatch, which: Rows, key_of: Rows) -> Rows:
    """Of each key one of its rows *which*: the first in the order of their bytes.

    So a task that is tried again chooses the same. Most rows of one time are copies of each other,
    and are not put into order.
    """
    place = np.full(int(key_of.max(initial=-1)) + 1, -1, np.int64)
    place[key_of] = which
    more = np.flatnonzero(which != place[key_of])
    if more.size:
        differs = ~equal(_taken(rows, which[more]), _taken(rows, place[key_of[more]]))
        unclear = np.flatnonzero(np.isin(key_of, key_of[more[differs]]))
        if unclear.size:
            order = np.lexsort((_ranks(_taken(rows, which[unclear])), key_of[unclear]))[::-1]
            place[key_of[unclear][order]] = which[unclear][order]  # the last one stays
    return place[place >= 0]


def _taken(rows: pa.RecordBatch, which: Rows) -> list[pa.Array]:
    return [normalise(column) for column in rows.take(pa.array(which)).columns]


def _ranks(columns: list[pa.Array]) -> Rows:
    """Of each row its place in the order of their bytes."""
    order = pc.sort_indices(canonical(columns)).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks

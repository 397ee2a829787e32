"""Session windows: rows of a key that follow each other within a gap are one session.

Spark gives the sessions of an epoch's rows, with their partials. Here they meet those of the key
that are still open: in the order of their start, one that begins at the end of what is before it,
or earlier, is a part of it, as in Spark. The state of a key has a list for each column: the open
sessions, by start. A session comes out when its end is at the watermark or before; the timer of a
key is the end of its first one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.engine.steps import Stepped, Stepping
from lamina.format.canonical import encode, sha256_hex
from lamina.state.folding import merge_groups
from lamina.state.merge import Merge
from lamina.state.schema import time_values
from lamina.state.vnodes import Mask, Rows


@dataclass(frozen=True, slots=True)
class Sessions:
    """How the sessions of a key become one where they meet."""

    start: str  # columns of rows and of the state
    end: str
    partials: tuple[Merge, ...]

    @property
    def merges(self) -> tuple[Merge, ...]:
        return ()

    def definition(self, of: str | None) -> str | None:
        merges = [merge.to_json() for merge in self.partials]
        return sha256_hex(encode([of, "sessions", self.start, self.end, merges]))

    def step(self, given: Stepping) -> Stepped:
        names = given.old.schema.names
        key_of, sessions = _together(given, names)
        start = time_values(sessions.column(self.start))
        end = time_values(sessions.column(self.end))
        order = np.lexsort((end, start, key_of))
        ends = _latest(key_of[order], end[order])
        firsts = _beginnings(key_of[order], start[order], ends)
        last_end = ends[np.r_[firsts[1:], len(order)] - 1]
        merged = self._merged(sessions, order, firsts, last_end)
        owner = key_of[order][firsts]
        is_open = last_end >= (np.iinfo(np.int64).min if given.floor is None else given.floor)
        counts = np.bincount(owner[is_open], minlength=given.keys.num_rows)
        return Stepped(
            _lists(given.old.schema, merged.filter(pa.array(is_open)), counts),
            gone=counts == 0,
            output=_closed(given.keys, merged, owner, ~is_open),
            timers=_first_ends(merged.column(self.end).filter(pa.array(is_open)), counts),
        )

    def _merged(
        self, sessions: pa.RecordBatch, order: Rows, firsts: Rows, ends: Rows
    ) -> pa.RecordBatch:
        """Each group of sessions as one: it begins with the first, and ends with the latest."""
        columns = {self.start: sessions.column(self.start).take(pa.array(order[firsts]))}
        columns[self.end] = pa.array(ends).cast(sessions.schema.field(self.end).type)
        names = [name for name in sessions.schema.names if name not in columns]
        if names:
            partials = merge_groups(self.partials, sessions.select(names), order, firsts)
            columns |= dict(zip(names, partials.columns, strict=True))
        return pa.RecordBatch.from_pydict({name: columns[name] for name in sessions.schema.names})


def _together(given: Stepping, names: list[str]) -> tuple[Rows, pa.RecordBatch]:
    """The open sessions of the keys and the new ones, and the key of each."""
    counts = _counts(given.old.column(names[0]))
    old = [_flat(column, counts) for column in given.old.columns]
    new = [given.rows.column(name) for name in names]
    columns = [pa.concat_arrays(pair) for pair in zip(old, new, strict=True)]
    owners = np.repeat(np.arange(given.keys.num_rows), counts)
    batch = pa.RecordBatch.from_arrays(columns, names=names)
    return np.concatenate([owners, given.key_of]), batch


def _counts(lists: pa.Array) -> Rows:
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _flat(lists: pa.Array, counts: Rows) -> pa.Array:
    """The elements; of a column that the state did not have yet, nulls."""
    own = _counts(lists)
    if np.array_equal(own, counts):
        return lists.flatten()
    is_there = np.repeat(own == counts, counts)
    place = np.cumsum(is_there) - 1
    return lists.flatten().take(pa.array(place, mask=~is_there))


def _latest(key_of: Rows, end: Rows) -> Rows:
    """Of each session the latest end of those of its key up to it; keys stand together."""
    by_end = np.lexsort((end, key_of))
    rank = np.empty(len(end), np.int64)
    rank[by_end] = np.arange(len(end))
    latest: Rows = end[by_end][np.maximum.accumulate(rank)]
    return latest


def _beginnings(key_of: Rows, start: Rows, latest: Rows) -> Rows:
    """Where a session begins that does not touch what is before it."""
    if not len(start):
        return np.zeros(0, np.int64)
    apart = (key_of[1:] != key_of[:-1]) | (start[1:] > latest[:-1])
    return np.flatnonzero(np.r_[True, apart])


def _lists(schema: pa.Schema, sessions: pa.RecordBatch, counts: Rows) -> pa.RecordBatch:
    """A list for each key, column by column."""
    offsets = pa.array(np.r_[0, np.cumsum(counts)], pa.int32())
    columns = [
        pa.ListArray.from_arrays(offsets, column, type=field.type)
        for column, field in zip(sessions.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _closed(
    keys: pa.RecordBatch, sessions: pa.RecordBatch, owner: Rows, is_closed: Mask
) -> pa.RecordBatch:
    chosen = pa.array(np.flatnonzero(is_closed))
    mine = keys.take(pa.array(owner[is_closed]))
    theirs = sessions.take(chosen)
    names = [*keys.schema.names, *sessions.schema.names]
    return pa.RecordBatch.from_arrays([*mine.columns, *theirs.columns], names=names)


def _first_ends(ends: pa.Array, counts: Rows) -> pa.Array:
    """Open sessions do not overlap: the first of a key is the first to close."""
    firsts = np.cumsum(counts) - counts
    return ends.take(pa.array(firsts, mask=counts == 0))

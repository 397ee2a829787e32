"""Session windows: rows of a key that follow each other within a gap are one session.

Spark gives the sessions of an epoch's rows, with their partials. Here they meet those of the key
that are still open: in the order of their start, one that begins at the end of what is before it,
or earlier, is a part of it, as in Spark. The state of a key has a list for each column: the open
sessions, by start. A session comes out when its end is at the watermark or before; the timer of a
key is the end of its first one.

Of changes (EMIT CHANGES) every session that an epoch has changed comes out, and those that it was
made of are taken back. A session is known by its key and its end: if its end stays, its old and its
new version are the same row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.engine.changing import PAIR
from lamina.engine.model import OperatorPlan
from lamina.engine.steps import Stepped, Stepping
from lamina.engine.task_state import ROWS
from lamina.engine.typed import as_planned
from lamina.format.canonical import encode, sha256_hex
from lamina.state.changes import slots_of_keys
from lamina.state.folding import grouped, merge_groups, numbers_of
from lamina.state.keys import normalise
from lamina.state.merge import Merge, merge_rows
from lamina.state.run import by_key_and_time
from lamina.state.schema import time_values
from lamina.state.vnodes import Rows


@dataclass(frozen=True, slots=True)
class Sessions:
    """How the sessions of a key become one where they meet."""

    start: str  # columns of rows and of the state
    end: str
    partials: tuple[Merge, ...]
    gives_changes: bool = False
    called: tuple[tuple[str, str], ...] = ()  # what errors call the columns

    @property
    def merges(self) -> tuple[Merge, ...]:
        return ()

    def definition(self, of: str | None) -> str | None:
        merges = [merge.to_json() for merge in self.partials]
        return sha256_hex(encode([of, "sessions", self.start, self.end, merges]))

    def formed(
        self, plan: OperatorPlan, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """The sessions that an epoch's rows form by themselves.

        A row comes as a session of its own, from its time to one gap later, or Spark has formed
        sessions of rows already: then nothing touches, and they are passed on.
        """
        listed = [batch for batch in batches if batch.num_rows]
        if not listed:
            return
        batch = pa.concat_batches(listed)
        schema = pa.ipc.read_schema(pa.py_buffer(plan.rows_schema))
        keys = pa.ipc.read_schema(pa.py_buffer(plan.key_schema)).names
        named = {each.name: as_planned(batch.column(each.name), each.type) for each in schema}
        key_of = _numbered([named.pop(name) for name in keys])
        sessions = pa.RecordBatch.from_pydict(named)
        order, firsts, ends = self._touching(key_of, sessions)
        if len(firsts) == len(order):
            yield batch
            return
        first = pa.array(order[firsts])
        made = {name: batch.column(name).take(first) for name in keys}
        merged = self._merged(sessions, order, firsts, ends)
        made |= dict(zip(merged.schema.names, merged.columns, strict=True))
        if ROWS in batch.schema.names:
            counts = batch.column(ROWS).to_numpy(zero_copy_only=False)
            made[ROWS] = pa.array(np.add.reduceat(counts[order], firsts))
        yield pa.RecordBatch.from_pydict(made)

    def step(self, given: Stepping) -> Stepped:
        names = given.old.schema.names
        given = replace(given, rows=self._in_order(given.rows))
        key_of, sessions = _together(given, names)
        order, firsts, last_end = self._touching(key_of, sessions)
        merged = self._merged(sessions, order, firsts, last_end)
        owner = key_of[order][firsts]
        is_open = last_end >= (np.iinfo(np.int64).min if given.floor is None else given.floor)
        counts = np.bincount(owner[is_open], minlength=given.keys.num_rows)
        if self.gives_changes:
            found = _Grouped(sessions, merged, order, firsts, owner)
            output = self._versions(given.keys, found, sessions.num_rows - given.rows.num_rows)
        else:
            output = _with_keys(given.keys, merged, owner, np.flatnonzero(~is_open))
        return Stepped(
            _lists(given.old.schema, merged.filter(pa.array(is_open)), counts),
            gone=counts == 0,
            output=output,
            timers=_first_ends(merged.column(self.end).filter(pa.array(is_open)), counts),
        )

    def _touching(self, key_of: Rows, sessions: pa.RecordBatch) -> tuple[Rows, Rows, Rows]:
        """An order in which sessions that become one stand together; where each of these begins,
        and the time at which it ends.
        """
        start = time_values(sessions.column(self.start))
        end = time_values(sessions.column(self.end))
        order = _by_start(key_of, start, end)
        ends = _latest(key_of[order], end[order])
        firsts = _beginnings(key_of[order], start[order], ends)
        return order, firsts, ends[np.r_[firsts[1:], len(order)] - 1]

    def _merged(
        self, sessions: pa.RecordBatch, order: Rows, firsts: Rows, ends: Rows
    ) -> pa.RecordBatch:
        """Each group of sessions as one: it begins with the first, and ends with the latest."""
        columns = {self.start: sessions.column(self.start).take(pa.array(order[firsts]))}
        columns[self.end] = pa.array(ends).cast(sessions.schema.field(self.end).type)
        names = [name for name in sessions.schema.names if name not in columns]
        if names:
            values, called = sessions.select(names), self._called
            partials = merge_groups(self.partials, values, order, firsts, called=called)
            columns |= dict(zip(names, partials.columns, strict=True))
        return pa.RecordBatch.from_pydict({name: columns[name] for name in sessions.schema.names})

    def _called(self, name: str) -> str:
        return dict(self.called).get(name, name)

    def _in_order(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """New sessions, with bags that have each value once: Spark gives them as rows came."""
        bags = [merge for merge in self.partials if merge.function == "bag"]
        names = [column for merge in bags for column in merge.columns]
        if not names:
            return rows
        given = rows.select(names)
        nothing = np.zeros(rows.num_rows, np.bool_)
        made = merge_rows(bags, given, given, nothing, called=self._called)
        for name in names:
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, rows.schema.field(name), made.column(name))
        return rows

    def _versions(self, keys: pa.RecordBatch, found: _Grouped, old: int) -> pa.RecordBatch:
        """Sessions that are new or have changed, and the old ones that they were made of.

        The first *old* of all sessions are old ones. Those of one row share a number.
        """
        sizes = np.diff(found.firsts, append=len(found.order))
        group_of = np.repeat(np.arange(len(sizes)), sizes)
        is_old = found.order < old
        touched = (sizes > 1) | ~is_old[found.firsts]
        before = np.flatnonzero(is_old & touched[group_of])
        taken, groups = found.order[before], group_of[before]
        ends = time_values(found.sessions.column(self.end))[taken]
        stays = ends == time_values(found.merged.column(self.end))[groups]
        numbers = np.where(stays, groups, len(sizes) + np.arange(len(groups)))
        now = np.flatnonzero(touched)
        rows = [
            _with_keys(keys, found.sessions, found.owner[group_of], taken, before),
            _with_keys(keys, found.merged, found.owner, now),
        ]
        pairs = pa.array(np.concatenate([~numbers, now]), pa.int64())
        return pa.concat_batches(rows).append_column(PAIR, pairs)


@dataclass(frozen=True, slots=True)
class _Grouped:
    """All sessions, and what they become."""

    sessions: pa.RecordBatch  # the old ones, then the new ones
    merged: pa.RecordBatch
    order: Rows  # of all sessions: those that become one stand together
    firsts: Rows  # and begin here
    owner: Rows  # the key of each of *merged*


def _numbered(keys: Sequence[pa.Array]) -> Rows:
    """Of each row the number of its key."""
    columns = [normalise(key) for key in keys]
    return numbers_of(*grouped(slots_of_keys(columns), columns))


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


def _by_start(key_of: Rows, start: Rows, end: Rows) -> Rows:
    """The sessions of a key by their start, and those of equal starts by their end."""
    order = by_key_and_time(key_of, start)
    keys, starts, ends = key_of[order], start[order], end[order]
    tied = (keys[1:] == keys[:-1]) & (starts[1:] == starts[:-1])
    if np.any(tied & (ends[1:] < ends[:-1])):
        return np.lexsort((end, start, key_of))
    return order


def _latest(key_of: Rows, end: Rows) -> Rows:
    """Of each session the latest end of those of its key up to it; keys stand together."""
    if ((end[1:] >= end[:-1]) | (key_of[1:] != key_of[:-1])).all():
        return end  # as it is where all gaps are equal
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


def _with_keys(
    keys: pa.RecordBatch,
    sessions: pa.RecordBatch,
    owner: Rows,
    chosen: Rows,
    place: Rows | None = None,
) -> pa.RecordBatch:
    """The sessions *chosen*, behind the keys of their owners, which stand at *place*."""
    mine = keys.take(pa.array(owner[chosen if place is None else place]))
    theirs = sessions.take(pa.array(chosen))
    names = [*keys.schema.names, *sessions.schema.names]
    return pa.RecordBatch.from_arrays([*mine.columns, *theirs.columns], names=names)


def _first_ends(ends: pa.Array, counts: Rows) -> pa.Array:
    """Open sessions do not overlap: the first of a key is the first to close."""
    firsts = np.cumsum(counts) - counts
    return ends.take(pa.array(firsts, mask=counts == 0))

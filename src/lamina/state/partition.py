"""The state of one operator partition: a short list of runs, oldest first; newest wins.

apply    old values are looked up, merged with the new ones once, and the result is a new run
get      the newest row of a key
scan     the newest row of every key
expire   everything before a time is gone: one number in a run, not a delete per key
compact  which runs are to become one

Runs never change and the list is a value: what holds an older list keeps reading it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lamina.errors import UsageError
from lamina.state.changes import check_changes, key_columns, ranges_of_groups, slots_in
from lamina.state.merge import Merge, check_merges, merge_rows
from lamina.state.run import Run, TimeRange, deletes_of_batch, find, slots_of_batch
from lamina.state.scanning import highest, scan_groups, scan_runs, scan_times
from lamina.state.schema import SYSTEM_COLUMNS, StateSchema, check_successor, null_where
from lamina.state.tiers import FAN_OUT, RUNS_MAX, plan_compaction
from lamina.state.vnodes import EVERYTHING, Mask, Rows, SlotRange, Slots


@dataclass(frozen=True, slots=True)
class Looked:
    """Values of keys that were asked for, row by row; null where *found* is not."""

    found: Mask
    values: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Applied:
    """What an epoch did to a partition, row by row in the order of the run."""

    keys: pa.RecordBatch
    old: Looked
    new: Looked
    run: pa.RecordBatch  # what goes into the WAL

    @property
    def rows(self) -> int:
        return int(self.run.num_rows)


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a partition holds; *live* is counted only on request."""

    rows: int  # in all runs, old values and deletes included
    bytes: int
    runs: int
    read_amplification: float  # runs that a look-up may touch
    live: int | None = None


class StatePartition:
    """One list of runs, and what can be done with it."""

    def __init__(
        self,
        schema: StateSchema,
        runs: Sequence[Run] = (),
        *,
        merges: Sequence[Merge] = (),
        within: SlotRange = EVERYTHING,
        floor: int | None = None,
    ) -> None:
        """*merges* are the schema's, unless they are given here."""
        if merges and tuple(merges) != schema.merges:
            schema = replace(schema, merges=tuple(merges))
        if schema.merges:
            check_merges(schema.merges, schema.value)
        for run in runs:
            for part in run.parts or (run,):
                check_successor(part.schema, schema, part.name)
        self.schema = schema
        self.runs = tuple(runs)
        self.merges = schema.merges
        self.within = within
        self.floor = highest([floor, *(run.floor for run in runs)])

    # reading

    def get(self, keys: pa.RecordBatch) -> Looked:
        """The values of keys, row by row as they were asked for."""
        return look_up((self,), keys)

    def scan(
        self, within: SlotRange = EVERYTHING, times: TimeRange | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Key and value columns of every key, in the order of slots, block by block."""
        if not within.meets(self.within):
            return
        part = within.cut(self.within)
        if times is not None and self.schema.by_time:
            batches = scan_times(self.runs, self.schema, times, within=part, floor=self.floor)
        else:
            pruned = times if self.schema.time in self.schema.key.names else None
            batches = scan_runs(
                self.runs, self.schema, within=part, bottom=True, floor=self.floor, times=pruned
            )
        for batch in batches:
            wanted = batch
            if times is not None:
                wanted = batch.filter(pa.array(times.mask(self.schema.times_of(batch))))
            if wanted.num_rows:
                yield self.schema.rows_of(wanted)

    def groups(self, keys: Sequence[pa.Array]) -> pa.RecordBatch:
        """The rows of groups with these normalised keys, and perhaps a few of other groups."""
        found = scan_groups(self.runs, self.schema, ranges_of_groups(keys), floor=self.floor)
        rows = [self.schema.rows_of(batch) for batch in found]
        return rows[0] if rows else pa.RecordBatch.from_pylist([], self.schema.row)

    def statistics(self, *, count: bool = False) -> Statistics:
        """Sizes; with *count* also how many keys there are, for which everything is read."""
        return Statistics(
            rows=sum(run.rows for run in self.runs),
            bytes=sum(run.size for run in self.runs),
            runs=sum(len(run.parts) or 1 for run in self.runs),
            read_amplification=float(len(self.runs)),
            live=sum(batch.num_rows for batch in self.scan()) if count else None,
        )

    # changing

    def apply(self, changed: pa.RecordBatch, *, old_values: bool = True) -> Applied:
        """Merge new values into what the keys have; nothing is changed here.

        The run counts once it is in a list: `with_run`. Without *old_values*, and if new values
        simply take the place of old ones, nothing is looked up.
        """
        check_changes(self.schema, changed, self.within)
        self._check_not_expired(changed)
        deletes = deletes_of_batch(changed)
        new = self.schema.values_of(changed)
        if old_values or self.merges:
            old = self.look(slots_of_batch(changed), self.schema.keys_of(changed))
        else:
            old = Looked(np.zeros(changed.num_rows, np.bool_), _nulls(new))
        if self.merges:
            found, called = old.found & ~deletes, self.schema.called
            new = merge_rows(self.merges, old.values, new, found, called=called)
            if deletes.any():  # a count of nothing is 0, but here nothing is to be left
                emptied = null_where(new.columns, deletes)
                new = pa.RecordBatch.from_arrays(emptied, schema=new.schema)
        run = self._run(changed, new)
        if old_values or self.merges:
            run = _without(run, deletes & ~old.found)  # a delete of what is not there
        keys = pa.RecordBatch.from_arrays(self.schema.keys_of(changed), schema=self.schema.key)
        return Applied(keys, old, Looked(~deletes, new), run)

    def expire(self, before: int) -> tuple[Iterator[pa.RecordBatch], pa.RecordBatch]:
        """The rows that go when everything before a time goes; and the run that says so."""
        if self.schema.time is None:
            raise UsageError("this state has no time column to expire rows by")
        gone = self.scan(times=TimeRange(self.floor, before))
        arrow = self.schema.run_with(highest([before, self.floor]))
        return gone, pa.RecordBatch.from_pylist([], arrow)

    def with_run(self, run: Run) -> StatePartition:
        """The same partition with one run more on top."""
        return self.with_runs((*self.runs, run))

    def with_runs(self, runs: Sequence[Run]) -> StatePartition:
        return StatePartition(
            self.schema, runs, merges=self.merges, within=self.within, floor=self.floor
        )

    def plan_compaction(self, *, fan_out: int = FAN_OUT, runs_max: int = RUNS_MAX) -> range | None:
        """Which runs should become one now, with those that a compaction of them would make due."""
        sizes = [run.size for run in self.runs]
        chosen = None
        while (further := plan_compaction(sizes, fan_out=fan_out, runs_max=runs_max)) is not None:
            if chosen is None:
                chosen = further
            elif chosen.start in further:  # all newer ones are in it already, as one
                chosen = range(further.start, chosen.stop + further.stop - chosen.start - 1)
            else:
                break
            sizes = [run.size for run in self.runs]
            sizes[chosen.start : chosen.stop] = [sum(sizes[chosen.start : chosen.stop])]
        return chosen

    def compact(
        self, chosen: range, write: Callable[[Iterator[pa.RecordBatch], int | None], Run]
    ) -> StatePartition:
        """The partition with the *chosen* runs as the one that *write* makes of their rows."""
        runs = self.runs[chosen.start : chosen.stop]
        batches = scan_runs(
            runs, self.schema, within=self.within, bottom=chosen.start == 0, floor=self.floor
        )
        made = write(batches, self.floor)
        return self.with_runs((*self.runs[: chosen.start], made, *self.runs[chosen.stop :]))

    # steps

    def look(self, slots: Slots, keys: Sequence[pa.Array]) -> Looked:
        """Newest run first; a key that was found is not looked for again."""
        asked: list[Rows] = []
        rows: list[pa.RecordBatch] = []
        left, left_slots = np.arange(len(slots)), slots
        for run in reversed(self.runs):
            if not left.size:
                break
            hits = find(run, self.schema, left_slots, keys, left)
            if hits is None:
                continue
            asked.append(left.take(hits.asked))
            rows.append(hits.rows)
            missing = np.ones(len(left), np.bool_)
            missing[hits.asked] = False
            rest = missing.nonzero()[0]  # rows by number are taken faster than rows by a mask
            left, left_slots = left.take(rest), left_slots.take(rest)
        return self._aligned(len(slots), asked, rows)

    def _aligned(self, count: int, asked: list[Rows], rows: list[pa.RecordBatch]) -> Looked:
        """What was found, in the order of the request; deletes and expired rows are not there."""
        if not rows:
            return Looked(np.zeros(count, np.bool_), _all_null(self.schema.value, count))
        found = pa.concat_batches(rows)
        place = np.full(count, -1, np.int64)
        place[np.concatenate(asked)] = np.arange(found.num_rows)
        there = ~deletes_of_batch(found)
        if self.floor is not None and self.schema.time is not None:
            there &= self.schema.times_of(found) >= self.floor
        hit = place >= 0
        hit[hit] = there[place[hit]]
        taken = self.schema.values_of(found).take(pa.array(place, mask=~hit))
        return Looked(hit, taken)

    def _run(self, changed: pa.RecordBatch, new: pa.RecordBatch) -> pa.RecordBatch:
        if not self.merges:
            return changed
        columns = [*changed.columns[: SYSTEM_COLUMNS + len(self.schema.key)], *new.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema.run)

    def _check_not_expired(self, changed: pa.RecordBatch) -> None:
        if self.floor is None or self.schema.time is None:
            return
        late = int(np.count_nonzero(self.schema.times_of(changed) < self.floor))
        if late:
            raise UsageError(
                f"{late} changes are from before {self.floor}, and everything before that is gone",
                advice="Late rows are to be left out, and counted, before they get here",
            )


def look_up(partitions: Sequence[StatePartition], keys: pa.RecordBatch) -> Looked:
    """The values of keys, row by row, from whichever of *partitions* owns each."""
    schema = partitions[0].schema
    columns = key_columns(schema, keys)
    slots = slots_in(schema, columns)
    order = np.argsort(slots, kind="stable")
    slots, columns = slots[order], [column.take(pa.array(order)) for column in columns]
    values = []
    row = np.full(len(order), -1, np.int64)
    rows = 0
    for partition in partitions:
        part = partition.within.slice_of(slots)
        size = part.stop - part.start
        looked = partition.look(slots[part], [c.slice(part.start, size) for c in columns])
        row[order[part]] = np.where(looked.found, np.arange(rows, rows + size), -1)
        values.append(looked.values)
        rows += size
    found = row >= 0
    return Looked(found, pa.concat_batches(values).take(pa.array(row, mask=~found)))


def _without(run: pa.RecordBatch, dropped: Mask) -> pa.RecordBatch:
    return run.filter(pa.array(~dropped)) if dropped.any() else run


def _nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    return _all_null(batch.schema, batch.num_rows)


def _all_null(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    columns = [pa.nulls(rows, field.type) for field in schema]
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    return pa.RecordBatch.from_arrays(columns, schema=nullable)

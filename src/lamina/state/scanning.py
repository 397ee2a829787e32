"""Several runs as one: newest wins. Streamed, in memory that does not depend on their size.

The key space is walked in windows, cut where blocks end, so that all rows of a slot are in one
window. In a window rows are brought together newest first and sorted stably: then the first row of
a key is its newest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lamina.state.keys import canonical, equal
from lamina.state.run import Run, TimeRange, deletes_of_batch, slots_of_batch
from lamina.state.run_file import BLOCK_BYTES, BLOCK_ROWS
from lamina.state.schema import DELETE, OP, SLOT, SYSTEM_COLUMNS, StateSchema, null_where
from lamina.state.vnodes import EVERYTHING, Mask, Rows, SlotRange, Slots, timed_ranges

STEP_ROWS = 32 * 1024


def scan_runs(
    runs: Sequence[Run],
    schema: StateSchema,
    *,
    within: SlotRange = EVERYTHING,
    bottom: bool,
    floor: int | None = None,
    times: TimeRange | None = None,
) -> Iterator[pa.RecordBatch]:
    """The newest row of every key, in order; *runs* are oldest first.

    At the *bottom* deletes have nothing left to hide and go. What is older than *floor* is a
    delete. With *times* blocks without any of them are passed over, see `Run.slices`.
    """
    floor = highest([floor, *(run.floor for run in runs)])
    newest_first = [run for run in reversed(runs) if run.blocks]
    for window in _windows(newest_first, within):
        parts = [part for run in newest_first for part in run.slices(schema, window, times)]
        for step in _steps(parts):
            batch = newest_rows(step, schema)
            batch = _expired(batch, schema, floor)
            if bottom:
                batch = without_deletes(batch)
            if batch.num_rows:
                yield batch


def scan_times(
    runs: Sequence[Run],
    schema: StateSchema,
    times: TimeRange,
    *,
    within: SlotRange = EVERYTHING,
    floor: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The newest rows of a range of time, and a few around it, of state in the order of time.

    They are looked for where they stand: what is later is not touched, however much there is.
    """
    firsts, lasts = timed_ranges(within, times.since, times.before)
    yield from _scan_ranges(runs, schema, firsts, lasts, times=times, floor=floor)


def scan_groups(
    runs: Sequence[Run],
    schema: StateSchema,
    ranges: tuple[Slots, Slots],
    *,
    floor: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The newest rows of groups, and a few of others, of state that is found by groups."""
    floor = highest([floor, *(run.floor for run in runs)])
    yield from _scan_ranges(runs, schema, *ranges, times=TimeRange(floor), floor=floor)


def _scan_ranges(
    runs: Sequence[Run],
    schema: StateSchema,
    firsts: Slots,
    lasts: Slots,
    *,
    times: TimeRange,
    floor: int | None,
) -> Iterator[pa.RecordBatch]:
    """The newest rows in ranges of slots, which are sorted and do not overlap.

    Only for a time that is in the key: blocks without any of *times* are passed over.
    """
    parts = []
    for run in reversed(runs):
        starts_in = np.searchsorted(lasts, run.firsts, "left")
        ends_in = np.searchsorted(firsts, run.lasts, "right")
        for index in np.flatnonzero(starts_in < ends_in).tolist():
            if not times.meets(run.blocks[index]):
                continue
            batch = run.batch(index, schema)
            wanted = slice(starts_in[index], ends_in[index])
            slots = slots_of_batch(batch)
            starts = slots.searchsorted(firsts[wanted], "left")
            sizes = slots.searchsorted(lasts[wanted], "right") - starts
            if sizes.any():
                rows = np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
                parts.append(batch.take(pa.array(rows)))
    if parts:
        batch = _expired(newest_rows(parts, schema), schema, floor)
        yield without_deletes(batch)


def newest_rows(parts: Sequence[pa.RecordBatch], schema: StateSchema) -> pa.RecordBatch:
    """One batch with the first row of each key; *parts* are sorted, newest first."""
    batch = parts[0] if len(parts) == 1 else pa.concat_batches(_plain(parts))
    slots = slots_of_batch(batch)
    if not np.any(slots[1:] <= slots[:-1]):
        return batch
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    again = np.r_[False, ordered[1:] == ordered[:-1]]  # the slot of the row before
    if again.any():
        order = order[_first_of_key(batch, schema, order, ordered, again)]
    return batch.take(pa.array(order))


def without_deletes(batch: pa.RecordBatch) -> pa.RecordBatch:
    deletes = deletes_of_batch(batch)
    return batch.filter(pa.array(~deletes)) if deletes.any() else batch


def highest(floors: Sequence[int | None]) -> int | None:
    """Floors only rise: the highest holds."""
    return max((floor for floor in floors if floor is not None), default=None)


def _first_of_key(
    batch: pa.RecordBatch, schema: StateSchema, order: Rows, ordered: Slots, again: Mask
) -> Rows:
    """Which of the *order*ed rows stay. Nearly always the slot tells; else the keys do."""
    later = np.flatnonzero(again)
    keys = schema.keys_of(batch)
    this, before = pa.array(order[later]), pa.array(order[later - 1])
    same = equal([k.take(this) for k in keys], [k.take(before) for k in keys])
    if same.all():
        return np.flatnonzero(~again)
    return _with_collisions(keys, order, ordered, again)


def _with_collisions(keys: Sequence[pa.Array], order: Rows, ordered: Slots, again: Mask) -> Rows:
    """Some slot has several keys: order its rows by key, the newest of each first."""
    kept = np.flatnonzero(~again & ~np.r_[again[1:], False])  # alone in their slot
    tied = np.flatnonzero(again | np.r_[again[1:], False])
    chosen = pa.array(order[tied])
    names = canonical([k.take(chosen) for k in keys]).to_pylist()
    ranked = sorted(range(len(tied)), key=lambda i: (int(ordered[tied[i]]), names[i]))
    first = [
        i
        for n, i in enumerate(ranked)
        if n == 0
        or ordered[tied[i]] != ordered[tied[ranked[n - 1]]]
        or names[i] != names[ranked[n - 1]]
    ]
    places = np.concatenate([kept, tied[first]])
    # Equal slots keep the order of their names: the sort is stable, and `first` is in it.
    return places[np.argsort(ordered[places], kind="stable")]


def _windows(runs: Sequence[Run], within: SlotRange) -> Iterator[SlotRange]:
    """Ranges of slots with about a block of rows or bytes each, together all of *within*."""
    ends = [(block.last_slot, block.rows, block.size) for run in runs for block in run.blocks]
    start, rows, size = within.first, 0, 0
    for last, block_rows, block_size in sorted(ends):
        rows, size = rows + block_rows, size + block_size
        full = rows >= BLOCK_ROWS or size >= BLOCK_BYTES
        if full and start <= last < within.last:
            yield SlotRange(start, last)
            start, rows, size = last + 1, 0, 0
    if start <= within.last:
        yield SlotRange(start, within.last)


def _steps(parts: Sequence[pa.RecordBatch]) -> Iterator[Sequence[pa.RecordBatch]]:
    """The rows of a window in steps of a good size, for memory's sake; a slot is in one of them."""
    slots = [slots_of_batch(part) for part in parts]
    rows = sum(map(len, slots))
    if len(parts) < 2 or rows < 2 * STEP_ROWS:
        yield from (parts,) if parts else ()
        return
    longest = max(slots, key=len)
    pivots = longest[:: max(1, STEP_ROWS * len(longest) // rows)][1:]
    cuts = [[0, *each.searchsorted(pivots, "right").tolist(), len(each)] for each in slots]
    for number in range(len(pivots) + 1):
        cut = [(part, *at[number : number + 2]) for part, at in zip(parts, cuts, strict=True)]
        step = [part.slice(start, end - start) for part, start, end in cut if end > start]
        if step:
            yield step


def _expired(batch: pa.RecordBatch, schema: StateSchema, floor: int | None) -> pa.RecordBatch:
    """Rows from before the floor as deletes: an older row of the key must not come back."""
    if floor is None or schema.time is None:
        return batch
    gone = schema.times_of(batch) < floor
    gone &= ~deletes_of_batch(batch)
    if not gone.any():
        return batch
    operations = np.where(gone, np.uint8(DELETE), batch.column(OP).to_numpy())
    values = null_where(batch.columns[SYSTEM_COLUMNS + len(schema.key) :], gone)
    columns = [batch.column(SLOT), pa.array(operations), *schema.keys_of(batch), *values]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _plain(parts: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """With one and the same schema: floors differ from run to run."""
    return [part.replace_schema_metadata(parts[0].schema.metadata) for part in parts]

"""A run: an immutable batch of whole new values and deletes, sorted by slot.

It is one thing in three places: in memory while its epoch is being made, in the WAL once that is
committed, in a file after a compaction. Readers see blocks: Arrow batches that are mapped, proven
and looked at one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from lamina.errors import UsageError
from lamina.format.run_footer import Block
from lamina.state.key_columns import fixed_values
from lamina.state.keys import canonical, equal
from lamina.state.schema import DELETE, OP, PUT, SLOT, StateSchema, floor_of_run, schema_of_run
from lamina.state.slot_index import SlotIndex
from lamina.state.vnodes import EVERYTHING, Mask, Rows, SlotRange, Slots

Load = Callable[[int], pa.RecordBatch]
_WORDS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


@dataclass(frozen=True)
class Run:
    """Blocks in the order of their slots, and what is known without touching them."""

    name: str
    schema: StateSchema  # as it was written
    floor: int | None
    first_epoch: int
    last_epoch: int
    rows: int
    size: int
    blocks: tuple[Block, ...]
    load: Load  # a block's batch, proven
    within: SlotRange = EVERYTHING  # where it has rows that count
    path: Path | None = None  # of a run file
    inputs: tuple[str, ...] = ()  # of a compacted one: the names of what it was made of
    compression: str | None = None  # of its buffers: then every look unpacks a block
    parts: tuple[Run, ...] = ()  # of a layer: the runs that stand side by side in it
    deletes: int | None = None  # among its rows, if that is known
    indexes: tuple[SlotIndex, ...] = field(default=(), compare=False, repr=False)
    """Of every block; a copy of a run with the same blocks has the same ones."""

    def __post_init__(self) -> None:
        if len(self.indexes) != len(self.blocks):
            object.__setattr__(self, "indexes", tuple(SlotIndex() for _ in self.blocks))

    @property
    def leaves(self) -> tuple[Run, ...]:
        """The runs that it is made of: itself, unless it is a layer."""
        return self.parts or (self,)

    @cached_property
    def firsts(self) -> Slots:
        return np.array([block.first_slot for block in self.blocks], np.uint64)

    @cached_property
    def lasts(self) -> Slots:
        return np.array([block.last_slot for block in self.blocks], np.uint64)

    def batch(self, index: int, schema: StateSchema) -> pa.RecordBatch:
        """A block, with the columns of today's *schema*."""
        return schema.adapt(self.load(index))

    def slices(
        self,
        schema: StateSchema,
        within: SlotRange = EVERYTHING,
        times: TimeRange | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a range of slots, block by block, not copied.

        Blocks that hold none of *times* are passed over: only for a time that is in the key, where
        all rows of a key have the same.
        """
        start = int(np.searchsorted(self.lasts, np.uint64(within.first), "left"))
        end = int(np.searchsorted(self.firsts, np.uint64(within.last), "right"))
        for index in range(start, end):
            if times is not None and not times.meets(self.blocks[index]):
                continue
            batch = self.batch(index, schema)
            part = within.slice_of(slots_of_batch(batch))
            if part.stop > part.start:
                yield batch.slice(part.start, part.stop - part.start)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From *since* on, and before *before*; None means no limit."""

    since: int | None = None
    before: int | None = None

    def meets(self, block: Block) -> bool:
        """Whether a block may hold such a time; one that knows no times may."""
        if block.time_min is None or block.time_max is None:
            return True
        return (self.since is None or block.time_max >= self.since) and (
            self.before is None or block.time_min < self.before
        )

    def mask(self, times: Rows) -> Mask:
        found = np.ones(len(times), np.bool_)
        if self.since is not None:
            found &= times >= self.since
        if self.before is not None:
            found &= times < self.before
        return found


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows of a run that were asked for: the request's row numbers, and the rows, aligned."""

    asked: Rows
    rows: pa.RecordBatch


def run_of_batch(
    batch: pa.RecordBatch, *, name: str = "", first_epoch: int = 0, last_epoch: int = 0
) -> Run:
    """A sorted batch as a run of one block; its buffers are used as they are."""
    schema = schema_of_run(batch.schema, name)
    return Run(
        name=name,
        schema=schema,
        floor=floor_of_run(batch.schema),
        first_epoch=first_epoch,
        last_epoch=last_epoch,
        rows=batch.num_rows,
        size=batch.nbytes,
        blocks=(block_of(batch, schema, size=batch.nbytes),) if batch.num_rows else (),
        load=lambda _: batch,
        deletes=int(np.count_nonzero(deletes_of_batch(batch))),
    )


def block_of(
    batch: pa.RecordBatch, schema: StateSchema, *, offset: int = 0, size: int = 0
) -> Block:
    """What is to be known about a block before anybody reads it."""
    slots = slots_of_batch(batch)
    low = high = None
    if schema.time is not None:
        times = schema.times_of(batch)
        low, high = int(times.min()), int(times.max())
    return Block(offset, size, 0, batch.num_rows, int(slots[0]), int(slots[-1]), low, high)


def find(
    run: Run,
    schema: StateSchema,
    slots: Slots,
    keys: Sequence[pa.Array],
    rows: Rows | None = None,
) -> Hits | None:
    """Look keys up; *slots* are sorted. None if the run has none of them.

    *keys* are theirs, or, with *rows*, those of more: *rows* says which is whose.
    Binary search for all of them at once. That a slot has the right key is asked in the end, once:
    a slot with several keys is so rare that it may cost.
    """
    starts = np.searchsorted(slots, run.firsts, "left")
    ends = np.searchsorted(slots, run.lasts, "right")
    asked: list[Rows] = []
    places: list[tuple[pa.RecordBatch, Rows]] = []
    for index in np.flatnonzero(starts < ends).tolist():
        batch = run.batch(index, schema)
        wanted = slots[starts[index] : ends[index]]
        which, at = run.indexes[index].find(slots_of_batch(batch), wanted)
        if which.size:
            asked.append(which + starts[index])
            places.append((batch, at))
    if not places:
        return None
    which = np.concatenate(asked)
    found = Hits(which, _rows_at(places, schema, slots.take(which), run.deletes))
    if _same_keys(found, schema, keys, rows).all():
        return found
    return _walk_collisions(run, schema, slots, keys, found.asked, rows)


def _rows_at(
    places: Sequence[tuple[pa.RecordBatch, Rows]],
    schema: StateSchema,
    slots: Slots,
    deletes: int | None,
) -> pa.RecordBatch:
    """The rows of several blocks, one after the other. What is known anyway is not read again."""
    columns = [pa.array(slots)]
    if deletes == 0:
        columns.append(pa.array(np.full(len(slots), PUT, np.uint8)))
    for number in range(len(columns), len(schema.run)):
        parts = [(batch.column(number), at) for batch, at in places]
        columns.append(_values_at(parts, schema.run.field(number).type))
    return pa.RecordBatch.from_arrays(columns, schema=schema.run.remove_metadata())


def _values_at(parts: Sequence[tuple[pa.Array, Rows]], kind: pa.DataType) -> pa.Array:
    """Arrow's own take costs more than the values, where a block has few of them."""
    word = _WORDS.get(kind.bit_width) if pa.types.is_primitive(kind) else None
    if word is None or any(column.null_count for column, _ in parts):
        return pa.concat_arrays([column.take(pa.array(at)) for column, at in parts])
    values = np.concatenate([fixed_values(column, word).take(at) for column, at in parts])
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _slots_in(here: Slots, slots: Slots, asked: Rows) -> tuple[Rows, Rows]:
    """Which of the slots *asked* for are in a block, and at which row each begins."""
    at = np.searchsorted(here, slots[asked], "left")
    inside = at < len(here)
    inside[inside] = here[at[inside]] == slots[asked[inside]]
    return asked[inside], at[inside]


def _same_keys(
    found: Hits, schema: StateSchema, keys: Sequence[pa.Array], rows: Rows | None
) -> Mask:
    wanted = pa.array(found.asked if rows is None else rows.take(found.asked))
    return equal(schema.keys_of(found.rows), [column.take(wanted) for column in keys])


def _walk_collisions(  # noqa: PLR0917  what `find` has, and what it found
    run: Run,
    schema: StateSchema,
    slots: Slots,
    keys: Sequence[pa.Array],
    candidates: Rows,
    rows_of: Rows | None,
) -> Hits | None:
    """Every row of the slots in question, one after the other, in every block that has them."""
    asked, rows = [], []
    candidates = np.unique(candidates)
    for index, block in enumerate(run.blocks):
        part = SlotRange(block.first_slot, block.last_slot).slice_of(slots[candidates])
        if part.start == part.stop:
            continue
        batch = run.batch(index, schema)
        here = slots_of_batch(batch)
        left, at = _slots_in(here, slots, candidates[part])
        while left.size:
            taken = batch.take(pa.array(at)).replace_schema_metadata(None)
            same = _same_keys(Hits(left, taken), schema, keys, rows_of)
            asked.append(left[same])
            rows.append(taken.filter(pa.array(same)))
            left, at = left[~same], at[~same] + 1
            inside = at < len(here)
            inside[inside] = here[at[inside]] == slots[left[inside]]
            left, at = left[inside], at[inside]
    found = np.concatenate(asked) if asked else np.zeros(0, np.int64)
    return Hits(found, pa.concat_batches(rows)) if found.size else None


def slots_of_batch(batch: pa.RecordBatch) -> Slots:
    """The slot column, not copied."""
    slots: Slots = batch.column(SLOT).to_numpy()
    return slots


def deletes_of_batch(batch: pa.RecordBatch) -> Mask:
    return np.asarray(batch.column(OP).to_numpy() == DELETE)


def sort_order(slots: Slots, keys: Sequence[pa.Array]) -> Rows | None:
    """How to put rows in the order of a run; None if they are.

    Raises UsageError for a key that is there twice.
    """
    order = None
    if np.any(slots[1:] < slots[:-1]):
        order = by_slot(slots)
        slots = slots.take(order)
    equal_next = slots[1:] == slots[:-1]
    if equal_next.any():
        order = _order_collisions(slots, equal_next, keys, order)
        return None if np.array_equal(order, np.arange(len(order))) else order
    return order


def by_slot(slots: Slots) -> Rows:
    """The rows in the order of their slots; rows of one slot as they came.

    Numbers are sorted many times faster than an order of them is found. So a row's number takes the
    place of the lowest bits of its slot: hashes that differ only there are rare.
    """
    low = np.uint64((1 << max(len(slots) - 1, 0).bit_length()) - 1)
    packed = (slots & ~low) | np.arange(len(slots), dtype=np.uint64)
    packed.sort()
    order: Rows = (packed & low).view(np.int64)
    ordered = slots.take(order)
    if np.any(ordered[1:] < ordered[:-1]):
        return np.argsort(slots, kind="stable")
    return order


def by_number(numbers: Rows) -> Rows:
    """The rows in the order of their numbers, none of them negative; equal ones as they came."""
    bits = max(len(numbers) - 1, 0).bit_length()
    if not len(numbers) or int(numbers.max()).bit_length() + bits > 63:
        return np.argsort(numbers, kind="stable")
    packed = (numbers << bits) | np.arange(len(numbers))
    packed.sort()
    order: Rows = packed & ((1 << bits) - 1)
    return order


def by_key_and_time(key_of: Rows, times: Rows) -> Rows:
    """The rows of a key by time; those of equal times as they came."""
    if not len(times):
        return np.zeros(0, np.int64)
    earliest, span = int(times.min()), int(times.max()) - int(times.min()) + 1
    if (int(key_of.max()) + 1) * span >= 1 << 63:
        return np.lexsort((times, key_of))
    return by_number(key_of * span + (times - earliest))


def _order_collisions(
    slots: Slots, equal_next: Mask, keys: Sequence[pa.Array], order: Rows | None
) -> Rows:
    """Rows with one slot come in the order of their canonical key bytes."""
    order = np.arange(len(slots)) if order is None else order.copy()
    tied = np.flatnonzero(np.r_[equal_next, False] | np.r_[False, equal_next])
    chosen = pa.array(order[tied])
    names = canonical([column.take(chosen) for column in keys]).to_pylist()
    ranked = sorted(range(len(tied)), key=lambda i: (int(slots[tied[i]]), names[i]))
    for before, after in pairwise(ranked):
        if slots[tied[before]] == slots[tied[after]] and names[before] == names[after]:
            row = {str(i): column[int(order[tied[after]])].as_py() for i, column in enumerate(keys)}
            raise UsageError(f"a key occurs twice: {str(tuple(row.values()))[:200]}")
    order[tied] = order[tied[ranked]]
    return order

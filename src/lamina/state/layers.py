"""Runs of several partitions as the state of one: rescaling is opening the same files.

A run of another P may hold more vnodes than are wanted: it is restricted to a slice. It may hold
fewer: then runs stand side by side and together are one layer, which is a run itself. So any list
of runs becomes a stack of layers that is as deep as the deepest vnode, whatever P was and is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import pyarrow as pa

from lamina.format.run_footer import Block
from lamina.state.run import Run, slots_of_batch
from lamina.state.vnodes import SlotRange


@dataclass(frozen=True, slots=True)
class PlacedRun:
    """A run, and the part of the key space that it may hold rows of."""

    run: Run
    within: SlotRange


def stack(placed: Iterable[PlacedRun], within: SlotRange) -> tuple[Run, ...]:
    """The state of *within*, oldest layer first; *placed* are oldest first where they overlap."""
    layers: list[list[PlacedRun]] = []
    for each in placed:
        if not each.within.meets(within):
            continue
        level = _above(layers, each)
        if level == len(layers):
            layers.append([])
        layers[level].append(each)
    return tuple(_layer(layer, within) for layer in layers)


def restricted(run: Run, within: SlotRange) -> Run:
    """The slice of a run that is in a part of the key space; nothing is copied or touched."""
    start = int(np.searchsorted(run.lasts, np.uint64(within.first), "left"))
    end = int(np.searchsorted(run.firsts, np.uint64(within.last), "right"))
    blocks = tuple(_cut(block, within) for block in run.blocks[start:end])
    whole = sum(block.rows for block in run.blocks)
    rows = sum(block.rows for block in blocks)

    def load(index: int) -> pa.RecordBatch:
        batch = run.load(start + index)
        part = within.slice_of(slots_of_batch(batch))
        return batch.slice(part.start, part.stop - part.start)

    size = run.size * rows // whole if whole else 0
    deletes = 0 if run.deletes == 0 else None
    return replace(
        run,
        blocks=blocks,
        rows=rows,
        size=size,
        load=load,
        within=within,
        deletes=deletes,
        indexes=(),  # those of whole blocks would be wrong
    )


def _above(layers: Sequence[Sequence[PlacedRun]], placed: PlacedRun) -> int:
    """One above the highest layer that has something of the same part."""
    for level in range(len(layers), 0, -1):
        if any(other.within.meets(placed.within) for other in layers[level - 1]):
            return level
    return 0


def _layer(layer: Sequence[PlacedRun], within: SlotRange) -> Run:
    """Runs of different parts, side by side, as one."""
    ordered = sorted(layer, key=lambda placed: placed.within.first)
    runs = [_fitted(placed, within) for placed in ordered]
    if len(runs) == 1:
        return runs[0]
    starts = [0, *accumulate(len(run.blocks) for run in runs)]
    floors = [run.floor for run in runs if run.floor is not None]

    def load(index: int) -> pa.RecordBatch:
        at = int(np.searchsorted(starts, index, "right")) - 1
        return runs[at].load(index - starts[at])

    return Run(
        name=" + ".join(run.name for run in runs),
        schema=runs[-1].schema,
        floor=max(floors, default=None),
        first_epoch=min(run.first_epoch for run in runs),
        last_epoch=max(run.last_epoch for run in runs),
        rows=sum(run.rows for run in runs),
        size=sum(run.size for run in runs),
        blocks=tuple(block for run in runs for block in run.blocks),
        load=load,
        within=within,
        parts=tuple(runs),
        deletes=0 if all(run.deletes == 0 for run in runs) else None,
    )


def _fitted(placed: PlacedRun, within: SlotRange) -> Run:
    run, part = placed.run, placed.within.cut(within)
    inside = not run.blocks or (
        part.first <= run.blocks[0].first_slot and run.blocks[-1].last_slot <= part.last
    )
    return replace(run, within=part) if inside else restricted(run, part)


def _cut(block: Block, within: SlotRange) -> Block:
    """A block at an edge: its slots are bounds now, its rows an estimate."""
    first, last = max(block.first_slot, within.first), min(block.last_slot, within.last)
    if (first, last) == (block.first_slot, block.last_slot):
        return block
    share = (last - first) / max(1, block.last_slot - block.first_slot)
    rows = max(1, int(block.rows * share))  # a slice that may have rows never counts as empty
    return replace(block, rows=rows, first_slot=first, last_slot=last)

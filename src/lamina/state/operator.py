"""All partitions of one operator: where its state is.

The lists of runs are values. A new epoch puts a run on top of some of them, a compaction puts one
in the place of several, a checkpoint notes under which entry the store has a run: each gives new
lists, and readers of older ones are not disturbed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

import pyarrow as pa

from lamina.format import manifest_model as stored_model
from lamina.format.manifest_model import KeyedState, StateColumn
from lamina.state.changes import split
from lamina.state.layers import PlacedRun, stack
from lamina.state.local import RunFolder
from lamina.state.merge import Merge
from lamina.state.partition import Applied, StatePartition
from lamina.state.run import Run
from lamina.state.schema import StateSchema
from lamina.state.vnodes import SlotRange, check_partitions

HASH = "spark-murmur3-xxhash64-1"
"""The functions of hashing.py, as manifests name them: never another meaning."""

Entry = stored_model.RunEntry


@dataclass(frozen=True)
class OperatorState:
    """The partitions of an operator, and the store's entry of every run it has, by name."""

    schema: StateSchema
    partitions: tuple[StatePartition, ...]
    stored: Mapping[str, Entry] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        schema: StateSchema,
        partitions: int,
        *,
        merges: Sequence[Merge] = (),
        placed: Iterable[PlacedRun] = (),
        stored: Mapping[str, Entry] | None = None,
    ) -> OperatorState:
        """The state that *placed* runs are, oldest first, as that of P partitions."""
        if merges and tuple(merges) != schema.merges:
            schema = replace(schema, merges=tuple(merges))
        by_range: dict[SlotRange, list[tuple[int, PlacedRun]]] = {}
        for number, each in enumerate(placed):
            by_range.setdefault(each.within, []).append((number, each))
        lists = []
        for within in ranges_of(partitions):
            mine = [item for part, runs in by_range.items() if part.meets(within) for item in runs]
            mine.sort(key=itemgetter(0))  # as they came: oldest first
            runs = stack((each for _, each in mine), within)
            lists.append(StatePartition(schema, runs, within=within))
        return cls(schema, tuple(lists), stored or {})

    @property
    def floor(self) -> int | None:
        return max((p.floor for p in self.partitions if p.floor is not None), default=None)

    def keyed(self) -> KeyedState:
        """What a manifest says about the keys (R9)."""
        return KeyedState(
            partitions=len(self.partitions),
            hash=HASH,
            key=columns_of(self.schema.key),
            value=columns_of(self.schema.value),
            time=self.schema.time,
            meanings=self.schema.meanings,
        )

    def apply(self, changed: pa.RecordBatch, *, old_values: bool = True) -> dict[int, Applied]:
        """What sorted changes do to each partition that has some of their keys."""
        parts = split(changed, [partition.within for partition in self.partitions])
        return {
            number: self.partitions[number].apply(part, old_values=old_values)
            for number, part in enumerate(parts)
            if part.num_rows
        }

    @property
    def merges(self) -> tuple[Merge, ...]:
        return self.schema.merges

    def with_schema(self, schema: StateSchema) -> OperatorState:
        """The same runs, read with wider columns."""
        lists = (
            StatePartition(schema, p.runs, within=p.within, floor=p.floor) for p in self.partitions
        )
        return replace(self, schema=schema, partitions=tuple(lists))

    def with_partition(self, number: int, partition: StatePartition) -> OperatorState:
        lists = (*self.partitions[:number], partition, *self.partitions[number + 1 :])
        return replace(self, partitions=lists)

    def compacted(self, folder: RunFolder) -> OperatorState:
        """The same rows in fewer runs, where that is due."""
        state = self
        for number in range(len(self.partitions)):
            while (chosen := state.partitions[number].plan_compaction()) is not None:
                state = state.with_partition(
                    number, compact_runs(state.partitions[number], chosen, folder)
                )
        return state

    def runs(self) -> list[Run]:
        return [run for partition in self.partitions for run in partition.runs]


def compact_runs(partition: StatePartition, chosen: range, folder: RunFolder) -> StatePartition:
    """The partition with the *chosen* runs as one file.

    Layers of a rescaled state may overlap in epochs, where they are of different vnodes. What is
    merged is of all vnodes: neighbours that overlap with it join in, so that the list is in order.
    """
    chosen = _in_order(partition.runs, chosen)
    inputs = partition.runs[chosen.start : chosen.stop]
    return partition.compact(
        chosen,
        lambda batches, floor: folder.write(
            inputs, batches, partition.schema, floor=floor, within=partition.within
        ),
    )


def _in_order(runs: Sequence[Run], chosen: range) -> range:
    """The smallest range around *chosen* that begins after all below it, and ends before all above.

    Only the first compaction after P has become smaller ever takes in more than it was asked to.
    """
    start, end = chosen.start, chosen.stop
    while True:
        first = min(run.first_epoch for run in runs[start:end])
        last = max(run.last_epoch for run in runs[start:end])
        if any(run.last_epoch >= first for run in runs[:start]):
            start -= 1
        elif any(run.first_epoch <= last for run in runs[end:]):
            end += 1
        else:
            return range(start, end)


def ranges_of(partitions: int) -> list[SlotRange]:
    """The part of the key space that each of P partitions owns."""
    check_partitions(partitions)
    return [SlotRange.of_partition(number, partitions) for number in range(partitions)]


def columns_of(schema: pa.Schema) -> tuple[StateColumn, ...]:
    return tuple(StateColumn(field.name, str(field.type), field.nullable) for field in schema)

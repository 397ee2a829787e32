"""The driver's lists of runs, of every stream with state; and what tasks get of them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from lamina.checkpoint.state import SavedOperator, check_keys, check_readable, use_saved
from lamina.engine.model import CompactedRuns, MemoryChange, OperatorPlan, TaskResult
from lamina.engine.pending import pending_names
from lamina.engine.spelling import stored_name
from lamina.engine.steps import Merges, is_keyed
from lamina.engine.task_state import schema_of
from lamina.engine.timers import timers_name
from lamina.errors import StateChanged, UsageError
from lamina.format.commit import WalRange
from lamina.format.manifest_model import OperatorRuns
from lamina.recovery.operators import FoundState
from lamina.state.changes import changes
from lamina.state.local import RunFolder
from lamina.state.meanings import as_stored, check_meanings_kept
from lamina.state.operator import OperatorState
from lamina.state.partition import Looked, look_up
from lamina.state.run import Run
from lamina.state.run_file import open_run
from lamina.state.schema import (
    StateSchema,
    check_definition_kept,
    check_merges_kept,
    check_successor,
)
from lamina.state.vnodes import SlotRange
from lamina.workspace.base import Workspace
from lamina.workspace.model import RunRef


class KeyedMemory:
    """The memory of one source, as of the last COMMIT."""

    def __init__(self, states: States, name: str) -> None:
        self._states = states
        self.name = name

    def find(self, keys: pa.RecordBatch) -> Looked:
        return look_up(self._states.operators[self.name].partitions, keys)

    def scan(self) -> Iterator[pa.RecordBatch]:
        for partition in self._states.operators[self.name].partitions:
            yield from partition.scan()


class States:
    """What each operator's state consists of, as of the last COMMIT."""

    def __init__(self, space: Workspace, partitions: int) -> None:
        self._space = space
        self._partitions = partitions
        self._operators: dict[str, OperatorState] = {}
        self._plans: dict[str, OperatorPlan] = {}
        self._memories: dict[str, KeyedMemory] = {}
        self._ranges: dict[str, WalRange] = {}  # of runs that lie in the WAL, by name

    @property
    def operators(self) -> Mapping[str, OperatorState]:
        return self._operators

    @property
    def wal_epoch(self) -> int:
        """The oldest epoch that a list has a run of in the WAL; that and later WAL must stay."""
        epochs = [leaf.first_epoch for leaf in self._leaves() if leaf.name in self._ranges]
        return min(epochs, default=sys.maxsize)

    def size(self) -> tuple[int, int]:
        """How many runs there are, and their bytes."""
        sizes = [leaf.size for leaf in self._leaves()]
        return len(sizes), sum(sizes)

    def open(
        self,
        name: str,
        plan: OperatorPlan,
        found: FoundState,
        entries: OperatorRuns | None,
        *,
        reuse: bool = False,
    ) -> None:
        """The state of a stream as recovery found it; its columns must be those of today (R9).

        With *reuse* a person has said that the state of a changed SELECT still means the same.
        """
        schema = schema_of(plan)
        check_readable(name, entries)
        if entries is not None and entries.keyed is not None:
            check_keys(name, entries.keyed, schema)
        stored = found.schema(name)
        if stored is not None:
            if is_keyed(plan.step):
                check_meanings_kept(stored, schema, name)
            else:
                schema = as_stored(stored, schema, name, reuse=reuse)
                plan = _renamed(plan, schema)
            if plan.takes_back and len(schema.value) > len(stored.value):
                raise StateChanged(
                    f"{name!r} has a new aggregate over changes: it would take back what it has "
                    "never counted",
                    advice="Give the stream, and the one that it reads, new names",
                )
            check_successor(stored, schema, name)
            check_merges_kept(stored, schema, name)
            if not reuse:
                check_definition_kept(stored, schema.definition, name)
        self._plans[name] = plan
        self._operators[name] = OperatorState.open(
            schema, self._partitions, placed=found.placed, stored=found.stored
        )

    def plan(self, name: str) -> OperatorPlan:
        """The plan of a stream's state, with the names that its columns have there."""
        return self._plans[name]

    def open_memory(
        self, source: str, schema: StateSchema, found: FoundState, *, name: str
    ) -> None:
        """What a source remembers, as recovery found it under *name*."""
        stored = found.schema(name)
        if stored is not None:
            check_successor(stored, schema, name)  # a stream that is gone may have had the name
        self._operators[name] = OperatorState.open(
            schema, self._partitions, placed=found.placed, stored=found.stored
        )
        self._memories[source] = KeyedMemory(self, name)

    def memory(self, source: str) -> KeyedMemory | None:
        return self._memories.get(source)

    def memory_name(self, source: str) -> str:
        """The state that is the memory of a source."""
        return self._memories[source].name

    def remembered(
        self, source: str, learned: MemoryChange, folder: RunFolder
    ) -> dict[int, pa.RecordBatch]:
        """A change as runs of a source's memory, by partition; its own runs are kept few."""
        name = self.memory_name(source)
        self._operators[name] = operator = self._operators[name].compacted(folder)
        applied = operator.apply(_change(operator.schema, learned), old_values=False)
        return {number: each.run for number, each in applied.items()}

    def keep_aside(self, name: str, found: FoundState) -> None:
        """State of a stream that is not in the pipeline any more: checkpoints keep it."""
        schema = found.schema(name)
        if schema is not None:
            self._operators[name] = OperatorState.open(
                schema, self._partitions, placed=found.placed, stored=found.stored
            )

    def dropped(
        self, names: Collection[str], used: Collection[str]
    ) -> dict[str, list[tuple[int, pa.RecordBatch]]]:
        """The runs that delete what is kept aside under *names*, where anything is.

        UsageError if one of them is in *used*: sources, streams and their operators.
        """
        in_use = {*used, *(memory.name for memory in self._memories.values())}
        stored = [stored_name(name, self._operators, "the state of") for name in sorted(names)]
        beside = [each for name in stored for each in (timers_name(name), *pending_names(name))]
        stored += [each for each in beside if each not in in_use]
        for name in stored:
            if name in in_use:
                message = f"the state of {name!r} is in use"
                raise UsageError(message, advice="Take it out of the pipeline first")
        runs = {name: list(self._deletions(name)) for name in stored if name in self._operators}
        return {name: each for name, each in runs.items() if each}

    def _deletions(self, name: str) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Runs that delete every key, with their partitions: right on top of any older state."""
        operator = self._operators[name]
        for number, partition in enumerate(operator.partitions):
            for rows in partition.scan():
                everything = np.ones(rows.num_rows, np.bool_)
                gone = changes(operator.schema, rows, deletes=everything)
                yield number, partition.apply(gone, old_values=False).run

    def note_ranges(self, ranges: Iterable[WalRange]) -> None:
        """Where the runs are that recovery has found in the WAL."""
        for place in ranges:
            self._ranges[f"{place.segment}:{place.offset}"] = place

    def refs(self, name: str) -> tuple[tuple[RunRef, ...], ...]:
        """What the tasks of a stream open, by partition."""
        operator = self._operators[name]
        listed = [
            [self._ref(leaf) for run in partition.runs for leaf in run.leaves]
            for partition in operator.partitions
        ]
        return self._space.send(listed, operator.stored)

    def advance(self, name: str, tasks: Iterable[TaskResult], epoch: int) -> None:
        """After COMMIT: the epoch's runs on top, compacted ones in the place of their inputs."""
        operator = self._operators[name]
        for task in tasks:
            partition = operator.partitions[task.partition]
            runs = list(partition.runs)
            for compacted in task.compacted:
                if compacted.operator == name:
                    runs = _compacted(runs, compacted, partition.within)
            for place in task.ranges:
                if place.operator == name:
                    self.note_ranges([place])
                    run = self._space.open_range(place, epoch, self._partitions)
                    runs.append(replace(run, within=partition.within))
            operator = operator.with_partition(task.partition, partition.with_runs(runs))
        self._operators[name] = operator

    def use_saved(self, name: str, saved: SavedOperator) -> None:
        """A checkpoint exists: its files take the place of WAL runs."""
        self._operators[name] = use_saved(self._operators[name], saved)
        self._forget_ranges()

    def _forget_ranges(self) -> None:
        used = {leaf.name for leaf in self._leaves()}
        self._ranges = {name: place for name, place in self._ranges.items() if name in used}

    def _leaves(self) -> Iterator[Run]:
        for operator in self._operators.values():
            for run in operator.runs():
                yield from run.leaves

    def _ref(self, leaf: Run) -> RunRef:
        place = self._ranges.get(leaf.name)
        if place is None and leaf.path is None:
            raise StateChanged(f"the run {leaf.name} lies in no file that a task could open")
        return RunRef(
            path=str(leaf.path) if place is None else place.segment,
            offset=-1 if place is None else place.offset,
            size=leaf.size if place is None else place.size,
            crc=0 if place is None else place.crc,
            first_epoch=leaf.first_epoch,
            last_epoch=leaf.last_epoch,
            first_slot=leaf.within.first,
            last_slot=leaf.within.last,
        )


def _change(schema: StateSchema, learned: MemoryChange) -> pa.RecordBatch:
    rows = pa.Table.from_batches([learned.rows.select(schema.row.names)])
    gone = np.zeros(rows.num_rows, np.bool_)
    if learned.gone is not None:
        dropped = pa.Table.from_batches([learned.gone])
        rows = pa.concat_tables([rows, dropped], promote_options="default")
        gone = np.arange(rows.num_rows) >= learned.rows.num_rows
    (batch,) = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema.row)]
    return changes(schema, batch, deletes=gone)


def _compacted(runs: list[Run], compacted: CompactedRuns, within: SlotRange) -> list[Run]:
    """The list with a compacted file in the place of its inputs, if they are all there in a row."""
    names = [run.name for run in runs]
    start = names.index(compacted.inputs[0]) if compacted.inputs[0] in names else -1
    if start < 0 or tuple(names[start : start + len(compacted.inputs)]) != compacted.inputs:
        return runs
    made = replace(open_run(Path(compacted.path)), within=within, inputs=compacted.inputs)
    return [*runs[:start], made, *runs[start + len(compacted.inputs) :]]


def _renamed(plan: OperatorPlan, schema: StateSchema) -> OperatorPlan:
    """A plan whose state has the names of *schema* for the columns that its runner gives."""
    given = schema_of(plan).row.names
    if given == schema.row.names:
        return plan
    return replace(
        plan,
        value_schema=schema.value.serialize().to_pybytes(),
        step=Merges(schema.merges),
        given=tuple(given),
    )

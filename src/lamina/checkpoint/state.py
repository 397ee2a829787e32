"""Checkpoints of keyed state: only runs that the store does not have are uploaded.

save       the lists of one epoch -> entries of a manifest; what is in the WAL becomes a run file
use_saved  lists that have gone on meanwhile take over the files and entries that were made
restore    entries -> lists, for any P
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lamina.checkpoint.checkpointer import Checkpointer, PartitionData
from lamina.errors import StateChanged
from lamina.format.inline import INLINE_BYTES_MAX
from lamina.format.log import Begin
from lamina.format.manifest_model import KeyedState, OperatorRuns, StateColumn
from lamina.format.manifest_model import RunEntry as Entry
from lamina.state.layers import PlacedRun
from lamina.state.local import RunFolder
from lamina.state.operator import HASH, OperatorState, columns_of, compact_runs
from lamina.state.partition import StatePartition
from lamina.state.run import Run
from lamina.state.run_file import check_run, open_run, with_compression
from lamina.state.schema import StateSchema
from lamina.state.vnodes import SlotRange

INLINE_SUM_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class SavedOperator:
    """The entries of an operator, and what its lists become when the checkpoint exists."""

    runs: OperatorRuns
    partitions: Mapping[int, StatePartition]  # those whose WAL runs are files now
    stored: Mapping[str, Entry]  # every run of the checkpoint, by name: nothing else is reused


@dataclass(frozen=True, slots=True)
class SavedState:
    operators: Mapping[str, SavedOperator]

    def entries(self) -> dict[str, OperatorRuns]:
        return {name: saved.runs for name, saved in self.operators.items()}


@dataclass(slots=True)
class _Upload:
    """A run that the store lacks."""

    operator: str
    partition: int
    run: Run
    kind: str


@dataclass(slots=True)
class _Lists:
    partitions: dict[int, StatePartition] = field(default_factory=dict)
    listed: dict[int, list[Run]] = field(default_factory=dict)  # leaves, oldest first


def save(
    checkpointer: Checkpointer,
    begin: Begin,
    operators: Mapping[str, OperatorState],
    folder: RunFolder,
    *,
    compression: str | None = None,
) -> SavedState:
    """Upload what the parent does not have. May run beside epochs: lists are values.

    With *compression* files are uploaded with compressed buffers; local ones stay as they are.
    """
    lists: dict[str, _Lists] = {}
    uploads: list[_Upload] = []
    for name, operator in sorted(operators.items()):
        lists[name] = found = _Lists()
        for number, partition in enumerate(operator.partitions):
            grounded = _grounded(partition, operator.stored, folder)
            as_files = _as_files(grounded, operator.stored, folder)
            found.partitions[number] = as_files
            found.listed[number] = [leaf for run in as_files.runs for leaf in run.leaves]
            uploads += _missing(name, number, as_files, operator.stored)
    budget = _inline_budget(operators, lists)
    fresh = _upload(checkpointer, begin, uploads, budget=budget, compression=compression)
    saved = {
        name: _saved(operators[name], found, fresh.get(name, {})) for name, found in lists.items()
    }
    return SavedState(saved)


def use_saved(state: OperatorState, saved: SavedOperator) -> OperatorState:
    """Today's lists with the files of a checkpoint in place of the WAL runs they were made of."""
    now = replace(state, stored=saved.stored)
    for number, partition in saved.partitions.items():
        today = now.partitions[number]
        now = now.with_partition(number, _replaced(today, partition))
    names = {leaf.name for run in now.runs() for leaf in run.leaves}
    kept = {name: entry for name, entry in now.stored.items() if name in names}
    return replace(now, stored=kept)


def restore(
    entries: OperatorRuns, open_entry: Callable[[Entry], Run]
) -> tuple[list[PlacedRun], dict[str, Entry]]:
    """The runs of a manifest in their places, oldest first, and the entry of each by name."""
    placed: list[PlacedRun] = []
    stored: dict[str, Entry] = {}
    for number in sorted(entries.partitions):
        for entry in entries.partitions[number]:
            run = open_entry(entry)
            assert entry.ranks is not None, "validation asks for it"
            placed.append(PlacedRun(run, range_of_ranks(entry.ranks)))
            stored[run.name] = entry
    return placed, stored


def check_keys(name: str, keyed: KeyedState, schema: StateSchema) -> None:
    """R9: the keys of stored state are those of today, by function, name and type."""
    if keyed.hash != HASH:
        raise StateChanged(f"{name}: its keys are hashed by {keyed.hash!r}, here by {HASH!r}")
    today = columns_of(schema.key)
    if [(c.name, c.type) for c in keyed.key] != [(c.name, c.type) for c in today]:
        was = _keys_text(keyed.key, keyed.meanings)
        now = _keys_text(today, schema.meanings)
        raise StateChanged(
            f"{name}: the key is ({now}), and ({was}) in its state",
            advice="A key type cannot change: its hash decides where keys are stored. Give the "
            "columns their old types, or start new state",
        )


def _keys_text(keys: Sequence[StateColumn], meanings: Sequence[str]) -> str:
    names = meanings[: len(keys)] or [column.name for column in keys]
    return ", ".join(f"{name} {c.type}" for name, c in zip(names, keys, strict=True))


def check_readable(name: str, entries: OperatorRuns | None) -> None:
    """State that is not keyed columns is carried on, and cannot be gone on with."""
    if entries is not None and entries.partitions and entries.keyed is None:
        raise StateChanged(
            f"{name}: the checkpoint holds state of this name that Lamina did not write as columns",
            advice="Use another name; the state that is there is kept as it is",
        )


def range_of_ranks(ranks: tuple[int, int]) -> SlotRange:
    return SlotRange(ranks[0] << 56, ((ranks[1] + 1) << 56) - 1)


def _grounded(
    partition: StatePartition, stored: Mapping[str, Entry], folder: RunFolder
) -> StatePartition:
    """The same list with every run above the oldest one standing on it wholly.

    After a rescale the oldest layer may have gaps, where partitions were empty. A delta above a gap
    would have nothing below it with the next P, so it becomes one with the oldest. And a run that
    the store has as a delta may be the oldest now, if all below it has expired: it is made anew.
    """
    while partition.runs and (ungrounded := _ungrounded(partition, stored)):
        partition = compact_runs(partition, range(ungrounded[-1] + 1), folder)
    return partition


def _ungrounded(partition: StatePartition, stored: Mapping[str, Entry]) -> list[int]:
    oldest = partition.runs[0].leaves
    held = sorted((leaf.within.first, leaf.within.last) for leaf in oldest)
    kinds = {stored[leaf.name].kind for leaf in oldest if leaf.name in stored}
    return [0] * ("delta" in kinds) + [
        index
        for index, run in enumerate(partition.runs)
        if not all(_is_held(leaf.within.cut(partition.within), held) for leaf in run.leaves)
    ]


def _is_held(within: SlotRange, held: Iterable[tuple[int, int]]) -> bool:
    """Whether *held*, which are in order, have all of it."""
    at = within.first
    for first, last in held:
        if first <= at <= last:
            at = last + 1
    return at > within.last


def _as_files(
    partition: StatePartition, stored: Mapping[str, Entry], folder: RunFolder
) -> StatePartition:
    """The same list with every run a file or an entry: neighbours that are neither become one."""
    runs = partition.runs
    end = len(runs)
    while end:
        start = end
        while start and not _stays(runs[start - 1], stored):
            start -= 1
        if start < end:
            partition = compact_runs(partition, range(start, end), folder)
        end = start - 1 if start else 0
    return partition


def _stays(run: Run, stored: Mapping[str, Entry]) -> bool:
    """Whether the store has it, or a file that can be uploaded as it is."""
    if not run.parts and run.path is not None and run.name not in stored:
        return True
    return all(leaf.name in stored and _fits(leaf, stored[leaf.name]) for leaf in run.leaves)


def _fits(leaf: Run, entry: Entry) -> bool:
    """An inline run is in each list that has a part of it: a slice is better saved again."""
    return entry.path is not None or entry.ranks == ranks_of(leaf.within)


def _missing(
    operator: str, number: int, partition: StatePartition, stored: Mapping[str, Entry]
) -> list[_Upload]:
    return [
        _Upload(operator, number, run, "snap" if index == 0 else "delta")
        for index, run in enumerate(partition.runs)
        if not run.parts and run.name not in stored
    ]


def _inline_budget(operators: Mapping[str, OperatorState], lists: Mapping[str, _Lists]) -> int:
    """What is left for small runs, after those that stay inline."""
    used = sum(
        operators[name].stored[leaf.name].size
        for name, found in lists.items()
        for listed in found.listed.values()
        for leaf in listed
        if leaf.name in operators[name].stored and operators[name].stored[leaf.name].path is None
    )
    return INLINE_SUM_MAX - used


def _upload(
    checkpointer: Checkpointer,
    begin: Begin,
    uploads: Iterable[_Upload],
    *,
    budget: int,
    compression: str | None,
) -> dict[str, dict[str, Entry]]:
    """Small runs into the manifest, smallest first, the others into the store."""
    entries: dict[str, dict[str, Entry]] = {}
    parts: list[PartitionData] = []
    by_place: dict[tuple[str, int, int], _Upload] = {}
    for upload in sorted(uploads, key=lambda u: u.run.size):
        run = upload.run
        assert run.path is not None
        check_run(open_run(run.path))  # a damaged file can be made again; a damaged object cannot
        if run.size <= min(INLINE_BYTES_MAX, budget):
            budget -= run.size
            entry = Entry.inline(
                "snap" if upload.kind == "snap" else "delta",
                run.path.read_bytes(),
                first_epoch=run.first_epoch,
                last_epoch=run.last_epoch,
                rows=run.rows,
            )
            entries.setdefault(upload.operator, {})[run.name] = _ranked(entry, run)
            continue
        parts.append(_part(upload, run.path, compression))
        by_place[upload.operator, upload.partition, run.last_epoch] = upload
    for operator, number, entry in checkpointer.save_partitions(begin.id, parts):
        run = by_place[operator, number, entry.last_epoch].run
        entries.setdefault(operator, {})[run.name] = _ranked(entry, run)
    return entries


def _part(upload: _Upload, path: Path, compression: str | None) -> PartitionData:
    run = upload.run
    if compression is not None:
        path = path.with_name(f"{path.name}.{compression}")
        with_compression(run, path, compression)
    return PartitionData(
        operator=upload.operator,
        partition=upload.partition,
        kind="snap" if upload.kind == "snap" else "delta",
        first_epoch=run.first_epoch,
        last_epoch=run.last_epoch,
        rows=run.rows,
        data=path,
    )


def _saved(operator: OperatorState, lists: _Lists, fresh: Mapping[str, Entry]) -> SavedOperator:
    known = {**operator.stored, **fresh}
    partitions = {
        number: tuple(_ranked(known[leaf.name], leaf) for leaf in listed)
        for number, listed in lists.listed.items()
        if listed
    }
    runs = OperatorRuns(partitions, keyed=operator.keyed())
    stored = {leaf.name: known[leaf.name] for each in lists.listed.values() for leaf in each}
    return SavedOperator(runs, lists.partitions, stored)


def _replaced(today: StatePartition, saved: StatePartition) -> StatePartition:
    """Every saved file in the place of its inputs, if those are still there, all and in a row."""
    runs = list(today.runs)
    names = [run.name for run in runs]
    for made in saved.runs:
        inputs = [name for name in made.inputs if name in names]
        if not inputs or len(inputs) != len(made.inputs):
            continue  # another compaction has taken them in meanwhile
        start = names.index(inputs[0])
        if names[start : start + len(inputs)] == list(made.inputs):
            runs[start : start + len(inputs)] = [made]
            names = [run.name for run in runs]
    return today.with_runs(runs)


def _ranked(entry: Entry, run: Run) -> Entry:
    return replace(entry, ranks=ranks_of(run.within))


def ranks_of(within: SlotRange) -> tuple[int, int]:
    return within.first >> 56, within.last >> 56

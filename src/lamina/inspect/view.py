"""The keyed state of every operator at one point: rows as Arrow, in the order of their slots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import pyarrow as pa

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.progress import Progress, Report, silent
from lamina.engine.spelling import stored_name
from lamina.errors import NotFound, UsageError
from lamina.format.commit import CommitRecord
from lamina.format.manifest_model import CheckpointManifest, KeyedState, OperatorRuns, StateColumn
from lamina.ids import CheckpointId
from lamina.inspect.column_types import parse_type
from lamina.inspect.files import RunFiles
from lamina.inspect.reach import Reached
from lamina.inspect.where import Where, matching, point_key
from lamina.recovery.operators import FoundState, found_states
from lamina.state.meanings import for_people, names_for_people
from lamina.state.operator import OperatorState, columns_of
from lamina.state.partition import StatePartition, look_up
from lamina.state.schema import KEYS_META, StateSchema
from lamina.state.vnodes import SlotRange
from lamina.workspace.runs import EpochRange, ranges_of


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """What is known about an operator's state before a run is read."""

    name: str
    partitions: int
    key: tuple[StateColumn, ...]
    value: tuple[StateColumn, ...]
    time: str | None
    rows_stored: int  # in all runs: old values and deletes included
    runs: int
    size: int


@dataclass(frozen=True, slots=True)
class PlacedIdentity:
    """A run in its place, by what its bytes are: two with one identity hold the same rows."""

    identity: str
    within: SlotRange


@dataclass(frozen=True, slots=True)
class Lists:
    """The runs of an operator: as a state to read, and one by one, oldest first."""

    state: OperatorState
    placed: tuple[PlacedIdentity, ...]

    @property
    def columns(self) -> StateSchema:
        """As people call them."""
        return for_people(self.state.schema)

    @property
    def by_slot(self) -> list[StatePartition]:
        """The partitions in the order of the key space, whatever P is."""
        return sorted(self.state.partitions, key=lambda partition: partition.within.first)


class View:
    """Made by `open_view` or `Archive.view`. It reads files only when they are needed."""

    def __init__(
        self,
        reached: Reached,
        manifest: CheckpointManifest | None,
        files: RunFiles,
        log: Mapping[str, FoundState],
        not_keyed: frozenset[str],
    ) -> None:
        self.epoch = reached.epoch
        self.manifest = manifest
        self.commits: tuple[CommitRecord, ...] = reached.commits
        self.not_keyed = tuple(sorted(not_keyed))
        self.owner: AbstractContextManager[object] | None = None
        self._home = reached.wal.where if reached.wal is not None else ""
        self._files = files
        self._log = log
        self._stored: dict[str, OperatorRuns] = {}
        if manifest is not None:
            self._stored = {n: o for n, o in manifest.operators.items() if o.keyed is not None}
        self._lists: dict[str, Lists | None] = {}

    @property
    def checkpoint(self) -> CheckpointId | None:
        """The checkpoint that it is, or begins with."""
        return self.manifest.checkpoint_id if self.manifest is not None else None

    @property
    def operators(self) -> tuple[str, ...]:
        """Those with keyed state."""
        return tuple(sorted({*self._stored, *self._log}))

    def info(self, operator: str) -> OperatorInfo:
        """From manifest and log alone: no file is fetched."""
        operator = self._find(operator)
        entries = [run for runs in self._runs(operator).partitions.values() for run in runs]
        files = {entry.sha256: entry for entry in entries}  # after a change of P, slices of one
        logged = self._log.get(operator, FoundState())
        runs = [placed.run for placed in logged.placed]
        return OperatorInfo(
            operator,
            self._partitions(operator),
            *_columns(self._runs(operator).keyed, logged.schema(operator)),
            rows_stored=sum(e.rows or 0 for e in files.values()) + sum(run.rows for run in runs),
            runs=len(files) + len(runs),
            size=sum(entry.size for entry in files.values()) + sum(run.size for run in runs),
        )

    def schema(self, operator: str) -> StateSchema:
        """Key and value columns, as people call them; NotFound before the first row was written."""
        lists = self.lists(operator)
        if lists is None:
            raise NotFound(f"nothing was ever written to {operator!r}")
        return lists.columns

    def count(self, operator: str, where: Where = None, *, report: Report = silent) -> int:
        """The number of keys; this reads everything."""
        return sum(batch.num_rows for batch in self.scan(operator, where, report=report))

    def scan(
        self, operator: str, where: Where = None, *, report: Report = silent
    ) -> Iterator[pa.RecordBatch]:
        """Key and value columns of every key, or of those that match, block by block.

        *where* gives key columns their values, or is an Arrow expression. With all key columns it
        is a look-up.
        """
        lists = self.lists(operator, report)
        if lists is None:
            return
        schema = lists.columns
        keys = point_key(schema, where)
        if keys is not None:
            yield from _looked_up(lists, keys)
            return
        wanted = matching(schema, where)
        done, total = 0, sum(run.rows for run in lists.state.runs())
        for partition in lists.by_slot:
            for batch in partition.scan():
                done += batch.num_rows
                report(Progress(min(done, total), total, "rows", operator))
                found = wanted(batch.rename_columns(schema.row.names))
                if found.num_rows:
                    yield found

    def row_schema(self, operator: str) -> pa.Schema:
        """Key and value columns, as people call them: from manifest and log, if types are flat."""
        info = self.info(operator)
        columns = [(each, parse_type(each.type)) for each in (*info.key, *info.value)]
        if any(kind is None for _, kind in columns):
            return self.schema(operator).row
        return pa.schema([pa.field(each.name, kind, each.nullable) for each, kind in columns])

    def partitions(self, operator: str) -> int:
        """How many parts `scan_part` knows: P at this point."""
        return self._partitions(self._find(operator))

    def scan_part(
        self, operator: str, number: int, where: Where = None
    ) -> Iterator[pa.RecordBatch]:
        """What `scan` gives, of one partition: of a checkpoint only its files are fetched."""
        operator = self._find(operator)
        only = None if self.commits else number
        lists = self.lists(operator) if only is None else self._open(operator, silent, only=only)
        if lists is None:
            return
        wanted = matching(lists.columns, where)
        for batch in lists.state.partitions[number].scan():
            found = wanted(batch.rename_columns(lists.columns.row.names))
            if found.num_rows:
                yield found

    def to_arrow(self, operator: str, where: Where = None) -> pa.Table:
        """All of it, in memory."""
        schema = self.schema(operator).row
        return pa.Table.from_batches(list(self.scan(operator, where)), schema)

    def lists(self, operator: str, report: Report = silent) -> Lists | None:
        """The runs of an operator, fetched when first asked for; None if it has none."""
        operator = self._find(operator)
        if operator not in self._lists:
            self._lists[operator] = self._open(operator, report)
        return self._lists[operator]

    def close(self) -> None:
        """Remove the files that were fetched, unless an archive still uses them."""
        if self.owner is not None:
            self.owner.__exit__(None, None, None)
            self.owner = None

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # steps

    def _find(self, operator: str) -> str:
        """As it is spelled here: streams are asked for in any case."""
        operator = stored_name(operator, {*self.operators, *self.not_keyed}, "the state of")
        if operator in self.not_keyed:
            raise UsageError(f"{operator!r} is not keyed state: it has no keys and no columns")
        if operator not in self._stored and operator not in self._log:
            raise NotFound(
                f"there is no operator {operator[:80]!r} at epoch {self.epoch}",
                advice=f"Those with keyed state: {', '.join(self.operators) or 'none'}",
            )
        return operator

    def _runs(self, operator: str) -> OperatorRuns:
        return self._stored.get(operator, OperatorRuns())

    def _partitions(self, operator: str) -> int:
        """P as it was at this point."""
        if self.commits:
            return self.commits[-1].partitions
        keyed = self._runs(operator).keyed
        assert keyed is not None
        return keyed.partitions

    def _open(self, operator: str, report: Report, only: int | None = None) -> Lists | None:
        stored = FoundState()
        if self.manifest is not None and operator in self._stored:
            runs = self._stored[operator]
            if only is not None:
                runs = replace(runs, partitions={only: runs.partitions.get(only, ())})
            files = self._files.fetch(runs, report)
            manifest = replace(self.manifest, operators={operator: runs})
            known = found_states(manifest, files, only=operator)
            stored = known.get(operator, stored)
        logged = self._log.get(operator, FoundState()).placed
        found = FoundState([*stored.placed, *logged], stored.stored)
        schema = found.schema(operator)
        if schema is None:
            return None
        return Lists(
            OperatorState.open(schema, self._partitions(operator), placed=found.placed),
            tuple(
                PlacedIdentity(_identity(found, p.run.name, self._home), p.within)
                for p in found.placed
            ),
        )


def look(checkpointer: Checkpointer, reached: Reached, files: RunFiles) -> View:
    """The view of what was reached; the runs of the log are mapped now, while they are there."""
    manifest = None
    not_keyed: set[str] = set()
    if reached.checkpoint is not None:
        manifest = checkpointer.load_manifest(reached.checkpoint.id)
        not_keyed = {n for n, o in manifest.operators.items() if o.keyed is None}
        not_keyed |= set(manifest.operator_states)
    ranges = ranges_of(reached.commits)
    not_keyed |= _without_keys(reached, ranges)
    keyed = [each for each in ranges if each.place.operator not in not_keyed]
    log = found_states(None, {}, keyed, reached.wal)
    return View(reached, manifest, files, log, frozenset(not_keyed))


def _without_keys(reached: Reached, ranges: Sequence[EpochRange]) -> set[str]:
    """Operators whose runs in the log are rows of something else; the first run tells."""
    first = {each.place.operator: each.place for each in reversed(ranges)}
    found = set()
    for name, place in first.items():
        assert reached.wal is not None
        (record,) = reached.wal.records([place])
        schema = record.batch().schema
        if KEYS_META not in (schema.metadata or {}):
            found.add(name)
    return found


def _columns(
    keyed: KeyedState | None, logged: StateSchema | None
) -> tuple[tuple[StateColumn, ...], tuple[StateColumn, ...], str | None]:
    """Those of the log, which is newer; unless it is of a time when there were fewer."""
    if logged is not None and (keyed is None or len(keyed.value) <= len(logged.value)):
        shown = for_people(logged)
        return columns_of(shown.key), columns_of(shown.value), shown.time
    assert keyed is not None
    columns = (*keyed.key, *keyed.value)
    names = names_for_people([column.name for column in columns], keyed.meanings)
    called = {column.name: name for column, name in zip(columns, names, strict=True)}
    key, value = (
        tuple(replace(column, name=called[column.name]) for column in listed)
        for listed in (keyed.key, keyed.value)
    )
    return key, value, None if keyed.time is None else called[keyed.time]


def _identity(found: FoundState, name: str, home: str) -> str:
    """The digest of a stored run; of one in the log its place, where bytes never change (R1)."""
    entry = found.stored.get(name)
    return entry.sha256 or name if entry is not None else f"{home}/{name}"


def _looked_up(lists: Lists, keys: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    looked = look_up(lists.by_slot, keys.rename_columns(lists.state.schema.key.names))
    if looked.found[0]:
        columns = [*keys.columns, *looked.values.columns]
        yield pa.RecordBatch.from_arrays(columns, schema=lists.columns.row)

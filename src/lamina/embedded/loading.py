"""The state of every table, from the runs of a checkpoint and of the commits after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from lamina.embedded.table import Table
from lamina.format.commit import CommitRecord
from lamina.format.manifest_model import CheckpointManifest
from lamina.recovery.operators import FoundState, found_states
from lamina.state.operator import OperatorState
from lamina.workspace.ranges import RangeReader
from lamina.workspace.runs import ranges_of


def load_states(
    base: CheckpointManifest | None,
    files: Mapping[str, Path],
    commits: Iterable[CommitRecord],
    wal: RangeReader,
    *,
    tables: Mapping[str, Table],
    partitions: int,
    only: str | None = None,
) -> dict[str, OperatorState]:
    """As *base* and *commits* have them, by name; a table that they do not know is empty."""
    found = found_states(base, files, ranges_of(commits), wal, only=only)
    names = {*found, *tables} if only is None else {only}
    return {
        name: _state(name, found.get(name, FoundState()), tables.get(name), partitions)
        for name in sorted(names)
    }


def _state(name: str, found: FoundState, known: Table | None, partitions: int) -> OperatorState:
    schema = found.schema(name, known.schema if known else None)
    assert schema is not None, "what is found has a run"
    return OperatorState.open(
        schema,
        partitions,
        placed=found.placed,
        stored=found.stored,
    )

"""Keyed state from what a recovery found: the runs of a checkpoint, then those of the WAL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from lamina.checkpoint.state import restore
from lamina.errors import Corrupt, StateChanged
from lamina.format.manifest_model import CheckpointManifest
from lamina.format.manifest_model import RunEntry as Entry
from lamina.state.layers import PlacedRun
from lamina.state.run import Run
from lamina.state.run_file import open_run, read_run, with_compression
from lamina.state.schema import StateSchema, check_successor
from lamina.state.vnodes import SlotRange
from lamina.workspace.ranges import RangeReader
from lamina.workspace.runs import EpochRange, wal_runs


@dataclass(slots=True)
class FoundState:
    """The runs of one operator, oldest first, and the store's entries of those it has."""

    placed: list[PlacedRun] = field(default_factory=list)
    stored: dict[str, Entry] = field(default_factory=dict)

    def schema(self, operator: str, known: StateSchema | None = None) -> StateSchema | None:
        """The columns that all of it can be read with: those *known*, or of the newest run that do.

        None without a run and without known ones. A newer run may be the narrower one: it stays as
        it was written while older ones are merged with wider columns.
        """
        runs = sorted((each.run for each in self.placed), key=lambda run: -run.last_epoch)
        written = list(dict.fromkeys(run.schema for run in runs))
        why: StateChanged | None = None
        for candidate in ([] if known is None else [known]) + written:
            try:
                for schema in written:
                    check_successor(schema, candidate, operator)
            except StateChanged as error:
                why = why or error
            else:
                return candidate
        if why is not None:
            raise why
        return None


def found_states(
    manifest: CheckpointManifest | None,
    files: Mapping[str, Path],
    ranges: Iterable[EpochRange] = (),
    wal: RangeReader | None = None,
    *,
    only: str | None = None,
) -> dict[str, FoundState]:
    """Every operator's runs, or those of one; nothing is read yet but footers and schemas."""
    found: dict[str, FoundState] = {}
    if manifest is not None:
        for name, operator in manifest.operators.items():
            if operator.keyed is not None and only in (None, name):
                placed, stored = restore(operator, _opener(files))
                if placed:
                    found[name] = FoundState(placed, stored)
    wanted = [each for each in ranges if only in (None, each.place.operator)]
    if not wanted:
        return found
    assert wal is not None
    for each, run in zip(wanted, wal_runs(wal, wanted), strict=True):
        state = found.setdefault(each.place.operator, FoundState())
        within = SlotRange.of_partition(each.place.core, each.partitions)
        state.placed.append(PlacedRun(run, within))
    return found


def _plain(path: Path) -> Run:
    """A run file that can be mapped: one with compressed buffers is unpacked beside it, once."""
    run = open_run(path)
    if run.compression is None:
        return run
    return with_compression(run, path.with_name(f"{path.name}.plain"), None)


def _opener(files: Mapping[str, Path]) -> Callable[[Entry], Run]:
    opened: dict[str, Run] = {}

    def open_entry(entry: Entry) -> Run:
        name = entry.path or f"inline {entry.sha256}"
        if name not in opened:
            inline = entry.decode_inline()
            if inline is None:
                opened[name] = _plain(files[name])
            else:
                opened[name] = read_run(pa.py_buffer(inline), name)
        run = opened[name]
        if (run.first_epoch, run.last_epoch) != (entry.first_epoch, entry.last_epoch):
            raise Corrupt(
                f"a run of epochs {run.first_epoch} to {run.last_epoch}, and the manifest says "
                f"{entry.first_epoch} to {entry.last_epoch}",
                where=name,
            )
        return run

    return open_entry

"""What a checkpoint has that no pipeline of Lamina's changes: the next one has it, too.

States without a key space, runs without keyed columns and the table store's path come from
LaminarDB (`lamina import`) or from programs that use the checkpointer on its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lamina.checkpoint.checkpointer import Checkpointer, PartitionData
from lamina.clock import new_writer_id
from lamina.format.inline import INLINE_BYTES_MAX
from lamina.format.log import Begin
from lamina.format.manifest_model import (
    CheckpointManifest,
    OperatorCheckpoint,
    OperatorRuns,
    RunEntry,
    Sidecar,
)
from lamina.format.manifest_v1 import read_states
from lamina.os_errors import typed_errors


@dataclass(frozen=True, slots=True)
class Carried:
    """As the fields of the next manifest."""

    operators: Mapping[str, OperatorRuns] = field(default_factory=dict)
    operator_states: Mapping[str, OperatorCheckpoint] = field(default_factory=dict)
    sidecar: Sidecar | None = None
    table_store_path: str | None = None


def carry(checkpointer: Checkpointer, begin: Begin, base: CheckpointManifest | None) -> Carried:
    """Of *base*: its own files if the new checkpoint builds on it, else copies of them."""
    if base is None:
        return Carried()
    opaque = {name: runs for name, runs in base.operators.items() if runs.keyed is None}
    if begin.parent == base.checkpoint_id:
        return Carried(opaque, base.operator_states, base.sidecar, base.table_store_path)
    sidecar = checkpointer.load_artifact(base.sidecar) if base.sidecar else None
    states, saved = checkpointer.save_states(
        begin.id,
        read_states(base, sidecar, checkpointer.store.url),
        inline_bytes_max=INLINE_BYTES_MAX,
    )
    return Carried(_copied(checkpointer, begin, opaque), states, saved, base.table_store_path)


def _copied(
    checkpointer: Checkpointer, begin: Begin, opaque: Mapping[str, OperatorRuns]
) -> dict[str, OperatorRuns]:
    with (
        typed_errors(tempfile.gettempdir()),
        tempfile.TemporaryDirectory(prefix="lamina-carry-") as folder,
    ):
        return {
            name: OperatorRuns(
                {
                    number: tuple(
                        _copy(checkpointer, begin, (name, number), run, Path(folder))
                        for run in runs
                    )
                    for number, runs in operator.partitions.items()
                },
                extra=operator.extra,
            )
            for name, operator in opaque.items()
        }


def _copy(
    checkpointer: Checkpointer, begin: Begin, place: tuple[str, int], run: RunEntry, folder: Path
) -> RunEntry:
    if run.path is None:
        return run
    local = folder / new_writer_id(checkpointer.clock)
    checkpointer.load_artifact(run, into=local)
    part = PartitionData(*place, run.kind, run.first_epoch, run.last_epoch, run.rows or 0, local)
    (saved,) = checkpointer.save_partitions(begin.id, [part])
    local.unlink()
    return replace(saved.run, rows=run.rows, extra=run.extra)

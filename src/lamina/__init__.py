"""Lamina: streaming on Spark that never loses, doubles or guesses.

What is here today is the storage core, without Spark and without Java: `open` a store of keyed
state, or work with its checkpoints: list, verify, pin, prune, copy and read them.
"""

from lamina.checkpoint import (
    Checkpointer,
    PartitionData,
    copy_checkpoint,
    create_savepoint,
    delete_checkpoint,
    drop_savepoint,
    list_savepoints,
    plan_gc,
    run_gc,
    verify,
)
from lamina.embedded import EmbeddedStore, Snapshot, Table
from lamina.embedded import open_snapshot as snapshot
from lamina.embedded import open_state as open  # noqa: A004  it is read as lamina.open
from lamina.errors import LaminaError
from lamina.format.manifest import CheckpointManifest, ConnectorCheckpoint, PlacedRun, with_runs
from lamina.format.names import CheckpointPaths
from lamina.ids import CheckpointId
from lamina.state.merge import Merge
from lamina.store import Store, open_store

__version__ = "0.1.0"

__all__ = [
    "CheckpointId",
    "CheckpointManifest",
    "CheckpointPaths",
    "Checkpointer",
    "ConnectorCheckpoint",
    "EmbeddedStore",
    "LaminaError",
    "Merge",
    "PartitionData",
    "PlacedRun",
    "Snapshot",
    "Store",
    "Table",
    "__version__",
    "copy_checkpoint",
    "create_savepoint",
    "delete_checkpoint",
    "drop_savepoint",
    "list_savepoints",
    "open",
    "open_store",
    "plan_gc",
    "run_gc",
    "snapshot",
    "verify",
    "with_runs",
]

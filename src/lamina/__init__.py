"""Lamina: streaming on Spark that never loses, doubles or guesses.

What is here today is the storage core: checkpoints in any object store, which can be written,
listed, verified, pinned, pruned, copied and read without Spark and without Java.
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
from lamina.errors import LaminaError
from lamina.format.manifest import CheckpointManifest, ConnectorCheckpoint, PlacedRun, with_runs
from lamina.format.names import CheckpointPaths
from lamina.ids import CheckpointId
from lamina.store import Store, open_store

__version__ = "0.1.0"

__all__ = [
    "CheckpointId",
    "CheckpointManifest",
    "CheckpointPaths",
    "Checkpointer",
    "ConnectorCheckpoint",
    "LaminaError",
    "PartitionData",
    "PlacedRun",
    "Store",
    "__version__",
    "copy_checkpoint",
    "create_savepoint",
    "delete_checkpoint",
    "drop_savepoint",
    "list_savepoints",
    "open_store",
    "plan_gc",
    "run_gc",
    "verify",
    "with_runs",
]

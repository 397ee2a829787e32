"""Lamina: streaming on Spark that never loses, doubles or guesses.

`run` a pipeline, `check` what it would do, or write one in Python: `Pipeline()`. Below that is a
storage core without Spark and without Java: `open` a store of keyed state, or work with its
checkpoints: list, verify, pin, prune, copy and read them.

Everything is imported when it is first used: `import lamina` is cheap, and works without Spark.
"""

from typing import TYPE_CHECKING

from lamina.lazy import exports
from lamina.version import __version__

if TYPE_CHECKING:
    from lamina.checkpoint.checkpointer import Checkpointer, PartitionData
    from lamina.checkpoint.gc import delete_checkpoint, plan_gc, run_gc
    from lamina.checkpoint.savepoints import create_savepoint, drop_savepoint, list_savepoints
    from lamina.checkpoint.transfer import copy_checkpoint
    from lamina.checkpoint.verify import verify
    from lamina.disk.local import LocalDisk
    from lamina.embedded.opening import open_store as open  # noqa: A004  read as lamina.open
    from lamina.embedded.snapshot import Snapshot
    from lamina.embedded.snapshot import open_snapshot as snapshot
    from lamina.embedded.store import EmbeddedStore
    from lamina.embedded.table import Table
    from lamina.engine.user_columns import Columns, KeyedResult, Keys, Rows
    from lamina.errors import LaminaError
    from lamina.format.commit import CommitRecord
    from lamina.format.manifest import (
        CheckpointManifest,
        ConnectorCheckpoint,
        PlacedEntry,
        with_runs,
    )
    from lamina.format.names import CheckpointPaths
    from lamina.front.check import check
    from lamina.front.history import history
    from lamina.front.run import run
    from lamina.ids import CheckpointId
    from lamina.inspect.archive import open_archive
    from lamina.inspect.diff import diff
    from lamina.pipeline.builder import PipelineBuilder as Pipeline
    from lamina.pipeline.model import Emit
    from lamina.recovery.manager import RecoveryManager
    from lamina.running.control import Status
    from lamina.running.loop import Watcher
    from lamina.state.merge import Merge
    from lamina.store.base import Store
    from lamina.store.opening import open_store
    from lamina.wal.standalone.logset import LogSet
    from lamina.workspace.local import LocalWorkspace
else:
    __getattr__ = exports(
        __name__,
        {
            "lamina.checkpoint.checkpointer": "Checkpointer PartitionData",
            "lamina.checkpoint.gc": "delete_checkpoint plan_gc run_gc",
            "lamina.checkpoint.savepoints": "create_savepoint drop_savepoint list_savepoints",
            "lamina.checkpoint.transfer": "copy_checkpoint",
            "lamina.checkpoint.verify": "verify",
            "lamina.disk.local": "LocalDisk",
            "lamina.embedded.opening": "open=open_store",
            "lamina.embedded.snapshot": "Snapshot snapshot=open_snapshot",
            "lamina.embedded.store": "EmbeddedStore",
            "lamina.embedded.table": "Table",
            "lamina.engine.user_columns": "Columns KeyedResult Keys Rows",
            "lamina.errors": "LaminaError",
            "lamina.format.commit": "CommitRecord",
            "lamina.format.manifest": (
                "CheckpointManifest ConnectorCheckpoint PlacedEntry with_runs"
            ),
            "lamina.format.names": "CheckpointPaths",
            "lamina.front.check": "check",
            "lamina.front.history": "history",
            "lamina.front.run": "run",
            "lamina.ids": "CheckpointId",
            "lamina.inspect.archive": "open_archive",
            "lamina.inspect.diff": "diff",
            "lamina.pipeline.builder": "Pipeline=PipelineBuilder",
            "lamina.pipeline.model": "Emit",
            "lamina.recovery.manager": "RecoveryManager",
            "lamina.running.control": "Status",
            "lamina.running.loop": "Watcher",
            "lamina.state.merge": "Merge",
            "lamina.store.base": "Store",
            "lamina.store.opening": "open_store",
            "lamina.wal.standalone.logset": "LogSet",
            "lamina.workspace.local": "LocalWorkspace",
        },
    )

__all__ = [
    "CheckpointId",
    "CheckpointManifest",
    "CheckpointPaths",
    "Checkpointer",
    "Columns",
    "CommitRecord",
    "ConnectorCheckpoint",
    "EmbeddedStore",
    "Emit",
    "KeyedResult",
    "Keys",
    "LaminaError",
    "LocalDisk",
    "LocalWorkspace",
    "LogSet",
    "Merge",
    "PartitionData",
    "Pipeline",
    "PlacedEntry",
    "RecoveryManager",
    "Rows",
    "Snapshot",
    "Status",
    "Store",
    "Table",
    "Watcher",
    "__version__",
    "check",
    "copy_checkpoint",
    "create_savepoint",
    "delete_checkpoint",
    "diff",
    "drop_savepoint",
    "history",
    "list_savepoints",
    "open",
    "open_archive",
    "open_store",
    "plan_gc",
    "run",
    "run_gc",
    "snapshot",
    "verify",
    "with_runs",
]

"""Checkpoints in an object store: write, list, verify, pin, prune, copy, read.

checkpointer   begin, save, commit, load
commit_log     which checkpoints exist
saving, state  checkpoints of keyed state: only runs that the store lacks are uploaded
savepoints     names that keep a checkpoint; gc: deletes what nothing needs
verify         every byte against its digest; transfer: copies; importing: from LaminarDB
"""

from lamina.checkpoint.checkpointer import Checkpointer, PartitionData
from lamina.checkpoint.commit_log import CommitLog
from lamina.checkpoint.gc import FolderPlan, GcPlan, delete_checkpoint, plan_gc, run_gc
from lamina.checkpoint.importing import LaminarCheckpoint, import_checkpoint, read_checkpoint
from lamina.checkpoint.progress import Progress
from lamina.checkpoint.savepoints import (
    Savepoint,
    create_savepoint,
    drop_savepoint,
    find_savepoint,
    list_savepoints,
)
from lamina.checkpoint.transfer import CopyReport, copy_checkpoint
from lamina.checkpoint.verify import CheckpointReport, Problem, VerifyReport, verify

__all__ = [
    "CheckpointReport",
    "Checkpointer",
    "CommitLog",
    "CopyReport",
    "FolderPlan",
    "GcPlan",
    "LaminarCheckpoint",
    "PartitionData",
    "Problem",
    "Progress",
    "Savepoint",
    "VerifyReport",
    "copy_checkpoint",
    "create_savepoint",
    "delete_checkpoint",
    "drop_savepoint",
    "find_savepoint",
    "import_checkpoint",
    "list_savepoints",
    "plan_gc",
    "read_checkpoint",
    "run_gc",
    "verify",
]

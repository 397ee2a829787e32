"""The place where a pipeline lives, as everything above it sees it: no path is built above here."""

from lamina.workspace.base import Notes, StagedFiles, TaskSpace, Workspace
from lamina.workspace.local import LocalTaskSpace, LocalWorkspace
from lamina.workspace.model import Attempt, RunRef, Staged
from lamina.workspace.notes import LocalNotes

__all__ = [
    "Attempt",
    "LocalNotes",
    "LocalTaskSpace",
    "LocalWorkspace",
    "Notes",
    "RunRef",
    "Staged",
    "StagedFiles",
    "TaskSpace",
    "Workspace",
]

"""The place where a pipeline lives. No path is built in the packages above this one.

base      the protocols: Workspace for the driver, TaskSpace for tasks, Notes for small files
local     a home on a file system that driver and executors share
runs      runs that are in the WAL; staging: output that waits for its COMMIT
"""

from typing import TYPE_CHECKING

from lamina.lazy import exports

if TYPE_CHECKING:
    from lamina.workspace.base import Notes, StagedFiles, TaskSpace, Workspace
    from lamina.workspace.local import LocalTaskSpace, LocalWorkspace
    from lamina.workspace.model import Attempt, RunRef, Staged
    from lamina.workspace.notes import LocalNotes
else:
    __getattr__ = exports(
        __name__,
        {
            "lamina.workspace.base": "Notes StagedFiles TaskSpace Workspace",
            "lamina.workspace.local": "LocalTaskSpace LocalWorkspace",
            "lamina.workspace.model": "Attempt RunRef Staged",
            "lamina.workspace.notes": "LocalNotes",
        },
    )

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

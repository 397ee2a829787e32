"""A home in an object store: a home whose log is replicated as create-only objects.

log     the pieces of the driver log: who may write the next one, and what a listing means
disk    the driver's scratch folder as the disk of a home: a sync is a create
space   the workspace of a driver; staged: output that waits for its COMMIT; notes: small objects
tasks   what a task has: it needs the store and a folder of its own machine; cache: that folder
"""

from lamina.workspace.remote.space import RemoteWorkspace, remote_workspace

__all__ = ["RemoteWorkspace", "remote_workspace"]

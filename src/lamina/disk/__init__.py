"""The edge to the file system that holds the write-ahead log."""

from lamina.disk.base import Disk, Lock, LogFile
from lamina.disk.local import LocalDisk, OpenedBy

__all__ = ["Disk", "LocalDisk", "Lock", "LogFile", "OpenedBy"]

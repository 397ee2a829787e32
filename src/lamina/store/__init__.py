"""Object stores: one protocol, and what stands behind it."""

from lamina.store.base import Data, Folder, ObjectInfo, Store
from lamina.store.local import LocalStore
from lamina.store.memory import MemoryStore
from lamina.store.opening import open_store
from lamina.store.probe import probe_store
from lamina.store.readonly import ReadOnlyStore
from lamina.store.remote import RemoteStore
from lamina.store.retry import RetryingStore, RetryPolicy

__all__ = [
    "Data",
    "Folder",
    "LocalStore",
    "MemoryStore",
    "ObjectInfo",
    "ReadOnlyStore",
    "RemoteStore",
    "RetryPolicy",
    "RetryingStore",
    "Store",
    "open_store",
    "probe_store",
]

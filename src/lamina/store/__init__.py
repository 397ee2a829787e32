"""Object stores: the `Store` protocol and its implementations.

base               the protocol, with its promises
local, memory      a folder; a dictionary
remote             S3, GCS and Azure; retry and causes deal with their failures
client, profile    the client of these, its credentials
opening, address   from an address to a store that can be trusted; probe asks it
forked             a store whose bases may name files of another one
readonly           a store that refuses every write
"""

from typing import TYPE_CHECKING

from lamina.lazy import exports

if TYPE_CHECKING:
    from lamina.store.base import Data, Folder, ObjectInfo, Store
    from lamina.store.local import LocalStore
    from lamina.store.memory import MemoryStore
    from lamina.store.opening import open_store
    from lamina.store.probe import probe_store
    from lamina.store.readonly import ReadOnlyStore
    from lamina.store.remote import RemoteStore
    from lamina.store.retry import RetryingStore, RetryPolicy
else:
    __getattr__ = exports(
        __name__,
        {
            "lamina.store.base": "Data Folder ObjectInfo Store",
            "lamina.store.local": "LocalStore",
            "lamina.store.memory": "MemoryStore",
            "lamina.store.opening": "open_store",
            "lamina.store.probe": "probe_store",
            "lamina.store.readonly": "ReadOnlyStore",
            "lamina.store.remote": "RemoteStore",
            "lamina.store.retry": "RetryingStore RetryPolicy",
        },
    )

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

"""Does this store keep its word about create-only puts? Asked before anything is trusted to it.

The commit log rests on them: with a store that ignores the condition two processes would both
believe that they own the pipeline, and both would be told that their writes succeeded.
"""

from __future__ import annotations

from lamina.clock import Clock, new_writer_id
from lamina.errors import AlreadyExists, UnsafeStore
from lamina.store.base import Store


def probe_store(store: Store, clock: Clock) -> None:
    """Create one key twice; UnsafeStore unless the second is refused and the first bytes stay.

    It is listed and deleted, too: what gc and checkpoints need is refused now, not in a week.
    """
    key = f"_probe/{new_writer_id(clock)}"
    store.put_if_absent(key, b"first")
    try:
        if not _second_is_refused(store, key):
            raise UnsafeStore("the store let a second create-only put succeed", where=store.url)
        if store.get(key) != b"first":
            raise UnsafeStore("a refused create-only put changed the object", where=store.url)
        if key not in (info.key for info in store.list_folder("_probe").objects):
            raise UnsafeStore("the store does not list an object that was created", where=store.url)
    finally:
        store.delete(key)


def _second_is_refused(store: Store, key: str) -> bool:
    try:
        store.put_if_absent(key, b"second")
    except AlreadyExists:
        return True
    return False

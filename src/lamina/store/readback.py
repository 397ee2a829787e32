"""Is what is under a key exactly what we wanted to put there?

A create-only put can fail after its effect: the answer is lost, or a retry inside the client meets
its own first attempt. Then the only honest question is which bytes are there now. Every backend
asks it here, so that all of them give the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lamina.errors import AlreadyExists, NotFound, SizeMismatch, StoreError
from lamina.store.base import Data, Store, parts_of, size_of

CREATE_TRIES_MAX = 100


def same_bytes(store: Store, key: str, data: Data) -> bool:
    """Whether *key* holds exactly *data*; size first, then part by part. NotFound if it is free."""
    if store.head(key).size != size_of(data):
        return False
    start = 0
    for part in parts_of(data):
        try:
            if store.get_range(key, start, len(part)) != part:
                return False
        except SizeMismatch:
            return False  # replaced by a shorter object since the head
        start += len(part)
    return True


def whole(data: Data) -> bytes:
    """A copy of *data*. (Not a join of parts_of: its parts share one buffer.)"""
    return data.read_bytes() if isinstance(data, Path) else bytes(data)


def create(store: Store, key: str, data: Data, *, attempt: Callable[[], None]) -> bool:
    """Run *attempt*, a create-only put: True if it wrote, False if *key* held the same bytes.

    AlreadyExists only if it holds others. A key that is taken when we write and free when we look
    was deleted in between: the put is tried again. The bound is against a store that contradicts
    itself for ever.
    """
    for _ in range(CREATE_TRIES_MAX):
        try:
            attempt()
        except AlreadyExists:
            try:
                if same_bytes(store, key, data):
                    return False
            except NotFound:
                continue
            raise
        return True
    raise StoreError(
        f"the store says {CREATE_TRIES_MAX} times that a key is taken, and that it is free",
        where=f"{store.url}/{key}",
    )

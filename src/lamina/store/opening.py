"""From an address to a store that can be trusted."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lamina.clock import Clock, SystemClock
from lamina.errors import UsageError
from lamina.store.address import REMOTE_SCHEMES, SCHEMES
from lamina.store.base import Store
from lamina.store.forked import ForkedStore
from lamina.store.local import LocalStore
from lamina.store.memory import MemoryStore
from lamina.store.probe import probe_store
from lamina.store.readonly import ReadOnlyStore
from lamina.store.retry import RetryingStore, RetryPolicy


def open_store(
    url: str,
    *,
    writable: bool = True,
    clock: Clock | None = None,
    retry: RetryPolicy | None = None,
    cancel: threading.Event | None = None,
    probe: bool = True,
    **options: Any,
) -> Store:
    """Open a folder (plain path or file://), memory://, or a bucket (s3, gs, az, abfs, abfss).

    A bucket that is opened for writing is probed: one that ignores create-only puts is refused.
    Without *probe* somebody else has done that.
    Opened for reading, nothing is created or changed, and a missing folder is NotFound.
    """
    scheme = _scheme(url)
    if scheme in REMOTE_SCHEMES:
        from lamina.store.remote import RemoteStore  # noqa: PLC0415  its client is slow to import

        inner = RemoteStore(url, **options)
        store: Store = RetryingStore(inner, retry or RetryPolicy(), clock or SystemClock(), cancel)
        if writable and probe:
            probe_store(store, clock or SystemClock())
    else:
        store = _open_here(scheme, url, options, writable=writable)
    if scheme == "memory":
        return store if writable else ReadOnlyStore(store)

    def reopen(address: str, may_write: bool) -> Store:
        return open_store(
            _origin_address(store.url, address),
            writable=may_write,
            clock=clock,
            retry=retry,
            cancel=cancel,
            probe=False,
            **options,
        )

    return ForkedStore(store if writable else ReadOnlyStore(store), reopen)


def address_of_origin(own: Store, origin: Store) -> str:
    """How a fork in the store *own* names the store of its origin.

    A folder is named by the way to it, so that both can be moved together. UsageError if what opens
    the one would not open the other.
    """
    schemes, places = (_scheme(own.url), _scheme(origin.url)), (own.url, origin.url)
    if schemes == ("file", "file"):
        return os.path.relpath(_path(origin.url), _path(own.url)).replace(os.sep, "/")
    if schemes[0] != schemes[1] or len({urlsplit(place).netloc for place in places}) != 1:
        raise UsageError(
            "a fork shares the files of its origin, so both are in the same bucket, or both in "
            "folders of one file system",
            where=own.url,
            advice="`lamina copy` takes a checkpoint to any other store",
        )
    return origin.url


def _origin_address(own: str, address: str) -> str:
    if "://" in address:
        return address
    return os.path.normpath(_path(own) / address)


def _scheme(url: str) -> str:
    try:
        return urlsplit(url).scheme.lower() if "://" in url else "file"
    except ValueError as error:
        raise UsageError(f"not an address of a store: {error}") from None


def _open_here(scheme: str, url: str, options: dict[str, Any], *, writable: bool) -> Store:
    if scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in SCHEMES)
        raise UsageError(f"no store has the scheme {scheme[:40]!r}; known are a path, {known}")
    if options:
        raise UsageError(f"a store of {scheme}:// has no option {min(options)!r}")
    return MemoryStore() if scheme == "memory" else LocalStore(_path(url), create=writable)


def _path(url: str) -> Path:
    if not url:
        raise UsageError("the address of the store is empty")
    if "\0" in url:
        raise UsageError("the address of the store holds a zero byte")
    if "://" not in url:
        return Path(url)
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not parts.path:
        raise UsageError("a local address is file:/// and an absolute path")
    return Path(unquote(parts.path))

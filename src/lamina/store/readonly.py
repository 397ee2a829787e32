"""A store that was opened for reading: what would change it is refused before it starts."""

from __future__ import annotations

from collections.abc import Iterator

from lamina.errors import StoreReadOnly
from lamina.store.base import Data, Folder, ObjectInfo, Store
from lamina.store.counts import StoreCounts, counts_of


class ReadOnlyStore:
    """Reads as *inner* does. Looking at a pipeline must never be able to change it."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def counts(self) -> StoreCounts | None:
        return counts_of(self._inner)

    def get(self, key: str) -> bytes:
        return self._inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._inner.get_range(key, start, length)

    def head(self, key: str) -> ObjectInfo:
        return self._inner.head(key)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        return self._inner.list(prefix, after=after)

    def list_folder(self, prefix: str = "") -> Folder:
        return self._inner.list_folder(prefix)

    def put(self, key: str, data: Data) -> None:  # noqa: ARG002
        raise self._refusal(key)

    def put_if_absent(self, key: str, data: Data) -> None:  # noqa: ARG002
        raise self._refusal(key)

    def delete(self, key: str) -> None:
        raise self._refusal(key)

    def copy(self, source: str, target: str) -> None:  # noqa: ARG002
        raise self._refusal(target)

    def _refusal(self, key: str) -> StoreReadOnly:
        return StoreReadOnly(
            "the store was opened for reading",
            where=f"{self.url.rstrip('/')}/{key}",
            advice="Open it with writable=True",
        )

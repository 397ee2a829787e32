"""Small objects beside the log, under the names that notes have in a home."""

from __future__ import annotations

from lamina.errors import NotFound
from lamina.format.remote_names import note_key
from lamina.store.base import Store


class RemoteNotes:
    """Each write replaces the object: durable, and whole."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def where(self, name: str) -> str:
        return f"{self._store.url.rstrip('/')}/{note_key(name)}"

    def names(self, folder: str) -> list[str]:
        listed = self._store.list_folder(note_key(folder)).objects
        return [info.key.rpartition("/")[2] for info in listed]

    def read(self, name: str) -> bytes | None:
        try:
            return self._store.get(note_key(name))
        except NotFound:
            return None

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:  # noqa: ARG002
        self._store.put(note_key(name), data)

    def remove(self, name: str) -> None:
        self._store.delete(note_key(name))

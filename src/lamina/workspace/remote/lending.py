"""Files of the driver's disk that tasks read without seeing it: journals, copies of tables.

Small ones travel with the tasks. Others are put into the store, under their digests, and go when
their owner has newer ones; what a process leaves is dropped by the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from lamina.format.remote_names import lent_key
from lamina.os_errors import typed_errors
from lamina.store.base import Store
from lamina.workspace.model import CarriedStaged, Staged

_Look = tuple[tuple[str, int, int], ...]
"""Of each file its path, size and time."""


class Lending:
    """What one process has lent, by owner."""

    def __init__(self, store: Store, *, carried_max: int) -> None:
        self._store = store
        self._carried_max = carried_max
        self._lent: dict[str, tuple[_Look, tuple[Staged, ...]]] = {}

    def lend(self, owner: str, files: Sequence[Path], generation: int) -> tuple[Staged, ...]:
        """In the place of what *owner* has lent before."""
        look = tuple(_look(path) for path in files)
        known, before = self._lent.get(owner, ((), ()))
        if known == look:
            return before
        is_small = sum(size for _, size, _ in look) <= self._carried_max
        made = tuple(self._carried(f) if is_small else self._put(f, generation) for f in files)
        self._lent[owner] = look, made
        used = {file.path for _, lent in self._lent.values() for file in lent}
        for file in before:
            if file.path not in used and not isinstance(file, CarriedStaged):
                self._store.delete(file.path)
        return made

    def _carried(self, path: Path) -> Staged:
        with typed_errors(path):
            data = path.read_bytes()
        return CarriedStaged(path.name, len(data), hashlib.sha256(data).hexdigest(), 0, data)

    def _put(self, path: Path, generation: int) -> Staged:
        with typed_errors(path), path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
        key = lent_key(generation, f"{sha256}.parquet")
        self._store.put(key, path)
        return Staged(key, size, sha256, 0)


def _look(path: Path) -> tuple[str, int, int]:
    with typed_errors(path):
        found = path.stat()
    return str(path), found.st_size, found.st_mtime_ns

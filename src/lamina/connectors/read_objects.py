"""The objects that a source has read: what is remembered of each, and when it counts as another.

Names are at hand, with a number that stands for size and tag: a full listing compares all of them
without a look into the memory.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lamina.engine.model import MemoryChange
from lamina.engine.ports import SourceMemory
from lamina.errors import Refused
from lamina.state.schema import StateSchema
from lamina.store.bucket import FoundObject

MEMORY = StateSchema(
    pa.schema([pa.field("path", pa.string(), nullable=False)]),
    pa.schema({"size": pa.int64(), "changed_us": pa.int64(), "etag": pa.string()}),
)
"""`path` is below the address of the source."""


class ReadObjects:
    """As of the last COMMIT."""

    def __init__(self, source: str, memory: SourceMemory) -> None:
        self._source = source
        self._identities: dict[str, int] = {}
        for batch in memory.scan():
            columns = (batch.column(name).to_pylist() for name in MEMORY.row.names)
            self.add(FoundObject(*values) for values in zip(*columns, strict=True))
        if any(path.startswith("/") for path in self._identities):
            raise Refused(
                f"the source {source!r} has read files of a folder, and now it reads an address",
                advice="Give the source another name",
            )

    def __contains__(self, path: str) -> bool:
        return path in self._identities

    def __len__(self) -> int:
        return len(self._identities)

    def add(self, objects: Iterable[FoundObject]) -> None:
        """Objects whose epoch is committed, and with it what `learned` has said."""
        self._identities.update((found.path, hash(found.identity)) for found in objects)

    def check(self, found: FoundObject, where: str) -> None:
        """Refused if what has been read under this name was another object."""
        if self._identities[found.path] != hash(found.identity):
            raise Refused(
                f"the source {self._source!r} has read {where}, and it has changed since",
                where=where,
                advice="Put new rows into new objects. This one has been read: put it back as it "
                "was, or delete it. If the address is another one than before, give the source "
                "another name",
            )


def learned(objects: Iterable[FoundObject]) -> MemoryChange:
    """What the memory gains with *objects*."""
    rows = [tuple(getattr(found, name) for name in MEMORY.row.names) for found in objects]
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, MEMORY.row, strict=True)
    ]
    return MemoryChange(pa.RecordBatch.from_arrays(arrays, schema=MEMORY.row))

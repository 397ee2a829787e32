"""The table of bytes: puts and deletes, collected, then written as one batch."""

from __future__ import annotations

import pyarrow as pa

from lamina.embedded.table import Table
from lamina.errors import UsageError
from lamina.state.schema import StateSchema

BYTE_TABLE = "state"
BYTES = StateSchema(
    pa.schema([pa.field("key", pa.binary(), nullable=False)]),
    pa.schema([pa.field("value", pa.binary())]),
)
PUTS_MAX = 4096


class Puts:
    """What was put and deleted one by one, and is in no batch yet; the newest of a key."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes | None] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def __getitem__(self, key: bytes) -> bytes | None:
        return self._values[key]

    @property
    def is_full(self) -> bool:
        return len(self._values) >= PUTS_MAX

    def add(self, key: bytes, value: bytes | None) -> None:
        check_bytes(key)
        self._values[key] = value

    def clear(self) -> None:
        self._values.clear()

    def write_to(self, table: Table) -> None:
        """All of them, as one batch."""
        keys = pa.array(list(self._values), pa.binary())
        values = pa.array(list(self._values.values()), pa.binary())
        deletes = values.is_null().to_numpy(zero_copy_only=False)
        table.write(pa.record_batch({"key": keys, "value": values}), deletes=deletes)
        self._values.clear()


def check_bytes(given: object) -> None:
    if not isinstance(given, bytes):
        raise UsageError(
            f"keys and values are bytes, not {type(given).__name__}",
            advice="Tables take any Arrow type",
        )


def value_of(table: Table, key: bytes) -> bytes | None:
    """What the table of bytes has for a key."""
    found = table.get(pa.record_batch({"key": pa.array([key], pa.binary())}))
    value: bytes | None = found.values.column(0)[0].as_py()
    return value

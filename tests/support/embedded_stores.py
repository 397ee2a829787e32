"""Embedded stores for tests: small ones, killed ones, and stores that count or stop what is put."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lamina.checkpoint import Checkpointer
from lamina.checkpoint import state as checkpoint_state
from lamina.embedded import EmbeddedStore, Table
from lamina.embedded.opening import HOME, STORE, open_home
from lamina.format.home_names import STATE
from lamina.recovery import RecoveryConfig
from lamina.state.merge import Merge
from lamina.store import Data, LocalStore, MemoryStore, Store
from lamina.workspace.local import LocalWorkspace

KEY = pa.schema([("k", pa.int64())])
VALUE = pa.schema([("v", pa.int64())])
NARROW = pa.schema([("v", pa.int32())])
SUM = [Merge("sum", ("v",))]


def opened(
    root: Path,
    objects: Store | None = None,
    *,
    partitions: int | None = None,
    retain: int = 3,
    config: RecoveryConfig | None = None,
) -> EmbeddedStore:
    """As `lamina.open` does it, with the checkpoints in any store."""
    return open_home(
        LocalWorkspace(root / HOME),
        Checkpointer(objects or LocalStore(root / STORE)),
        config=config or RecoveryConfig(partitions=partitions or 1),
        partitions=partitions,
        retain=retain,
    )


def kill(store: EmbeddedStore) -> None:
    """As kill -9 leaves it: nothing is closed or finished; only the lock is free."""
    if store._saves._saving is not None:
        store._saves._saving.join()  # a thread cannot be killed: what it has done, it has done
    store._recovered.close()


@contextmanager
def dying(store: EmbeddedStore) -> Iterator[EmbeddedStore]:
    try:
        yield store
    finally:
        kill(store)


def rows(values: dict[int, int], kind: pa.DataType | None = None) -> pa.RecordBatch:
    kind = kind or pa.int64()
    return pa.record_batch(
        {"k": pa.array(list(values), pa.int64()), "v": pa.array(list(values.values()), kind)}
    )


def changes(values: dict[int, int | None]) -> tuple[pa.RecordBatch, np.ndarray]:
    """Rows and which of them are deletes, for `Table.write`."""
    filled = {key: 0 if value is None else value for key, value in values.items()}
    return rows(filled), np.array([value is None for value in values.values()], np.bool_)


def as_dict(table: Table) -> dict[int, int]:
    found = table.to_table()
    keys = found.column("k").to_pylist()
    assert len(set(keys)) == len(keys), "a key is there once"
    return dict(zip(keys, found.column("v").to_pylist(), strict=True))


def run_objects(objects: Store) -> dict[str, int]:
    """Every run file in a store, and its size."""
    return {info.key: info.size for info in objects.list() if "/operators/" in info.key}


def local_runs(root: Path) -> list[Path]:
    """The run files of the process itself, merged or fetched."""
    return sorted(path for path in (root / HOME / STATE).rglob("*") if path.is_file())


def flip(path: Path) -> None:
    """One bit of a file is wrong, also for who has it mapped. Only what was never read is proven
    again: so this is for files that are new.
    """
    with path.open("r+b") as file:
        file.write(_flipped(path.read_bytes()))


def replace(path: Path) -> None:
    """The same, and who has the file mapped goes on with what it was."""
    aside = path.with_name("damaged")
    aside.write_bytes(_flipped(path.read_bytes()))
    aside.replace(path)


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]


def no_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is a file in the store, however small."""
    monkeypatch.setattr(checkpoint_state, "INLINE_BYTES_MAX", -1)


class GatedStore(MemoryStore):
    """Puts of run files wait until they may go on; or fail, while there is a `failure`."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.reached = threading.Event()
        self.failure: Exception | None = None

    def put_if_absent(self, key: str, data: Data) -> None:
        if "/operators/" in key:
            self.reached.set()
            assert self.may_go_on.wait(60)
            if self.failure is not None:
                raise self.failure
        super().put_if_absent(key, data)


def all_epochs(store: EmbeddedStore) -> Sequence[int]:
    """The epochs of the checkpoints that exist."""
    return [committed.epoch for committed in store._checkpointer.list_checkpoints()]

"""Checkpoints with compressed buffers: smaller, and the same state for everybody who reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lamina
from lamina.errors import UsageError

KEY, VALUE = pa.schema({"k": pa.int64()}), pa.schema({"n": pa.int64()})
ROWS = 20_000


def fill(folder: Path, compression: str | None) -> None:
    with lamina.open(folder, compression=compression) as store:
        table = store.table("t", KEY, VALUE)
        table.write(pa.record_batch({"k": np.arange(ROWS), "n": np.zeros(ROWS, np.int64)}))
        store.commit()
        store.checkpoint()
        table.write(pa.record_batch({"k": np.arange(ROWS // 2), "n": np.ones(ROWS // 2, np.int64)}))
        store.commit()
        store.checkpoint()


def files(folder: Path) -> dict[str, int]:
    """Run files of the store, by name, and their sizes."""
    found = folder.glob("checkpoints/*/operators/*/*")
    return {f"{path.parts[-4]}/{path.name}": path.stat().st_size for path in found}


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_checkpoints_are_smaller_and_hold_the_same(
    compression: str, tmp_path: Path
) -> None:
    fill(tmp_path / "plain", None)
    fill(tmp_path / "packed", compression)
    packed = sum(files(tmp_path / "packed").values())
    assert packed < 0.9 * sum(files(tmp_path / "plain").values())
    with lamina.snapshot(tmp_path / "plain") as plain, lamina.snapshot(tmp_path / "packed") as same:
        assert plain.to_table("t").equals(same.to_table("t"))


def test_after_a_restore_from_compressed_files_only_changes_are_uploaded(tmp_path: Path) -> None:
    fill(tmp_path, "zstd")
    before = files(tmp_path)
    for partitions in (4, 1):  # with and without compression, and sliced
        with lamina.open(tmp_path, partitions=partitions) as store:
            table = store.table("t")
            keys = pa.record_batch({"k": pa.array([0, ROWS - 1, ROWS])})
            assert table.get(keys).values.column(0).to_pylist() == [1, 0, None]
            assert all(run.compression is None for run in table.state.runs())
            store.commit()
            store.checkpoint()
        assert files(tmp_path) == before


def test_an_unknown_compression_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gzip"):
        lamina.open(tmp_path / "new", compression="gzip")
    assert not (tmp_path / "new").exists()

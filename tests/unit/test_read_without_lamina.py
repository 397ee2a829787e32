"""docs/read_without_lamina.py reads what the embedded store has written, and finds damage."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lamina
from tests.support.shop import make_shop

READER = Path(__file__).parents[2] / "docs" / "read_without_lamina.py"
ITEMS = pa.schema([("id", pa.int64()), ("x", pa.float64())])
TEXT = pa.schema([("text", pa.string())])
SEEN = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
ROWS = 20_000  # enough for files


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(READER), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rows(*arguments: str | Path) -> list[str]:
    ran = run(*arguments)
    assert ran.returncode == 0, ran.stderr
    return sorted(ran.stdout.splitlines())


def as_lines(table: pa.Table) -> list[str]:
    def text(value: Any) -> str:
        return value.hex() if isinstance(value, bytes) else str(value)

    return sorted(json.dumps(row, default=text) for row in table.to_pylist())


def items(ids: Sequence[int], text: str) -> pa.RecordBatch:
    """Keys with a NaN and a -0.0 among them."""
    special = {0: float("nan"), 1: -0.0}
    found = [{"id": i, "x": special.get(i, i / 2), "text": f"{text} {i} " * 4} for i in ids]
    return pa.RecordBatch.from_pylist(found, pa.schema([*ITEMS, *TEXT]))


def seen(times: Sequence[int | None], n: int) -> pa.RecordBatch:
    found = [{"id": i, "x": None, "n": n, "at": at} for i, at in enumerate(times)]
    return pa.RecordBatch.from_pylist(found, pa.schema([*ITEMS, *SEEN]))


def fill(folder: Path, epoch: int, partitions: int) -> dict[str, list[str]]:
    """One process's work on three tables; what each holds at the end of it."""
    with lamina.open(folder, partitions=partitions) as store:
        big, small = store.table("big", ITEMS, TEXT), store.table("small", ITEMS, SEEN, time="at")
        big.write(items(range(epoch * 100, ROWS + epoch * 100), f"epoch {epoch}"))
        big.delete(items(range(epoch * 50, epoch * 60), "").select(ITEMS.names))
        store.put(b"epoch", str(epoch).encode())
        store.put(b"\xff%d" % epoch, b"")
        small.write(seen([10**6 * (epoch * 10 + i) for i in range(20)] + [None], epoch))
        store.commit()
        list(small.expire(10**6 * (epoch * 10 + 5)))
        big.write(items([epoch], "last"))
        store.commit()
        store.checkpoint()
        return {name: as_lines(store.table(name).to_table()) for name in store.tables}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[str]]]:
    folder = tmp_path_factory.mktemp("written")
    for epoch, partitions in enumerate((1, 4, 2)):
        last = fill(folder, epoch, partitions)
    return folder / "checkpoints", last


def test_it_reads_what_the_store_holds_after_deletes_expiry_and_two_changes_of_p(
    written: tuple[Path, dict[str, list[str]]],
) -> None:
    store, last = written
    assert last.keys() == {"big", "small", "state"}
    assert len(last["small"]) == 16
    for operator, expected in last.items():
        assert rows(store, operator) == expected, operator


def test_the_test_has_files_and_inline_runs_and_slices(
    written: tuple[Path, dict[str, list[str]]],
) -> None:
    manifests = sorted(written[0].glob("*/manifest.json"), key=lambda path: path.parent.name)
    operators = json.loads(manifests[-1].read_bytes())["operators"]
    runs = [r for o in operators.values() for listed in o["partitions"].values() for r in listed]
    assert {"path" in run for run in runs} == {True, False}
    paths = [run["path"] for run in runs if "path" in run]
    slices = {tuple(run["ranks"]) for run in runs}
    assert len(set(paths)) < len(paths) or len(slices) > 2


def test_it_reads_any_checkpoint_by_its_id(tmp_path: Path) -> None:
    shop = make_shop(tmp_path / "shop")
    with lamina.snapshot(shop.folder, at="monday") as snapshot:
        id, table = snapshot.manifest.checkpoint_id, snapshot.to_table("totals")
    assert rows(shop.store, "totals", str(id)) == as_lines(table)
    assert rows(shop.store, "totals") != as_lines(table)
    assert rows(shop.store, "returns") == []


def test_a_flipped_byte_of_log_manifest_or_run_is_found(tmp_path: Path) -> None:
    fill(tmp_path, 1, 1)
    store = tmp_path / "checkpoints"
    damaged = [
        next(store.glob("*/operators/big/*")),
        next(store.glob("*/manifest.json")),
        next(store.glob("log/*01.json")),
    ]
    for path in damaged:
        data = bytearray(path.read_bytes())
        data[-20] ^= 1
        path.write_bytes(data)
        ran = run(store, "big")
        assert ran.returncode != 0
        assert ran.stdout == ""
        path.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    assert run(store, "big").returncode == 0


def test_it_has_a_hundred_lines_and_needs_nothing_but_pyarrow() -> None:
    source = READER.read_text()
    assert source.count("\n") <= 100
    trees = ast.walk(ast.parse(source))
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name)
        for node in trees
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    outside = {str(name).partition(".")[0] for name in imported} - set(sys.stdlib_module_names)
    assert outside == {"pyarrow"}

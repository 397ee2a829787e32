"""docs/python.md: its examples run, one after the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lamina
from tests.spark.keyed_examples import COLUMNS, MODELS, blocks, clicks, functions
from tests.spark.running import Place, comparable

TWS = ("tws_visits", "tws_first_of_each", "tws_alarms")
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}

ORDERS = [
    {"email": " Ann@B.example", "amount": 2.0, "rate": 0.5},
    {"email": "ann@b.example", "amount": 3.0, "rate": 1.0},
    {"email": None, "amount": 5.0, "rate": 1.0},
]


def test_all_examples_run_as_a_reader_would_run_them(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders").mkdir()
    text = "".join(json.dumps(row) + "\n" for row in ORDERS)
    (tmp_path / "orders" / "1.json").write_text(text)
    (tmp_path / "clicks").mkdir()
    rows = [{"user": user, "ts": "2024-01-01T00:00:00Z"} for user in ("ann", "bob", "ann")]
    (tmp_path / "clicks" / "1.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = lamina.run
    monkeypatch.setattr(lamina, "run", lambda *args, **named: run(*args, spark=spark, **named))
    for code in blocks():
        exec(compile(code, "python.md", "exec"), {"__name__": "__main__"})  # as a reader would
    assert found("out/sales") == [
        {"domain": None, "euro": 5.0},
        {"domain": "b.example", "euro": 4.0},
    ]
    assert found("out/typical") == [
        {"rate": 1.0, "mean": 3.87, "p90": 4.8, "orders": 2},
        {"rate": 0.5, "mean": 2.0, "p90": 2.0, "orders": 1},
    ]
    assert found("out/counts") == [{"user": "bob", "total": 1}, {"user": "ann", "total": 2}]
    assert found("out/spent") == [{"email": "ann@b.example", "euro": 4.0}]


def test_the_examples_of_spark_give_the_same_rows(spark: Any, tmp_path: Path) -> None:
    """No row is late: what Spark does with those depends on more than the function."""
    for package in ("pandas", "google.protobuf"):
        pytest.importorskip(package, reason="transformWithState needs it")
    place, data, names = Place(tmp_path), clicks(7, late=False), functions(of_spark=True)
    place.put_json(data)
    rows = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(place.source)
    with configured(spark, ROCKSDB):
        for name, example in zip(MODELS, TWS, strict=True):
            query = (
                names[example](rows)
                .writeStream.outputMode("append")
                .option("checkpointLocation", str(tmp_path / f"{name} checkpoint"))
                .format("parquet")
                .option("path", str(tmp_path / name))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(300)
            assert query.exception() is None
            given = spark.read.parquet(str(tmp_path / name)).toArrow().to_pylist()
            assert comparable(given) == comparable(MODELS[name](data)), name


@contextmanager
def configured(spark: Any, wanted: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def found(folder: str) -> list[dict[str, Any]]:
    rows = [r for f in Path(folder).rglob("*.parquet") for r in pq.read_table(f).to_pylist()]
    return sorted(rows, key=lambda row: str(row.values()), reverse=True)

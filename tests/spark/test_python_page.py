"""docs/python.md: its examples run, one after the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lamina
from tests.spark.keyed_examples import blocks

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
    assert found("out/counts") == [{"user": "bob", "total": 1}, {"user": "ann", "total": 2}]
    assert found("out/spent") == [{"email": "ann@b.example", "euro": 4.0}]


def found(folder: str) -> list[dict[str, Any]]:
    rows = [r for f in Path(folder).rglob("*.parquet") for r in pq.read_table(f).to_pylist()]
    return sorted(rows, key=lambda row: str(row.values()), reverse=True)

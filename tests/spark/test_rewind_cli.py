"""`lamina rewind` on a real pipeline: run, rewound, changed, run again; against plain Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import lamina
from lamina.cli.main import cli
from lamina.cli.support.exits import Exit
from lamina.pipeline.digests import record_of_text
from lamina.pipeline.statements import parse_pipeline

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")

SQL = """
CREATE SOURCE orders (customer STRING, amount BIGINT) USING json OPTIONS (path 'in');
CREATE STREAM large AS SELECT customer, amount FROM orders WHERE amount >= {least};
CREATE STREAM totals AS
  SELECT customer, sum(amount) AS total FROM orders GROUP BY customer EMIT ON UPDATE;
CREATE SINK large_out FROM large USING parquet OPTIONS (path 'out/large');
CREATE SINK totals_out FROM totals USING parquet OPTIONS (path 'out/totals');
"""
FILES = [[("a", 5), ("b", 20)], [("a", 30), ("c", 7)], [("b", 1), ("c", 40)], [("a", 2)]]


def command(*arguments: str) -> Any:
    done = CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def rows(folder: Path) -> list[tuple[Any, ...]]:
    found = sorted(folder.glob("epoch-*/*.parquet"))
    return [tuple(r.values()) for path in found for r in pq.read_table(path).to_pylist()]


def totals(folder: Path) -> Mapping[str, int]:
    """The last version of each key."""
    return dict(rows(folder))


def write(file: Path, least: int) -> None:
    file.write_text(SQL.format(least=least))


def test_run_rewound_with_another_where_and_run_again(tmp_path: Path, spark: Any) -> None:
    file, read = tmp_path / "orders.sql", tmp_path / "in"
    read.mkdir()
    for number, each in enumerate(FILES):
        lines = [json.dumps({"customer": c, "amount": a}) for c, a in each]
        (read / f"{number}.json").write_text("\n".join(lines))
    write(file, 10)
    run = {"spark": spark, "max_files": 1, "checkpoint_epochs": 1, "available_now": True}
    lamina.run(file, **run)
    out = tmp_path / "out"
    assert sorted(rows(out / "large")) == [("a", 30), ("b", 20), ("c", 40)]

    refused = CliRunner().invoke(cli, ["rewind", str(file), "--to", "2", "--yes"])
    assert refused.exit_code == Exit.CONFLICT
    assert "large_out: truncate or keep" in refused.stderr
    plan = command("rewind", str(file), "--to", "2", "--dry-run")
    assert {s["name"]: s["rows"] for s in plan["sinks"]} == {"large_out": 1, "totals_out": 3}
    assert (plan["epoch"], plan["to"]["epoch"], plan["rewound"]) == (4, 2, None)

    newest = lamina.Checkpointer(lamina.open_store(str(tmp_path / ".lamina/orders/store")))
    made_by = newest.load_manifest(newest.history().newest.id).pipeline_hash
    text = parse_pipeline(file.read_text(), {})
    assert record_of_text(text, "orders").hash == made_by, "Spark would be started for nothing"

    file.write_text(SQL.format(least=10).replace("sum(amount)", "max(amount)"))
    again = CliRunner().invoke(cli, ["rewind", str(file), "--to", "2", "--dry-run"])
    assert again.exit_code == Exit.CONFLICT
    assert "LAM-2102" in again.stderr

    write(file, 40)
    done = command("rewind", str(file), "--to", "2", "--sinks", "truncate", "--yes")
    assert done["rewound"]["epoch"] == 5
    assert done["changes"] == [{"part": "stream", "name": "large", "change": "changed"}]
    assert sorted(rows(out / "large")) == [("a", 30), ("b", 20)]
    assert totals(out / "totals") == {"a": 35, "b": 20, "c": 7}
    lamina.run(file, **run)
    assert sorted(rows(out / "large")) == [("a", 30), ("b", 20), ("c", 40)]
    assert totals(out / "totals") == {"a": 37, "b": 21, "c": 47}
    assert len(rows(out / "totals")) == sum(map(len, FILES))

    write(file, 10)
    command("rewind", str(file), "--to", "5", "--sinks", "keep", "--yes")
    lamina.run(file, **run)
    assert sorted(rows(out / "large")) == [("a", 30), ("b", 20), ("c", 40), ("c", 40)]
    assert totals(out / "totals") == {"a": 37, "b": 21, "c": 47}

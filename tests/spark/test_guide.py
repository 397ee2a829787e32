"""docs/guide: every query of sql.md gives the rows that it shows; the quickstart is run."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lamina
from lamina.connectors.keyed import WriteMode, Writing, last_of_each_key
from lamina.engine.plans import EngineSettings
from lamina.engine.ports import Change, Limits, Output
from lamina.pipeline import Pipeline, parse_pipeline
from lamina.pipeline.model import DeclaredSink, Option
from tests.spark.guide import Page, page, shown
from tests.spark.running import FILE, compiled

EXAMPLES = list(page("sql.md").examples)
ROWS_PER_EPOCH = 3


def test_every_query_of_the_page_has_a_result() -> None:
    assert len(EXAMPLES) == page("sql.md").queries >= 10


def test_queries_in_epochs_give_the_rows_of_the_page(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = page("sql.md")
    (code,) = re.findall(r"```python\n(.*?)```", guide.text, re.DOTALL)
    (tmp_path / "shop.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    text = guide.sources + "".join(
        f"CREATE STREAM e{n} AS\n{each.query};\n" for n, each in enumerate(EXAMPLES)
    )
    put_rows(tmp_path, guide)
    pipeline, published = with_sinks(text, len(EXAMPLES))
    run_all(spark, tmp_path, pipeline)
    outputs = compiled(spark, text + sinks_text(len(EXAMPLES))).outputs
    for n, example in enumerate(EXAMPLES):
        found = settled(published[n], outputs[f"o{n}"])
        assert example.columns == list(outputs[f"o{n}"].schema.names), example.query
        assert shown(found) == sorted(example.rows), example.query


def test_the_quickstart_reads_each_file_once_and_ends_with_the_right_sums(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = page("quickstart.md").text
    first, second = re.search(r"<<'END'\n(.*?)END", text, re.DOTALL), re.search(r"'({.*})'", text)
    (sql,) = re.findall(r"```sql\n(CREATE SOURCE.*?)```", text, re.DOTALL)
    (read,) = re.findall(r"```sql\n(SELECT.*?)```", text, re.DOTALL)
    assert first is not None
    assert second is not None
    (tmp_path / "data" / "orders").mkdir(parents=True)
    (tmp_path / "orders.sql").write_text(sql)
    monkeypatch.chdir(tmp_path)  # what people do, and what the query needs
    found = []
    for number, rows in enumerate((first[1], second[1])):
        (tmp_path / "data" / "orders" / f"{number}.json").write_text(rows)
        lamina.run(tmp_path / "orders.sql", spark=spark, available_now=True)
        found.append([(name, str(amount)) for name, amount in duckdb.sql(read).fetchall()])
    assert found == [[("ann", "15.75"), ("bob", "7.00")], [("ann", "15.75"), ("bob", "8.00")]]


def put_rows(place: Path, guide: Page) -> None:
    """A file for each epoch, so that groups, windows and lists are made over several."""
    for name, rows in guide.rows.items():
        (place / name).mkdir()
        for number, at in enumerate(range(0, len(rows), ROWS_PER_EPOCH)):
            lines = [json.dumps(row) for row in rows[at : at + ROWS_PER_EPOCH]]
            (place / name / f"{number:03d}.json").write_text("\n".join(lines))


def sinks_text(count: int) -> str:
    """Sinks that take anything, for a look at what they would get."""
    return "".join(f"CREATE SINK o{n} FROM e{n} USING console;\n" for n in range(count))


def with_sinks(text: str, count: int) -> tuple[Pipeline, list[list[pa.Table]]]:
    """The pipeline, with a sink for each example that keeps what it gets."""
    published: list[list[pa.Table]] = [[] for _ in range(count)]

    def sink(n: int) -> DeclaredSink:
        def keep(table: pa.Table, _epoch: int) -> None:
            published[n].append(table)

        return DeclaredSink(f"o{n}", f"e{n}", "function", {"function": Option("f", "f", keep)})

    pipeline = parse_pipeline(text, {}, file=FILE)
    return replace(pipeline, sinks={f"o{n}": sink(n) for n in range(count)}), published


def run_all(spark: Any, folder: Path, pipeline: Pipeline) -> None:
    from lamina.spark.running import RunSettings, Until, run  # noqa: PLC0415  an extra

    engine = EngineSettings(partitions=2, limits=Limits(None, 1), checkpoint_epochs=0, drain=True)
    settings = RunSettings(
        home=folder / "home",
        store=str(folder / "store"),
        folder=folder,
        file=FILE,
        until=Until(available_now=True),
        engine=engine,
    )
    run(pipeline, settings, spark=spark)


def settled(tables: Sequence[pa.Table], output: Output) -> list[dict[str, Any]]:
    """What a reader has in the end: all rows, or the last version of each."""
    if output.change is Change.APPEND:
        return [row for table in tables for row in table.to_pylist()]
    assert output.keys is not None
    writing = Writing(WriteMode.UPSERT, output.keys)
    held: dict[str, dict[str, Any]] = {}
    for table in tables:
        rows = last_of_each_key(table, writing)
        for key in rows.deletes.to_pylist():
            held.pop(repr(key), None)
        for row in rows.upserts.to_pylist():
            held[repr({name: row[name] for name in output.keys})] = row
    return list(held.values())

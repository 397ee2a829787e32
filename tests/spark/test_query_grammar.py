"""Queries that hypothesis writes, over random rows in epochs: equal to one batch over all rows.

Every run tries fixed cases, each with several features, epochs, a kill and a rescale.
`LAMINA_QUERIES=500` also tries so many cases of four queries each that are drawn; a failure prints
the case, which can be kept as an @example.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

from lamina.engine.ports import CHANGE, NEW
from lamina.pipeline import Option, Pipeline, parse_pipeline
from lamina.spark import runner
from tests.spark.grammar_more import WITH_CHANGES, WITH_WINDOWS
from tests.spark.grammar_over import cases
from tests.spark.grammar_rows import COLUMNS, epochs_of
from tests.spark.query_grammar import Case, Query
from tests.spark.running import FILE, Place, Run, plain

CASES = int(os.environ.get("LAMINA_QUERIES", "0"))
DRAWN = (Phase.reuse, Phase.generate) if CASES else ()
MARK = "WATERMARK ts DELAY OF INTERVAL 1500000 DAYS"  # no row is late


def _found(text: str, emit: str = "EMIT ON UPDATE", keys: int | None = None) -> Query:
    return Query(text, text, emit, keys)


FOUND = (
    # A group without a pair counted null pairs, not 0, because it also has distinct values.
    _found(
        "SELECT g AS c0, regr_count(l % 9, g) FILTER (WHERE b) AS x0, regr_sxy(l, d) FILTER"
        " (WHERE false) AS x1, count(DISTINCT k) AS x2 FROM t GROUP BY g",
        keys=1,
    ),
    # The fields of the structs were called k0, k1 and p0, in JSON too.
    _found(
        "SELECT g AS c0, k AS c1, (g, k) AS x0, struct(sum(l), K) AS x1, to_json(struct(k, min(g)))"
        " AS x2 FROM t GROUP BY g, k",
        keys=2,
    ),
    # Refused: without a key, and with distinct values only, nothing was left to group.
    _found("SELECT count(DISTINCT k) AS x0, sum(DISTINCT l) FILTER (WHERE b) AS x1 FROM t", keys=0),
)
"""What hypothesis, and readers, have found."""


@settings(
    max_examples=CASES or 1,
    phases=(Phase.explicit, *DRAWN),
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    report_multiple_bugs=False,
)
@given(case=cases(queries=4))
@example(case=WITH_WINDOWS)
@example(case=WITH_CHANGES)
@example(case=Case(FOUND, seed=5, rows=60, epochs=2, partitions=(2, 4), restart=1))
def test_queries_in_epochs_equal_one_batch(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, case: Case
) -> None:
    folder = tmp_path_factory.mktemp("case")
    with pytest.MonkeyPatch.context() as patch:
        if case.sends_rows:
            patch.setattr(runner, "MANY_ROWS", 1)
        check(spark, folder, case)
    shutil.rmtree(folder)


def check(spark: Any, folder: Path, case: Case) -> None:
    place, epochs = Place(folder), epochs_of(case.seed, case.rows, case.epochs)
    outputs = Outputs(place, case.queries)
    if case.restart:
        place.put_tables(epochs[: case.restart])
        run(spark, outputs, case.partitions[0], kill=case.kill)
    place.put_tables(epochs)
    run(spark, outputs, case.partitions[1], kill="" if case.restart else case.kill, drain=True)
    rows = spark.read.schema(COLUMNS).parquet(place.source).where("ts IS NOT NULL").cache()
    rows.createOrReplaceTempView("t")
    wrong = [
        said
        for number, query in enumerate(case.queries)
        if (said := difference(query, spark.sql(query.oracle).toArrow(), *outputs.of(number)))
    ]
    rows.unpersist()
    assert not wrong, "\n\n".join([*wrong, f"of {case!r}"])


@dataclass
class Outputs:
    """Queries as streams over one source, and what has come out of them."""

    place: Place
    queries: tuple[Query, ...]
    changes: dict[int, dict[int, pa.Table]] = field(default_factory=dict)  # by query and epoch

    def pipeline(self) -> Pipeline:
        """Rows go into Parquet; changes, which it cannot hold, to a function."""
        text = f"CREATE SOURCE t ({COLUMNS}) USING parquet OPTIONS (path 'in') {MARK};\n"
        for number, query in enumerate(self.queries):
            text += (
                f"CREATE STREAM s{number} AS {query.text} {query.emit};\n"
                f"CREATE SINK o{number} FROM s{number} USING parquet OPTIONS (path 's{number}');\n"
            )
        pipeline = parse_pipeline(text, {}, file=FILE)
        sinks = dict(pipeline.sinks)
        for number, query in enumerate(self.queries):
            if query.has_changes:
                kept = Option("keep", "keep", made=partial(self._keep, number))
                sink = sinks[f"o{number}"]
                sinks[sink.name] = replace(sink, format="function", options={"function": kept})
        return replace(pipeline, sinks=sinks)

    def _keep(self, number: int, table: pa.Table, epoch: int) -> None:
        self.changes.setdefault(number, {})[epoch] = table

    def of(self, number: int) -> tuple[list[dict[str, Any]], pa.Schema | None]:
        """The rows that are there in the end, and their types if any have ever come."""
        query, sink = self.queries[number], f"s{number}"
        if query.has_changes:
            tables = [table for _, table in sorted(self.changes.get(number, {}).items())]
            schema = tables[0].drop_columns([CHANGE]).schema if tables else None
            return left_of([table.to_pylist() for table in tables]), schema
        files = sorted((self.place.folder / sink).glob("epoch-*/*.parquet"))
        rows = self.place.rows(sink)
        if query.keys is not None:
            rows = self.place.latest(query.keys, sink)
        return rows, pq.read_schema(files[0]) if files else None


def left_of(epochs: Iterable[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What changes come to; nothing is taken back that is not there, bit for bit."""
    left: dict[str, list[dict[str, Any]]] = {}
    for epoch in epochs:
        for row in sorted(epoch, key=lambda each: each[CHANGE] in NEW):
            change = row.pop(CHANGE)
            same = left.setdefault(repr(plain(row)), [])
            if change in NEW:
                same.append(row)
            else:
                assert same, f"{row} was taken back, and was not there"
                same.pop()
    return [row for same in left.values() for row in same]


def run(spark: Any, outputs: Outputs, partitions: int, *, kill: str, drain: bool = False) -> None:
    """To the end; a run that is killed in its second epoch is started again."""
    met: list[str] = []

    def fail(point: str) -> None:
        met.append(point)
        if kill and point == kill and met.count(kill) == 2:
            raise KeyboardInterrupt

    try:
        Run(spark, outputs.place, partitions, drain=drain, fail_point=fail).run(outputs.pipeline())
    except KeyboardInterrupt:
        Run(spark, outputs.place, partitions, drain=drain).run(outputs.pipeline())


def difference(
    query: Query, wanted: pa.Table, found: list[dict[str, Any]], schema: pa.Schema | None
) -> str:
    """What is not as in one batch; nothing if all is."""
    types = [_types(wanted.schema), None if schema is None else _types(schema)]
    ours, theirs = _spelled(found), _spelled(wanted.to_pylist())
    if ours == theirs and types[1] in (None, types[0]):
        return ""
    lines = [query.text, query.emit]
    if types[1] not in (None, types[0]):
        lines.append(f"types: {types[1]} and not {types[0]}")
    more, less = _without(ours, theirs), _without(theirs, ours)
    lines += [f"  too much: {row}" for row in more[:5]] + [f"  missing: {row}" for row in less[:5]]
    return "\n".join([*lines, f"  {len(ours)} rows, {len(theirs)} wanted"])


def _types(schema: pa.Schema) -> list[str]:
    return [
        f"{f.name} {f.type}".replace("item:", "element:").replace(" not null", "") for f in schema
    ]


def _without(left: list[str], right: list[str]) -> list[str]:
    rest = list(right)
    return [row for row in left if row not in rest or rest.remove(row) is not None]


def _spelled(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(repr(_rounded(plain(row))) for row in rows)


def _rounded(value: Any) -> Any:
    """Doubles up to what the order of additions changes."""
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return f"{round(value, 7) + 0.0:.10g}" if isinstance(value, float) else value

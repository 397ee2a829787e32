"""What a compiled pipeline says of its streams to their sinks: schema, keys, kind of change."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lamina.engine.ports import Change
from tests.spark.running import compiled

TEXT = """
CREATE SOURCE t (k STRING, v BIGINT, at TIMESTAMP)
  USING json OPTIONS (path 'in', bad_rows_path 'bad')
  WATERMARK at DELAY OF INTERVAL 1 MINUTE;
CREATE STREAM rows AS SELECT k, v + 1 AS w FROM t;
CREATE STREAM sums AS SELECT k, sum(v) AS total FROM t GROUP BY k EMIT ON UPDATE;
CREATE STREAM later AS SELECT k, total FROM sums;
CREATE STREAM minutes AS SELECT window.start AS minute, count(*) AS n FROM t
  GROUP BY window(at, '1 minute') EMIT ON WINDOW CLOSE;
CREATE SINK rows_out FROM rows USING parquet OPTIONS (path 'o1');
CREATE SINK sums_out FROM sums USING parquet OPTIONS (path 'o2');
CREATE SINK later_out FROM later USING console;
CREATE SINK minutes_out FROM minutes USING console;
"""


def test_sinks_are_told_schema_keys_and_kind_of_change(spark: Any) -> None:
    outputs = compiled(spark, TEXT).outputs
    assert {name: (each.change, each.keys) for name, each in outputs.items()} == {
        "rows_out": (Change.APPEND, None),
        "sums_out": (Change.UPSERT, ("k",)),
        "later_out": (Change.UPSERT, ("k",)),
        "minutes_out": (Change.APPEND, ("minute",)),
        "t bad rows": (Change.APPEND, None),
    }
    assert outputs["sums_out"].schema == pa.schema([("k", pa.string()), ("total", pa.int64())])

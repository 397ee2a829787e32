"""The options that sources pass on are options of this Spark's readers."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.connectors.reader_options import READER_OPTIONS

CLASSES = {
    "json": "org.apache.spark.sql.catalyst.json.JSONOptions",
    "csv": "org.apache.spark.sql.catalyst.csv.CSVOptions",
    "parquet": "org.apache.spark.sql.execution.datasources.parquet.ParquetOptions",
}


@pytest.mark.parametrize("kind", CLASSES)
def test_spark_knows_every_option_that_is_passed_on(kind: str, spark: Any) -> None:
    options = getattr(spark._jvm, CLASSES[kind])
    known = set(str(options.getAllOptions().mkString(",")).split(","))
    assert set(READER_OPTIONS[kind]) - known == set()

"""What a source of Debezium's envelopes may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.connectors.opening import changing_sources, check_source, jars_of, keyed_sources
from lamina.errors import BadPipeline
from lamina.pipeline.statements import parse_pipeline

BASE = "kafka.bootstrap.servers 'b:9092', subscribe 't'"


def text(columns: str, options: str) -> str:
    return f"CREATE SOURCE s ({columns}) USING kafka OPTIONS ({BASE}, {options})"


JSON = "format 'debezium-json', keys 'id'"
REFUSED = [
    ("id BIGINT", "format 'debezium-json'", "no keys"),
    ("id BIGINT", "keys 'id'", "has keys, and the format json"),
    ("id BIGINT", "format 'debezium-json', keys 'x'", "the key 'x'"),
    ("id DOUBLE", JSON, "floating-point"),
    ("id BIGINT", f"{JSON}, bad_rows_path 'bad'", "missing from the table for ever"),
    ("id BIGINT", f"{JSON}, compacted 'true'", "may take a delete away"),
    ("id BIGINT", f"{JSON}, startingOffsets 'latest'", "rows that are there already"),
    ("id BIGINT, k STRING METADATA FROM 'key'", JSON, "METADATA FROM"),
    ("id BIGINT, at TIMESTAMP_NTZ", JSON, "milliseconds or less.*BIGINT"),
    ("id BIGINT, n DECIMAL(10)", JSON, "base64.*STRING"),
    ("id BIGINT, n DECIMAL(10, 0)", JSON, "base64.*STRING"),
    ("id BIGINT, n ARRAY<INT>", JSON, "Declare it STRING"),
    ("id BIGINT, at TIMESTAMP", f"{JSON}) WATERMARK at DELAY OF INTERVAL 1 HOUR --", "WATERMARK"),
    ("id BIGINT", f"{JSON}, allowComments 'true'", "allowcomments"),
    ("id BIGINT", f"{JSON}, schema.registry.url 'http://r'", "has schema.registry.url"),
    ("id BIGINT", "format 'debezium-avro', keys 'id'", "no registry"),
]


@pytest.mark.parametrize(("columns", "options", "said"), REFUSED, ids=[r[2] for r in REFUSED])
def test_what_would_lose_or_guess_is_refused(columns: str, options: str, said: str) -> None:
    with pytest.raises(BadPipeline, match=f"(?s){said}"):
        check_source(parse_pipeline(text(columns, options)).sources["s"], Path())


def test_its_rows_are_changes_of_rows_by_key() -> None:
    avro = "format 'debezium-avro', keys 'id, k', schema.registry.url 'http://r'"
    columns = "id BIGINT, k STRING, n DECIMAL(10, 2), day DATE, at TIMESTAMP"
    for options, keys in ((JSON, ("id",)), (avro, ("id", "k"))):
        pipeline = parse_pipeline(text(columns, options))
        check_source(pipeline.sources["s"], Path())
        assert changing_sources(pipeline) == keyed_sources(pipeline) == {"s": keys}
    assert "spark-avro" in jars_of(pipeline, Path())
    plain = parse_pipeline(text("id BIGINT", "format 'json'"))
    assert changing_sources(plain) == {}

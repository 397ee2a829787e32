"""Debezium's envelopes over a real Kafka, on a real Spark: a stream has what the table has."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lamina.engine.ports import CHANGE, NEW
from lamina.errors import LaminaError, Refused
from lamina.pipeline import Option, parse_pipeline
from lamina.testing.faulty import Killed
from tests.servers.kafka_topics import Topics
from tests.spark.debezium import (
    COLUMNS,
    ENVELOPE,
    PARTITIONS,
    Connector,
    Row,
    framed_avro,
    plain_json,
    random_change,
    random_row,
    wrapped_json,
)
from tests.spark.running import FILE, Place, Run
from tests.spark.test_kafka_avro import LOGIN, Registry

pytestmark = pytest.mark.server
Epochs = dict[int, list[dict[str, Any]]]


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    made.schemas = {7: ENVELOPE}
    yield made
    made.server.shutdown()
    made.server.server_close()


def source(topics: Topics, name: str, columns: str = COLUMNS, **options: str) -> str:
    listed = {"kafka.bootstrap.servers": topics.server.bootstrap, "keys": "id", **options}
    shown = ", ".join(f"{option} '{value}'" for option, value in listed.items())
    return f"CREATE SOURCE {name} ({columns}) USING kafka OPTIONS ({shown});"


def run_all(run: Run, text: str, into: dict[str, Epochs]) -> None:
    """Every sink is a function that keeps the changes of each epoch."""
    pipeline = parse_pipeline(text, {"LOGIN": LOGIN}, file=FILE)

    def keeper(sink: str) -> Option:
        def keep(table: pa.Table, epoch: int) -> None:
            into.setdefault(sink, {})[epoch] = table.to_pylist()

        return Option("keep", "keep", made=keep)

    sinks = {
        name: replace(sink, options={"function": keeper(name)})
        for name, sink in pipeline.sinks.items()
    }
    run.run(replace(pipeline, sinks=sinks))


def applied(epochs: Epochs, key: str = "id") -> Iterator[dict[Any, dict[str, Any]]]:
    """The rows after each epoch; what is taken back is what was there."""
    rows: dict[Any, dict[str, Any]] = {}
    for number in sorted(epochs):
        for each in sorted(epochs[number], key=lambda row: row[CHANGE] in NEW):
            row = {name: value for name, value in each.items() if name != CHANGE}
            if each[CHANGE] in NEW:
                assert row[key] not in rows, "what was there is taken back"
                rows[row[key]] = row
            else:
                assert rows.pop(row[key]) == row, "what is taken back is what was there"
        yield dict(rows)


def typed(row: Row) -> dict[str, Any]:
    """As the pipeline has it."""
    amount, day, at = row["amount"], row["day"], row["at"]
    return {
        **row,
        "amount": None if amount is None else Decimal(amount),
        "day": None if day is None else date(1970, 1, 1) + timedelta(day),
        "at": None if at is None else datetime.fromisoformat(at),
    }


def table(rows: dict[int, Row]) -> dict[int, dict[str, Any]]:
    return {key: typed(row) for key, row in rows.items()}


def totals(rows: dict[int, Row]) -> dict[int, tuple[int, Decimal | None]]:
    found: dict[int, list[Row]] = {}
    for row in rows.values():
        found.setdefault(row["id"] % 3, []).append(row)
    sums = {part: [Decimal(r["amount"]) for r in of if r["amount"]] for part, of in found.items()}
    return {part: (len(of), sum(sums[part]) if sums[part] else None) for part, of in found.items()}


def test_streams_have_what_the_table_has_whatever_comes_twice_or_is_killed(
    spark: Any, tmp_path: Path, topics: Topics, registry: Registry
) -> None:
    """JSON with and without its schema, and Avro; events that come again; kills; any epochs."""
    names = [topics.new(PARTITIONS) for _ in range(3)]
    json_, wrapped, avro = names
    encoders = dict(zip(names, (plain_json, wrapped_json, framed_avro), strict=True))
    connector, random = Connector(topics, encoders), Random(5)
    for key in range(8):
        connector.put(random_row(random, key), "r")
    text = source(topics, "j", subscribe=json_, format="debezium-json")
    text += source(topics, "w", subscribe=wrapped, format="debezium-json")
    text += source(
        topics,
        "a",
        subscribe=avro,
        format="debezium-avro",
        **{
            "schema.registry.url": registry.url,
            "schema.registry.basic.auth.user.info": "${LOGIN}",
        },
    )
    for name in "jwa":
        text += f"CREATE STREAM all_{name} AS SELECT * FROM {name};"
        text += f"CREATE SINK out_{name} FROM all_{name} USING function OPTIONS (function 'm:f');"
    text += (
        "CREATE STREAM sums AS SELECT id % 3 AS part, count(*) AS n, sum(amount) AS total FROM j "
        "GROUP BY id % 3 EMIT CHANGES;"
        "CREATE SINK out_sums FROM sums USING function OPTIONS (function 'm:f');"
    )
    place, kept = Place(tmp_path), dict[str, Epochs]()
    for nth, rows in ((9, None), (0, 25), (17, None), (0, None)):
        for _ in range(18):
            random_change(connector, random)
        left = [nth]

        def fail_point(name: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed(name)

        run = Run(spark, place, rows=rows, fail_point=fail_point)
        if nth:
            with pytest.raises(Killed):
                run_all(run, text, kept)
            continue
        run_all(run, text, kept)
        for sink in ("out_j", "out_w", "out_a"):
            *_, rows_left = applied(kept[sink])
            assert rows_left == table(connector.rows), sink
        *_, left_sums = applied(kept["out_sums"], "part")
        found = {part: (row["n"], row["total"]) for part, row in left_sums.items()}
        assert found == totals(connector.rows)
    for state in applied(kept["out_j"]):
        for part in range(PARTITIONS):
            mine = {key: row for key, row in state.items() if key % PARTITIONS == part}
            assert mine in [table(each) for each in connector.states[part]], "a state it was in"
    assert len(kept["out_j"]) > 2


def test_old_values_are_not_needed_and_local_times_are_told_by_their_schema(
    spark: Any, tmp_path: Path, topics: Topics, registry: Registry
) -> None:
    """REPLICA IDENTITY DEFAULT: updates have no `before`, deletes only the key."""
    name = topics.new(PARTITIONS)
    connector = Connector(topics, {name: framed_avro}, full=False)
    row = {"id": 1, "name": "x", "local": 1_709_209_800_123_456}
    connector.put(row)
    connector.put({**row, "name": "y"})
    connector.put({**row, "id": 2})
    options = {
        "schema.registry.url": registry.url,
        "schema.registry.basic.auth.user.info": "${LOGIN}",
    }
    columns = "id BIGINT, NAME STRING, local TIMESTAMP_NTZ"
    text = source(topics, "a", columns, subscribe=name, format="debezium-avro", **options)
    text += "CREATE STREAM s AS SELECT * FROM a;"
    text += "CREATE SINK o FROM s USING function OPTIONS (function 'm:f');"
    kept: dict[str, Epochs] = {}
    run_all(Run(spark, Place(tmp_path)), text, kept)
    connector.put({**row, "name": "z"})
    connector.delete(2)
    run_all(Run(spark, Place(tmp_path)), text, kept)
    *_, rows = applied(kept["o"])
    at = datetime(2024, 2, 29, 12, 30, 0, 123456, UTC).replace(tzinfo=None)
    assert list(rows.values()) == [{"id": 1, "NAME": "z", "local": at}]
    second = kept["o"][max(kept["o"])]
    assert sorted((each[CHANGE], each["id"], each["NAME"]) for each in second) == [
        ("+I", 1, "z"), ("-D", 1, "y"), ("-D", 2, "x"),
    ]  # fmt: skip


WRONG: list[tuple[Any, str]] = [
    (plain_json("t", None, None), "the table was truncated"),
    ({"id": 1, "name": "x"}, "ExtractNewRecordState"),
    (plain_json("c", None, {"id": 1, "amount": "1234"}), "'amount' cannot be read as DECIMAL"),
    (plain_json("c", None, {"id": 1, "at": 1709209800123}), "declare a number BIGINT.*17092098"),
    (
        plain_json("u", None, {"id": 1, "name": "__debezium_unavailable_value"}),
        "'name' is long, was not changed, and is not in the event. ALTER TABLE",
    ),
]
MORE: list[tuple[Any, str]] = [
    (plain_json("m", None, None), "its `op` is not known: m"),
    ({"schema": None, "payload": None}, "it has no `op`"),
    (plain_json("u", None, None), "a change without `after`"),
    (plain_json("d", None, None), "a delete without `before`.*REPLICA IDENTITY FULL"),
    (plain_json("c", None, {"name": "x"}), "the key column 'id' has no value"),
    (plain_json("c", None, {"id": "1"}), "it is not JSON in which the declared columns"),
    (b"not JSON", "it is not JSON in which"),
    (plain_json("c", None, {"id": 1, "amount": "AfQ="}), "decimal.handling.mode to string.*AfQ="),
    (plain_json("c", None, {"id": 1, "amount": "1.234"}), "'amount' cannot be read as DECIMAL"),
    (plain_json("c", None, {"id": 1, "day": "someday"}), "'day' cannot be read as DATE: someday"),
]
ASKED = WRONG + MORE * (os.environ.get("LAMINA_EXAMPLES") == "all")


def test_what_cannot_be_read_is_named_with_its_place(
    spark: Any, tmp_path: Path, topics: Topics
) -> None:
    """Each in a source of its own: frames are asked, without a pipeline."""
    from lamina.connectors.opening import open_source  # noqa: PLC0415
    from lamina.engine.ports import Limits  # noqa: PLC0415
    from lamina.spark.failures import spark_errors  # noqa: PLC0415

    name = topics.new()
    topics.put(name, [plain_json("c", None, {"id": 0}), *(event for event, _ in ASKED)])
    starting = {str(at): said for at, (_, said) in enumerate(ASKED, 1)}
    for at, said in starting.items():
        given = {"startingOffsets": json.dumps({name: {"0": int(at)}}), "maxOffsetsPerTrigger": "1"}
        text = source(topics, "s", subscribe=name, format="debezium-json", **given)
        opened = open_source(parse_pipeline(text).sources["s"], tmp_path)
        planned = opened.plan({}, Limits(), None)
        with pytest.raises(Refused, match=said) as caught, spark_errors():
            opened.frame(spark, planned).collect()
        assert caught.value.where == f"topic {name}, partition 0, offset {at}"


def test_a_row_whose_changes_are_in_two_partitions_is_refused(
    spark: Any, tmp_path: Path, topics: Topics
) -> None:
    name = topics.new(1)
    text = source(topics, "s", "id BIGINT, name STRING", subscribe=name, format="debezium-json")
    text += "CREATE STREAM x AS SELECT * FROM s;"
    text += "CREATE SINK o FROM x USING function OPTIONS (function 'm:f');"
    topics.put(name, [plain_json("c", None, {"id": 1, "name": "a"})])
    kept: dict[str, Epochs] = {}
    run_all(Run(spark, Place(tmp_path)), text, kept)
    topics.grow(name, 2)
    topics.put(name, [plain_json("u", None, {"id": 1, "name": "b"})], partition=1)
    with pytest.raises(LaminaError, match=rf"the row id 1 come from {name}/0 and from {name}/1"):
        run_all(Run(spark, Place(tmp_path)), text, kept)
    assert len(kept["o"]) == 1


def test_a_topic_without_its_beginning_is_refused(
    spark: Any, tmp_path: Path, topics: Topics
) -> None:
    name = topics.new()
    topics.put(name, [plain_json("c", None, {"id": at}) for at in range(3)])
    topics.cut(name, 2)
    text = source(topics, "s", "id BIGINT", subscribe=name, format="debezium-json")
    text += "CREATE STREAM x AS SELECT * FROM s;"
    text += "CREATE SINK o FROM x USING function OPTIONS (function 'm:f');"
    with pytest.raises(Refused, match="begins at offset 2: the changes before it are gone"):
        run_all(Run(spark, Place(tmp_path)), text, {})

"""A Kafka sink at the end of a pipeline on Spark: values are what Spark's to_json writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import BadPipeline, NotFound
from lamina.testing.faulty import Killed
from tests.servers import KafkaServer
from tests.spark.running import Place, Run
from tests.support.kafka import TopicReader

pytestmark = pytest.mark.server

EXAMPLE = Path(__file__).parents[2] / "examples" / "kafka_sink" / "pipeline.sql"
COLUMNS = "k STRING, v BIGINT, at TIMESTAMP"
EVERY_TYPE = """
  SELECT k, v, CAST(v % 100 AS TINYINT) AS tiny, CAST(v % 100 AS SMALLINT) AS small,
         CAST(v % 100 AS INT) AS whole, v % 2 = 0 AS even, CAST(v / 4 AS FLOAT) AS single,
         v / 7 AS double, CAST(v AS DOUBLE) AS round, CAST(v AS DECIMAL(38, 18)) / 7 AS exact,
         CAST(k AS BINARY) AS bytes, CAST(at AS DATE) AS day, at,
         CAST(at AS TIMESTAMP_NTZ) AS local, array(v, NULL) AS several, array(k, NULL) AS texts,
         named_struct('a', v, 'b', k, 'deep', named_struct('at', at)) AS nested,
         map('x', v, concat('"', coalesce(k, '')), NULL) AS mapped,
         array(named_struct('k', k)) AS structs,
         IF(v % 3 = 0, NULL, v) AS sometimes, CAST('NaN' AS DOUBLE) AS not_a_number
  FROM t"""
TOTALS = "SELECT k, count(*) AS n, sum(v) AS total FROM t GROUP BY k"


def text(prefix: str) -> str:
    servers = "kafka.bootstrap.servers '${KAFKA}', create_partitions '2'"
    return f"""
    CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in');
    CREATE STREAM rows AS {EVERY_TYPE};
    CREATE STREAM totals AS {TOTALS} EMIT ON UPDATE;
    CREATE SINK rows_out FROM rows USING kafka OPTIONS (topic '{prefix}-rows', {servers});
    CREATE SINK totals_out FROM totals USING kafka OPTIONS (topic '{prefix}-totals', {servers});"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.put_moments(["a", 'quote " and \\', "Ω\n\t\x01", None, ""], digits=3)
    return made


def values(server: KafkaServer, topic: str) -> list[Any]:
    return [json.loads(m.value or b"") for m in TopicReader(server.bootstrap, topic, 2).read()]


def check(spark: Any, place: Place, server: KafkaServer, prefix: str) -> None:
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    rows = spark.sql(f"SELECT to_json(struct(*)) FROM ({EVERY_TYPE})").collect()
    expected = Counter(_canonical(json.loads(row[0])) for row in rows)
    assert Counter(map(_canonical, values(server, f"{prefix}-rows"))) == expected
    last: dict[bytes | None, Any] = {}
    for message in TopicReader(server.bootstrap, f"{prefix}-totals", 2).read():
        last[message.key] = json.loads(message.value or b"")
    totals = [row.asDict() for row in spark.sql(TOTALS).collect()]
    keyed = {None if t["k"] is None else t["k"].encode(): t for t in totals}
    assert last == {
        key: {n: v for n, v in total.items() if v is not None} for key, total in keyed.items()
    }


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def test_every_spark_type_and_updates_by_key_are_what_spark_writes(
    spark: Any, place: Place, kafka_server: KafkaServer
) -> None:
    run = Run(spark, place, variables={"KAFKA": kafka_server.bootstrap})
    assert run(text("live")) == 3
    check(spark, place, kafka_server, "live")
    assert run(text("live")) == 3


def test_killed_at_steps_of_an_epoch_every_row_is_there_once(
    spark: Any, place: Place, kafka_server: KafkaServer
) -> None:
    variables = {"KAFKA": kafka_server.bootstrap}
    passed: list[str] = []
    for nth in (2, 5, 8):
        with pytest.raises(Killed):
            Run(spark, place, variables=variables, fail_point=_kill_at(nth, passed))(text("steps"))
    Run(spark, place, variables=variables)(text("steps"))
    assert len(set(passed)) > 1, passed
    check(spark, place, kafka_server, "steps")


def _kill_at(nth: int, passed: list[str]) -> Callable[[str], None]:
    seen: list[str] = []

    def point(name: str) -> None:
        seen.append(name)
        passed.append(name)
        if len(seen) == nth:
            raise Killed(name)

    return point


def test_what_cannot_be_sent_is_refused_before_anything_is_claimed(
    spark: Any, place: Place, kafka_server: KafkaServer
) -> None:
    run = Run(spark, place, variables={"KAFKA": kafka_server.bootstrap})
    interval = text("never").replace("v % 2 = 0 AS even", "at - DATE '2000-01-01' AS since")
    with pytest.raises(BadPipeline, match="'since' of the type duration"):
        run(interval)
    missing = text("never").replace(", create_partitions '2'", "")
    with pytest.raises(NotFound, match="never-"):
        run(missing)
    topics = TopicReader(kafka_server.bootstrap, "x")._client.list_topics(timeout=10).topics
    assert not [name for name in topics if name.startswith("never")]


def test_the_example_runs(spark: Any, tmp_path: Path, kafka_server: KafkaServer) -> None:
    variables = {"KAFKA": kafka_server.bootstrap}
    Run(spark, Place(tmp_path), rows=7_000, files=None, variables=variables)(EXAMPLE.read_text())
    totals = TopicReader(kafka_server.bootstrap, "trade-totals", 3).read()
    minutes = TopicReader(kafka_server.bootstrap, "trade-minutes", 3).read()
    symbols = {message.key for message in totals}
    assert len(symbols) == 20
    assert {message.key for message in minutes} == symbols
    rows = [json.loads(message.value or b"") for message in minutes]
    assert all(set(row) == {"symbol", "minute", "vwap", "trades"} for row in rows)
    assert len({(row["symbol"], row["minute"]) for row in rows}) == len(rows)

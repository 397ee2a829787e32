"""Rows of a real Kafka on a real Spark: exactly what was committed, whatever happens between."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lamina.connectors.kafka import source as kafka_source
from lamina.errors import LaminaError, NotFound, Refused, UsageError
from tests.servers.kafka_topics import Topics
from tests.spark.running import Place, Run, job_count


class Reader:
    """A pipeline that copies a topic, in a folder of its own."""

    def __init__(self, spark: Any, folder: Path, topics: Topics) -> None:
        self.place = Place(folder)
        self.run = Run(spark, self.place)
        self.topics = topics

    def text(self, columns: str = "a BIGINT", select: str = "*", **options: object) -> str:
        listed = {"kafka.bootstrap.servers": self.topics.server.bootstrap, **options}
        shown = ", ".join(f"{name} '{value}'" for name, value in listed.items())
        return (
            f"CREATE SOURCE s ({columns}) USING kafka OPTIONS ({shown});"
            f"CREATE STREAM x AS SELECT {select} FROM s;"
            "CREATE SINK o FROM x USING parquet OPTIONS (path 'out');"
        )

    def __call__(self, columns: str = "a BIGINT", **options: object) -> list[dict[str, Any]]:
        """Everything there is, read; all rows so far."""
        self.run(self.text(columns, **options))
        return self.place.rows()

    def values(self, **options: object) -> list[Any]:
        return sorted(row["a"] for row in self(**options))


@pytest.fixture
def reader(spark: Any, tmp_path: Path, topics: Topics) -> Reader:
    return Reader(spark, tmp_path, topics)


def rows(*numbers: int) -> list[dict[str, int]]:
    return [{"a": number} for number in numbers]


def test_rows_with_all_their_metadata(reader: Reader, topics: Topics) -> None:
    name = topics.new(2)
    topics.put(name, rows(1), partition=0, key="k", headers={"h": b"\xff\x00"})
    topics.put(name, rows(2), partition=1, key=None)
    topics.put(name, [None], partition=1, key="gone")
    found = reader(
        "a BIGINT, k STRING METADATA FROM 'key', b BINARY METADATA FROM 'key', "
        "t STRING METADATA FROM 'topic', p INT METADATA FROM 'partition', "
        "o BIGINT METADATA FROM 'offset', ts TIMESTAMP METADATA FROM 'timestamp', "
        "ty INT METADATA FROM 'timestampType', "
        "h ARRAY<STRUCT<key: STRING, value: BINARY>> METADATA FROM 'headers'",
        subscribe=name,
    )
    by_place = {(row["p"], row["o"]): row for row in found}
    first, second, gone = by_place[0, 0], by_place[1, 0], by_place[1, 1]
    assert (first["a"], first["k"], first["b"], first["t"], first["ty"]) == (1, "k", b"k", name, 0)
    assert first["h"] == [{"key": "h", "value": b"\xff\x00"}]
    assert first["ts"].year > 2000
    assert (second["a"], second["k"], second["h"]) == (2, None, None)
    assert (gone["a"], gone["k"]) == (None, "gone"), "a tombstone has no value, and is a row"


def test_only_what_was_committed_is_seen_and_an_open_transaction_is_waited_for(
    reader: Reader, topics: Topics
) -> None:
    name = topics.new()
    topics.transaction(name, rows(1, 2))
    topics.transaction(name, rows(3, 4), commit=False)
    topics.put(name, rows(5))
    assert reader.values(subscribe=name) == [1, 2, 5]
    topics.transaction(name, rows(6), commit=False)
    topics.transaction(name, rows(7))
    assert reader.values(subscribe=name) == [1, 2, 5, 7]
    assert reader.values(subscribe=name) == [1, 2, 5, 7], "nothing is new"


def test_new_partitions_and_new_topics_of_a_pattern_are_read_from_their_beginning(
    reader: Reader, topics: Topics
) -> None:
    name = topics.new(1, name="pattern-a")
    topics.put(name, rows(1))
    options = {"subscribePattern": "pattern-.*", "startingOffsets": "latest"}
    assert reader.values(**options) == [], "it begins at the end"
    topics.grow(name, 2)
    topics.put(name, rows(2), partition=1)
    topics.put(topics.new(1, name="pattern-b"), rows(3))
    topics.put(topics.new(1, name="other-pattern-c"), rows(4))
    assert reader.values(**options) == [2, 3]


def test_assigned_partitions_alone_are_read(reader: Reader, topics: Topics) -> None:
    name = topics.new(2)
    topics.put(name, rows(1), partition=0)
    topics.put(name, rows(2), partition=1)
    assert reader.values(assign=f'{{"{name}":[1]}}') == [2]


def test_given_offsets_are_where_a_new_pipeline_begins(reader: Reader, topics: Topics) -> None:
    name = topics.new(2)
    for partition in range(2):
        topics.put(name, rows(1, 2, 3), partition=partition)
    starting = f'{{"{name}":{{"0":2,"1":-1}}}}'
    assert reader.values(subscribe=name, startingOffsets=starting) == [3]


def test_a_topic_that_was_made_again_is_refused_until_a_person_says_so(
    reader: Reader, topics: Topics
) -> None:
    name = topics.new()
    topics.put(name, rows(1, 2))
    assert reader.values(subscribe=name) == [1, 2]
    topics.delete(name)
    with pytest.raises(NotFound, match=name) as missing:
        reader(subscribe=name)
    assert "does not exist" in str(missing.value)
    topics.new(name=name)
    topics.put(name, rows(3, 4, 5))
    with pytest.raises(Refused, match=r"made again.*partition 0 up to offset 2") as refused:
        reader(subscribe=name)
    assert "--skip-lost s" in refused.value.advice
    reader.run.skip_lost = frozenset({"S"})
    assert reader.values(subscribe=name) == [1, 2, 3, 4, 5]


def test_rows_that_retention_took_are_refused_with_the_numbers(
    reader: Reader, topics: Topics
) -> None:
    name = topics.new()
    topics.put(name, rows(1, 2, 3))
    assert reader.values(subscribe=name) == [1, 2, 3]
    topics.put(name, rows(4, 5, 6))
    topics.cut(name, 5)
    with pytest.raises(Refused, match=r"lost 2 offsets.*next one is 3.*left is 5"):
        reader(subscribe=name)
    reader.run.skip_lost = frozenset({"s"})
    assert reader.values(subscribe=name) == [1, 2, 3, 6]
    assert any("skipped rows" in note and "lost 2 offsets" in note for note in reader.run.notes)
    reader.run.skip_lost = frozenset()
    topics.put(name, rows(7))
    assert reader.values(subscribe=name) == [1, 2, 3, 6, 7]


def test_another_run_in_the_same_session_may_have_other_settings(
    reader: Reader, topics: Topics
) -> None:
    """Executors keep consumers, and refused others: with both settings, password and all."""
    name = topics.new()
    topics.put(name, rows(1))
    size = "kafka.max.partition.fetch.bytes"
    assert reader.values(subscribe=name, **{size: 1_000_000}) == [1]
    topics.put(name, rows(2))
    assert reader.values(subscribe=name, **{size: 2_000_000}) == [1, 2]


def test_limits_split_an_epoch_and_everything_comes_once(reader: Reader, topics: Topics) -> None:
    name = topics.new(3)
    for partition in range(3):
        topics.put(name, rows(*range(partition * 100, partition * 100 + 10)), partition=partition)
    found = reader.values(subscribe=name, maxOffsetsPerTrigger=7)
    assert found == sorted([*range(10), *range(100, 110), *range(200, 210)])
    sizes = [len(epoch) for epoch in reader.place.epochs()]
    assert max(sizes) == 7
    assert len(sizes) == 5


class Killed(BaseException):
    """As if the process had ended here."""


@pytest.mark.parametrize("point", ["before x", "after x", "before COMMIT", "after COMMIT"])
def test_a_run_that_is_killed_goes_on_exactly(reader: Reader, topics: Topics, point: str) -> None:
    name = topics.new(2)
    topics.put(name, rows(1, 2), partition=0)
    assert reader.values(subscribe=name) == [1, 2]
    topics.put(name, rows(3, 4), partition=1)

    def fail(at: str) -> None:
        if at == point:
            raise Killed

    reader.run.fail_point = fail
    with pytest.raises(Killed):
        reader(subscribe=name)
    reader.run.fail_point = lambda _: None
    topics.put(name, rows(5), partition=0)
    assert reader.values(subscribe=name) == [1, 2, 3, 4, 5]


def test_an_epoch_is_one_job_and_min_partitions_are_its_tasks(
    reader: Reader, topics: Topics, spark: Any
) -> None:
    name = topics.new(2)
    topics.put(name, rows(*range(100)), partition=0)
    jobs: list[int] = []
    reader.run.fail_point = lambda at: jobs.append(job_count(spark)) if at.endswith(" x") else None
    assert reader.values(subscribe=name, minPartitions=4) == list(range(100))
    assert [b - a for a, b in zip(jobs[::2], jobs[1::2], strict=True)] == [1]
    (epoch,) = (reader.place.folder / "out").glob("epoch-*")
    assert len(list(epoch.glob("*.parquet"))) == 4


def test_a_message_of_ten_megabytes(reader: Reader, topics: Topics) -> None:
    name = topics.new(settings={"max.message.bytes": "30000000"})
    topics.put(name, [{"a": 1, "t": "x" * 10_000_000}, {"a": 2, "t": "y"}])
    found = reader("a BIGINT, t STRING", subscribe=name)
    assert [(row["a"], len(row["t"])) for row in found] == [(1, 10_000_000), (2, 1)]


NOT_JSON = {
    "a list": b'[{"a": 1}]',
    "a text for a number": b'{"a": "x"}',
    "a fraction for a number": b'{"a": 1.5}',
    "two values": b'{"a": 1}{"a": 2}',
    "a rest": b'{"a": 1} x',
    "no JSON": b"nope",
    "a null": b"null",
    "a number": b"17",
    "nothing": b"",
    "cut short": b'{"a": 1',
    "not UTF-8": b'{"b": "\xff"}',
}


def test_a_value_that_is_not_one_json_object_is_kept_apart(reader: Reader, topics: Topics) -> None:
    name = topics.new()
    topics.put(name, [*rows(1), *NOT_JSON.values(), *rows(2), b' {"a" : 3, "z": {"y": [1]}} \n'])
    found = reader("a BIGINT, b STRING", subscribe=name, bad_rows_path="bad")
    assert [row["a"] for row in found] == [1, 2, 3]
    kept = reader.place.rows("bad")
    assert [(row["topic"], row["partition"], row["offset"], row["bytes"]) for row in kept] == [
        (name, 0, at, value) for at, value in enumerate(NOT_JSON.values(), 1)
    ]


def test_without_a_place_for_it_such_a_value_stops_the_epoch_and_is_named(
    reader: Reader, topics: Topics
) -> None:
    name = topics.new()
    topics.put(name, [*rows(1), b'{"a": "x"}'])
    with pytest.raises(Refused, match=r'\{"a": "x"\}') as refused:
        reader(subscribe=name)
    assert refused.value.where == f"topic {name}, partition 0, offset 1"
    assert reader.place.rows() == []


def test_a_stream_that_needs_one_column_sees_what_is_wrong_with_another(
    reader: Reader, topics: Topics
) -> None:
    name = topics.new()
    topics.put(name, [{"a": 1, "b": 2}, {"a": 2, "b": "x"}])
    text = reader.text("a BIGINT, b BIGINT", select="a", subscribe=name, bad_rows_path="bad")
    reader.run(text)
    assert [row["a"] for row in reader.place.rows()] == [1]
    assert len(reader.place.rows("bad")) == 1


def test_csv(reader: Reader, topics: Topics) -> None:
    name = topics.new()
    good = [b"1;x", b"2;'a;b'\n", b"3;"]
    bad = [b"x;y", b"4", b"5;a;b", b"6;a\n7;b", b"", b"8;\xff"]
    topics.put(name, [*good, *bad])
    options = {"format": "csv", "sep": ";", "quote": "\\'", "bad_rows_path": "bad"}
    found = reader("a BIGINT, b STRING", subscribe=name, **options)
    assert [(row["a"], row["b"]) for row in found] == [(1, "x"), (2, "a;b"), (3, None)]
    assert [row["bytes"] for row in reader.place.rows("bad")] == bad


@pytest.mark.parametrize(
    ("kind", "good", "bad"), [("BINARY", [b"\xff\x00", b""], []), ("STRING", ["é"], [b"\xff"])]
)
def test_raw(reader: Reader, topics: Topics, kind: str, good: list[Any], bad: list[Any]) -> None:
    name = topics.new()
    topics.put(name, [*good, *bad])
    found = reader(f"a {kind}", subscribe=name, format="raw", bad_rows_path="bad")
    assert [row["a"] for row in found] == good
    assert [row["bytes"] for row in reader.place.rows("bad")] == bad


def test_compacted_topics_are_refused_unless_a_person_says_so(
    reader: Reader, topics: Topics
) -> None:
    name = topics.new(settings={"cleanup.policy": "compact"})
    topics.put(name, rows(1), key="k")
    with pytest.raises(Refused, match="compacted"):
        reader(subscribe=name)
    assert reader.values(subscribe=name, compacted="true") == [1]


WRONG: Mapping[str, tuple[dict[str, str], str]] = {
    "a port where nobody listens": ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "LAM-5001"),
    "a host that does not exist": ({"kafka.bootstrap.servers": "nowhere.invalid:9"}, "LAM-5001"),
    "a topic that does not exist": ({"subscribe": "not-there"}, "LAM-2000"),
    "TLS where there is none": ({"kafka.security.protocol": "SSL"}, "LAM-500"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_read_is_told_before_anything_is_claimed(
    reader: Reader, topics: Topics, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "FIRST_ANSWER_S", 2.0)
    changed, code = WRONG[wrong]
    with pytest.raises(LaminaError, match=code) as told:
        reader(**{"subscribe": "not-there", **changed})
    assert "'s'" in told.value.message
    assert not (reader.place.folder / "store").exists()
    assert not list((reader.place.folder / "home").glob("**/*.log"))


def windowed(reader: Reader, topic: str, idle_after: str) -> str:
    text = reader.text(
        "ts TIMESTAMP", subscribe=topic, idle_after=idle_after, maxOffsetsPerTrigger=1
    )
    source, stream, sink = text.split(";")[:3]
    stream = (
        "CREATE STREAM x AS SELECT window.start AS s, count(*) AS n FROM s "
        "GROUP BY window(ts, '1 minute') EMIT ON WINDOW CLOSE"
    )
    return f"{source} WATERMARK ts DELAY OF INTERVAL 0 SECONDS; {stream}; {sink};"


def times(*texts: str) -> list[dict[str, str]]:
    return [{"ts": f"2024-01-01T00:0{text}Z"} for text in texts]


def test_the_slowest_partition_holds_the_watermark(reader: Reader, topics: Topics) -> None:
    name = topics.new(2)
    topics.put(name, times("0:30", "5:00"), partition=0)
    topics.put(name, times("0:40"), partition=1)
    text = windowed(reader, name, "1 hour")
    reader.run(text)
    assert reader.place.rows() == [], "partition 1 may still bring rows of the first minute"
    topics.put(name, times("0:50", "2:00"), partition=1)
    reader.run(text)
    assert [row["n"] for row in reader.place.rows()] == [3]


def test_a_silent_partition_does_not_hold_it_for_ever(reader: Reader, topics: Topics) -> None:
    name = topics.new(3)  # one of them is empty
    topics.put(name, times("0:30", "5:00"), partition=0)
    topics.put(name, times("0:40"), partition=1)
    text = windowed(reader, name, "1 millisecond")
    reader.run(text)
    assert [row["n"] for row in reader.place.rows()] == [2]
    topics.put(name, times("0:50", "7:00"), partition=1)
    topics.put(name, times("7:30"), partition=0)
    reader.run(text)
    assert [row["n"] for row in reader.place.rows()][:2] == [2, 1], "0:50 is late: that is the cost"


def test_max_ahead_and_idle_after_exclude_each_other(reader: Reader) -> None:
    reader.run.max_ahead_us = 1
    with pytest.raises(UsageError, match="idle_after"):
        reader.run(windowed(reader, "t", "1 hour"))

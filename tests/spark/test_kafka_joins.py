"""A join of two topics of a real Kafka, one of which falls silent; late rows by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.servers.kafka_topics import Topics
from tests.spark.running import Place, Run

pytestmark = pytest.mark.server


class Joined:
    """`o LEFT JOIN p` within a minute; *run* says how many rows of each side were late."""

    def __init__(self, spark: Any, folder: Path, topics: Topics) -> None:
        self.place, self._spark, self._topics = Place(folder), spark, topics
        self.o, self.p = topics.new(), topics.new()

    def put(self, topic: str, *times: str) -> None:
        rows = [{"k": "a", "ts": f"2024-01-01T00:0{time}Z"} for time in times]
        self._topics.put(topic, rows)

    def run(self, idle_after: str) -> dict[str, int]:
        run = Run(self._spark, self.place, partitions=2)
        run(self._text(idle_after))
        sides = [report.late_sides["x.join"] for report in run.reports]
        return {side: sum(each[side] for each in sides) for side in ("left", "right")}

    def _text(self, idle_after: str) -> str:
        servers = self._topics.server.bootstrap
        return "".join(
            f"CREATE SOURCE {name} (k STRING, ts TIMESTAMP) USING kafka OPTIONS "
            f"(kafka.bootstrap.servers '{servers}', subscribe '{topic}', "
            f"idle_after '{idle_after}') WATERMARK ts DELAY OF INTERVAL 0 SECONDS;\n"
            for name, topic in (("o", self.o), ("p", self.p))
        ) + (
            "CREATE STREAM x AS SELECT o.ts, p.ts AS paid FROM o LEFT JOIN p ON o.k = p.k AND "
            "p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 MINUTE;\n"
            "CREATE SINK out FROM x USING parquet OPTIONS (path 'out');"
        )

    def rows(self) -> list[tuple[str, str | None]]:
        """Minutes and seconds of both sides."""
        found = [(row["ts"], row["paid"]) for row in self.place.rows()]
        return sorted((f"{a:%M:%S}", None if b is None else f"{b:%M:%S}") for a, b in found)


def test_a_silent_topic_holds_a_join_only_for_idle_after_and_late_rows_are_counted_by_side(
    spark: Any, tmp_path: Path, topics: Topics
) -> None:
    joined = Joined(spark, tmp_path, topics)
    joined.put(joined.o, "0:00", "1:30", "5:00")
    joined.put(joined.p, "0:10")
    assert joined.run("1 hour") == {"left": 0, "right": 0}
    assert joined.rows() == [("00:00", "00:10")], "the other topic may still bring payments"

    joined.put(joined.o, "5:30")
    assert joined.run("1 millisecond") == {"left": 0, "right": 0}
    paid = [("00:00", "00:10"), ("01:30", None)]
    assert joined.rows() == paid, "it was silent, and went along with the orders"

    joined.put(joined.o, "9:00", "2:00")
    joined.put(joined.p, "2:10", "5:20", "5:40")
    assert joined.run("1 millisecond") == {"left": 1, "right": 2}
    pairs = [("05:00", "05:40"), ("05:30", "05:40")]
    assert joined.rows() == [*paid, *pairs], "what it brought behind the watermark counts"


def test_a_topic_that_never_had_a_record_does_not_hold_a_join(
    spark: Any, tmp_path: Path, topics: Topics
) -> None:
    joined = Joined(spark, tmp_path, topics)
    joined.put(joined.o, "0:00", "5:00")
    joined.run("1 millisecond")
    assert joined.rows() == [("00:00", None)]

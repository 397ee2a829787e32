"""EMIT EVERY on Spark, and ranks in both directions: in the end, what one batch has."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lamina.errors import BadPipeline
from lamina.testing.faulty import Killed
from tests.engine.pipelines import Bomb
from tests.spark.changes import applied
from tests.spark.running import Place, Run, batch, comparable, compiled, pipeline_text
from tests.spark.together import Together

COLUMNS = (
    "id BIGINT, k STRING, v BIGINT, d DOUBLE, m DECIMAL(9,2), s STRING, b BOOLEAN, day DATE,"
    " ts TIMESTAMP"
)
MARK = "WATERMARK ts DELAY OF INTERVAL 10 SECONDS"
START = datetime(2024, 1, 1, tzinfo=UTC)
EPOCHS = 5
EVERY = "EMIT EVERY INTERVAL 2 MINUTES"


def epochs_of(seed: int) -> list[list[dict[str, Any]]]:
    """A minute an epoch; many rows are equal in all but their number."""
    rng = random.Random(seed)
    texts = [None, "", "a", "ab", "b", "ü", "日本", "a\x01"]
    made = []
    for epoch in range(EPOCHS):
        rows = []
        for number in range(40):
            at = START + timedelta(seconds=60 * epoch + rng.randint(0, 59))
            rows.append(
                {
                    "id": epoch * 100 + number,
                    "k": rng.choice(["x", "y", None]),
                    "v": rng.choice([None, -(1 << 63), (1 << 63) - 1, -1, 0, 7]),
                    "d": rng.choice([None, "NaN", "-Infinity", "Infinity", -0.0, 0.0, 1.5]),
                    "m": rng.choice([None, "12.50", "-1.25", "0.00"]),
                    "s": rng.choice(texts),
                    "b": rng.choice([None, True, False]),
                    "day": rng.choice([None, "0001-01-01", "1969-12-31", "2024-02-29"]),
                    "ts": at.isoformat().replace("+00:00", "Z"),
                }
            )
        made.append(rows)
    return made


def top(n: int, order: str) -> str:
    over = f"row_number() OVER (PARTITION BY k ORDER BY {order}, id)"
    return f"SELECT k, n, id FROM (SELECT k, id, {over} AS n FROM t) WHERE n <= {n}"


UPDATES = [
    ("SELECT k, count(*) AS n, sum(m) AS total, count(DISTINCT s) AS texts FROM t GROUP BY k", 1),
    ("SELECT count(*) AS n, max(v) AS most FROM t", 0),
    ("SELECT window.start AS minute, k, count(*) AS n FROM t GROUP BY window(ts, '45 seconds'), k",
     2),
    (top(9, "v DESC NULLS FIRST, s ASC NULLS LAST, d DESC, ts"), 2),
    (top(30, "b, d DESC NULLS FIRST, day DESC NULLS FIRST, m DESC, s DESC"), 2),
    (top(1, "d DESC, b ASC NULLS LAST, v"), 2),
]  # fmt: skip
"""Each with the number of columns that are its key."""
CHANGES = [
    top(3, "v DESC, s"),
    "SELECT n, count(*) AS groups, max(least) AS least FROM (SELECT k, s, count(*) AS n, min(v) AS"
    " least FROM t GROUP BY k, s) GROUP BY n HAVING count(*) % 3 <> 0",
]


@pytest.fixture(scope="module")
def outputs(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Together:
    """All in one pipeline, killed once and rescaled; the view `t` has all rows at once."""
    place = Place(tmp_path_factory.mktemp("every"))
    place.put_json(epochs_of(1))
    head = f"CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in') {MARK};\n"
    changes = [(query, "EMIT CHANGES EVERY INTERVAL 2 MINUTES") for query in CHANGES]
    together = Together(head, [*((query, EVERY) for query, _ in UPDATES), *changes])
    with pytest.raises(Killed):
        together.run(Run(spark, place, partitions=2, fail_point=Bomb("before COMMIT", 3)))
    together.run(Run(spark, place, partitions=4, drain=True))
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    return together


@pytest.mark.parametrize("number", range(len(UPDATES)))
def test_the_last_of_each_row_is_that_of_a_batch(
    spark: Any, outputs: Together, number: int
) -> None:
    query, keys = UPDATES[number]
    assert comparable(outputs.latest(number, keys)) == comparable(batch(spark, query))
    if "window" not in query:
        assert 2 <= len(outputs.epochs(number)) <= 4, "not with every epoch"


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_all_changes_together_are_a_batch(spark: Any, outputs: Together, number: int) -> None:
    epochs = outputs.epochs(len(UPDATES) + number)
    assert applied(epochs) == comparable(batch(spark, CHANGES[number]))
    assert 2 <= len(epochs) <= 4


@pytest.mark.parametrize(
    ("query", "emit", "mark", "said"),
    [
        (UPDATES[0][0], EVERY, "", "EMIT EVERY over 't', which has no watermark"),
        ("SELECT k FROM t", EVERY, MARK, "EMIT ON UPDATE in a stream without aggregates"),
        ("SELECT DISTINCT k FROM t", EVERY, MARK, "EMIT ON UPDATE with SELECT DISTINCT"),
        (f"{UPDATES[0][0]} HAVING count(*) > 1", EVERY, MARK, "HAVING with EMIT ON UPDATE"),
    ],
)
def test_what_cannot_wait_is_refused(
    spark: Any, query: str, emit: str, mark: str, said: str
) -> None:
    with pytest.raises(BadPipeline, match=said):
        compiled(spark, pipeline_text(COLUMNS, query, emit=emit, mark=mark))

"""Top n in epochs: the last version of every rank is what one batch over all rows has."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lamina.engine.ports import Change
from lamina.errors import BadPipeline, StateChanged
from tests.spark.running import Place, Run, batch, comparable, compiled, pipeline_text

COLUMNS = "k STRING, a BIGINT, d DOUBLE, m DECIMAL(9,2), at TIMESTAMP, note STRING, l ARRAY<INT>"


def epochs_of(seed: int, rows: int = 300) -> list[list[dict[str, Any]]]:
    """No two rows have the same `a`, but some have none: of these only one is of a key."""
    rng = random.Random(seed)
    values = rng.sample(range(-1_000, 1_000), rows)
    made = [
        {
            "k": rng.choice(["a", "b", "ü", None]),
            "a": value,
            "d": rng.choice([None, "NaN", -0.0, 1.5]),
            "m": rng.choice([None, "12.50", "-1.25"]),
            "at": f"19{rng.randint(10, 99)}-01-01T00:00:00Z",
            "note": rng.choice(["", "x", None, "日本"]),
        }
        for value in values
    ]
    for key in ("a", None):
        made.append({**made[0], "k": key, "a": None})
    rng.shuffle(made)
    cuts = sorted(rng.choices(range(len(made)), k=3))
    return [made[i:j] for i, j in zip([0, *cuts], [*cuts, len(made)], strict=True)]


OVER = "row_number() OVER (PARTITION BY k ORDER BY a{})".format


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        (f"SELECT k, n, a, d, m, at, note FROM (SELECT *, {OVER(' DESC')} AS n FROM"
         " (SELECT k, a, d, m, at, note FROM t)) WHERE n <= 3", 2),
        (f"SELECT k, a, note FROM t QUALIFY {OVER('')} = 1", 1),
        (f"SELECT t.k AS key, {OVER(' ASC NULLS FIRST')} AS n, a + 1 AS b FROM t WHERE a % 3 <> 0"
         " QUALIFY n <= 4", 2),
        ("SELECT k, d, n, a FROM (SELECT k, d, a, row_number() OVER (PARTITION BY k, d ORDER BY"
         " at DESC, a DESC) AS n FROM t) WHERE n < 3", 3),
        ("SELECT n, a, k FROM (SELECT a, k, row_number() OVER (ORDER BY a DESC) AS n FROM t)"
         " WHERE n <= 5", 1),
        (f"SELECT k, a FROM (SELECT *, {OVER('')} AS n FROM (SELECT k, a FROM t)) WHERE n = 2", 1),
    ],
)  # fmt: skip
def test_the_first_rows_of_each_key_equal_one_batch(
    spark: Any, tmp_path: Path, query: str, keys: int
) -> None:
    place = Place(tmp_path)
    place.put_json(epochs_of(len(query)))
    Run(spark, place)(pipeline_text(COLUMNS, query))
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    assert comparable(place.latest(keys)) == comparable(batch(spark, query))
    assert len(place.latest(keys)) >= 4


def test_a_key_that_has_no_new_first_row_is_not_written_again(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put_json([[{"k": "x", "a": 9}], [{"k": "x", "a": 1}, {"k": "y", "a": 1}]])
    Run(spark, place)(pipeline_text(COLUMNS, f"SELECT k, a FROM t QUALIFY {OVER(' DESC')} = 1"))
    assert place.epochs() == [[{"k": "x", "a": 9}], [{"k": "y", "a": 1}]]


def test_a_rank_and_its_key_tell_rows_apart(spark: Any) -> None:
    query = f"SELECT k AS key, n, a FROM (SELECT *, {OVER('')} AS n FROM (SELECT k, a FROM t))"
    plan = compiled(spark, pipeline_text(COLUMNS, f"{query} WHERE n <= 3"))
    assert plan.outputs["o"].change is Change.UPSERT
    assert plan.outputs["o"].keys == ("key", "n")
    one = compiled(spark, pipeline_text(COLUMNS, f"SELECT k, a FROM t QUALIFY {OVER('')} = 1"))
    assert one.outputs["o"].keys == ("k",)


def test_rows_that_have_no_order_are_refused(spark: Any) -> None:
    with pytest.raises(BadPipeline, match="some have no order here"):
        compiled(spark, pipeline_text(COLUMNS, f"SELECT k, l FROM t QUALIFY {OVER('')} = 1"))


def test_more_rows_than_were_kept_are_refused(spark: Any, tmp_path: Path) -> None:
    """The condition stands outside of the block that keeps the rows: three are all there are."""
    query = f"SELECT k, n, a FROM (SELECT *, {OVER('')} AS n FROM (SELECT k, a FROM t)) WHERE n <="
    place = Place(tmp_path)
    place.put_json(epochs_of(1))
    Run(spark, place)(pipeline_text(COLUMNS, f"{query} 3"))
    with pytest.raises(StateChanged):
        Run(spark, place)(pipeline_text(COLUMNS, f"{query} 5"))

"""Joins of streams: run in epochs, all in one pipeline, equal to one batch over all rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lamina.engine.joins import Join
from lamina.engine.task_state import schema_of
from lamina.errors import BadPipeline
from lamina.pipeline import parse_pipeline
from tests.spark.running import FILE, Place, Run, batch, comparable, compiled

ORDERS = "id BIGINT, state STRING, total DECIMAL(9,2), ratio DOUBLE, ts TIMESTAMP"
PAYMENTS = "order_id INT, amount DECIMAL(9,2), ratio DOUBLE, kind STRING, ts TIMESTAMP"
MARK = "WATERMARK ts DELAY OF INTERVAL 3 HOURS"  # nothing that is made here is late
WITHIN = "p.ts BETWEEN o.ts - INTERVAL 5 MINUTES AND o.ts + INTERVAL 10 MINUTES"
ON = f"o.id = p.order_id AND {WITHIN}"
STARTS = (
    "(SELECT id, window AS w, window.start AS since, window.end AS until, count(*) AS n FROM o "
    "GROUP BY id, window(ts, '10 minutes'))"
)
OTHERS = (
    STARTS.replace("FROM o", "FROM p")
    .replace("id,", "order_id AS id,", 1)
    .replace("BY id", "BY order_id")
)
QUERIES = {
    "inner": f"SELECT o.id, p.amount, o.ts AS o_ts, p.ts FROM o JOIN p ON {ON}",
    "names": "SELECT id, state, amount FROM o INNER JOIN p ON order_id = id AND p.ts >= o.ts "
    "AND p.ts < o.ts + INTERVAL '8' MINUTES WHERE amount > 2 AND state IS NOT NULL",
    "commas": f"SELECT x.id, p.kind FROM o AS x, p WHERE x.id = p.order_id AND "
    f"{WITHIN.replace('o.', 'x.')} AND x.state = 'a'",
    "lefts": f"SELECT o.id, o.state, p.kind, p.amount FROM o LEFT JOIN p ON {ON}",
    "rights": f"SELECT o.id, o.total, p.* FROM o RIGHT OUTER JOIN p ON {ON}",
    "fulls": f"SELECT o.id, p.order_id AS pid, coalesce(o.state, 'none') AS s FROM o FULL JOIN p "
    f"ON {ON} AND o.state = 'a' AND p.kind <> 'x'",
    "semis": f"SELECT o.* FROM o LEFT SEMI JOIN p ON {ON} AND p.kind = 'x'",
    "antis": f"SELECT o.id, o.ts FROM o LEFT ANTI JOIN p ON {ON} AND o.state = 'a'",
    "pairs": f"SELECT o.id, o.total, p.amount FROM o JOIN p ON {ON} AND p.amount < o.total",
    "left_pairs": f"SELECT o.id, o.total, p.amount FROM o LEFT JOIN p ON {ON} "
    "AND p.amount < o.total AND o.state <> 'b'",
    "right_pairs": f"SELECT o.total, p.* FROM o RIGHT JOIN p ON {ON} AND (o.ratio < p.ratio "
    "OR o.state = p.kind AND p.amount > 2)",
    "full_pairs": f"SELECT o.id, o.ratio, p.ratio AS pr, p.kind FROM o FULL JOIN p ON {ON} "
    "AND NOT (o.ratio <=> p.ratio) AND p.kind <> 'x'",
    "semi_pairs": f"SELECT o.* FROM o LEFT SEMI JOIN p ON {ON} AND p.ratio >= o.ratio",
    "anti_pairs": f"SELECT o.id, o.ts FROM o LEFT ANTI JOIN p ON {ON} "
    "AND (o.total IS NULL OR p.amount > o.total) AND o.state IN ('a', 'x')",
    "group_pairs": f"SELECT window.start AS at, count(*) AS n, count(p.kind) AS m FROM o LEFT JOIN "
    f"p ON {ON} AND concat(o.state, 'x') > p.kind GROUP BY window(o.ts, '10 minutes')",
    "exists": "SELECT * FROM o WHERE total > 1 AND EXISTS (SELECT 1 FROM p WHERE order_id = id "
    f"AND {WITHIN} AND ratio >= o.ratio)",
    "not_exists": "SELECT o.id, state FROM o WHERE NOT EXISTS (SELECT * FROM p x WHERE "
    "x.order_id = o.id AND x.ts BETWEEN o.ts AND o.ts + INTERVAL 9 MINUTES AND x.kind = 'x' "
    "AND o.state <> 'b')",
    "ins": "SELECT id, ts FROM o WHERE o.id IN (SELECT p.order_id FROM p WHERE "
    f"p.amount > 2 AND {WITHIN}) AND state IS NOT NULL",
    "not_ins": "SELECT id, state, ratio FROM o WHERE ratio NOT IN (SELECT ratio FROM p WHERE "
    f"p.order_id = o.id AND {WITHIN})",
    "in_groups": "SELECT at, state FROM (SELECT window.end AS at, state, count(*) AS n FROM o "
    "GROUP BY window(ts, '10 minutes'), state) w WHERE (at, state) IN (SELECT window.end AS t, "
    "kind FROM p GROUP BY window(ts, '10 minutes'), kind HAVING count(*) > 1)",
    "both_ins": f"SELECT o.state, p.kind, count(*) AS n FROM o JOIN p ON {ON} WHERE o.total > 0 "
    "AND EXISTS (SELECT 1 FROM o q WHERE q.id = p.order_id AND q.ts BETWEEN p.ts AND p.ts + "
    "INTERVAL 30 MINUTES AND q.total > o.total) AND p.amount > 1 GROUP BY o.state, p.kind",
    "doubles": "SELECT o.ratio, p.ratio AS pr, o.id FROM o JOIN p ON o.ratio = p.ratio "
    f"AND {WITHIN}",
    "groups": f"SELECT o.state, count(*) AS n, sum(p.amount) AS paid FROM o JOIN p "
    f"ON {ON} GROUP BY o.state",
    "windows": "SELECT window.start AS at, o.state, count(*) AS n FROM o LEFT JOIN p "
    f"ON {ON} GROUP BY window(o.ts, '10 minutes'), o.state",
    "selves": "SELECT a.id, a.ts AS at, b.ts AS bt FROM o a JOIN o b ON a.id = b.id "
    "AND a.state = b.state AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 3 MINUTES",
    "three": f"SELECT o.id, p.amount, q.state FROM o JOIN p ON {ON} "
    "LEFT JOIN (SELECT id, state, ts FROM o WHERE total > 3) q ON q.id = p.order_id AND "
    "q.ts BETWEEN p.ts AND p.ts + INTERVAL 4 MINUTES",
    "where_later": f"SELECT o.id, p.amount, q.state FROM o JOIN p ON {ON} JOIN "
    "(SELECT id, state, total, ts FROM o) q ON q.id = p.order_id AND q.ts BETWEEN p.ts AND "
    "p.ts + INTERVAL 9 MINUTES WHERE q.state = o.state AND q.total > 1 AND o.total > 0",
    "nulls_later": f"SELECT o.id, q.id AS qid FROM o JOIN p ON {ON} RIGHT JOIN "
    "(SELECT id, ts FROM o) q ON q.id = p.order_id AND q.ts BETWEEN p.ts AND "
    "p.ts + INTERVAL 4 MINUTES WHERE o.state IS NULL",
    "variables": f"SELECT o.id, p.kind FROM o JOIN p ON {ON} WHERE o.state = '${{STATE}}'",
    "stars": "SELECT * FROM (SELECT id, ts FROM o) a JOIN (SELECT order_id, ts AS paid FROM p) b "
    "ON a.id = b.order_id AND b.paid BETWEEN a.ts AND a.ts + INTERVAL 2 MINUTES",
    "equal": "SELECT a.at, a.n, b.n AS m FROM "
    "(SELECT at, state, n FROM (SELECT window.end AS at, state, count(*) AS n FROM o "
    "GROUP BY window(ts, '10 minutes'), state) WHERE n > 0) a "
    "FULL JOIN (SELECT window.end AS at, kind, count(*) AS n FROM p "
    "GROUP BY window(ts, '10 minutes'), kind) b ON a.at = b.at AND a.state = b.kind",
    "starts": f"SELECT a.id, a.n, b.n AS m FROM {STARTS} a JOIN {STARTS} b ON a.id = b.id "
    "AND a.since = b.since AND a.w = b.w AND a.until = b.until",
    "using_": f"SELECT ratio, o.id, p.kind FROM o JOIN p USING (ratio) WHERE {WITHIN}",
    "using_all": "SELECT state, a.id, b.n FROM (SELECT id, state, ts FROM o) a FULL JOIN "
    "(SELECT kind AS state, order_id AS n, ts FROM p) b USING (state, ts)",
}
EMITS = {"groups": "EMIT ON UPDATE", "windows": "EMIT ON WINDOW CLOSE"}
EMITS["group_pairs"] = EMITS["windows"]
EMITS["both_ins"] = EMITS["groups"]
KEYS = {"groups": 1, "both_ins": 2}


def orders_of(rng: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": rng.choice([None, *range(12)]),
            "state": rng.choice(["a", "b", "x", None]),
            "total": rng.choice([None, "1.25", "7.50", "-3.00"]),
            "ratio": rng.choice([None, "NaN", -0.0, 0.0, 1.5, 2.5]),
            "ts": _time(rng),
        }
        for _ in range(count)
    ]


def payments_of(rng: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "order_id": rng.choice([None, *range(12)]),
            "amount": rng.choice([None, "1.25", "5.00", "9.99"]),
            "ratio": rng.choice([None, "NaN", -0.0, 0.0, 1.5, 3.5]),
            "kind": rng.choice(["x", "a", "ü", None]),
            "ts": _time(rng),
        }
        for _ in range(count)
    ]


def _time(rng: random.Random) -> str:
    return f"2024-01-01T{rng.randint(0, 1):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}Z"


def text_of(queries: dict[str, str], mark: str = MARK) -> str:
    return (
        f"CREATE SOURCE o ({ORDERS}) USING json OPTIONS (path 'orders/in') {mark};\n"
        f"CREATE SOURCE p ({PAYMENTS}) USING json OPTIONS (path 'payments/in') {mark};\n"
        + "".join(
            f"CREATE STREAM {name} AS {query} {EMITS.get(name, '')};\n"
            f"CREATE SINK out_{name} FROM {name} USING parquet OPTIONS (path '{name}');\n"
            for name, query in queries.items()
        )
    )


def cut(rows: list[dict[str, Any]], epochs: int) -> list[list[dict[str, Any]]]:
    return [rows[number::epochs] for number in range(epochs)]


def test_every_join_equals_one_batch_over_all_rows(spark: Any, tmp_path: Path) -> None:
    rng = random.Random(11)
    Place(tmp_path / "orders").put_json(cut(orders_of(rng, 90), 2))
    Place(tmp_path / "payments").put_json(cut(payments_of(rng, 90), 3))
    place = Place(tmp_path)
    Run(spark, place, drain=True, variables={"STATE": "a"})(text_of(QUERIES))
    spark.read.schema(ORDERS).json(f"{tmp_path}/orders/in").createOrReplaceTempView("o")
    spark.read.schema(PAYMENTS).json(f"{tmp_path}/payments/in").createOrReplaceTempView("p")
    for name, query in QUERIES.items():
        found = place.latest(KEYS[name], name) if name in KEYS else place.rows(name)
        expected = batch(spark, query.replace("${STATE}", "a"))
        assert comparable(found) == comparable(expected), name
        assert found, name


def test_windows_over_a_join_wait_for_its_rows(spark: Any, tmp_path: Path) -> None:
    """The payment of an order comes when the watermark has long passed the order's window."""
    query = (
        "SELECT window.start AS at, count(*) AS n FROM o JOIN p ON o.id = p.order_id AND "
        "p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR GROUP BY window(o.ts, '10 minutes')"
    )
    late = {"order_id": 1, "ts": "2024-01-01T10:45:00Z"}
    orders = [[{"id": 1, "ts": "2024-01-01T10:00:00Z"}], [{"id": 2, "ts": "2024-01-01T10:40:00Z"}]]
    payments = [[{"order_id": 3, "ts": "2024-01-01T10:40:00Z"}], [], [late]]
    Place(tmp_path / "orders").put_json(orders)
    Place(tmp_path / "payments").put_json(payments)
    mark = "WATERMARK ts DELAY OF INTERVAL 1 MINUTE"
    Run(spark, Place(tmp_path), drain=True)(text_of({"windows": query}, mark=mark))
    (row,) = Place(tmp_path).rows("windows")
    assert (row["at"].hour, row["at"].minute, row["n"]) == (10, 0, 1)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT o.id FROM o JOIN p ON o.id = p.order_id", "without bounds of time, between o.ts"),
        (
            "SELECT o.id FROM o JOIN p ON o.id = p.order_id AND p.ts >= o.ts",
            "without one of two bounds of time",
        ),
        (f"SELECT o.id FROM o JOIN p ON {WITHIN}", "a join without equal columns"),
        (
            f"SELECT o.id FROM o JOIN p ON o.state = p.order_id AND {WITHIN}",
            "o.state is STRING and p.order_id is INT",
        ),
        (
            f"SELECT o.id FROM o LEFT JOIN p ON {ON} AND p.amount > o.total + rand()",
            "a function that gives other values again",
        ),
        (f"SELECT o.id FROM o LEFT JOIN p ON {ON} AND p.amount > o.nothing", "nothing"),
        (
            f"SELECT id FROM o WHERE id NOT IN (SELECT order_id FROM p WHERE {WITHIN})",
            "id NOT IN (SELECT order_id ...): a single null",
        ),
        (
            "SELECT id FROM o WHERE id IN (SELECT order_id FROM p)",
            "a join without bounds of time, between o.ts and p.ts",
        ),
        (f"SELECT ratio FROM o JOIN p ON {ON}", "ratio"),
        (f"SELECT o.id FROM o JOIN p ON o.id = p.order_id AND ts = 3 AND {WITHIN}", "ambiguous"),
        (f"SELECT o.id FROM o JOIN p ON o.nothing = p.order_id AND {WITHIN}", "nothing"),
        (f"SELECT o.id FROM o JOIN p USING (total) WHERE {WITHIN}", "USING (total)"),
        (
            f"SELECT o.id FROM o JOIN p ON o.id + rand() = p.order_id AND {WITHIN}",
            "a function that gives other values again",
        ),
        (
            "SELECT o.id FROM o JOIN p ON o.id = p.order_id AND p.ts > o.ts AND p.ts < o.ts",
            "no pair of rows meets the bounds",
        ),
        (
            "SELECT a.id FROM (SELECT id, count(*) AS n FROM o GROUP BY id) a JOIN p "
            "ON a.id = p.order_id STATE TTL INTERVAL 1 HOUR",
            "a join over",
        ),
        (
            f"SELECT a.n FROM {STARTS} a JOIN {OTHERS} b ON a.since = b.since AND a.id = b.id",
            "Compare the ends of the windows: a.until = b.until. That their starts are equal, or",
        ),
        (
            f"SELECT a.n FROM {STARTS} a JOIN {OTHERS} b ON a.w = b.w AND a.id = b.id",
            "Compare the ends of the windows: a.until = b.until",
        ),
        (
            f"SELECT a.n FROM {STARTS.replace('window.end AS until, ', '')} a JOIN {OTHERS} b "
            "ON a.since = b.since AND a.id = b.id",
            "of closed windows window.end (neither window.start nor the window itself)",
        ),
        (
            "SELECT a.id FROM (SELECT id FROM o) a JOIN p ON a.id = p.order_id "
            "STATE TTL INTERVAL 1 HOUR",
            "without their event time",
        ),
    ],
)
def test_a_join_that_cannot_be_kept_is_refused_with_the_reason(
    spark: Any, query: str, said: str
) -> None:
    with pytest.raises(BadPipeline) as caught:
        compiled(spark, text_of({"s": query}))
    assert said in str(caught.value)
    assert f"{FILE}:" in str(caught.value)


def test_a_source_without_a_watermark_cannot_be_joined(spark: Any) -> None:
    with pytest.raises(BadPipeline, match="a join over 'o', which has no watermark"):
        compiled(spark, text_of({"inner": QUERIES["inner"]}, mark=""))


def test_state_ttl_is_a_bound_of_both_sides(spark: Any) -> None:
    query = (
        "SELECT o.id FROM o JOIN p ON o.id = p.order_id AND p.ts >= o.ts STATE TTL INTERVAL 1 DAY"
    )
    plan = compiled(spark, text_of({"s": query}))
    (join,) = (each for each in plan.streams if each.operators)
    (operator,) = join.operators.values()
    assert isinstance(operator.step, Join)
    assert (operator.step.low, operator.step.high) == (0, 86_400_000_000)


def test_columns_that_nobody_mentions_are_not_kept(spark: Any) -> None:
    plan = compiled(spark, text_of({"inner": QUERIES["inner"], "stars": QUERIES["stars"]}))
    kept = {
        name: schema_of(operator).value.names[2:]
        for stream in plan.streams
        for name, operator in stream.operators.items()
    }
    assert kept == {
        "inner.join": ["o.id", "o.ts", "p.order_id", "p.amount", "p.ts"],
        "stars.join": ["a.id", "a.ts", "b.order_id", "b.paid"],
    }


def test_check_says_how_long_each_side_is_kept(spark: Any) -> None:
    from lamina.spark.explanation import explain_types  # noqa: PLC0415  an extra

    pipeline = parse_pipeline(text_of({"lefts": QUERIES["lefts"]}), {}, file=FILE)
    found = explain_types(pipeline, name="p", file=FILE, spark=spark)["lefts.join"]
    assert found["kept_for"] == (
        "rows of the left side until the watermark is 600 s past their time, those of the right "
        "side 900 s"
    )
    assert [each["name"] for each in found["state"] if each["merge"] is None] == [
        "o.id = p.order_id"
    ]

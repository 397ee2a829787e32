"""Joins over changes: what is left when all changes are applied is what one Spark batch has.

With `LAMINA_QUERIES` in the environment more queries are run, in the same pipeline.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from lamina.engine.joins import ChangeJoin
from lamina.engine.ports import Change
from lamina.errors import BadPipeline, Refused
from lamina.pipeline import parse_pipeline
from tests.spark.changes import applied, check_keys
from tests.spark.running import FILE, Place, Run, batch, comparable, compiled
from tests.spark.together import Together

COLUMNS = "seq BIGINT, id BIGINT, other INT, name STRING, amount DECIMAL(9,2), ratio DOUBLE"
COLUMNS += ", gone BOOLEAN, ts TIMESTAMP"
LATEST = ", ".join(
    f"max_by({name}, seq) AS {name}" for name in ("other", "name", "amount", "ratio", "ts")
)
TABLES = {
    "orders": f"SELECT id, {LATEST} FROM o GROUP BY id HAVING NOT max_by(gone, seq)",
    "customers": f"SELECT CAST(id AS INT) AS id, {LATEST} FROM c GROUP BY CAST(id AS INT) "
    "HAVING NOT max_by(gone, seq)",
}
"""The newest row of each id, as a table that is changed has it; some are deleted again."""
ON = "o.other = c.id"
BOTH = f"FROM orders o JOIN customers c ON {ON}"
USUAL: dict[str, tuple[str, str, tuple[str, ...] | None]] = {
    "inners": (f"SELECT o.id, o.amount, c.name {BOTH}", "", ("id",)),
    "rights": (
        f"SELECT o.id AS oid, c.* FROM orders o RIGHT JOIN customers c ON {ON}",
        "",
        ("oid", "id"),
    ),
    "fulls": (
        f"SELECT o.id, c.id AS cid FROM orders o FULL JOIN customers c ON {ON} "
        "AND o.amount > 2 AND c.name <> 'b'",
        "",
        None,
    ),
    "semis": (f"SELECT o.* FROM orders o LEFT SEMI JOIN customers c ON {ON}", "", ("id",)),
    "antis": (f"SELECT o.id FROM orders o LEFT ANTI JOIN customers c ON {ON}", "", ("id",)),
    "pairs": (
        f"SELECT o.id, c.name {BOTH} AND o.amount > c.amount "
        "AND o.ts BETWEEN c.ts - INTERVAL 1 HOUR AND c.ts + INTERVAL 1 HOUR",
        "",
        ("id",),
    ),
    "groups": (
        f"SELECT c.name, count(*) AS n, sum(o.amount) AS s, max(o.id) AS m {BOTH} GROUP BY c.name",
        "EMIT CHANGES",
        ("name",),
    ),
    "distincts": (
        f"SELECT DISTINCT c.name, o.amount FROM orders o LEFT JOIN customers c ON {ON}",
        "",
        ("name", "amount"),
    ),
    "three": (
        f"SELECT o.id, c.name, d.n {BOTH} LEFT JOIN "
        "(SELECT other, count(*) AS n FROM orders GROUP BY other) d ON d.other = c.other",
        "",
        ("id",),
    ),
}
"""A query, its EMIT, and the columns that are known to tell its rows apart."""
MORE: dict[str, tuple[str, str, tuple[str, ...] | None]] = {
    "lefts": (
        f"SELECT o.id, c.id AS cid, c.name FROM orders o LEFT JOIN customers c ON {ON}",
        "",
        ("id",),
    ),
    "wheres": (
        f"SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON {ON} AND c.amount > 0 "
        "WHERE c.id IS NULL OR o.amount < 5",
        "",
        ("id",),
    ),
    "commas": (
        "SELECT o.id AS Oid, c.name FROM orders o, customers c WHERE o.other = c.id "
        "AND c.name = 'a' AND o.ratio = o.ratio",
        "",
        ("Oid",),
    ),
    "names": (
        "SELECT o.id, c.id AS cid, o.name FROM orders o JOIN customers c ON o.name = c.name",
        "",
        ("id", "cid"),
    ),
    "doubles": (
        "SELECT o.ratio, o.id, c.id AS cid FROM orders o LEFT JOIN customers c "
        "ON o.ratio = c.ratio",
        "",
        ("id", "cid"),
    ),
    "using_": (
        "SELECT id, o.name, c.amount FROM orders o FULL JOIN customers c USING (id)",
        "",
        None,
    ),
    "stars": (
        "SELECT * FROM (SELECT id AS a, other FROM orders) x JOIN "
        "(SELECT id AS b, name FROM customers) y ON x.other = y.b",
        "",
        ("a",),
    ),
    "selves": (
        "SELECT a.id, b.id AS bid FROM customers a JOIN customers b ON a.name = b.name "
        "AND a.id < b.id",
        "",
        ("id", "bid"),
    ),
    "ranks": (
        f"SELECT name, id, amount FROM (SELECT c.name, o.id, o.amount {BOTH}) QUALIFY "
        "row_number() OVER (PARTITION BY name ORDER BY amount DESC, id DESC) <= 2",
        "EMIT CHANGES",
        None,
    ),
    "unions": (
        "SELECT u.x, c.name FROM (SELECT id AS x, other FROM orders UNION ALL SELECT id, other "
        "FROM orders WHERE amount > 2) u JOIN customers c ON u.other = c.id",
        "",
        None,
    ),
    "again": (
        "SELECT i.id, i.name, d.name AS other_name FROM inners i LEFT JOIN customers d "
        "ON i.name = d.name",
        "",
        None,
    ),
}
QUERIES = {**USUAL, **MORE}
TRIED = QUERIES if "LAMINA_QUERIES" in os.environ else USUAL
SOURCES = (
    f"CREATE SOURCE o ({COLUMNS}) USING json OPTIONS (path 'orders/in');\n"
    f"CREATE SOURCE c ({COLUMNS}) USING json OPTIONS (path 'customers/in');\n"
)
HEAD = SOURCES + "".join(f"CREATE STREAM {n} AS {q} EMIT CHANGES;\n" for n, q in TABLES.items())


def rows_of(rng: random.Random, count: int, ids: int) -> list[dict[str, Any]]:
    return [
        {
            "seq": number,
            "id": rng.choice([None, *range(ids)]),
            "other": rng.choice([None, *range(9)]),
            "name": rng.choice(["a", "b", "ü", None]),
            "amount": rng.choice([None, "1.25", "7.50", "3.00"]),
            "ratio": rng.choice([None, "NaN", -0.0, 0.0, 1.5, 2.5]),
            "gone": rng.random() < 0.2,
            "ts": f"2024-01-01T{rng.randint(0, 3):02}:00:00Z",
        }
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def outputs(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Together:
    """All of them in one pipeline, over three epochs; then the views have all rows at once."""
    folder, rng = tmp_path_factory.mktemp("joins"), random.Random(5)
    orders, customers = rows_of(rng, 120, 24), rows_of(rng, 80, 9)
    Place(folder / "orders").put_json([orders[:70], orders[70:90], orders[90:]])
    Place(folder / "customers").put_json([customers[:30], [], customers[30:]])
    listed = [(query.replace("FROM inners", "FROM q0"), emit) for query, emit, _ in TRIED.values()]
    together = Together(HEAD, listed)
    together.run(Run(spark, Place(folder), partitions=2))
    for name, path in (("o", "orders"), ("c", "customers")):
        spark.read.schema(COLUMNS).json(f"{folder}/{path}/in").createOrReplaceTempView(name)
    for name, query in TABLES.items():
        spark.sql(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")
    spark.sql(f"CREATE OR REPLACE TEMP VIEW inners AS {QUERIES['inners'][0]}")
    return together


@pytest.mark.parametrize("name", TRIED)
def test_all_changes_of_a_join_together_equal_one_batch(
    spark: Any, outputs: Together, name: str
) -> None:
    query, _, keys = QUERIES[name]
    epochs = outputs.epochs(list(TRIED).index(name))
    assert applied(epochs) == comparable(batch(spark, query))
    assert epochs
    if keys is not None:
        check_keys(epochs, keys)


def test_what_tells_the_rows_of_a_join_apart_is_known(spark: Any) -> None:
    """Sinks that write by key ask for it."""
    text = HEAD + "".join(
        f"CREATE STREAM {name} AS {query} {emit};\n"
        f"CREATE SINK out_{name} FROM {name} USING console;\n"
        for name, (query, emit, _) in QUERIES.items()
    )
    plan = compiled(spark, text)
    found = {each.name: each.output for each in plan.streams}
    for name, (_, _, keys) in QUERIES.items():
        assert found[name].change is Change.CHANGES, name
        assert found[name].keys == keys, name
    joins = [each for each in plan.streams if each.name.endswith(".join")]
    assert all(isinstance(op.step, ChangeJoin) for j in joins for op in j.operators.values())


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT o.id FROM orders o JOIN c ON o.other = c.id", "'c', whose rows are never taken"),
        ("SELECT c.id FROM c JOIN orders o ON o.other = c.id", "'c', whose rows are never taken"),
        (
            f"SELECT o.id FROM orders o LEFT JOIN customers c ON {ON} AND o.amount > c.amount",
            "compares both sides",
        ),
        (
            f"SELECT o.id FROM orders o JOIN customers c ON {ON} STATE TTL INTERVAL 1 DAY",
            "STATE TTL in a join over changes",
        ),
        (
            f"SELECT o.id FROM orders o JOIN customers c ON {ON} AND o.amount * rand() < c.amount",
            "a function that gives other values again",
        ),
        (
            f"SELECT o.id FROM orders o JOIN customers c ON {ON} AND o.ts < now()",
            "now() in a join over changes",
        ),
        ("SELECT o.id FROM orders o JOIN customers c ON o.id < c.id", "without equal columns"),
        (
            "SELECT o.id, m.m FROM orders o JOIN (SELECT id, map('a', other) AS m FROM customers)"
            " m ON o.other = m.id",
            "m.m of type map<string,int> in a join over changes",
        ),
        (
            "SELECT o.id FROM orders o JOIN u ON o.other = u.id",
            "'u', whose rows replace others",
        ),
    ],
)
def test_a_join_over_changes_that_cannot_be_kept_is_refused(
    spark: Any, query: str, said: str
) -> None:
    updating = "CREATE STREAM u AS SELECT id, count(*) AS n FROM c GROUP BY id EMIT ON UPDATE;\n"
    more = "".join(
        f"CREATE SINK out_{name} FROM {name} USING console;\n"
        for name in ("orders", "customers", "u", "s")
    )
    with pytest.raises(BadPipeline) as caught:
        compiled(spark, f"{HEAD}{updating}CREATE STREAM s AS {query};\n{more}")
    assert said in str(caught.value)
    assert f"{FILE}:" in str(caught.value)


def test_what_only_appends_takes_no_changes_of_a_join(spark: Any, tmp_path: Path) -> None:
    text = f"{HEAD}CREATE STREAM s AS {QUERIES['inners'][0]};\n"
    for name in ("orders", "customers"):
        Place(tmp_path / name).put_json([rows_of(random.Random(1), 3, 2)])
    with pytest.raises(Refused, match="'out' cannot take a stream of changes"):
        Run(spark, Place(tmp_path))(
            f"{text}CREATE SINK out FROM s USING parquet OPTIONS (path 'x')"
        )


def test_check_says_what_a_join_over_changes_keeps(spark: Any) -> None:
    from lamina.spark.explanation import explain_types  # noqa: PLC0415  an extra

    text = f"{HEAD}CREATE STREAM s AS {QUERIES['lefts'][0]};\n"
    pipeline = parse_pipeline(f"{text}CREATE SINK out FROM s USING console", {}, file=FILE)
    found = explain_types(pipeline, name="p", file=FILE, spark=spark)["s.join"]
    assert found["kept_for"] == "the rows that both sides have now, until they are taken back"
    assert [(each["name"], each["merge"]) for each in found["state"]] == [
        ("o.other = c.id", None),
        ("o.id", "kept"),
        ("o.other", "kept"),
        ("o.name", "kept"),
        ("c.id", "kept"),
        ("c.other", "kept"),
        ("c.name", "kept"),
    ]
    assert found["bytes_per_key"] > 0

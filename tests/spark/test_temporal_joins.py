"""Temporal joins over changes: each row meets the rows of its epoch, as a Spark batch has them.

Every row says in which epoch it is read, so the same SQL over all rows at once has the same answer.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from lamina.engine.joins import TemporalJoin
from lamina.engine.ports import Change
from lamina.errors import BadPipeline, StateChanged
from lamina.pipeline import parse_pipeline
from tests.spark.running import FILE, Place, Run, batch, comparable, compiled
from tests.spark.together import Together

ORDERS = "epoch INT, id BIGINT, other INT, name STRING, amount DECIMAL(9,2), tags MAP<STRING, INT>"
ORDERS += ", ts TIMESTAMP"
CUSTOMERS = "epoch INT, seq BIGINT, id BIGINT, other INT, name STRING, amount DECIMAL(9,2)"
CUSTOMERS += ", gone BOOLEAN, ts TIMESTAMP"
MARK = "WATERMARK ts DELAY OF INTERVAL 1 HOUR"
LATEST = ", ".join(f"max_by({name}, seq) AS {name}" for name in ("other", "name", "amount"))
TABLE = f"SELECT id, {LATEST} FROM c {{}} GROUP BY id HAVING NOT max_by(gone, seq)"
"""The newest row of each id, as a table that is changed has it; some are deleted again."""
SUMS = (
    "SELECT window.end AS closes, name, sum(amount) AS s FROM o GROUP BY window(ts, '10 minutes')"
)
SUMS += ", name"
HEAD = (
    f"CREATE SOURCE o ({ORDERS}, at TIMESTAMP METADATA FROM 'epoch_time') USING json "
    f"OPTIONS (path 'orders/in') {MARK};\n"
    f"CREATE SOURCE c ({CUSTOMERS}) USING json OPTIONS (path 'customers/in');\n"
    f"CREATE STREAM customers AS {TABLE.format('')} EMIT CHANGES;\n"
    f"CREATE STREAM sums AS {SUMS} EMIT ON WINDOW CLOSE;\n"
)
NOW, AT = "FOR SYSTEM_TIME AS OF PROCTIME()", "FOR SYSTEM_TIME AS OF o.at"
BOTH = f"FROM o JOIN customers {NOW} AS c ON o.other = c.id"
QUERIES = {
    "inner": f"SELECT o.id, o.amount, c.name {BOTH}",
    "left": "SELECT o.id, o.tags, c.id AS cid, c.amount FROM o LEFT OUTER JOIN customers "
    f"{AT} AS c ON o.other = c.id AND c.amount > 2 AND o.name <> 'b'",
    "several": f"SELECT o.id, o.name, c.id AS cid FROM o LEFT JOIN customers c {NOW} "
    "ON o.name = c.name",
    "pairs": f"SELECT o.id, c.name {BOTH} AND o.amount > c.amount WHERE c.id > 1 OR o.id > 3",
    "twice": f"SELECT o.id, c.name, d.name AS other_name FROM o JOIN customers {AT} AS c "
    f"ON o.other = c.id LEFT JOIN customers {AT} AS d ON d.id = c.other",
    "using_": "SELECT o.k, y.name, o.name AS mine FROM (SELECT other AS k, name, at, epoch FROM o "
    "WHERE amount > 1 UNION ALL SELECT other, name, at, epoch FROM o) o LEFT JOIN "
    f"(SELECT id AS k, name FROM customers WHERE amount > 2) {AT} AS y USING (k)",
    "groups": f"SELECT c.name, count(*) AS n, sum(o.amount) AS s {BOTH} GROUP BY c.name",
    "windows": "SELECT window.start AS at, c.name, count(*) AS n FROM o LEFT JOIN customers "
    f"{NOW} AS c ON o.other = c.id GROUP BY window(o.ts, '10 minutes'), c.name",
    "beside": f"SELECT o.id, c.name, n.amount {BOTH} JOIN (SELECT id, amount, ts FROM o) n "
    "ON n.id = o.id AND n.ts BETWEEN o.ts AND o.ts + INTERVAL 5 MINUTES",
    "closed": f"SELECT s.closes, s.name, s.s, c.id FROM sums s LEFT JOIN customers {NOW} AS c "
    "ON s.name = c.name",
    "closings": "SELECT closes, name, s FROM sums",
}
EMITS = {"groups": "EMIT ON UPDATE", "windows": "EMIT ON WINDOW CLOSE"}


def in_batch(query: str) -> str:
    """The same, over a table that has what was there in every epoch."""
    query = re.sub(r"FOR SYSTEM_TIME AS OF \S+", "", query)
    query = query.replace("JOIN customers", "JOIN tables")
    query = query.replace("id AS k, name FROM customers", "id AS k, name, as_of FROM tables")
    return re.sub(r"(AS |tables )([cdy])\b(.*?) (ON|USING \(k\))", _with_epoch, query)


def _with_epoch(found: re.Match[str]) -> str:
    alias, between, how = found[2], found[3], found[4]
    left = "s" if "sums s" in found.string[: found.start()] else "o"
    on = f"ON {left}.epoch = {alias}.as_of AND"
    if how != "ON":
        on += f" o.k = {alias}.k"
    return f"{found[1]}{alias}{between} {on}"


def epochs_of(rng: random.Random, counts: tuple[int, ...], ids: int) -> list[list[dict[str, Any]]]:
    """Times rise by less than the watermark's delay."""
    found, seq = list[list[dict[str, Any]]](), 0
    for epoch, count in enumerate(counts):
        rows = []
        for _ in range(count):
            seq += 1
            rows.append(
                {
                    "epoch": epoch,
                    "seq": seq,
                    "id": rng.choice([None, *range(ids)]),
                    "other": rng.choice([None, *range(9)]),
                    "name": rng.choice(["a", "b", "ü", None]),
                    "amount": rng.choice([None, "1.25", "7.50", "3.00"]),
                    "tags": rng.choice([None, {"x": 1, "y": None}]),
                    "gone": rng.random() < 0.3,
                    "ts": f"2024-01-01T{epoch:02}:{rng.randrange(60):02}:00Z",
                }
            )
        found.append(rows)
    return found


@pytest.fixture(scope="module")
def outputs(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Together:
    """All of them in one pipeline, over four epochs; one has no orders, one no customers."""
    folder, rng = tmp_path_factory.mktemp("joins"), random.Random(5)
    orders, customers = epochs_of(rng, (50, 30, 0, 40), 12), epochs_of(rng, (12, 0, 9, 12), 9)
    Place(folder / "orders").put_json(orders)
    Place(folder / "customers").put_json(customers)
    together = Together(HEAD, [(query, EMITS.get(name, "")) for name, query in QUERIES.items()])
    together.run(Run(spark, Place(folder), partitions=2, drain=True))
    for name, path, columns in (
        ("o", "orders", f"{ORDERS}, at TIMESTAMP"),
        ("c", "customers", CUSTOMERS),
    ):
        spark.read.schema(columns).json(f"{folder}/{path}/in").createOrReplaceTempView(name)
    every = (
        f"SELECT {epoch} AS as_of, * FROM ({TABLE.format(f'WHERE epoch <= {epoch}')})"
        for epoch in range(8)
    )
    spark.sql(f"CREATE OR REPLACE TEMP VIEW tables AS {' UNION ALL '.join(every)}")
    closings = together.published(list(QUERIES).index("closings"))
    rows = [
        {"epoch": epoch - 1, **row}
        for epoch, table in closings.items()
        for row in table.to_pylist()
    ]
    schema = "epoch INT, closes TIMESTAMP, name STRING, s DECIMAL(19,2)"
    spark.createDataFrame(rows, schema).createOrReplaceTempView("sums")
    return together


@pytest.mark.parametrize("name", [name for name in QUERIES if name != "closings"])
def test_each_row_meets_the_rows_of_its_epoch(spark: Any, outputs: Together, name: str) -> None:
    number = list(QUERIES).index(name)
    found = outputs.latest(number, 1) if name == "groups" else outputs.rows(number)
    there = batch(spark, in_batch(QUERIES[name]))
    assert comparable(found) == comparable(there)
    assert len(found) > 2


def text_of(query: str, more: str = "") -> str:
    sinks = "".join(
        f"CREATE SINK out_{name} FROM {name} USING console;\n"
        for name in ("customers", "sums", "s")
    )
    return f"{HEAD}{more}CREATE STREAM s AS {query};\n{sinks}"


def test_what_comes_out_is_only_added_and_goes_by_the_time_of_the_left_side(spark: Any) -> None:
    """Also where the right side has no watermark, or another one."""
    plan = compiled(spark, text_of(QUERIES["twice"]))
    streams = {each.name: each for each in plan.streams}
    for name in ("s.join 1", "s.join 2"):
        (operator,) = streams[name].operators.values()
        assert isinstance(operator.step, TemporalJoin)
        assert operator.takes_back
        assert streams[name].sources == {"o"}
        assert streams[name].looks_up == {"c"}
    assert streams["s"].output.change is Change.APPEND
    assert plan.when_planned(("c", None)) > plan.when_planned(("o", None))


@pytest.mark.parametrize(
    ("query", "said", "advice"),
    [
        (
            "SELECT o.id FROM o JOIN customers c ON o.other = c.id",
            "a join over 'o', whose rows are never taken back, with the changes of 'customers'",
            f"Write FROM o JOIN customers {NOW} ON ...: each row of 'o' meets the rows that "
            "'customers' has in its epoch",
        ),
        (
            "SELECT o.id FROM o JOIN customers FOR SYSTEM_TIME AS OF o.ts AS c ON o.other = c.id",
            "over 'customers', whose rows are replaced or taken back: that has no event time",
            f"Write {NOW}: each row of the left side meets the rows that 'customers' has",
        ),
        (
            "SELECT o.id FROM (SELECT id, other, at FROM o GROUP BY id, other, at, "
            f"window(ts, '1 hour')) o JOIN customers {AT} AS c ON o.other = c.id",
            "that has no event time of its own",
            f"Write {NOW}",
        ),
        (
            "SELECT o.id FROM o LEFT ASOF JOIN customers c MATCH_CONDITION (o.ts >= c.ts) "
            "ON o.other = c.id",
            "that has no event time of its own",
            f"Write {NOW}",
        ),
        (
            f"SELECT d.id FROM customers d JOIN customers {NOW} AS c ON d.other = c.id",
            "an ASOF or temporal join of 'customers', whose rows are replaced or taken back",
            "If both sides are changes, write JOIN or LEFT JOIN",
        ),
        (
            f"SELECT o.id FROM o JOIN c {NOW} ON o.other = c.id",
            f"{NOW} with 'c', whose rows are never taken back",
            "Name the event time of the left side",
        ),
        (
            f"SELECT o.id FROM o JOIN u {NOW} ON o.other = u.id",
            "over 'u', whose rows are replaced or taken back",
            "these must be changes (EMIT CHANGES)",
        ),
        (
            f"SELECT o.id FROM o LEFT JOIN customers {NOW} AS c ON o.other = c.id "
            "AND o.amount > c.amount",
            "compares both sides",
            "Put it into WHERE",
        ),
        (f"SELECT o.id {BOTH} STATE TTL INTERVAL 1 DAY", "STATE TTL in a temporal join", "Leave"),
        (
            f"SELECT o.id {BOTH} AND c.amount > rand()",
            "a function that gives other values again",
            "Compute it",
        ),
        (
            f"SELECT o.id FROM o JOIN customers {NOW} AS c ON o.other < c.id",
            "without equal columns",
            "x.key = y.key",
        ),
        (
            f"SELECT o.id FROM o JOIN (SELECT id, map('a', other) AS m FROM customers) {NOW} AS m "
            "ON o.other = m.id WHERE m.m IS NOT NULL",
            "m.m of type map<string,int> in a temporal join over changes",
            "make a STRING of it",
        ),
        (
            f"SELECT o.id FROM o RIGHT JOIN customers {NOW} AS c ON o.id = c.id",
            "RIGHT JOIN",
            "Only",
        ),
        (
            f"SELECT o.*, n.id AS nid {BOTH} JOIN (SELECT id, ts, at FROM o) n ON n.id = o.id AND "
            f"n.ts = o.ts JOIN customers {AT} AS d ON d.id = n.id",
            "that has no event time of its own",
            f"Write {NOW}",
        ),
    ],
)
def test_what_would_not_be_exact_is_refused_with_what_to_write(
    spark: Any, query: str, said: str, advice: str
) -> None:
    updating = "CREATE STREAM u AS SELECT id, count(*) AS n FROM c GROUP BY id EMIT ON UPDATE;\n"
    more = f"{updating}CREATE SINK out_u FROM u USING console;\n"
    with pytest.raises(BadPipeline) as caught:
        compiled(spark, text_of(query, more))
    assert said in caught.value.message
    assert advice in (caught.value.advice or "")
    assert f"{FILE}:" in str(caught.value)


def test_check_says_what_a_temporal_join_over_changes_keeps(spark: Any) -> None:
    from lamina.spark.explanation import explain_types  # noqa: PLC0415  an extra

    pipeline = parse_pipeline(text_of(QUERIES["left"]), {}, file=FILE)
    found = explain_types(pipeline, name="p", file=FILE, spark=spark)["s.join"]
    assert found["kept_for"] == (
        "the rows that the right side has now, until they are taken back; none of the left side"
    )
    assert [(each["name"], each["merge"]) for each in found["state"]] == [
        ("o.other = c.id", None),
        ("c.id", "kept"),
        ("c.other", "kept"),
        ("c.name", "kept"),
        ("c.amount", "kept"),
    ]
    assert found["bytes_per_key"] > 0


def test_only_other_columns_of_the_right_side_are_refused(spark: Any, tmp_path: Path) -> None:
    """Those of the left side are not kept."""
    rows = epochs_of(random.Random(1), (6,), 3)
    for name in ("orders", "customers"):
        Place(tmp_path / name).put_json(rows)
    run = Run(spark, Place(tmp_path))
    head = HEAD[: HEAD.index("CREATE STREAM sums")]

    def text(columns: str) -> str:
        sinks = "CREATE SINK a FROM s USING console; CREATE SINK b FROM customers USING console;"
        return f"{head}CREATE STREAM s AS SELECT {columns} {BOTH};\n{sinks}"

    run(text("o.id, c.name"))
    run(text("o.id, o.tags, c.name"))
    with pytest.raises(StateChanged, match=r"c\.amount"):
        run(text("o.id, c.name, c.amount"))

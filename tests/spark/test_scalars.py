"""Queries that are a value, over tables, closed windows and changes: equal to one batch."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import BadPipeline, LaminaError
from tests.spark.changes import applied
from tests.spark.running import FILE, Place, Run, batch, comparable, compiled
from tests.spark.test_joins import MARK, ORDERS, cut, orders_of
from tests.spark.test_tables import ITEMS, KINDS, put_tables, views
from tests.spark.together import Together

PER_STATE = "(SELECT state, sum(total) AS paid, count(*) AS n FROM o GROUP BY state)"
WINDOWS = (
    "(SELECT id, count(*) AS n, window.end AS at FROM o GROUP BY id, window(ts, '10 minutes'))"
)
TABLES = {
    "lists": "SELECT o.id, (SELECT max(price) FROM items WHERE items.id = o.id) AS best, "
    "(SELECT count(*) FROM items i WHERE i.id = o.id AND i.price > 2) AS n, state FROM o",
    "wheres": "SELECT o.* FROM o WHERE total > (SELECT avg(price) FROM items) AND state = 'a' "
    "OR total < 2 * (SELECT min(weight) FROM kinds WHERE kind = state)",
    "stars": "SELECT *, (SELECT count(*) + 1 FROM items WHERE items.name = o.state) AS m FROM o",
    "cases": "SELECT id, CASE WHEN EXISTS (SELECT 1 FROM kinds WHERE kind = state) THEN 'known' "
    "ELSE coalesce(state, '${NAME}') END AS s, EXISTS (SELECT 1 FROM items WHERE items.id = o.id) "
    "AS e FROM o WHERE total > 3 OR NOT EXISTS (SELECT 1 FROM items WHERE id = o.id)",
    "withs": "SELECT o.id, (WITH dear AS (SELECT id, price FROM items WHERE price > 2) "
    "SELECT sum(price) FROM dear WHERE dear.id = o.id) AS x FROM o",
    "ones": "SELECT id, (SELECT weight FROM kinds WHERE kind = o.state) AS w, (SELECT 7) AS x "
    "FROM o",
    "groups": "SELECT state, sum(total * (SELECT max(price) FROM items WHERE items.id = o.id)) AS "
    "x, count(*) FILTER (WHERE total > (SELECT min(price) FROM items)) AS n FROM o WHERE id < "
    "(SELECT count(*) FROM items) GROUP BY state",
    "windows": "SELECT window.start AS at, max((SELECT max(weight) FROM kinds WHERE kind = state)) "
    "AS w FROM o GROUP BY window(o.ts, '10 minutes')",
    "of_windows": "SELECT at, n, (SELECT max(weight) FROM kinds WHERE kind = a.state) AS w FROM "
    "(SELECT window.end AS at, state, count(*) AS n FROM o GROUP BY window(ts, '10 minutes'), "
    "state) AS a WHERE n >= (SELECT min(id) FROM items)",
    "distincts": "SELECT DISTINCT state, (SELECT max(name) FROM items WHERE items.id = o.id) AS i "
    "FROM o",
    "havings": "SELECT state, window.end AS at, count(*) AS n, (SELECT max(weight) FROM kinds) + "
    "sum(total) AS w FROM o GROUP BY state, window(ts, '10 minutes') HAVING count(*) > 1 AND "
    "max(total) > (SELECT min(price) FROM items)",
    "joined": "SELECT o.id, i.name, (SELECT max(weight) FROM kinds WHERE kind = i.name) AS w FROM "
    "o JOIN items i ON o.id = i.id WHERE o.total > (SELECT min(price) FROM items)",
}
EMITS = {"groups": "EMIT ON UPDATE", "windows": "EMIT ON WINDOW CLOSE"}
EMITS["havings"] = EMITS["windows"]
CLOSED = {
    "most": f"SELECT a.at, a.id, a.n FROM {WINDOWS} AS a WHERE a.n >= "
    f"(SELECT max(n) FROM {WINDOWS} AS b WHERE b.at = a.at)",
    "counted": f"SELECT a.at, a.id, (SELECT count(*) FROM {WINDOWS} b WHERE a.at = b.at AND n > 1 "
    f"AND b.id = a.id) AS m, (SELECT coalesce(sum(n), -1) + count(n) FROM {WINDOWS} b WHERE "
    f"b.at = a.at AND n > 2) AS s FROM {WINDOWS} a",
    "alone": f"WITH w AS {WINDOWS} SELECT at, id, (SELECT x.n FROM w x WHERE x.at = a.at AND "
    "x.id = a.id AND x.n > 1) AS m, (SELECT collect_list(x.id) FROM w x WHERE x.at = a.at AND "
    "x.n > 2) AS ids FROM w a",
}
CHANGES = {
    "above": f"SELECT state, paid FROM {PER_STATE} WHERE paid > "
    f"(SELECT avg(paid) FROM {PER_STATE})",
    "havings_too": f"SELECT state, count(*) AS n FROM o WHERE total IS NOT NULL GROUP BY state "
    f"HAVING sum(total) > (SELECT avg(paid) FROM {PER_STATE} AS s) AND count(*) > 1",
    "none": f"WITH s AS {PER_STATE} SELECT s.state, (SELECT count(*) FROM s t WHERE t.n = s.n + 1)"
    " AS zero, (SELECT t.paid FROM s t WHERE t.state = concat(s.state, '')) AS same FROM s",
}
HEAD = (
    f"CREATE SOURCE o ({ORDERS}) USING json OPTIONS (path 'orders/in') {MARK};\n"
    f"CREATE TABLE items ({ITEMS}) USING json OPTIONS (path 'items');\n"
    f"CREATE TABLE kinds ({KINDS}) USING csv OPTIONS (path 'kinds.csv', header 'true');\n"
)
QUERIES = {**TABLES, **CLOSED, **CHANGES}


def test_queries_inside_expressions_equal_one_batch(spark: Any, tmp_path: Path) -> None:
    """All in one pipeline, over two epochs."""
    rng = random.Random(15)
    Place(tmp_path / "orders").put_json(cut(orders_of(rng, 60), 2))
    put_tables(tmp_path)
    emits = {**EMITS, **dict.fromkeys(CHANGES, "EMIT CHANGES")}
    together = Together(HEAD, [(query, emits.get(n, "")) for n, query in QUERIES.items()])
    run = Run(spark, Place(tmp_path), 2, drain=True, variables={"NAME": "a"})
    together.run_with_a_kill(run, then=4)
    views(spark, tmp_path, payments=False)
    for number, (name, query) in enumerate(QUERIES.items()):
        rows = together.latest(number, 1) if name == "groups" else together.rows(number)
        changed = applied(together.epochs(number)) if name in CHANGES else None
        expected = comparable(batch(spark, query.replace("${NAME}", "a")))
        assert (changed if changed is not None else comparable(rows)) == expected, name
        assert rows, name


def test_two_rows_for_a_value_stop_the_epoch(spark: Any, tmp_path: Path) -> None:
    """As in SQL; with an aggregate there is one."""
    Place(tmp_path / "orders").put_json([orders_of(random.Random(1), 9)])
    put_tables(tmp_path)
    one = "SELECT id, (SELECT name FROM items WHERE items.id <> o.id AND price > 1) AS name FROM o"
    together = Together(HEAD, [(one, ""), (TABLES["ones"], "")])
    with pytest.raises(LaminaError, match="SCALAR_SUBQUERY_TOO_MANY_ROWS"):
        together.run(Run(spark, Place(tmp_path), 1))
    assert together.rows(0) == together.rows(1) == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT id, (SELECT max(nix) FROM items) AS x FROM o", "nix"),
        ("SELECT id, (SELECT id, price FROM items) AS x FROM o", "SUBQUERY"),
        ("SELECT id, (SELECT max(price) FROM items WHERE id = o.nix) AS x FROM o", "nix"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(spark: Any, query: str, said: str) -> None:
    text = f"{HEAD}CREATE STREAM s AS {query} WHERE EXISTS (SELECT 1 FROM kinds);"
    with pytest.raises(BadPipeline) as caught:
        compiled(spark, f"{text} CREATE SINK out FROM s USING parquet OPTIONS (path 'out');")
    assert said in str(caught.value)
    assert f"{FILE}:4:" in str(caught.value)

"""DISTINCT ON: what is sent to the owner of a key; and what cannot be said of it."""

from __future__ import annotations

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import check_pipeline, parse_pipeline
from lamina.pipeline.compile_first import compile_first
from lamina.pipeline.compile_rows import KeptRows
from lamina.pipeline.keys import Names
from lamina.pipeline.model import Stream
from lamina.pipeline.plans import FirstRow
from lamina.pipeline.select import read_select

COLUMNS = ("id", "v", "ts")


def plan_of(text: str, times: tuple[str, ...] = ("ts",)) -> FirstRow:
    select = read_select(Stream("s", text), "p.sql")
    return compile_first(KeptRows(select, COLUMNS, Names(select.qualifier, COLUMNS), str), times)


def test_a_column_that_is_a_key_or_the_time_is_sent_once() -> None:
    plan = plan_of("SELECT DISTINCT ON (id, v % 2) *, v + 1 AS w, x.v AS again FROM t AS x")
    assert plan.rows.sql("input") == (
        "SELECT _lamina_k0 AS k0, _lamina_k1 AS k1, _lamina_t AS t, _lamina_c1 AS c1,"
        " _lamina_c3 AS c3, _lamina_c4 AS c4 FROM (SELECT id AS _lamina_k0, v % 2 AS _lamina_k1,"
        " `ts` AS _lamina_t, `v` AS _lamina_c1, v + 1 AS _lamina_c3, x.v AS _lamina_c4"
        " FROM input AS `x`)"
    )
    assert plan.keys == ("k0", "k1")
    assert plan.outputs == ("id", "v", "ts", "w", "again")
    assert plan.columns == ("k0", "c1", "t", "c3", "c4")
    assert plan.meanings == ("id", "v % 2")
    assert plan.time == "t"


def test_a_key_may_be_the_time_an_item_or_its_number() -> None:
    plan = plan_of("SELECT DISTINCT ON (ts, w, 1) upper(id) AS i, v * 2 AS w FROM t WHERE v > 0")
    assert plan.time == "k0"
    assert plan.meanings == ("ts", "v * 2", "upper(id)")
    assert plan.rows.after.endswith("WHERE v > 0)")


@pytest.mark.parametrize(
    "order", ["id, v, ts", "v DESC, id ASC, ts ASC", "t.id, v", "id, t.v, t.ts"]
)
def test_an_order_by_says_what_is_so(order: str) -> None:
    assert plan_of(f"SELECT DISTINCT ON (id, v) id, ts FROM t ORDER BY {order}").keys


@pytest.mark.parametrize(
    "order", ["ts", "id, ts", "id, v, ts DESC", "id, v, v + 1", "id, v, ts, v", "ts, id, v"]
)
def test_an_order_of_its_own_is_refused(order: str) -> None:
    with pytest.raises(BadPipeline, match="ORDER BY of its own") as caught:
        plan_of(f"SELECT DISTINCT ON (id, v) id, ts FROM t ORDER BY {order}")
    assert "QUALIFY row_number()" in (caught.value.advice or "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT DISTINCT ON (id) id, v, v AS id FROM t", "two columns are called 'id'"),
        ("SELECT DISTINCT ON (1) * FROM t", "a key cannot be *"),
        ("SELECT DISTINCT ON (3) id FROM t", "there is no column 3 in the SELECT list"),
        ("SELECT DISTINCT ON (id) v + 1 FROM t", "column 1 has no name"),
        ("SELECT DISTINCT ON (id x) v FROM t", "'x' is not known in DISTINCT ON"),
    ],
)
def test_keys_and_columns_are_checked(text: str, said: str) -> None:
    with pytest.raises(BadPipeline) as caught:
        plan_of(text)
    assert said in str(caught.value)


def test_rows_without_their_event_time_are_refused() -> None:
    with pytest.raises(BadPipeline, match="without their event time"):
        plan_of("SELECT DISTINCT ON (id) * FROM t", times=())


SOURCE = "CREATE SOURCE t (id INT, v BIGINT, ts TIMESTAMP) USING json OPTIONS (path 'in')"
MARK = " WATERMARK ts DELAY OF INTERVAL 1 MINUTE"


def check(select: str, mark: str = MARK) -> None:
    text = f"{SOURCE}{mark}; CREATE STREAM s AS {select};"
    text += "CREATE SINK o FROM s USING parquet OPTIONS (path 'out')"
    check_pipeline(parse_pipeline(text, {}))


@pytest.mark.parametrize(
    ("select", "said", "advice"),
    [
        ("SELECT DISTINCT ON (id) * FROM t EMIT ON UPDATE", "EMIT ON UPDATE with SELECT DISTINCT",
         "Leave it out"),
        ("SELECT DISTINCT ON (id) id, max(v) AS m FROM t", "DISTINCT ON with GROUP BY or agg", ""),
        ("SELECT DISTINCT ON (id) id FROM t GROUP BY id", "DISTINCT ON with GROUP BY or agg", ""),
        ("SELECT DISTINCT ON (id) id FROM t QUALIFY row_number() OVER (PARTITION BY id ORDER BY v)"
         " = 1", "DISTINCT with a window function", "subquery"),
        ("SELECT DISTINCT id FROM t QUALIFY row_number() OVER (PARTITION BY id ORDER BY v) = 1",
         "DISTINCT with a window function", "subquery"),
        ("SELECT DISTINCT ON (window(ts, '1 minute'), id) id FROM t", "a window in DISTINCT ON",
         "date_trunc"),
        ("SELECT DISTINCT ON (id) id FROM (SELECT id, max(v) AS v FROM t GROUP BY id EMIT CHANGES)",
         "DISTINCT ON over the changes of 's.subquery'", "QUALIFY"),
        ("SELECT DISTINCT ON (id) id FROM (SELECT id, max(v) AS v FROM t GROUP BY id EMIT ON"
         " UPDATE)", "over the updating stream", "EMIT"),
    ],
)  # fmt: skip
def test_what_cannot_stand_beside_it_is_said(select: str, said: str, advice: str) -> None:
    with pytest.raises(BadPipeline) as caught:
        check(select)
    assert said in str(caught.value)
    assert advice in (caught.value.advice or "")


def test_without_a_watermark_there_are_other_ways() -> None:
    with pytest.raises(BadPipeline, match="no key could ever be forgotten") as caught:
        check("SELECT DISTINCT ON (id) * FROM t", mark="")
    advice = caught.value.advice or ""
    assert "WATERMARK" in advice
    assert "SELECT DISTINCT keeps" in advice
    assert "keyed function" in advice


def test_it_may_be_read_and_read_itself() -> None:
    check("SELECT id, window.start AS w, count(*) AS n FROM (SELECT DISTINCT ON (id) * FROM t)"
          " GROUP BY id, window(ts, '1 minute') EMIT ON WINDOW CLOSE")  # fmt: skip
    check("SELECT DISTINCT ON (id) * FROM (SELECT * FROM t WHERE v > 1 UNION ALL SELECT * FROM t)")

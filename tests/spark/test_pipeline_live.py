"""Against the live Spark: a SELECT cut into partial, merge and final equals the SELECT itself."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lamina.pipeline.compile import compile_select
from lamina.pipeline.model import Stream
from lamina.pipeline.plans import Aggregation, Stateless
from lamina.pipeline.select import read_select
from lamina.pipeline.variables import filled
from lamina.state.merge import check_merges, merge_rows

EPOCHS, ROWS = 3, 240
DDL = (
    "epoch int, sym string, side string, i int, l bigint, m decimal(12,2), w decimal(30,8), "
    "d double, n double, f float, b boolean, y date, ts timestamp, end int, a array<int>, "
    "s struct<x: int, sym: string>"
)
START = dt.datetime(2024, 2, 29, 23, 58, tzinfo=dt.UTC)

SELECTS = {
    "numbers": "SELECT sym, sum(i) AS i, sum(l) AS l, sum(m) AS m, sum(f) AS f, count(*) AS n,"
    " count(i) AS ni, count(i, side) AS nis FROM trades GROUP BY sym",
    "ordered": "SELECT sym, min(i) AS i, max(side) AS side, min(m) AS m, max(d) AS d, max(n) AS"
    " nan,"
    " min(n) AS least, max(ts) AS ts, min(y) AS y, max(b) AS b FROM trades GROUP BY 1",
    "averages": "SELECT sym, avg(i) AS i, mean(l) AS l, avg(m) AS m, avg(w) AS w, avg(d) AS d,"
    " avg(f) AS f, avg(n) AS n, avg(m * i) AS mi FROM trades GROUP BY sym",
    "wide averages": "SELECT sym, avg(CAST(m AS DECIMAL(34,14))) AS a, avg(w * 7) AS b,"
    " avg(CAST(m AS DECIMAL(38,2))) AS c FROM trades GROUP BY sym",
    "moments": "SELECT sym, stddev(d) AS a, std(i) AS b, stddev_samp(m) AS c, stddev_pop(l) AS e,"
    " variance(f) AS v, var_samp(d) FILTER (WHERE i > 0) AS g, var_pop(n) AS nan, var_pop(w) AS h,"
    " round(stddev(d) / avg(d), 3) AS r FROM trades GROUP BY sym",
    "moments of nothing": "SELECT stddev(d) AS a, var_pop(d) AS b FROM trades WHERE sym = '?'",
    "chosen by another": "SELECT sym, min_by(side, l) AS a, max_by(a, d) AS b, max_by(s, ts) AS c,"
    " min_by(l, ts) FILTER (WHERE i > 0) AS e, max_by(m, w) AS g, min_by(y, d) AS h,"
    " max_by(named_struct('x', b, 'm', map('k', i)), ts) AS st FROM trades GROUP BY sym",
    "bools": "SELECT sym, bool_and(b) AS a, bool_or(b) AS o, count_if(b) AS n FROM trades"
    " GROUP BY sym",
    "literals": "SELECT count(*) FILTER (WHERE side = CAST(X'627579' AS STRING)) AS buys,"
    " count(*) FILTER (WHERE side = CAST('627579' AS STRING)) AS none FROM trades",
    "filters": "SELECT sym, count(*) FILTER (WHERE side = 'buy') AS buys, sum(m) FILTER (WHERE"
    " (i > 0 AND (l < 5 OR b))) AS m, avg(d) FILTER (WHERE n > 0) AS d FROM trades GROUP BY sym",
    "having": "SELECT sym, sum(i) AS total FROM trades GROUP BY sym HAVING total > 0 AND count(*) >"
    " 10 OR max(d) < 3 OR NOT sym = 'b'",
    "having goes to a key, then to a name": "SELECT upper(sym) AS sym, sum(i) AS i FROM trades"
    " GROUP BY sym HAVING sym = 'a' OR i < 0",
    "expressions": "SELECT sym, round(avg(m), 2) AS r, coalesce(sum(m), 0) AS c, sum(m) /"
    " nullif(count(*), 0) AS per, CASE WHEN sum(i) > 0 THEN 'up' WHEN sym IS NULL THEN 'none'"
    " END c2,"
    " sum(m * l) AS turnover, sum(m) + sum(m) AS twice FROM trades GROUP BY sym",
    "types": "SELECT sym, 1 AS one, 'sum(i)' AS text, NULL AS nothing, count(*) * 2 AS even,"
    " CAST(sum(i) AS INT) % 7 AS seven, sum(i) / count(*) AS mean, max(i) + 1L AS next,"
    " named_struct('a', max(i), 'sym', sym) AS st, array(min(i), max(i))[0] AS low,"
    " date '2020-01-01' AS day, sum(i)::string AS s FROM trades GROUP BY sym",
    "key expressions": "SELECT upper(sym) || 'x' AS u, i % 3 AS third, i % 3 + 1 AS next, -(i %"
    " 3) AS"
    " minus, count(*) AS n FROM trades t GROUP BY upper(t.sym), (i % 3) HAVING i % 3 > -1",
    "a key begins another": "SELECT i + end AS both, i, i + 1 AS more, count(*) AS n FROM trades"
    " GROUP BY i, i + end",
    "case as key": "SELECT CASE WHEN i > 0 THEN 'up' ELSE side END AS way, sum(l) AS l FROM trades"
    " GROUP BY way",
    "names": "SELECT `T`.`Sym` AS `a b`, t.SIDE, sum(t.i) `s``q` FROM trades AS t GROUP BY"
    " t.sym, SIDE",
    "names of other items": "SELECT sym AS k, sum(i) AS total, total * 2 AS twice, k || '!' AS loud"
    " FROM trades GROUP BY sym",
    "fields": "SELECT s.x, s.sym AS inner, s.x + 1 AS x1, count(*) AS n FROM trades GROUP BY s.x,"
    " trades.s.sym",
    "struct key": "SELECT s, s.sym AS inner, count(*) AS n FROM trades GROUP BY s",
    "array key": "SELECT a, a[0] AS first, transform(a, i -> i + 1) AS up, count(*) AS n FROM"
    " trades"
    " GROUP BY a",
    "double keys": "SELECT n, count(*) AS c FROM trades GROUP BY n",
    "literal keys": "SELECT 'x' AS x, 2 AS two, round(avg(d), 2) AS r, sym FROM trades GROUP BY"
    " 1, 2,"
    " sym",
    "no aggregate": "SELECT sym, side FROM trades GROUP BY sym, side",
    "global": "SELECT count(*) AS n, sum(m) AS m, max(sym) AS sym FROM trades WHERE i > 0",
    "global of nothing": "SELECT count(*) AS n, sum(m) AS m, avg(w) AS w FROM trades WHERE sym"
    " = '?'",
    "global having": "SELECT sum(l) AS l FROM trades HAVING count(*) > 100000",
    "tumbling": "SELECT sym, window.start AS minute, window.end, sum(m) AS m, avg(m) AS am FROM"
    " trades"
    " GROUP BY sym, window(ts, '1 minute')",
    "window column": "SELECT window, window(ts, '1 minute').start + INTERVAL 1 DAY AS d,"
    " count(*) AS n"
    " FROM trades GROUP BY window(ts, '1 minute')",
    "hopping": "SELECT window(ts, '1 minute', '20 seconds') AS hop, hop.end AS stop, count(i) AS n"
    " FROM trades WHERE side IS DISTINCT FROM 'sell' GROUP BY hop, sym",
    "window with offset": "SELECT window.start AS s, max(d) AS d FROM trades GROUP BY window(ts,"
    " '1 hour', '1 hour', '15 minutes')",
    "comments": "SELECT sym /* sum(i) */, -- , count(*)\n sum( i ) AS total FROM trades /* t */"
    " WHERE"
    " i > -5 -- AND i < 0\n AND l IS NOT NULL GROUP /* all */ BY sym -- , side",
    "interval": "SELECT extract(day FROM max(ts)) AS day, max(ts) - INTERVAL 1 day AS before,"
    " sym IS"
    " NULL none, avg(ts - timestamp'2024-01-01') AS late FROM trades GROUP BY sym",
}
SPELLINGS = {
    "tumble": (
        "SELECT window.start AS s, sum(i) AS i FROM trades GROUP BY TUMBLE(ts, INTERVAL 1 MINUTE)",
        "SELECT window.start AS s, sum(i) AS i FROM trades GROUP BY window(ts, '1 minute')",
    ),
    "hop": (
        "SELECT HOP(ts, INTERVAL '20' SECONDS, '1 minute') AS hop, hop.end AS e, sum(i) AS i"
        " FROM trades GROUP BY hop",
        "SELECT window(ts, '1 minute', '20 seconds') AS hop, hop.end AS e, sum(i) AS i"
        " FROM trades GROUP BY hop",
    ),
    "window of intervals": (
        "SELECT window.end AS e, sum(i) AS i FROM trades GROUP BY window(ts, INTERVAL 1 HOUR)",
        "SELECT window.end AS e, sum(i) AS i FROM trades GROUP BY window(ts, '1 hour')",
    ),
}


def _row(rng: random.Random) -> tuple[Any, ...]:
    sym = rng.choice(["a", "b", "c", "é", None])

    def maybe(value: Any) -> Any:
        return None if sym == "c" or rng.random() < 0.2 else value

    return (
        rng.choice([e for e in range(EPOCHS) if sym != "b" or e != 1]),
        sym,
        maybe(rng.choice(["buy", "sell", "it's"])),
        maybe(rng.randint(-9, 9)),
        maybe(rng.randint(-(10**12), 10**12)),
        maybe(Decimal(rng.randint(-(10**6), 10**6)).scaleb(-2)),
        maybe(Decimal(rng.randint(-(10**22), 10**22)).scaleb(-8)),
        maybe(rng.uniform(-1e3, 1e3)),
        maybe(rng.choice([math.nan, -0.0, 0.0, 1.5, -2.5])),
        maybe(rng.choice([0.5, 2.25, -8.0])),
        maybe(rng.random() < 0.5),
        maybe(dt.date(2024, 1, 1) + dt.timedelta(days=rng.randint(0, 400))),
        START + dt.timedelta(seconds=rng.randint(0, 300), microseconds=rng.randint(0, 999_999)),
        rng.randint(0, 3),
        maybe([rng.randint(0, 1), rng.randint(0, 1)]),
        maybe((rng.randint(0, 2), rng.choice("xy"))),
    )


@pytest.fixture(scope="module")
def columns(spark: Any) -> Iterator[list[str]]:
    """The columns of the view `trades`, which has the rows of all epochs."""
    rng = random.Random(5)
    frame = spark.createDataFrame([_row(rng) for _ in range(ROWS)], DDL).coalesce(1)
    frame.cache().createOrReplaceTempView("trades")
    for epoch in range(EPOCHS):
        frame.where(f"epoch = {epoch}").createOrReplaceTempView(f"trades_{epoch}")
    yield frame.columns
    for view in ("trades", *(f"trades_{epoch}" for epoch in range(EPOCHS))):
        spark.catalog.dropTempView(view)
    frame.unpersist()


class Asked:
    """What the compiler asks of Spark."""

    def __init__(self, spark: Any, table: str, alias: str) -> None:
        self._spark = spark
        self._from = f"{table} AS {alias}"
        self._catalog = spark._jsparkSession.sessionState().catalog()
        self._name = spark._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier

    def type_of(self, expression: str) -> str:
        frame = self._spark.sql(f"SELECT {expression} AS x FROM {self._from}")
        return str(frame.schema[0].dataType.simpleString())

    def is_aggregate(self, function: str) -> bool:
        if not self._catalog.functionExists(self._name(function)):
            return False
        return bool(
            self._catalog.lookupFunctionInfo(self._name(function)).getGroup() == "agg_funcs"
        )


def compiled(spark: Any, select: str, columns: list[str]) -> Stateless | Aggregation:
    read = read_select(Stream("s", select), "live")
    asked = Asked(spark, read.table.text, (read.alias or read.table).text)
    return compile_select(
        read, columns=columns, type_of=asked.type_of, is_aggregate=asked.is_aggregate
    )


def in_epochs(spark: Any, plan: Aggregation) -> Any:
    """The final rows over the state that the partials of all epochs were merged into."""
    partials = [f"SELECT {e} AS e, * FROM ({plan.partial(f'trades_{e}')})" for e in range(EPOCHS)]
    frame = spark.sql(" UNION ALL ".join(partials))  # one job for all epochs
    rows = frame.toArrow().combine_chunks()
    state: dict[str, pa.RecordBatch] = {}
    for epoch in range(EPOCHS):
        mine = rows.filter(pc.equal(rows.column("e"), epoch)).drop_columns(["e"])
        for batch in mine.combine_chunks().to_batches():
            _merge(state, batch, plan)
    table = pa.Table.from_batches(list(state.values()), rows.drop_columns(["e"]).schema)
    schema = frame.drop("e").schema
    assert table.column_names == [*plan.keys, *(c for m in plan.merges for c in m.columns)]
    spark.createDataFrame(table, schema).createOrReplaceTempView("state")
    return spark.sql(plan.final("state"))


def _merge(state: dict[str, pa.RecordBatch], batch: pa.RecordBatch, plan: Aggregation) -> None:
    values = [column for merge in plan.merges for column in merge.columns]
    new = batch.select(values)
    check_merges(plan.merges, new.schema)
    for row in range(batch.num_rows):
        key = repr(batch.select(list(plan.keys)).slice(row, 1).to_pylist())
        mine, old = new.slice(row, 1), state.get(key)
        before = mine if old is None else old.select(values)
        merged = merge_rows(plan.merges, before, mine, np.array([old is not None]))
        keys = [batch.column(name).slice(row, 1) for name in plan.keys]
        arrays = [*keys, *merged.columns]
        state[key] = pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def comparable(frame: Any) -> list[Any]:
    rows = [_value(tuple(row)) for row in frame.collect()]
    return sorted(rows, key=repr)


def _value(value: Any) -> Any:
    match value:
        case tuple() | list():
            return tuple(_value(each) for each in value)
        case float() if math.isnan(value):
            return "nan"
        case float():
            return float(f"{value:.9e}") + 0.0  # one zero
        case _:
            return value


@pytest.mark.parametrize("name", SELECTS)
def test_epochs_merged_equal_the_select_over_all_rows(
    spark: Any, columns: list[str], name: str
) -> None:
    plan = compiled(spark, SELECTS[name], columns)
    assert isinstance(plan, Aggregation)
    merged, truth = in_epochs(spark, plan), spark.sql(SELECTS[name])
    assert merged.dtypes == truth.dtypes
    assert merged.columns == list(plan.outputs)
    assert comparable(merged) == comparable(truth)


DECIMALS = (
    *((38, 18), (38, 30), (38, 34), (38, 36), (38, 38), (38, 0), (38, 2), (38, 6), (28, 12)),
    *((18, 4), (12, 2), (22, 10), (30, 20), (9, 9), (1, 0)),
)


def _wide_rows(rng: random.Random) -> list[tuple[Any, ...]]:
    """Groups of numbers of all sizes whose average Spark's own type has room for."""
    rows = []
    for group in range(400):
        size = rng.randint(1, 36)
        for _ in range(rng.choice([1, 2, 3, 6, 7, 9, 11, 13, 97])):
            row: list[Any] = [group]
            for precision, scale in DECIMALS:
                digits = min(size, precision, 38 - min(4, 38 - scale))
                number = Decimal(rng.randint(-(10**digits) + 1, 10**digits - 1))
                row.append(number.scaleb(-scale, Context(40)))
            rows.append(tuple(row))
    return rows


def test_the_average_of_wide_decimals_was_cut_off(spark: Any) -> None:
    """By as many digits as the sum's whole part had room for; now it is Spark's, to the digit."""
    names = [f"d{number}" for number in range(len(DECIMALS))]
    typed = ", ".join(f"{n} decimal({p},{s})" for n, (p, s) in zip(names, DECIMALS, strict=True))
    frame = spark.createDataFrame(_wide_rows(random.Random(8)), f"g int, {typed}").coalesce(1)
    made = frame.selectExpr("*", "d8 / 1 AS quotient").cache()
    made.createOrReplaceTempView("wide")
    averages = ", ".join(f"avg({n}) AS {n}" for n in (*names, "quotient"))
    select = f"SELECT g, {averages} FROM wide GROUP BY g"
    plan = compiled(spark, select, made.columns)
    assert isinstance(plan, Aggregation)
    spark.sql(plan.partial("wide")).createOrReplaceTempView("state")
    merged, truth = spark.sql(plan.final("state")), spark.sql(select)
    assert merged.dtypes == truth.dtypes
    assert comparable(merged) == comparable(truth)
    made.unpersist()
    spark.catalog.dropTempView("wide")


@pytest.mark.parametrize("name", SPELLINGS)
def test_other_spellings_of_windows_are_window(spark: Any, columns: list[str], name: str) -> None:
    ours, theirs = SPELLINGS[name]
    plan = compiled(spark, ours, columns)
    assert isinstance(plan, Aggregation)
    assert plan.time is not None
    merged, truth = in_epochs(spark, plan), spark.sql(theirs)
    assert merged.dtypes == truth.dtypes
    assert comparable(merged) == comparable(truth)


def test_a_stateless_stream_is_its_own_text(spark: Any, columns: list[str]) -> None:
    select = (
        "SELECT trades.sym, 'it''s' AS `a;b`, i + 1 j, transform(a, i -> i + 1) AS up, * EXCEPT (a)"
        " FROM /* all */ trades WHERE i IS DISTINCT FROM 3 -- no more"
    )
    plan = compiled(spark, select, columns)
    assert isinstance(plan, Stateless)
    merged = [
        row for epoch in range(EPOCHS) for row in comparable(spark.sql(plan.sql(f"trades_{epoch}")))
    ]
    truth = spark.sql(select)
    assert spark.sql(plan.sql("trades_0")).dtypes == truth.dtypes
    assert sorted(merged, key=repr) == comparable(truth)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "it's",
            'say "x"',
            "\\",
            "\\'",
            "'; SELECT 1 --",
            "/* */",
            "${env:PATH}",
            "${spark.app.name}",
        ),
        *("\\u0041 \\n \\% \\_ \\101", "a\nb\tc\0", "\U0001f600é", "", "$", "${x", "--\\\nx"),
    ],
)
def test_a_value_of_the_environment_comes_out_of_spark_as_it_went_in(
    spark: Any, value: str
) -> None:
    sql = filled("SELECT '${V}' AS v, r'<${V}>' AS w, \"${V}\" AS x", {"V": value})
    assert tuple(spark.sql(sql).collect()[0]) == (value, f"<{value}>", value)

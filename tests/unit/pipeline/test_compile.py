"""SELECT -> (partial, merge, final): what becomes of keys, aggregates and everything else."""

from __future__ import annotations

import re

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline.aggregates import AGGREGATES, REFUSED
from lamina.pipeline.compile import compile_select
from lamina.pipeline.keys import read_keys
from lamina.pipeline.model import Place, Stream
from lamina.pipeline.plans import Aggregation, Stateless
from lamina.pipeline.select import read_select

COLUMNS = ["sym", "side", "price", "vol", "ts", "a", "b", "c", "x", "end", "day", "s", "date", "p0"]
KNOWN = {*AGGREGATES, *REFUSED, "histogram_numeric"}


def types(expression: str) -> str:
    if "price" not in expression:
        return "double"
    return "decimal(16,6)" if expression.startswith("avg") else "decimal(22,2)"


def compiled(text: str) -> Stateless | Aggregation:
    read = read_select(Stream("s", text, place=Place(1, 1)), "p.sql")
    return compile_select(
        read, columns=COLUMNS, type_of=types, is_aggregate=lambda name: name in KNOWN
    )


def aggregation(text: str) -> Aggregation:
    plan = compiled(text)
    assert isinstance(plan, Aggregation)
    return plan


def finals(text: str) -> list[str]:
    """The items of the final projection, each before its AS; and HAVING, if there is one."""
    said = aggregation(text).final("V")
    items, _, rest = said.removeprefix("SELECT ").partition(" FROM (SELECT ")
    found = re.split(r" AS `[^`]*`(?:, |$)", items)[:-1]
    having = rest.partition(" FROM V)")[2].removeprefix(" WHERE ")
    return [*found, having] if having else found


def refused(text: str) -> BadPipeline:
    with pytest.raises(BadPipeline) as caught:
        compiled(text)
    return caught.value


def test_the_three_parts_of_a_windowed_sum() -> None:
    plan = aggregation(
        "SELECT sym, window.start AS minute, sum(price * vol) AS turnover, count(*) AS n "
        "FROM trades WHERE vol > 0 GROUP BY sym, window(ts, '1 minute')"
    )
    assert plan.keys == ("k0", "k1_start", "k1_end")
    assert plan.time == "k1_end"
    assert [(m.function, m.columns) for m in plan.merges] == [("sum", ("p0",)), ("count", ("p1",))]
    assert plan.outputs == ("sym", "minute", "turnover", "n")
    assert plan.partial("V") == (
        "SELECT k0, k1_start, k1_end, p0, p1 FROM (SELECT sym AS k0, "
        "window(ts, '1 minute').start AS k1_start, window(ts, '1 minute').end AS k1_end, "
        "sum(price * vol) AS p0, count(*) AS p1 FROM V AS `trades` "
        "WHERE vol > 0 GROUP BY sym, window(ts, '1 minute').start, window(ts, '1 minute').end)"
    )
    assert plan.final("V") == (
        "SELECT k0 AS `sym`, k1.start AS `minute`, (p0) AS `turnover`, (p1) AS `n` FROM "
        "(SELECT k0, named_struct('start', k1_start, 'end', k1_end) AS k1, p0, p1 FROM V)"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # keys: by ordinal, name of an item, expression, with a qualifier, in quotes
        ("SELECT sym FROM t GROUP BY 1", ["k0"]),
        ("SELECT upper(sym) AS u FROM t GROUP BY u", ["k0"]),
        ("SELECT UPPER( t.Sym ) AS u FROM t GROUP BY upper(sym)", ["k0"]),
        ("SELECT t.sym, `SYM` AS q FROM t GROUP BY `sym`", ["k0", "k0"]),
        ("SELECT sym FROM trades AS t GROUP BY t.sym", ["k0"]),
        ("SELECT (sym) AS s FROM t GROUP BY ((sym))", ["(k0)"]),
        ("SELECT upper(side) AS sym, count(*) AS n FROM t GROUP BY sym, side",
         ["upper(k1)", "(p0)"]),
        ("SELECT upper(sym) || 'x' AS u FROM t GROUP BY upper(sym)", ["k0 || 'x'"]),
        ("SELECT a + b AS ab, a AS q FROM t GROUP BY a, a + b", ["k1", "k0"]),
        ("SELECT s.x, s AS st FROM t GROUP BY s", ["k0.x", "k0"]),
        ("SELECT s.x AS sx, x AS q FROM t GROUP BY s.x, x", ["k0", "k1"]),
        ("SELECT a[0] AS f, a[0] + 1 AS g FROM t GROUP BY a[0]", ["k0", "k0 + 1"]),
        ("SELECT CASE WHEN a > 1 THEN b END AS q FROM t GROUP BY CASE WHEN a > 1 THEN b END",
         ["k0"]),
        ("SELECT CASE WHEN a THEN end END AS q FROM t GROUP BY a, end",
         ["CASE WHEN k0 THEN k1 END"]),
        # a key with an operator is found where it is an operand of its own
        ("SELECT a % 10 AS q, a % 10 + 1 AS r FROM t GROUP BY a % 10", ["k0", "k0 + 1"]),
        ("SELECT (a + b) * 2 AS q FROM t GROUP BY a + b", ["(k0) * 2"]),
        ("SELECT CASE WHEN a + b = 1 THEN 2 END AS q FROM t GROUP BY a + b",
         ["CASE WHEN k0 = 1 THEN 2 END"]),
        # constants stay constants
        ("SELECT 1 AS one, round(sum(x), 1) AS r FROM t GROUP BY 1, sym",
         ["1", "round((p0), 1)"]),
        ("SELECT 'x' AS q, coalesce(sym, 'x') AS r FROM t GROUP BY q, sym",
         ["'x'", "coalesce(k1, 'x')"]),
        # names that are no columns
        ("SELECT date '2020-01-01' AS d, cast(sym AS date) AS e FROM t GROUP BY sym",
         ["date '2020-01-01'", "cast(k0 AS date)"]),
        ("SELECT date '2020-01-01' AS d, date AS e FROM t GROUP BY date",
         ["date '2020-01-01'", "k0"]),
        ("SELECT max(ts) - interval 1 day AS d, extract(day FROM sym) AS e FROM t GROUP BY sym",
         ["(p0) - interval 1 day", "extract(day FROM k0)"]),
        ("SELECT transform(a, x -> x + 1) AS q FROM t GROUP BY a", ["transform(k0, x -> x + 1)"]),
        ("SELECT aggregate(a, 0, (x, b) -> x + b) AS q, x AS r FROM t GROUP BY a, x",
         ["aggregate(k0, 0, (x, b) -> x + b)", "k1"]),
        ("SELECT named_struct('vol', sym).vol AS q FROM t GROUP BY sym",
         ["named_struct('vol', k0).vol"]),
        ("SELECT struct(sym AS vol) AS q FROM t GROUP BY sym", ["struct(k0 AS vol)"]),
        ("SELECT left(sym, 1) AS l, sym::date AS d FROM t GROUP BY sym",
         ["left(k0, 1)", "k0::date"]),
        # texts
        ("SELECT 'sum(x)' AS q, 'sym' AS r, sym FROM t GROUP BY sym", ["'sum(x)'", "'sym'", "k0"]),
        ("SELECT sym /* vol */ || -- vol\n 'x' AS q FROM t GROUP BY sym",
         ["k0 /* vol */ || -- vol\n 'x'"]),
        ("SELECT sym LIKE '(' AS q, sym IN ('a', ')') AS r FROM t GROUP BY sym",
         ["k0 LIKE '('", "k0 IN ('a', ')')"]),
        # aggregates
        ("SELECT round(avg(x), 2) AS q FROM t", ["round((p0 / CAST(p1 AS DOUBLE)), 2)"]),
        ("SELECT coalesce(sum(x), 0) AS q FROM t", ["coalesce((p0), 0)"]),
        ("SELECT sum(a) / nullif(count(*), 0) AS q FROM t", ["(p0) / nullif((p1), 0)"]),
        ("SELECT sum(x) + SUM( x ) AS q, count(x) AS r, mean(x) AS u FROM t",
         ["(p0) + (p0)", "(p1)", "(p2 / CAST(p1 AS DOUBLE))"]),
        ("SELECT avg(price) AS q FROM t",
         ["(CAST(p0 / CAST(p1 AS DECIMAL(20, 0)) AS decimal(16,6)))"]),
        ("SELECT `sum`(x) AS q FROM t", ["(p0)"]),
        ("SELECT count(ALL x) AS q FROM t", ["(p0)"]),
        ("SELECT any_value(x) IGNORE NULLS AS q, any_value(x, true) AS r, min(x) AS s FROM t",
         ["(p0)", "(p0)", "(p0)"]),
        ("SELECT every(a) AS q, bool_and(a) AS r, some(b) AS u, any(c) AS v FROM t",
         ["(p0)", "(p0)", "(p1)", "(p2)"]),
        ("SELECT sym LIKE ANY ('a', 'b') AS q, sym NOT ILIKE SOME ('x') AS r FROM t GROUP BY sym",
         ["k0 LIKE ANY ('a', 'b')", "k0 NOT ILIKE SOME ('x')"]),
        # windows
        ("SELECT window, window.end FROM t GROUP BY window(ts, '1 minute')", ["k0", "k0.end"]),
        ("SELECT w.end AS e, TUMBLE(ts, INTERVAL 1 MINUTE) AS w FROM t GROUP BY 2",
         ["w.end", "k0"]),
        ("SELECT window(ts, '1 minute').start AS q FROM t GROUP BY WINDOW(t.ts, '1 minute')",
         ["k0.start"]),
        # HAVING, and names of other items
        ("SELECT sym, sum(x) AS q FROM t GROUP BY sym HAVING q > 1 AND max(a) < 2 AND sym = 'q'",
         ["k0", "(p0)", "((p0)) > 1 AND (p1) < 2 AND k0 = 'q'"]),
        ("SELECT sym, sum(vol) AS vol FROM t GROUP BY sym HAVING vol > 1",
         ["k0", "(p0)", "((p0)) > 1"]),
        ("SELECT upper(sym) AS sym FROM t GROUP BY sym HAVING sym = 'a'",
         ["upper(k0)", "k0 = 'a'"]),
        ("SELECT sum(x) AS q, q * 2 AS r, r + q AS u FROM t",
         ["(p0)", "((p0)) * 2", "(((p0)) * 2) + ((p0))"]),
        ("SELECT count(*) AS n FROM t HAVING n > 5", ["(p0)", "((p0)) > 5"]),
    ],
)  # fmt: skip
def test_the_final_projection_is_the_text_with_state_in_it(text: str, said: list[str]) -> None:
    assert finals(text) == said


@pytest.mark.parametrize(
    ("call", "partials"),
    [
        ("sum(x) FILTER (WHERE (a > 1 AND (b OR c)))",
         ["sum(x) FILTER (WHERE (a > 1 AND (b OR c)))"]),
        ("avg(price) FILTER (WHERE a)",
         ["sum(price) FILTER (WHERE a)", "count(price) FILTER (WHERE a)"]),
        ("count(a, b)", ["count(a, b)"]),
        ("min(t.a) + max(t.a)", ["min(t.a)", "max(t.a)"]),
        ("sum(CASE WHEN a THEN 1 ELSE 0 END)", ["sum(CASE WHEN a THEN 1 ELSE 0 END)"]),
        ("sum(x) FILTER (WHERE a) - sum(x)", ["sum(x) FILTER (WHERE a)", "sum(x)"]),
        ("sum(x) FILTER (WHERE a) + SUM(x) filter (where A)", ["sum(x) FILTER (WHERE a)"]),
        ("sum(x) FILTER (WHERE sym = 'A') + sum(x) FILTER (WHERE sym = 'a')",
         ["sum(x) FILTER (WHERE sym = 'A')", "sum(x) FILTER (WHERE sym = 'a')"]),
    ],
)  # fmt: skip
def test_partials_are_cut_from_the_text_and_the_same_one_is_there_once(
    call: str, partials: list[str]
) -> None:
    plan = aggregation(f"SELECT {call} AS q FROM t")
    listed = ", ".join(f"{sql} AS p{i}" for i, sql in enumerate(partials))
    assert f"(SELECT {listed} FROM V AS `t`)" in plan.partial("V")
    assert len(plan.merges) == len(partials)


@pytest.mark.parametrize(
    ("written", "spark"),
    [
        ("TUMBLE(ts, INTERVAL 1 MINUTE)", "window(ts, '1 MINUTE')"),
        ("tumble(ts, INTERVAL '2' HOURS)", "window(ts, '2 HOURS')"),
        ("HOP(ts, INTERVAL 30 SECONDS, INTERVAL 1 MINUTE)", "window(ts, '1 MINUTE', '30 SECONDS')"),
        ("HOP(ts, '30 seconds', INTERVAL '1 minute')", "window(ts, '1 minute', '30 seconds')"),
        ("window(ts, INTERVAL 1 HOUR, '20 minutes')", "window(ts, '1 HOUR', '20 minutes')"),
        ("window(coalesce(ts, end), '1 hour')", "window(coalesce(ts, end), '1 hour')"),
    ],
)
def test_windows_reach_spark_in_its_own_spelling(written: str, spark: str) -> None:
    partial = aggregation(f"SELECT window FROM t GROUP BY {written}").partial("V")
    assert f"GROUP BY {spark}.start, {spark}.end)" in partial


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("SELECT vol FROM t GROUP BY sym", 8, "'vol' is neither a key"),
        ("SELECT t.vol AS v FROM t GROUP BY sym", 8, "'vol' is neither a key"),
        ("SELECT sym, vol + sum(x) AS v FROM t GROUP BY sym", 13, "'vol' is neither a key"),
        ("SELECT a + b * c AS q FROM t GROUP BY a + b, c", 8, "'a' is neither a key"),
        ("SELECT c - a + b AS q FROM t GROUP BY a + b, c", 12, "'a' is neither a key"),
        ("SELECT -a % 10 AS q FROM t GROUP BY a % 10", 9, "'a' is neither a key"),
        ("SELECT sum(x) AS vol, vol * 2 AS q FROM t", 23, "'vol' is neither a key"),
        ("SELECT sym, p1 FROM t GROUP BY sym", 13, "no column 'p1'"),
        ("SELECT k0 AS q FROM t GROUP BY sym", 8, "no column 'k0'"),
        ("SELECT * FROM t GROUP BY sym", 8, "* in a stream with GROUP BY"),
        ("SELECT t.* FROM t GROUP BY sym", 10, "* in a stream with GROUP BY"),
        ("SELECT struct(t.*) AS q FROM t GROUP BY sym", 17, "* in a stream with GROUP BY"),
        ("SELECT upper(sym) FROM t GROUP BY sym", 8, "column 1 has no name"),
        ("SELECT sym, 'x' FROM t GROUP BY sym", 13, "column 2 has no name"),
        ("SELECT sym, side AS SYM FROM t GROUP BY sym, side", 13, "two columns are called 'SYM'"),
        ("SELECT sym FROM t GROUP BY sym, ALL", 33, "ALL beside other keys"),
        ("SELECT a + sum(x) AS q, b FROM t GROUP BY ALL", 8, "'a' is neither a key"),
        ("SELECT a FROM t GROUP BY CUBE (a, t.a)", 32, "a key of GROUP BY is written in two ways"),
        ("SELECT a FROM t GROUP BY ROLLUP (window(ts, '1 day'), a)", 34, "set of GROUP BY without"),
        ("SELECT grouping(a) AS q FROM t GROUP BY a", 8, "grouping() without GROUPING SETS"),
        ("SELECT grouping(b) AS q FROM t GROUP BY CUBE (a)", 8, "grouping() of what is not a key"),
        ("SELECT grouping_id(a) AS q FROM t GROUP BY CUBE (a)", 20, "grouping_id() of some keys"),
        ("SELECT count(DISTINCT b) AS q FROM t GROUP BY CUBE (a)", 53, "over several sets of keys"),
        ("SELECT sym FROM t GROUP BY 2", 28, "no column 2"),
        ("SELECT sym FROM t GROUP BY 0", 28, "no column 0"),
        ("SELECT sym FROM t GROUP BY sym EMIT", 32, "'EMIT' is not known in GROUP BY"),
        ("SELECT sum(x) AS q FROM t GROUP BY q", 36, "a key cannot be an aggregate"),
        ("SELECT sym FROM t GROUP BY window(ts, '1 hour'), window(ts, '1 day')", 50, "one window"),
        ("SELECT sum(max(x)) AS q FROM t", 12, "an aggregate inside an aggregate"),
        ("SELECT count(DISTINCT *) AS q FROM t", 14, "count(DISTINCT *): name the columns"),
        ("SELECT sum() AS q FROM t", 8, "sum() has no argument"),
        ("SELECT histogram_numeric(x, 3) AS q FROM t", 8, "histogram_numeric() cannot be kept"),
        ("SELECT first(x) AS q FROM t", 8, "which row comes first depends on how Spark reads"),
        ("SELECT last_value(x) AS q FROM t", 8, "which row comes first depends on how Spark reads"),
        ("SELECT sum(x) IGNORE NULLS AS q FROM t", 15, "sum() IGNORE NULLS in a stream"),
        ("SELECT percentile_cont(0.5) AS q FROM t", 8, "without WITHIN GROUP (ORDER BY ...)"),
        ("SELECT median(x) AS q FROM t", 8, "median() in a stream: without a window it would keep"),
        ("SELECT corr(x) AS q FROM t", 8, "corr() takes 2 arguments; it was given 1"),
        ("SELECT sys.sum(x) AS q FROM t", 12, "sum() with a schema before it"),
        ("SELECT a FROM t HAVING a > 1", 24, "HAVING without GROUP BY"),
        ("SELECT window FROM t GROUP BY TUMBLE(ts)", 31, "wrong arguments for TUMBLE"),
        ("SELECT window FROM t GROUP BY HOP(ts, '1 day')", 31, "wrong arguments for HOP"),
        ("SELECT window FROM t GROUP BY TUMBLE(ts, 5)", 42, "a length of time is expected"),
    ],
)
def test_what_would_be_wrong_is_refused_where_it_stands(text: str, column: int, said: str) -> None:
    error = refused(text)
    assert (error.where, said in error.message) == (f"p.sql:1:{column}", True), error


def test_a_stateless_select_is_the_user_s_text_over_another_view() -> None:
    text = "SELECT 'it''s' AS a, t.sym /* FROM t */ FROM t -- all\n WHERE sym = 'x'"
    plan = compiled(text)
    assert isinstance(plan, Stateless)
    assert plan.sql("V") == text.replace("FROM t --", "FROM V AS `t` --")
    aliased = compiled("SELECT u.sym FROM t AS u")
    assert isinstance(aliased, Stateless)
    assert aliased.sql("V") == "SELECT u.sym FROM V AS `u`"


def test_a_global_aggregate_has_no_keys() -> None:
    plan = aggregation("SELECT count(*) AS n FROM t")
    assert (plan.keys, plan.time) == ((), None)
    assert plan.partial("V") == "SELECT p0 FROM (SELECT count(*) AS p0 FROM V AS `t`)"


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        ("max(x)", "array<int>", "max() of type array<int>"),
        ("min(x)", "string collate UNICODE_CI", "not that of its bytes"),
        ("max(x)", "void", "max() of type void"),
        ("sum(x)", "void", "NULL has no type"),
    ],
)
def test_values_that_old_and_new_cannot_be_merged_of_are_refused(
    call: str, kind: str, said: str
) -> None:
    read = read_select(Stream("s", f"SELECT sym, {call} AS q FROM t GROUP BY sym"), "p.sql")
    with pytest.raises(BadPipeline) as caught:
        compile_select(
            read, columns=COLUMNS, type_of=lambda _: kind, is_aggregate=lambda name: name in KNOWN
        )
    assert said in caught.value.message
    assert caught.value.where == "stream s:1:13"


@pytest.mark.parametrize(
    "kind",
    ["int", "decimal(38,2)", "string", "timestamp_ntz", "interval day to second", "boolean"],
)
def test_values_that_have_an_order_are_not_refused(kind: str) -> None:
    read = read_select(Stream("s", "SELECT max(x) AS q FROM t"), "p.sql")
    plan = compile_select(
        read, columns=COLUMNS, type_of=lambda _: kind, is_aggregate=lambda name: name in KNOWN
    )
    assert isinstance(plan, Aggregation)
    assert [(each.function, each.columns) for each in plan.merges] == [("max", ("p0",))]


def test_outputs_that_are_columns_of_the_state_need_no_projection() -> None:
    plain = aggregation(
        "SELECT window.END AS till, (sum(a)) AS total, b, count(*) AS n, b AS again "
        "FROM t GROUP BY b, window(ts, '1 minute')"
    )
    assert plain.columns == ("k1_end", "p0", "k0", "p1", "k0")


@pytest.mark.parametrize(
    "select",
    [
        "SELECT b, sum(a) + 1 AS x FROM t GROUP BY b",
        "SELECT b, avg(a) AS x FROM t GROUP BY b",
        "SELECT b, sum(a) AS x FROM t GROUP BY b HAVING count(*) > 1",
        "SELECT window, sum(a) AS x FROM t GROUP BY window(ts, '1 minute')",
        "SELECT b, 7 AS x FROM t GROUP BY b",
        "SELECT b, -sum(a) AS x FROM t GROUP BY b",
    ],
)
def test_outputs_that_are_more_than_columns_are_left_to_spark(select: str) -> None:
    assert aggregation(select).columns is None


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("SELECT sym, side AS s, sum(vol) AS v FROM t GROUP BY sym, side", ("sym", "s")),
        ("SELECT sym, window.start AS at FROM t GROUP BY sym, window(ts, '1 day')", ("sym", "at")),
        ("SELECT sum(vol) AS v FROM t", ()),
        ("SELECT sym, sum(vol) AS v FROM t GROUP BY sym, side", None),
        ("SELECT upper(sym) AS sym, sum(vol) AS v FROM t GROUP BY sym", None),
        ("SELECT sym, sum(vol) AS v FROM t GROUP BY sym, window(ts, '1 minute')", None),
    ],
)
def test_the_outputs_that_tell_groups_apart(text: str, keys: tuple[str, ...] | None) -> None:
    assert aggregation(text).key_outputs == keys


def test_either_end_of_a_window_says_which_one_it_is() -> None:
    both = "SELECT sym, window.start AS a, window.end AS b FROM t GROUP BY sym, window(ts, '1 day')"
    plan = aggregation(both)
    assert plan.key_outputs == ("sym", "a", "b")
    assert plan.key_choices == (frozenset({"sym"}), frozenset({"a", "b"}))


def test_a_binary_literal_was_taken_for_the_text_of_its_digits() -> None:
    plan = aggregation(
        "SELECT count(*) FILTER (WHERE sym = CAST(X'41' AS STRING)) AS a, "
        "count(*) FILTER (WHERE sym = CAST('41' AS STRING)) AS b, "
        "count(*) FILTER (WHERE sym = cast( x'41' as string)) AS c FROM t"
    )
    assert plan.columns == ("p0", "p1", "p0")


@pytest.mark.parametrize(
    ("call", "merge", "partials", "final"),
    [
        ("min_by(sym, ts)", "first_by", ["min_by(sym, ts)", "min(ts)"], "p0"),
        ("max_by(concat(sym, ','), ts) FILTER (WHERE a > 1)", "last_by",
         ["max_by(concat(sym, ','), ts) FILTER (WHERE a > 1)", "max(ts) FILTER (WHERE a > 1)"],
         "p0"),
        ("var_pop(x)", "moments",
         ["count(x)", "avg(CAST(x AS DOUBLE))",
          "regr_sxx(CAST(x AS DOUBLE), CAST(x AS DOUBLE))"],
         "CASE WHEN p0 > 0 THEN p2 / CAST(p0 AS DOUBLE) END"),
        ("stddev(x)", "moments",
         ["count(x)", "avg(CAST(x AS DOUBLE))",
          "regr_sxx(CAST(x AS DOUBLE), CAST(x AS DOUBLE))"],
         "sqrt(CASE WHEN p0 > 1 THEN p2 / CAST(p0 - 1 AS DOUBLE) END)"),
        ("bit_xor(x) FILTER (WHERE a)", "bit_xor", ["bit_xor(x) FILTER (WHERE a)"], "p0"),
    ],
)  # fmt: skip
def test_an_aggregate_may_have_several_columns_and_one_merge(
    call: str, merge: str, partials: list[str], final: str
) -> None:
    plan = aggregation(f"SELECT {call} AS q FROM t GROUP BY a")
    names = tuple(f"p{i}" for i in range(len(partials)))
    assert [(each.function, each.columns) for each in plan.merges] == [(merge, names)]
    said = ", ".join(f"{sql} AS {name}" for sql, name in zip(partials, names, strict=True))
    assert f"(SELECT a AS k0, {said} FROM V" in plan.partial("V")
    assert f"SELECT ({final}) AS `q` FROM" in plan.final("V")


def test_aggregates_of_the_same_values_share_their_columns() -> None:
    plan = aggregation("SELECT stddev(x) AS a, variance( t.X ) AS b, var_pop(y) AS c FROM t")
    assert [each.columns for each in plan.merges] == [("p0", "p1", "p2"), ("p3", "p4", "p5")]


def test_a_partial_of_several_calls_is_filtered_in_each() -> None:
    plan = aggregation("SELECT skewness(x) FILTER (WHERE a) AS q FROM t")
    calls = re.findall(r"(?:count|avg|regr_sxx|skewness|kurtosis)\(", plan.partial("V"))
    assert len(calls) == plan.partial("V").count(" FILTER (WHERE a)") == 12


def test_arguments_that_are_missing_or_too_many_are_refused() -> None:
    for call, given in (("corr(x)", 1), ("regr_r2(x, y, 3)", 3)):
        error = refused(f"SELECT {call} AS q FROM t GROUP BY a")
        assert f"takes 2 arguments; it was given {given}" in error.message


@pytest.mark.parametrize(
    ("call", "partial"),
    [
        ("approx_count_distinct(x)",
         "hll_sketch_agg(CASE WHEN (x) IS NOT NULL THEN xxhash64(x) END, 9)"),
        ("approx_count_distinct(x, 0.01)",
         "hll_sketch_agg(CASE WHEN (x) IS NOT NULL THEN xxhash64(x) END, 14)"),
        ("percentile_approx(x, 0.5)", "kll_sketch_agg_double(CAST(x AS DOUBLE), 65535)"),
        ("percentile_approx(x, 0.5, 100)", "kll_sketch_agg_double(CAST(x AS DOUBLE), 415)"),
    ],
)  # fmt: skip
def test_the_size_of_a_sketch_is_that_of_the_error_asked_for(call: str, partial: str) -> None:
    plan = aggregation(f"SELECT {call} AS q FROM t")
    assert f"(SELECT {partial} AS p0 FROM" in plan.partial("V")


def test_sets_of_keys_have_a_key_that_tells_them_apart() -> None:
    plan = aggregation(
        "SELECT a, window.end AS till, upper(b) AS u, grouping(t.a) AS ga, grouping_id() AS id,"
        " count(*) AS n FROM t GROUP BY window(ts, '1 day'), ROLLUP (a, upper(b))"
    )
    assert plan.keys == ("k0_start", "k0_end", "k1", "k2", "k3")
    day = "window(ts, '1 day').start, window(ts, '1 day').end"
    assert plan.partial("V").endswith(
        f"GROUP BY GROUPING SETS (({day}, a, upper(b)), ({day}, a), ({day})))"
    )
    said = (
        "shiftleft(CAST(grouping(a) AS BIGINT), 1) + shiftleft(CAST(grouping(upper(b)) AS BIGINT)"
    )
    assert f"{said}, 0) AS k3" in plan.partial("V")
    assert ", CASE WHEN k3 = 0 THEN _r ELSE 0L END AS _r FROM (" in plan.partial("V", "_r")
    assert "CAST(shiftright(k3, 1) & 1 AS TINYINT) AS `ga`, k3 AS `id`" in plan.final("V")
    assert plan.key_outputs == ("a", "till", "u", "id")
    assert plan.meanings[4] == "grouping_id()"
    without = aggregation("SELECT a, count(*) AS n FROM t GROUP BY ROLLUP (a)")
    assert (without.key_outputs, without.of_rows) == (None, None)


def test_group_by_all_is_by_every_item_that_is_no_aggregate() -> None:
    plan = aggregation("SELECT a + b AS s, 1 AS one, count(*) AS n, sym FROM t GROUP BY ALL")
    assert plan.partial("V").endswith("GROUP BY a + b, sym)")
    assert plan.key_outputs == ("s", "sym")
    read = read_select(Stream("s", "SELECT x, sum(a) AS q FROM t GROUP BY ALL"), "p.sql")
    with pytest.raises(BadPipeline, match="there is a column `all`"):
        read_keys(read, {"all", "x", "a"})


SLICED = "slice({}, 1, 9)"


@pytest.mark.parametrize(
    ("call", "partial", "options"),
    [
        (SLICED.format("collect_list(x)"), "sort_array(collect_list(x))", {"limit": 9}),
        (SLICED.format("sort_array(array_agg(x))"), "sort_array(array_agg(x))", {"limit": 9}),
        (SLICED.format("array_sort(collect_list(x))"), "sort_array(collect_list(x))", {"limit": 9}),
        (SLICED.format("sort_array(collect_list(x) FILTER (WHERE a), FALSE)"),
         "sort_array(collect_list(x) FILTER (WHERE a), false)", {"limit": 9, "descending": True}),
        (SLICED.format("sort_array(collect_set(x), true)"), "sort_array(collect_set(x))",
         {"limit": 9, "distinct": True}),
        ("max_by(x, a, 9)",
         "sort_array(collect_list(CASE WHEN (a) IS NOT NULL THEN"
         " named_struct('by', a, 'value', x) END), false)", {"limit": 9, "descending": True}),
    ],
)  # fmt: skip
def test_a_list_keeps_as_many_as_are_looked_at(
    call: str, partial: str, options: dict[str, object]
) -> None:
    plan = aggregation(f"SELECT sym, {call} AS q FROM t GROUP BY sym")
    assert [(each.function, each.options) for each in plan.merges] == [("list_sorted", options)]
    assert f"SELECT sym AS k0, {SLICED.format(partial)} AS p0 FROM" in plan.partial("V")


@pytest.mark.parametrize(
    "call",
    [
        "collect_list(x)",
        "collect_set(x)",
        "sort_array(collect_list(x))",
        "slice(collect_list(x), 2, 9)",
        "slice(collect_list(x), 1, a)",
        "slice(concat(collect_list(x), a), 1, 9)",
        "slice(collect_list(x), 1, 9 + 1)",
        "slice(sort_array(collect_list(x), a), 1, 9)",
    ],
)
def test_a_list_that_grows_for_ever_is_refused_with_what_to_write(call: str) -> None:
    error = refused(f"SELECT sym, {call} AS q FROM t GROUP BY sym")
    assert "without a window it would keep every value for ever" in error.message
    assert "slice(sort_array(collect_" in error.advice
    plan = aggregation(
        f"SELECT {call.replace('a)', '1)')} AS q FROM t GROUP BY window(ts, '1 day')"
    )
    assert len(plan.merges) == 1


def test_nothing_is_computed_of_the_row_that_carries_a_result() -> None:
    """Outputs and HAVING were: a division by what is null there failed every epoch."""
    plan = aggregation("SELECT a, 1 / sum(x) AS q FROM t GROUP BY a HAVING 100 / sum(x) > 1")
    assert plan.final("V", "c") == (
        "SELECT CASE WHEN c IS NULL THEN k0 END AS `a`, CASE WHEN c IS NULL THEN 1 / (p0) END AS "
        "`q`, c FROM (SELECT k0, p0, c FROM V) "
        "WHERE CASE WHEN c IS NULL THEN 100 / (p0) > 1 ELSE true END"
    )


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("struct(a, T.b)", "struct(k0 AS `a`, k1 AS `b`)"),
        ("(B, sum(x))", "(k1 AS `B`, (p0) AS `col2`)"),
        ("struct(sum(x), a + 1, max(x) AS most)", "struct((p0) AS `col1`, k0 + 1, (p1) AS most)"),
        ("to_json(struct(a, count(*)))", "to_json(struct(k0 AS `a`, (p0) AS `col2`))"),
        ("struct(array(a, b))", "struct(array(k0, k1))"),
        ("named_struct('a', a)", "named_struct('a', k0)"),
        ("coalesce(a, b)", "coalesce(k0, k1)"),
        ("(a)", "(k0)"),
        ("sum(x) IN (a, b)", "(p0) IN (k0, k1)"),
        ("(a, b) IN ((1, 2))", "(k0 AS `a`, k1 AS `b`) IN ((1, 2))"),
        ("CASE WHEN (a, 1) = (b, 1) THEN b END",
         "CASE WHEN (k0 AS `a`, 1) = (k1 AS `b`, 1) THEN k1 END"),
    ],
)  # fmt: skip
def test_fields_of_structs_have_the_names_that_the_user_gave(item: str, said: str) -> None:
    """And not those of the columns of the state: they are seen in results, and in JSON."""
    text = aggregation(f"SELECT {item} AS y FROM t GROUP BY a, b").final("V")
    assert text.startswith(f"SELECT {said} AS `y` FROM (")


def test_distinct_values_of_all_rows_are_one_group() -> None:
    text = aggregation("SELECT count(DISTINCT a) AS n FROM t").partial("V")
    assert text == "SELECT p0 FROM (SELECT any_value(NULL) AS p0 FROM V AS `t`)"


def test_the_name_of_another_item_was_taken_for_a_key_of_the_state() -> None:
    """`z` was the first item, which is called k0 in the state, and not the second."""
    error = refused("SELECT DISTINCT b AS x, a AS k0, k0 AS z FROM t")
    assert error.message == "there is no column 'k0'"

"""Python in pipelines: functions in SELECTs, and streams that are functions of DataFrames."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import BadPipeline, LaminaError, StateChanged
from lamina.pipeline import Emit, Pipeline, PipelineBuilder, parse_pipeline
from tests.spark import python_code
from tests.spark.running import Place, Run, batch, comparable, job_count
from tests.spark.test_codegen import CALLS_MAX, EPOCHS, WARM, Calls, Compilations

COLUMNS = "k STRING, v BIGINT"
CODE = "tests.spark.python_code"
FUNCTIONS = f"""
CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in');
CREATE FUNCTION initial(name STRING) RETURNS STRING LANGUAGE PYTHON AS '{CODE}:initial';
CREATE FUNCTION doubled(v BIGINT) RETURNS BIGINT LANGUAGE PYTHON PARAMETER STYLE ARROW
  AS '{CODE}:doubled' VERSION '2';
CREATE FUNCTION odd(v BIGINT) RETURNS BOOLEAN LANGUAGE PYTHON PARAMETER STYLE ARROW
  AS '{CODE}:odd';
"""
SELECTS = {
    "groups": """SELECT initial(k) AS i, sum(doubled(v)) AS s, count(*) FILTER (WHERE odd(v)) AS o,
        max(initial(k)) AS m FROM t WHERE NOT odd(v + 1) OR v IS NULL OR v < 50 GROUP BY initial(k)
        """,
    "rows": "SELECT upper(initial(k)) AS i, doubled(doubled(v)) AS v FROM t WHERE odd(v)",
    "unique": "SELECT DISTINCT initial(k) AS i, odd(v) AS o FROM t",
    "values": """SELECT i, count(DISTINCT d) AS n, count(DISTINCT k) AS c
        FROM (SELECT initial(k) AS i, doubled(v) AS d, k FROM t) GROUP BY i""",
}
BATCH = {
    "initial": "left({}, 1)",
    "doubled": "(2 * {})",
    "odd": "(({} & 1) = 1)",
}


def rows_of(epochs: int) -> list[list[dict[str, Any]]]:
    rng = random.Random(3)
    names = [None, "", "ann", "abe", "bob", "ümit", "\x00x"]
    values = [None, 0, -1, 1, 7, -(2**40), 51, 100]
    return [
        [{"k": rng.choice(names), "v": rng.choice(values)} for _ in range(40)]
        for _ in range(epochs)
    ]


def filled(folder: Path, epochs: int = 3) -> Place:
    place = Place(folder)
    place.put_json(rows_of(epochs))
    return place


def with_select(select: str, emit: str = "") -> Pipeline:
    return parse_pipeline(
        f"{FUNCTIONS} CREATE STREAM s AS {select} {emit};"
        "CREATE SINK o FROM s USING parquet OPTIONS (path 'out');"
    )


def in_spark(select: str) -> str:
    """The same with functions of Spark's own: the oracle knows no Python."""
    for name, text in BATCH.items():
        while (at := select.find(f"{name}(")) >= 0:
            depth, end = 0, at
            for end in range(at + len(name), len(select)):
                depth += {"(": 1, ")": -1}.get(select[end], 0)
                if not depth:
                    break
            inner = select[at + len(name) + 1 : end]
            select = select[:at] + text.format(inner) + select[end + 1 :]
    return select


@pytest.mark.parametrize("name", SELECTS)
def test_functions_in_a_select_give_what_sparks_own_give(
    spark: Any, tmp_path: Path, name: str
) -> None:
    place, select = filled(tmp_path), SELECTS[name]
    emit = "EMIT ON UPDATE" if name in ("groups", "values") else ""
    jobs: list[int] = []

    def count(point: str) -> None:
        if point == "after COMMIT":
            jobs.append(job_count(spark))

    assert Run(spark, place, fail_point=count).run(with_select(select, emit)) == 3
    blocks = 3 if name == "values" else 1
    assert [b - a for a, b in pairwise(jobs)] == [blocks, blocks]
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    found = place.latest(1) if emit else place.rows()
    assert comparable(found) == comparable(batch(spark, in_spark(select)))


def failing(columns: str, call: str) -> Callable[[Any, Path], str]:
    def run(spark: Any, folder: Path) -> str:
        place = Place(folder)
        place.put_json([[{"k": "a", "v": 5}, {"k": "b", "v": 0}, {"k": None, "v": 2}]])
        with pytest.raises(LaminaError) as raised:
            Run(spark, place).run(
                parse_pipeline(
                    f"CREATE SOURCE t ({COLUMNS}) USING json OPTIONS (path 'in');"
                    f"CREATE FUNCTION f{columns};"
                    f"CREATE STREAM s AS SELECT {call} AS x FROM t;"
                    "CREATE SINK o FROM s USING parquet OPTIONS (path 'out');"
                )
            )
        return str(raised.value)

    return run


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (f"(v BIGINT) RETURNS DOUBLE LANGUAGE PYTHON AS '{CODE}:inverse'", "f(0) failed: Division"),
        (f"(v BIGINT) RETURNS STRING LANGUAGE PYTHON AS '{CODE}:negated'", "f(5) is -5, not of"),
        (
            f"(v BIGINT) RETURNS BIGINT LANGUAGE PYTHON PARAMETER STYLE ARROW AS '{CODE}:inverses'",
            "f(0) failed: ArrowInvalid: divide by zero",
        ),
        (
            f"(v BIGINT) RETURNS INT LANGUAGE PYTHON PARAMETER STYLE ARROW AS '{CODE}:doubled'",
            "has given 3 of int64 for an array of 3 of int32",
        ),
    ],
)
def test_a_function_that_fails_is_named_with_its_row(
    spark: Any, tmp_path: Path, declared: str, said: str
) -> None:
    assert said in failing(declared, "f(v)")(spark, tmp_path)


@pytest.mark.parametrize(
    ("declared", "call", "said"),
    [
        (f"(v BIGINT) RETURNS INT LANGUAGE PYTHON AS '{CODE}:nowhere'", "f(v)", "is not there"),
        ("(v BIGINT) RETURNS INT LANGUAGE PYTHON AS 'no.such:f'", "f(v)", "cannot be imported"),
        ("(v BIGINT) RETURNS INT LANGUAGE PYTHON AS 'nonsense'", "f(v)", "Write 'module:name'"),
        (f"(v INT, w INT) RETURNS INT LANGUAGE PYTHON AS '{CODE}:odd'", "f(v, v)", "2 parameters"),
        (f"(v SOUP) RETURNS INT LANGUAGE PYTHON AS '{CODE}:odd'", "f(v)", "the function 'f'"),
        (f"(v INT) RETURNS SOUP LANGUAGE PYTHON AS '{CODE}:odd'", "f(v)", "the function 'f'"),
        (f"(v INT) RETURNS INT LANGUAGE PYTHON AS '{CODE}:odd'", "f(v, v)", "WRONG_NUM_ARGS"),
    ],
)
def test_a_function_that_cannot_work_is_refused_before_anything_runs(
    spark: Any, tmp_path: Path, declared: str, call: str, said: str
) -> None:
    assert said in failing(declared, call)(spark, tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_function_of_spark_keeps_its_name(spark: Any, tmp_path: Path) -> None:
    builder = PipelineBuilder().source("t", COLUMNS, "json", {"path": "in"})
    pipeline = (
        builder.function("upper", python_code.initial, "name STRING", "STRING")
        .stream("s", "SELECT upper(k) AS k FROM t")
        .sink("o", "s", "parquet", {"path": "out"})
    )
    with pytest.raises(BadPipeline, match="'upper' is a function of Spark"):
        Run(spark, filled(tmp_path)).run(pipeline.build())


def test_a_parameter_may_have_the_name_of_a_function_of_spark(spark: Any, tmp_path: Path) -> None:
    """`user` was the name of who runs Spark, in every row."""
    place = Place(tmp_path)
    place.put_json([[{"user": "ann"}]])
    pipeline = (
        PipelineBuilder()
        .source("t", "user STRING", "json", {"path": "in"})
        .function("initial", python_code.initial, "user STRING", "STRING")
        .stream("s", "SELECT initial(user) AS i FROM t")
        .sink("o", "s", "parquet", {"path": "out"})
    )
    Run(spark, place).run(pipeline.build())
    assert place.rows() == [{"i": "a"}]


def test_functions_over_the_state_are_refused_with_what_to_do(spark: Any, tmp_path: Path) -> None:
    """A task's result travels on a row of nulls, which Python functions would be called with."""
    select = "SELECT k, doubled(sum(v)) AS s FROM t GROUP BY k"
    with pytest.raises(BadPipeline, match="Put it into a stream of its own"):
        Run(spark, filled(tmp_path)).run(with_select(select, "EMIT ON UPDATE"))


def test_a_function_in_a_distinct_aggregate_goes_into_a_subquery(
    spark: Any, tmp_path: Path
) -> None:
    select = "SELECT count(DISTINCT initial(k)) AS n FROM t"
    with pytest.raises(BadPipeline, match="Compute it in a subquery"):
        Run(spark, filled(tmp_path)).run(with_select(select, "EMIT ON UPDATE"))


def test_a_function_of_the_program_itself_needs_no_module(spark: Any, tmp_path: Path) -> None:
    place, more = filled(tmp_path), 5
    pipeline = (
        PipelineBuilder()
        .source("t", COLUMNS, "json", {"path": "in"})
        .function("more", lambda v: None if v is None else v + more, "v BIGINT", "BIGINT")
        .stream("s", "SELECT k, more(v) AS v FROM t WHERE more(v) IS NOT NULL")
        .sink("o", "s", "parquet", {"path": "out"})
    )
    Run(spark, place).run(pipeline.build())
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    wanted = batch(spark, "SELECT k, v + 5 AS v FROM t WHERE v IS NOT NULL")
    assert comparable(place.rows()) == comparable(wanted)


# streams that are functions


def of_frames(function: Any, **more: Any) -> Pipeline:
    return (
        PipelineBuilder()
        .source("t", COLUMNS, "json", {"path": "in"})
        .stream("f", function, inputs=["t"], **more)
        .stream("s", "SELECT k, sum(v) AS v FROM f GROUP BY k", emit=Emit.ON_UPDATE)
        .sink("o", "s", "parquet", {"path": "out"})
        .build()
    )


def test_a_function_of_frames_is_a_stream(spark: Any, tmp_path: Path) -> None:
    place = filled(tmp_path)
    assert Run(spark, place).run(of_frames(python_code.enlarged)) == 3
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    wanted = batch(spark, "SELECT k, sum(v * 20) AS v FROM t WHERE v > 1 GROUP BY k")
    assert comparable(place.latest(1)) == comparable(wanted)


def test_a_function_of_two_frames_reads_each_of_its_inputs(spark: Any, tmp_path: Path) -> None:
    place = filled(tmp_path)
    pipeline = (
        PipelineBuilder()
        .source("t", COLUMNS, "json", {"path": "in"})
        .stream("few", "SELECT k, -v AS v FROM t WHERE v > 99")
        .stream("f", python_code.together, inputs=["t", "few"])
        .sink("o", "f", "parquet", {"path": "out"})
    )
    Run(spark, place).run(pipeline.build())
    spark.read.schema(COLUMNS).json(place.source).createOrReplaceTempView("t")
    wanted = "SELECT k, v FROM t UNION ALL SELECT k, -v AS v FROM t WHERE v > 99"
    assert comparable(place.rows()) == comparable(batch(spark, wanted))


def test_a_changed_version_asks_before_old_state_is_used(spark: Any, tmp_path: Path) -> None:
    place = filled(tmp_path)
    Run(spark, place).run(of_frames(python_code.enlarged, version="1"))
    with pytest.raises(StateChanged, match="--reuse-state"):
        Run(spark, place).run(of_frames(python_code.enlarged, version="2"))
    assert Run(spark, place).run(of_frames(python_code.enlarged, version="1")) == 3


def test_epochs_compile_no_code_for_python_and_make_few_calls(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = filled(tmp_path, EPOCHS)
    compilations, calls = Compilations(spark), Calls(spark, monkeypatch)

    def count(point: str) -> None:
        compilations(point)
        calls(point)

    pipeline = (
        PipelineBuilder()
        .source("t", COLUMNS, "json", {"path": "in"})
        .function("doubled", python_code.doubled, "v BIGINT", "BIGINT", arrow=True)
        .stream("f", lambda t: t.where("v > 0").withColumn("w", t.v + 1), inputs=["t"])
        .stream("s", "SELECT k, sum(doubled(w)) AS w FROM f GROUP BY k", emit=Emit.ON_UPDATE)
        .sink("o", "s", "parquet", {"path": "out"})
    )
    Run(spark, place, fail_point=count).run(pipeline.build())
    assert compilations.epochs[WARM:] == [0] * (EPOCHS - WARM)
    assert max(calls.epochs[WARM:]) <= 2 * CALLS_MAX, "of two streams"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda t: t.groupBy("k").count(), "GROUP BY"),
        (lambda t: t.dropDuplicates(["k"]), "SELECT DISTINCT"),
        (lambda t: t.distinct(), "SELECT DISTINCT"),
        (lambda t: t.sort("k"), "a stream has no order"),
        (lambda t: t.limit(3), "no end to count to"),
        (lambda t: t.repartition(3), "Leave it out"),
        (lambda t: t.join(t.select("k"), "k"), "Join streams in SQL"),
        (lambda t: t.sample(0.5), "not be the same"),
        (lambda t: t.union(t.sparkSession.createDataFrame([("a", 1)], COLUMNS)), "nothing else"),
        (lambda t: t.sparkSession.createDataFrame([("a", 1)], COLUMNS), "nothing else"),
        (lambda t: t.selectExpr("nope"), "the stream 'f': [UNRESOLVED_COLUMN"),
        (lambda t: t.selectExpr("k", "v AS K"), "two columns are called"),
        (lambda t: None, "the function of the stream 'f' has given a NoneType"),
        (lambda t: 1 / 0, "the function of the stream 'f' failed: ZeroDivisionError"),
        (lambda t, u: t, "the function of the stream 'f' failed: TypeError"),
    ],
)
def test_a_function_that_is_not_row_by_row_is_refused(
    spark: Any, tmp_path: Path, function: Any, said: str
) -> None:
    with pytest.raises(BadPipeline) as raised:
        Run(spark, filled(tmp_path)).run(of_frames(function))
    assert said in f"{raised.value} {raised.value.advice}"


def test_a_function_that_leaves_an_input_out_is_refused(spark: Any, tmp_path: Path) -> None:
    pipeline = (
        PipelineBuilder()
        .source("t", COLUMNS, "json", {"path": "in"})
        .stream("few", "SELECT k, v FROM t")
        .stream("f", lambda _, few: few, inputs=["t", "few"])
        .sink("o", "f", "parquet", {"path": "out"})
    )
    with pytest.raises(BadPipeline, match="does not read all of its inputs"):
        Run(spark, filled(tmp_path)).run(pipeline.build())


def test_a_function_that_makes_something_else_of_rows_stops_the_epoch(
    spark: Any, tmp_path: Path
) -> None:
    called: list[int] = []

    def unsteady(rows: Any) -> Any:
        called.append(1)
        return rows.limit(2) if len(called) == 3 else rows

    place = filled(tmp_path)
    with pytest.raises(BadPipeline, match="not row by row"):
        Run(spark, place).run(of_frames(unsteady))
    assert len(place.epochs()) == 1
    assert len(called) == 3

"""The builder: the same model and the same refusals as a file."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline import Emit, PipelineBuilder, check_pipeline, parse_pipeline
from tests.unit.pipeline.test_digests import digests

TEXT = """
CREATE SOURCE trades (symbol STRING, price DECIMAL(12,2), `event time` TIMESTAMP)
  USING JSON OPTIONS (path '${DIR}/trades', header true, n 5)
  WATERMARK `EVENT time` DELAY OF INTERVAL 5 SECONDS;
CREATE STREAM vwap AS
  SELECT symbol, sum(price) AS total, '${DIR}' AS dir FROM trades
  GROUP BY symbol, window(`event time`, '1 minute')
  EMIT ON WINDOW CLOSE;
CREATE SINK out FROM vwap USING parquet OPTIONS (path 'out/vwap');
"""
SELECT = """
  SELECT symbol, sum(price) AS total, '${DIR}' AS dir FROM trades
  GROUP BY symbol, window(`event time`, '1 minute')
"""
ENVIRONMENT = {"DIR": "/data"}
DDL = "symbol STRING, price DECIMAL(12,2), `event time` TIMESTAMP"


def keyed(**more: object) -> PipelineBuilder:
    wanted: dict[str, Any] = {"inputs": ["trades"], "keys": ["symbol"], "state": "n INT"}
    return builder().keyed("s", _same, **{**wanted, "output": "n INT", **more})


def _same(given: object) -> object:
    return given


def builder() -> PipelineBuilder:
    options: dict[str, str | int | bool] = {"path": "${DIR}/trades", "header": True, "n": 5}
    return PipelineBuilder(ENVIRONMENT).source(
        "trades", DDL, "json", options, watermark=("EVENT time", "5 seconds")
    )


def test_a_program_builds_what_a_file_says() -> None:
    built = (
        builder()
        .stream("vwap", SELECT, emit=Emit.ON_WINDOW_CLOSE)
        .sink("out", "vwap", "PARQUET", {"path": "out/vwap"})
        .build()
    )
    parsed = parse_pipeline(TEXT, ENVIRONMENT)
    assert built == parsed
    assert digests(built) == digests(parsed)
    assert built.sources["trades"].options["path"].value == "/data/trades"
    check_pipeline(built)


def test_columns_by_name_are_the_columns_of_a_text() -> None:
    types = {"symbol": "STRING", "price": "DECIMAL(12,2)", "event time": "TIMESTAMP"}
    by_name = PipelineBuilder().source("t", types, "json").build()
    assert by_name == PipelineBuilder().source("t", DDL, "json").build()


@pytest.mark.parametrize(
    ("built", "said"),
    [
        (lambda: PipelineBuilder().build(), "there is no statement"),
        (lambda: builder().sink("TRADES", "x", "json"), "already the name of a source"),
        (lambda: builder().sink("", "x", "json"), "a name is empty"),
        (lambda: builder().source("t", "a INT, A INT", "x"), "'A' is defined twice"),
        (lambda: builder().source("t", "a INT) USING y", "x"), "')' closes nothing"),
        (lambda: builder().source("t", {}, "x"), "name of a column"),
        (lambda: builder().source("t", "a INT", "x", watermark=("b", "1 day")), "no column 'b'"),
        (
            lambda: builder().source("t", "a INT", "x", watermark=("a", "soon")),
            "not a length of time",
        ),
        (lambda: builder().source("t", "a INT", "x", {"p": "1", "P": "2"}), "is given twice"),
        (lambda: builder().source("t", "a INT", "x", {"p": "${NO}"}), "variable NO is not set"),
        (lambda: builder().stream("s", "SELECT '${NO}' AS a FROM t"), "variable NO is not set"),
        (lambda: builder().stream("s", "SELECT ${DIR} FROM t"), "must be inside quotes"),
        (lambda: builder().stream("s", "SELECT a FROM t; DROP"), "without a semicolon"),
        (lambda: builder().stream("s", "DROP TABLE t"), "a SELECT is expected"),
        (lambda: builder().stream("s", ""), "a SELECT is expected"),
        (lambda: builder().stream("s", "SELECT 1 FROM t", inputs=["t"]), "that is a function"),
        (lambda: builder().stream("s", "SELECT 1 FROM t", version="2"), "that is a function"),
        (lambda: builder().stream("s", _same), "a list of inputs"),
        (lambda: builder().stream("s", _same, inputs="t"), "a list of inputs"),
        (lambda: builder().stream("s", _same, inputs=["t", "T"]), "given twice"),
        (
            lambda: builder().stream("s", _same, inputs=["t"], emit=Emit.ON_UPDATE),
            "nothing to wait for",
        ),
        (lambda: keyed(inputs=[]), "a list of inputs"),
        (lambda: keyed(keys=[]), "it has no keys"),
        (lambda: keyed(state="_n INT"), "'_n' of the state is reserved"),
        (lambda: keyed(keys=["N"]), "'N' is a key, and a column of the state"),
        (lambda: keyed(initial={"m": 1}), "initial has 'm', the state has not"),
        (lambda: keyed(ttl="soon"), "'soon' is not a length of time"),
        (lambda: keyed(ttl="1 hour", timers=True), "exclude each other"),
        (lambda: keyed(output="n"), "the type of 'n' is missing"),
        (lambda: builder().function("f", _same, "", "INT"), "the name of a column"),
        (
            lambda: builder().function("f", _same, "a INT", "INT").function("F", _same, "a", "b"),
            "the type of 'a' is missing",
        ),
        (
            lambda: (
                builder().function("f", _same, "a INT", "INT").function("F", _same, "a INT", "INT")
            ),
            "the function 'F' is defined twice",
        ),
    ],
)
def test_a_program_is_refused_what_a_file_is(built: object, said: str) -> None:
    assert callable(built)
    with pytest.raises(BadPipeline) as caught:
        built()
    assert said in caught.value.message


def test_an_error_in_a_built_stream_has_a_place_in_its_own_text() -> None:
    built = builder().stream("s", "SELECT symbol\nFROM trades LIMIT 5").build()
    with pytest.raises(BadPipeline) as caught:
        check_pipeline(built)
    assert caught.value.where == "stream s:2:13"


def test_a_function_of_a_program_is_that_of_a_file() -> None:
    text = "CREATE FUNCTION f (a INT, b ARRAY<STRING>) RETURNS DECIMAL(5, 2) LANGUAGE PYTHON"
    where = f"{_same.__module__}:_same"
    file = parse_pipeline(
        f"{TEXT}; {text} PARAMETER STYLE ARROW AS '{where}' VERSION '3'", ENVIRONMENT
    )
    types = {"a": "INT", "b": "ARRAY<STRING>"}
    made = builder().function("f", _same, types, "DECIMAL(5, 2)", arrow=True, version="3").build()
    assert made.functions == file.functions


def test_a_function_cannot_read_what_emits_on_update() -> None:
    made = (
        builder()
        .stream(
            "sums",
            "SELECT symbol, sum(price) AS s FROM trades GROUP BY symbol",
            emit=Emit.ON_UPDATE,
        )
        .stream("f", _same, inputs=["sums"])
        .sink("out", "f", "parquet", {"path": "out"})
    )
    with pytest.raises(BadPipeline, match="over the updating stream 'sums'"):
        check_pipeline(made.build())


@pytest.mark.parametrize("more", [{"timers": True}, {"ttl": "1 hour"}])
def test_what_follows_time_needs_a_watermark(more: dict[str, object]) -> None:
    for marked in (("event time", "5 seconds"), None):
        made = (
            PipelineBuilder()
            .source("trades", DDL, "json", {"path": "in"}, watermark=marked)
            .keyed(
                "s", _same, inputs=["trades"], keys="symbol", state="n INT", output="n INT", **more
            )  # type: ignore[arg-type]
            .sink("out", "s", "parquet", {"path": "out"})
            .build()
        )
        if marked:
            check_pipeline(made)
        else:
            with pytest.raises(BadPipeline, match="which has no watermark"):
                check_pipeline(made)

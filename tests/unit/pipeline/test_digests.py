"""Digests of what a pipeline defines: they change if it does, and only then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lamina.pipeline.builder import PipelineBuilder
from lamina.pipeline.digests import digests_of, hash_of, words_of
from lamina.pipeline.model import Pipeline
from lamina.pipeline.select import read_select
from lamina.pipeline.statements import parse_pipeline

TEXT = """
CREATE SOURCE trades (symbol STRING, ts TIMESTAMP) USING json OPTIONS (path '${IN}')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE STREAM busy AS SELECT symbol, count(*) AS n FROM trades WHERE symbol <> 'A' GROUP BY symbol;
CREATE SINK out FROM busy USING parquet OPTIONS (path 'out');
"""


def parsed(text: str, **environment: str) -> Pipeline:
    return parse_pipeline(text, {"IN": "in", **environment})


def digests(pipeline: Pipeline) -> dict[str, str]:
    selects = {
        name: words_of(read_select(stream, "p"), stream, pipeline.functions)
        for name, stream in pipeline.streams.items()
    }
    return digests_of(pipeline, selects)


def hashed(pipeline: Pipeline) -> str:
    return hash_of(pipeline, digests(pipeline))


@pytest.mark.parametrize(
    "other",
    [
        TEXT.replace("\n", "  -- a comment\n"),
        TEXT.replace("SELECT symbol", "select  Symbol"),
        TEXT.replace("trades", "Trades").replace("busy", "BUSY").replace("SINK out", "SINK Out"),
        TEXT.replace("STRING", "string").replace(
            "USING parquet OPTIONS (path", "using PARQUET options (Path"
        ),
    ],
    ids=["comments", "words", "names", "types and options"],
)
def test_what_means_the_same_has_the_same_hash(other: str) -> None:
    assert hashed(parsed(other)) == hashed(parsed(TEXT))


@pytest.mark.parametrize(
    ("other", "changed"),
    [
        (TEXT.replace("5 SECONDS", "6 SECONDS"), "trades"),
        (TEXT.replace("'A'", "'a'"), "busy"),
        (TEXT.replace("path 'out'", "path 'elsewhere'"), "out"),
    ],
)
def test_a_change_is_of_one_part(other: str, changed: str) -> None:
    before, after = digests(parsed(TEXT)), digests(parsed(other))
    assert {name for name in before if before[name] != after[name]} == {changed}
    assert hashed(parsed(other)) != hashed(parsed(TEXT))


def test_where_the_environment_puts_a_source_is_no_change() -> None:
    assert hashed(parsed(TEXT, IN="elsewhere")) == hashed(parsed(TEXT))


def test_a_part_more_is_another_hash() -> None:
    more = TEXT + "CREATE SINK again FROM busy USING parquet OPTIONS (path 'out');"
    assert hashed(parsed(more)) != hashed(parsed(TEXT))


FUNCTION = "CREATE FUNCTION f(v INT) RETURNS INT LANGUAGE PYTHON AS 'm:f' VERSION '{}';"


def test_the_version_of_a_function_is_part_of_those_that_call_it() -> None:
    text = TEXT + "CREATE STREAM called AS SELECT F ( 1 ) AS x FROM trades;"
    one, two = (digests(parsed(FUNCTION.format(version) + text)) for version in "12")
    assert {name for name in one if one[name] != two[name]} == {"called"}
    without = digests(parsed(text))
    assert {name for name in one if one[name] != without[name]} == {"called"}


def test_the_version_of_a_function_of_frames_is_part_of_its_stream() -> None:
    def built(function: Callable[..., object], version: str) -> dict[str, str]:
        builder = PipelineBuilder().source("t", "v INT", "json", {"path": "in"})
        return digests(builder.stream("s", function, inputs=["t"], version=version).build())

    def other(frame: object) -> object:
        return frame

    assert built(other, "1")["s"] == built(other, "1")["s"]
    assert built(other, "1")["s"] != built(other, "2")["s"]
    assert built(other, "1")["s"] != built(lambda frame: frame, "1")["s"]


def test_all_that_a_keyed_function_is_declared_with_is_part_of_its_stream() -> None:
    def built(**more: Any) -> str:
        wanted = {"inputs": ["t"], "keys": ["v"], "state": "n INT", "output": "n INT", **more}
        builder = PipelineBuilder().source("t", "v INT", "json", {"path": "in"})
        return digests(builder.keyed("s", parsed, **wanted).build())["s"]

    others = [
        built(version="2"),
        built(state="n BIGINT"),
        built(output="m INT"),
        built(timers=True),
        built(ttl="1 hour"),
        built(ttl="2 hours"),
        built(initial={"n": 1}),
        built(initial={"n": 2}),
        built(keys=["w"]),
    ]
    assert len({built(), *others}) == 10
    assert built() == built(keys=["V"], state="N int")

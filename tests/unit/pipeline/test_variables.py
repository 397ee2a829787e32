"""Variables of the environment: text only, and never shown."""

from __future__ import annotations

import pytest

from lamina.errors import BadPipeline
from lamina.format.canonical import encode
from lamina.pipeline import parse_pipeline
from lamina.pipeline.variables import filled
from tests.unit.pipeline.test_digests import digests

SECRET = "hunter2'; DROP"


def option(written: str, **environment: str) -> str:
    text = f"CREATE SINK o FROM s USING x OPTIONS (a {written})"
    return parse_pipeline(text, environment).sinks["o"].options["a"].value


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("'${A}'", "1"),
        ("'<${A}|${A}>'", "<1|1>"),
        ('"${A}"', "1"),
        ("r'${A}'", "1"),
        ("'${B:-two}'", "two"),
        ("'${B:-}'", ""),
        ("'${B:-it''s}'", "it's"),
        ("'${B:-a}b}'", "ab}"),  # a default ends at the first }
        ("'${B:-$5}'", "$5"),
        ("'${B:-a:-b}'", "a:-b"),
        ("'${A:-no}'", "1"),
        ("'$A $ {A} }'", "$A $ {A} }"),
    ],
)
def test_a_text_is_filled(written: str, value: str) -> None:
    assert option(written, A="1") == value


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("'${B}'", "the environment variable B is not set"),
        ("'${}'", "${} is not a variable"),
        ("'${1}'", "${1} is not a variable"),
        ("'${A-b}'", "${A-b} is not a variable"),
        ("'${A'", "${ without its }"),
        ("'${B:-${A}}'", "is not a variable"),
    ],
)
def test_what_cannot_be_filled_is_named_with_its_place(written: str, said: str) -> None:
    with pytest.raises(BadPipeline) as caught:
        option(written, A=SECRET)
    assert said in caught.value.message
    assert caught.value.where == "pipeline:1:41"
    assert SECRET not in str(caught.value)


def test_a_value_that_is_no_text_is_refused_before_it_is_hashed() -> None:
    with pytest.raises(BadPipeline, match="the value of A is not valid UTF-8"):
        option("'${A}'", A="\udcff")


def test_a_secret_is_neither_shown_nor_stored() -> None:
    text = (
        "CREATE SOURCE t (a INT) USING x OPTIONS (password '${P}');"
        "CREATE STREAM s AS SELECT '${P}' AS p FROM t;"
        "CREATE SINK o FROM s USING x OPTIONS (url 'x:${P}@y')"
    )
    pipeline = parse_pipeline(text, {"P": SECRET})
    assert pipeline.sinks["o"].options["url"].value == f"x:{SECRET}@y"
    assert SECRET not in repr(pipeline)
    for part in (pipeline.sources["t"], pipeline.sinks["o"]):
        assert SECRET.encode() not in encode(part.definition())
    other = parse_pipeline(text, {"P": "other"})
    changed = {name for name, digest in digests(other).items() if digests(pipeline)[name] != digest}
    assert changed == {"s"}, "its rows are others; where a source or a sink is may change"


def test_a_secret_is_not_in_the_message_of_a_later_error() -> None:
    text = "CREATE SINK o FROM s USING x OPTIONS (a '${P}', b '${MISSING}')"
    with pytest.raises(BadPipeline) as caught:
        parse_pipeline(text, {"P": SECRET})
    assert SECRET not in str(caught.value)


def test_only_the_literals_with_variables_are_written_anew() -> None:
    text = "SELECT 'it''s', r'\\d', '${A}' AS `a`, x -- '${A}'\nFROM t"
    assert filled(text, {"A": "b'c"}) == text.replace("'${A}' AS", "'b\\'c' AS")


def test_a_value_is_not_filled_once_more_by_spark() -> None:
    assert filled("'${A}'", {"A": "${env:HOME}"}) == "'\\u0024{env:HOME}'"

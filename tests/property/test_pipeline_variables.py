"""A value from the environment is a text and nothing else, whatever is in it."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from lamina.pipeline import parse_pipeline
from lamina.pipeline.tokens import read_script
from lamina.pipeline.variables import filled, literal

NASTY = st.text(st.sampled_from("'\"\\`;-/*${}xr\n\r\0u0041é\U0001f600"), max_size=12)
VALUES = st.one_of(NASTY, st.text(max_size=20))
SELECT = "SELECT {} AS a, 'it''s' AS b FROM t WHERE c = 1"


@given(VALUES)
@example("'; DROP TABLE t; --")
@example("\\")
@example("\\'")
@example("*/ x /*")
def test_a_literal_says_exactly_the_value(value: str) -> None:
    (word,) = read_script(literal(value), "").words
    assert word.is_string
    assert word.text == value


@given(VALUES, st.sampled_from(["'<${V}>'", '"<${V}>"', "r'<${V}>'", "'<${V:-x}>'"]))
def test_a_filled_text_stays_one_word_among_the_same_words(value: str, written: str) -> None:
    text = SELECT.format(written)
    before = read_script(text, "").words
    key = "V:-x" if ":-" in written else "V"
    after = read_script(filled(text, {key: value}), "").words
    assert [w.text for w in after] == [
        f"<{value}>" if w.is_string and "${V" in w.text else w.text for w in before
    ]
    assert [w.is_string for w in after] == [w.is_string for w in before]


@given(VALUES)
def test_a_value_never_changes_what_a_file_defines(value: str) -> None:
    text = (
        "CREATE SINK o FROM s USING x OPTIONS (a '${V}');"
        "CREATE STREAM s AS SELECT '${V}' AS v FROM t"
    )
    pipeline = parse_pipeline(text, {"V": value})
    assert pipeline.sinks["o"].options["a"].value == value
    assert pipeline.streams["s"].select == "SELECT '${V}' AS v FROM t"
    assert list(pipeline.sinks) == ["o"]
    assert list(pipeline.streams) == ["s"]

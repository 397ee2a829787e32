"""Reading an object field by field: every complaint has a place, and nothing is dropped."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.errors import BadManifest, LogDamaged
from lamina.format.fields import Fields
from lamina.ids import CheckpointId

ID = CheckpointId.from_parts(0xABC, 2)


def fields(**value: Any) -> Fields:
    return Fields(value, "base/file.json")


def test_what_nobody_took_is_handed_back() -> None:
    f = fields(a=1, b="x", c=[1], d=None)
    assert (f.integer("a"), f.text("b")) == (1, "x")
    assert f.rest() == {"c": [1], "d": None}


def test_the_value_that_was_read_is_not_changed() -> None:
    value = {"a": 1}
    Fields(value, "x").integer("a")
    assert value == {"a": 1}


@pytest.mark.parametrize(
    ("method", "bad"),
    [
        ("text", [1, None, [], {}]),
        ("integer", ["1", True, -1, None]),
        ("flag", [0, 1, "true", None]),
        ("checkpoint_id", ["x", 1, str(ID).upper(), None]),
        ("object", [1, [], "x", None]),
        ("texts", ["x", [1], None]),
        ("text_map", [[], {"a": 1}, None]),
        ("integer_map", [[], {"a": "1"}, {"a": True}, None]),
    ],
)
def test_the_wrong_type_is_refused_with_file_and_field(method: str, bad: list[Any]) -> None:
    for value in bad:
        with pytest.raises(BadManifest, match="name") as caught:
            getattr(fields(name=value), method)("name")
        assert caught.value.where == "base/file.json"


@pytest.mark.parametrize("method", ["text", "integer", "flag", "checkpoint_id", "object", "raw"])
def test_a_missing_field_is_refused_unless_it_has_a_default(method: str) -> None:
    with pytest.raises(BadManifest, match="name is missing"):
        getattr(fields(), method)("name")
    if method != "object":
        assert getattr(fields(), method)("name", None) is None
        assert getattr(fields(name=None), method)("name", None) is None


def test_a_missing_collection_is_empty_unless_it_is_required() -> None:
    f = fields()
    assert f.texts("a") == ()
    assert f.text_map("a") == f.integer_map("a") == f.map_of("a", Fields.rest) == {}
    assert f.list_of("a", Fields.rest) == ()
    with pytest.raises(BadManifest, match="b is missing"):
        fields(a=[]).require("a", "b")


def test_integers_have_a_least_value() -> None:
    assert fields(a=-5).integer("a", least=-5) == -5
    assert fields(a={"x": -5}).integer_map("a") == {"x": -5}
    assert fields(a={"x": 0}).integer_map("a", least=0) == {"x": 0}
    with pytest.raises(BadManifest, match="at least 0"):
        fields(a={"x": -5}).integer_map("a", least=0)


def test_an_id_is_parsed() -> None:
    assert fields(id=str(ID)).checkpoint_id("id") == ID


def test_an_optional_object_is_none_when_missing_or_null() -> None:
    assert fields().optional_object("a") is None
    assert fields(a=None).optional_object("a") is None
    inner = fields(a={"b": 1}).optional_object("a")
    assert inner is not None
    assert inner.integer("b") == 1
    with pytest.raises(BadManifest):
        fields(a=[]).optional_object("a")


def test_complaints_about_inner_values_name_the_whole_path() -> None:
    f = fields(ops={"my op": {"runs": [{"size": 1}, {"size": "x"}]}})
    with pytest.raises(BadManifest, match=r"ops\['my op'\]\.runs\[1\]\.size is 'x'"):
        f.map_of("ops", lambda op: op.list_of("runs", lambda run: run.integer("size")))


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(BadManifest) as caught:
        fields(a="x" * 100_000).integer("a")
    assert len(caught.value.message) < 200


def test_the_error_type_is_the_callers_choice() -> None:
    f = Fields({"a": {"b": 1}}, "log/1.json", error=LogDamaged)
    with pytest.raises(LogDamaged, match=r"a\.b"):
        f.object("a").text("b")
    with pytest.raises(LogDamaged, match="document"):
        Fields([], "log/1.json", error=LogDamaged)
    assert isinstance(f.bad("why"), LogDamaged)

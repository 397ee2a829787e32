"""Columns of Spark's in the types of a plan."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lamina.engine.typed import as_planned
from lamina.errors import Refused


@pytest.mark.parametrize("nested", ["struct", "list", "map"])
def test_a_field_of_another_name_is_refused_and_not_null(nested: str) -> None:
    def kind(name: str) -> pa.DataType:
        struct = pa.struct({name: pa.int64()})
        kinds = {"struct": struct, "list": pa.list_(struct), "map": pa.map_(pa.string(), struct)}
        return kinds[nested]

    column = pa.nulls(1, kind("Price"))
    with pytest.raises(Refused, match="have come where the plan has"):
        as_planned(column, kind("price"))
    assert as_planned(column, kind("Price")) is column


def test_another_spelling_of_the_same_type_is_cast() -> None:
    have = pa.list_(pa.struct([pa.field("a", pa.large_string(), nullable=False)]))
    column = pa.array([[{"a": "x"}]], have)
    wanted = pa.list_(pa.struct({"a": pa.string()}))
    found = as_planned(column, wanted)
    assert (found.type, found.to_pylist()) == (wanted, [[{"a": "x"}]])

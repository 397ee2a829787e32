"""What a key takes: near to what Arrow takes for the same columns."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from lamina.state.sizes import width

ROWS = 1000
TEXT = "sixteen letters."


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), 7),
        (pa.decimal128(38, 2), Decimal(7)),
        (pa.timestamp("us", "UTC"), 7),
        (pa.bool_(), True),
        (pa.string(), TEXT),
        (pa.binary(), TEXT.encode()),
        (pa.list_(pa.int32()), [7]),
        (pa.struct([("a", pa.int64()), ("b", pa.string())]), {"a": 7, "b": TEXT}),
        (pa.map_(pa.string(), pa.int64()), [(TEXT, 7)]),
    ],
)
def test_the_width_of_a_type_is_what_its_values_take(kind: pa.DataType, value: object) -> None:
    column = pa.array([value] * (ROWS - 1) + [None], kind)
    assert width(kind) * ROWS == pytest.approx(column.nbytes, rel=0.1)


def test_nothing_takes_nothing() -> None:
    assert width(pa.null()) == 0

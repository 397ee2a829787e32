"""Python that pipelines of these tests call: as `module:name`, and as functions of a program."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def initial(name: str | None) -> str | None:
    """Of each row; None is a value like any other."""
    return None if name is None else name[:1]


def doubled(values: pa.Array) -> pa.Array:
    """Of arrays."""
    return pc.multiply_checked(values, 2)


def odd(values: pa.Array) -> pa.Array:
    return pc.equal(pc.bit_wise_and(values, 1), 1)


def inverse(value: int) -> Decimal:
    return Decimal(1) / value


def negated(value: int) -> int:
    return -value


def inverses(values: pa.Array) -> pa.Array:
    return pc.divide(pa.scalar(100, pa.int64()), values)


def enlarged(rows: Any) -> Any:
    """A function of DataFrames."""
    return rows.where("v > 1").selectExpr("k", "v * 10 AS v", "explode(array(1, 2)) AS n")


def together(left: Any, right: Any) -> Any:
    return left.select("k", "v").unionByName(right.select("k", "v"))

"""Our hashes and the running Spark's agree, and so do the places of keys."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lamina.state.hashing import spark_hash, spark_xxhash64, vnodes_of
from tests.golden.state.make_hash_vectors import CONF, TYPES, VECTORS, answers, column

ROWS = 400
PLANNER_RULE = "spark.sql.optimizer.excludedRules"


def _integers(rng: np.random.Generator, bits: int) -> np.ndarray:
    """All magnitudes, not only the largest one."""
    return rng.integers(-(2**63), 2**63 - 1, ROWS) >> rng.integers(64 - bits, 64, ROWS)


def _octets(rng: np.random.Generator) -> list[bytes]:
    return [rng.bytes(int(size)) for size in rng.integers(0, 80, ROWS)]


def _text(rng: np.random.Generator) -> list[str]:
    return [o.decode("utf-8", "replace") for o in _octets(rng)]


def _decimals(rng: np.random.Generator, kind: pa.DataType) -> list[Decimal]:
    limit = 10**kind.precision
    numbers = [int.from_bytes(o[:16], "little", signed=True) % limit for o in _octets(rng)]
    signs = rng.choice([-1, 1], ROWS).tolist()
    return [Decimal(f"{n * s}e-{kind.scale}") for n, s in zip(numbers, signs, strict=True)]


def _floats(rng: np.random.Generator, kind: pa.DataType) -> np.ndarray:
    unsigned = np.uint32 if kind.bit_width == 32 else np.uint64
    bits = rng.integers(0, np.iinfo(unsigned).max, ROWS, unsigned)
    special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf], kind.to_pandas_dtype())
    return np.append(bits.view(special.dtype)[: ROWS - 5], special)


def _moments(rng: np.random.Generator, kind: pa.DataType) -> np.ndarray:
    if pa.types.is_date32(kind):
        return rng.integers(-700_000, 2_900_000, ROWS).astype(np.int32)
    if pa.types.is_time(kind):
        return rng.integers(0, 86_400_000_000, ROWS) * 1000
    return rng.integers(-(2**55), 2**57, ROWS)


def _values(rng: np.random.Generator, kind: pa.DataType) -> Any:
    """Random values of *kind*, without nulls."""
    if pa.types.is_boolean(kind):
        return rng.integers(0, 2, ROWS).astype(bool)
    if pa.types.is_integer(kind):
        return _integers(rng, kind.bit_width).astype(kind.to_pandas_dtype())
    if pa.types.is_floating(kind):
        return _floats(rng, kind)
    if pa.types.is_decimal(kind):
        return _decimals(rng, kind)
    if pa.types.is_temporal(kind):
        return _moments(rng, kind)
    return _text(rng) if pa.types.is_string(kind) else _octets(rng)


def _random(rng: np.random.Generator, kind: pa.DataType) -> pa.Array:
    """A random column with nulls."""
    mask = rng.random(ROWS) < 0.1
    if pa.types.is_struct(kind):
        fields = [_random(rng, field.type) for field in kind]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=pa.array(mask))
    if pa.types.is_list(kind):
        bounds = np.sort(rng.integers(0, ROWS, ROWS + 1)).astype(np.int32)
        items = _random(rng, kind.value_type)
        return pa.ListArray.from_arrays(bounds, items, type=kind, mask=pa.array(mask))
    return pa.array(_values(rng, kind), mask=mask, type=kind, from_pandas=False)


def test_the_running_spark_gives_the_golden_vectors(spark: Any) -> None:
    golden = json.loads(VECTORS.read_text())["cases"]
    wanted = [case for case in golden if len(case["columns"]) > 1]
    for case in wanted:
        columns = [column(name, values) for name, values in case["columns"]]
        assert answers(spark, columns) == {k: case[k] for k in ("hash", "xxhash64")}


@pytest.mark.parametrize("excluded", ["", CONF[PLANNER_RULE]], ids=["interpreted", "compiled"])
def test_random_keys_of_every_type_hash_as_in_spark(spark: Any, excluded: str) -> None:
    rng = np.random.default_rng(20_240_229)
    columns = {f"c{i}": _random(rng, kind) for i, kind in enumerate(TYPES.values())}
    keys = [[name] for name in columns] + [list(columns), list(columns)[::-1]]
    asked = [f"{function}({', '.join(key)})" for key in keys for function in ("hash", "xxhash64")]
    spark.conf.set(PLANNER_RULE, excluded)
    try:
        table = spark.createDataFrame(pa.table(columns)).selectExpr(*asked).toArrow()
    finally:
        spark.conf.unset(PLANNER_RULE)
    for position, key in enumerate(keys):
        arrays = [columns[name] for name in key]
        found = table.column(2 * position), table.column(2 * position + 1)
        assert found[0].to_pylist() == spark_hash(arrays).tolist(), key
        assert found[1].to_pylist() == spark_xxhash64(arrays).tolist(), key


@pytest.mark.parametrize("partitions", [1, 2, 4, 8])
def test_a_key_is_in_the_partition_its_vnode_names(spark: Any, partitions: int) -> None:
    rng = np.random.default_rng(partitions)
    kinds = {"n": pa.int64(), "s": pa.string(), "d": pa.float64(), "m": pa.decimal128(38, 10)}
    table = pa.table({name: _random(rng, kind) for name, kind in kinds.items()})
    rows = spark.createDataFrame(table).groupBy(*kinds).count().repartition(partitions, *kinds)
    found = rows.selectExpr(*kinds, "spark_partition_id() AS p").toArrow().combine_chunks()
    keys = [found[name].combine_chunks() for name in kinds]
    assert found["p"].to_pylist() == (vnodes_of(keys) % partitions).tolist()
    assert rows.rdd.getNumPartitions() == partitions

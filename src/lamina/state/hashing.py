"""Spark SQL's hash() and xxhash64() of key columns, bit for bit, over Arrow arrays.

A row's hash is folded over its columns: the hash of one column is the seed of the next, the first
seed is 42. A null leaves the seed as it is; a struct is folded over its fields, a list over its
items. What of a value is hashed is in key_columns.py; tests/golden/state pins it against Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lamina.errors import UsageError
from lamina.state import murmur3, xxhash64
from lamina.state.byte_rows import FEW_ROWS, longest_first
from lamina.state.key_columns import Bytes, List, Part, Words, check_key_type, take_apart

__all__ = ["check_key_type", "check_keys", "spark_hash", "spark_xxhash64", "vnodes_of"]

SEED: Final = 42
BLOCK_ROWS: Final = 1 << 14
"""Rows hashed at a time: few enough for all temporary arrays to stay in the cache."""

Hashes: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Function:
    dtype: Any
    words: Callable[[NDArray[Any], Hashes], Hashes]
    byte_rows: Callable[[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], Hashes], Hashes]
    chain: Callable[[NDArray[Any], int], int]


_MURMUR3: Final = _Function(np.uint32, murmur3.hash_words, murmur3.hash_bytes, murmur3.chain_words)
_XXHASH64: Final = _Function(
    np.uint64, xxhash64.hash_words, xxhash64.hash_bytes, xxhash64.chain_words
)


def spark_hash(columns: Sequence[pa.Array]) -> NDArray[np.int32]:
    """What `hash(columns...)` gives in Spark SQL for every row."""
    return _hash(columns, _MURMUR3).view(np.int32)


def spark_xxhash64(columns: Sequence[pa.Array]) -> NDArray[np.int64]:
    """What `xxhash64(columns...)` gives in Spark SQL for every row; signed, as in Spark."""
    return _hash(columns, _XXHASH64).view(np.int64)


def vnodes_of(columns: Sequence[pa.Array]) -> NDArray[np.uint8]:
    """The vnode of every row: pmod(hash(columns...), 256)."""
    return _hash(columns, _MURMUR3).astype(np.uint8)


def check_keys(columns: Sequence[pa.Array]) -> int:
    """Raise UsageError unless *columns* can be a key; returns how many rows they have."""
    if not columns:
        raise UsageError("a key has at least one column")
    rows = {len(column) for column in columns}
    if len(rows) > 1:
        raise UsageError(f"key columns of different lengths: {sorted(rows)}")
    for position, column in enumerate(columns):
        check_key_type(column.type, f"#{position}")
    return rows.pop()


def _hash(columns: Sequence[pa.Array], function: _Function) -> Hashes:
    rows = check_keys(columns)
    hashes = np.full(rows, SEED, function.dtype)
    for start in range(0, rows, BLOCK_ROWS):
        block = hashes[start : start + BLOCK_ROWS]
        for column in columns:
            block = _fold(take_apart(column.slice(start, BLOCK_ROWS)), block, function)
        hashes[start : start + BLOCK_ROWS] = block
    return hashes


def _fold(part: Part, seeds: Hashes, function: _Function) -> Hashes:
    """The hashes of one column with the seeds of the columns before it."""
    if isinstance(part, Words):
        hashes = function.words(part.values, seeds)
    elif isinstance(part, Bytes):
        hashes = function.byte_rows(part.data, part.starts, part.lengths, seeds)
    elif isinstance(part, List):
        return _fold_items(part, seeds, function)
    else:
        hashes = seeds
        for field in part.fields:
            hashes = _fold(field, hashes, function)
    return hashes if part.nulls is None else np.where(part.nulls, seeds, hashes)


def _fold_items(part: List, seeds: Hashes, function: _Function) -> Hashes:
    """Fold the first items of all rows, then the second ones: a row drops out at its end."""
    walk = longest_first(part.lengths)
    starts, hashes = part.starts[walk.order], seeds[walk.order]
    for item, active in enumerate(walk.actives):
        if active < FEW_ROWS:
            for row in range(active):
                rest = np.arange(starts[row] + item, starts[row] + walk.counts[row])
                hashes[row] = _fold_row(part.items.take(rest), hashes[row : row + 1], function)
            break
        items = part.items.take(starts[:active] + item)
        hashes[:active] = _fold(items, hashes[:active], function)
    folded = np.empty_like(seeds)
    folded[walk.order] = hashes
    return folded


def _fold_row(items: Part, seed: Hashes, function: _Function) -> Any:
    """Fold the items of a single row."""
    if isinstance(items, Words):
        values = items.values if items.nulls is None else items.values[~items.nulls]
        return function.chain(values, int(seed[0]))
    for item in range(len(items)):
        seed = _fold(items.take(np.array([item])), seed, function)
    return seed[0]

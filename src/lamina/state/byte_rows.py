"""Walking byte strings of many lengths in step: what both hashes need."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

FEW_ROWS: Final = 48
"""With fewer rows left, a numpy call for every step costs more than the rows one by one."""


class Walk(NamedTuple):
    """Rows in an order in which those that take a step are always the first ones."""

    order: NDArray[np.int64] | slice
    counts: NDArray[np.int64]  # steps of each row, in that order
    actives: list[int]  # rows that take step 0, 1, ...; it ends with the first below FEW_ROWS


def longest_first(counts: NDArray[np.int64]) -> Walk:
    """Plan the walk of rows of so many steps each."""
    if len(counts) == 0 or (longest := int(counts.max())) == 0:
        return Walk(slice(None), counts, [])
    order: NDArray[np.int64] | slice = slice(None)
    if counts.min() != longest:
        missing = longest - counts
        # Sixteen bits are sorted by radix.
        order = np.argsort(
            missing.astype(np.uint16) if longest < 1 << 16 else missing, kind="stable"
        )
        counts = counts[order]
    together = int(counts[FEW_ROWS - 1]) if len(counts) >= FEW_ROWS else 0
    steps = np.arange(min(together + 1, longest))
    return Walk(order, counts, np.searchsorted(-counts, -steps, side="left").tolist())


def words_at(data: NDArray[np.uint8], places: NDArray[np.int64], dtype: Any) -> NDArray[Any]:
    """Little-endian words that start at any byte of *data*."""
    size = np.dtype(dtype).itemsize
    windows = np.ndarray((len(data) - size + 1,), dtype, buffer=data, strides=(1,))
    return windows[places]

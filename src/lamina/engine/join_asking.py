"""A condition on both sides of a join that judges rows: Spark evaluates it behind the task.

What comes out of the task has a number, the column ASKS:

null    a pair: it comes out if it meets the condition
n >= 0  a pair of the judged row n: if it meets the condition, row n has a partner
-1 - n  the judged row n itself, behind all its pairs

Spark lets all judged rows through, and of the pairs those that meet the condition, in their order;
so a second step in the same task can tell which rows come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from lamina.state.vnodes import Mask, Rows

ASKS = "_asks"


def asked_of_pairs(condition: str) -> str:
    """In SQL: the *condition* of pairs; rows that are judged come through."""
    return f"CASE WHEN {ASKS} IS NULL OR {ASKS} >= 0 THEN {condition} ELSE true END"


def answered(batches: Iterable[pa.RecordBatch], *, is_semi: bool) -> Iterator[pa.RecordBatch]:
    """The rows that come out: pairs, and judged rows without a partner (SEMI: with one)."""
    partners: Rows = np.empty(0, np.int64)
    for batch in batches:
        asks = batch.column(ASKS)
        is_pair = np.asarray(asks.is_null().to_numpy(zero_copy_only=False), np.bool_)
        numbers = np.asarray(asks.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
        found = numbers[~is_pair & (numbers >= 0)]
        if len(found):
            partners = np.union1d(partners, found)
        is_judged: Mask = ~is_pair & (numbers < 0)
        has_partner = np.isin(-1 - numbers, partners)
        comes = is_pair | (is_judged & (has_partner == is_semi))
        yield batch.filter(pa.array(comes)).drop_columns([ASKS])

"""How a table comes to the rows of a stream: sent whole to every task, or by the keys of the join.

Measured with benchmarks/joins.py (docs/benchmarks.md).
"""

from __future__ import annotations

SENT_WHOLE_MAX = 32 << 20
"""Bytes of a table, without compression, up to which it is sent to every task."""


def is_sent_whole(size: int) -> bool:
    return size <= SENT_WHOLE_MAX

"""How many rows each vnode has: from the footers of run files, or else from the manifest alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamina.checkpoint.parallel import run_all
from lamina.errors import LaminaError
from lamina.format.manifest import VNODE_COUNT, OperatorRuns, RunEntry
from lamina.format.names import CheckpointPaths
from lamina.format.run_footer import TAIL_SIZE, Footer, decode_footer, footer_size
from lamina.store import Store

FILES_MAX = 96
PARALLEL = 8


@dataclass(frozen=True, slots=True)
class Heat:
    """Rows by vnode; *is_exact* if footers said so and not only the sizes of partitions."""

    rows: tuple[int, ...]
    is_exact: bool

    @property
    def total(self) -> int:
        return sum(self.rows)

    @property
    def skew(self) -> float:
        """The fullest vnode against the mean."""
        return max(self.rows) * len(self.rows) / self.total if self.total else 1.0


def heat_of(store: Store, paths: CheckpointPaths, operator: OperatorRuns) -> Heat:
    """Many files, or one that cannot be read: then every vnode of a partition counts the same."""
    runs = {run.path or id(run): run for runs in operator.partitions.values() for run in runs}
    if operator.keyed is None or len(runs) > FILES_MAX:
        return _by_partition(operator)
    rows = [0] * VNODE_COUNT
    footers: list[Footer] = []
    try:
        run_all(
            runs.values(), lambda run: footers.append(_footer(store, paths, run)), limit=PARALLEL
        )
    except LaminaError:
        return _by_partition(operator)
    for footer in footers:
        for vnode, count in footer.vnodes:
            rows[vnode] += count
    return Heat(tuple(rows), is_exact=True)


def _footer(store: Store, paths: CheckpointPaths, run: RunEntry) -> Footer:
    inline = run.decode_inline()
    if inline is not None:
        tail = inline[-TAIL_SIZE:]
        size = footer_size(tail, len(inline), "an inline run")
        return decode_footer(inline[-TAIL_SIZE - size : -TAIL_SIZE], tail, "an inline run")
    assert run.path is not None
    key = paths.absolute(run.path)
    tail = store.get_range(key, max(run.size - TAIL_SIZE, 0), min(TAIL_SIZE, run.size))
    size = footer_size(tail, run.size, key)
    return decode_footer(store.get_range(key, run.size - TAIL_SIZE - size, size), tail, key)


def _by_partition(operator: OperatorRuns) -> Heat:
    """Partition p of P owns the vnodes that are p modulo P."""
    rows = [0] * VNODE_COUNT
    count = operator.keyed.partitions if operator.keyed else max(operator.partitions, default=0) + 1
    for partition, total in _rows_of(operator):
        owned = range(partition % count, VNODE_COUNT, count)
        for vnode in owned:
            rows[vnode] += total // max(len(owned), 1)
    return Heat(tuple(rows), is_exact=False)


def _rows_of(operator: OperatorRuns) -> Iterator[tuple[int, int]]:
    for partition, runs in operator.partitions.items():
        yield partition, sum(run.rows or 0 for run in runs)

"""Streams of changes in tests: what a sink gets, and the rows that are left when all is applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lamina.engine.ports import CHANGE, NEW
from lamina.pipeline import Option, parse_pipeline
from tests.spark.running import FILE, Run, plain

Epochs = list[list[dict[str, Any]]]


def run_changes(run: Run, text: str, sink: str = "o") -> Epochs:
    """Run a pipeline whose *sink* is a function here; the changes of each epoch."""
    found: Epochs = []

    def keep(table: pa.Table, epoch: int) -> None:
        found.append(table.to_pylist())

    pipeline = parse_pipeline(text, run.variables, file=FILE)
    options = {"function": Option("keep", "keep", made=keep)}
    taken = replace(pipeline.sinks[sink], format="function", options=options)
    run.run(replace(pipeline, sinks={**pipeline.sinks, sink: taken}))
    return found


def applied(epochs: Epochs) -> list[str]:
    """The rows that are left, comparable. Nothing is taken back that is not there."""
    left: Counter[str] = Counter()
    for epoch in epochs:
        for row in sorted(epoch, key=lambda each: each[CHANGE] in NEW):
            known = repr(plain([value for name, value in row.items() if name != CHANGE]))
            left[known] += 1 if row[CHANGE] in NEW else -1
            assert left[known] >= 0, f"{known} was taken back, and was not there"
    return sorted(left.elements())


def check_keys(epochs: Epochs, keys: Sequence[str]) -> None:
    """Of every key an epoch has one old row at most, and one new one."""
    for epoch in epochs:
        for side in (True, False):
            rows = [row for row in epoch if (row[CHANGE] in NEW) is side]
            counted = Counter(repr(plain([row[key] for key in keys])) for row in rows)
            assert not counted or max(counted.values()) == 1


def kinds(epoch: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(row[CHANGE] for row in epoch)

"""What may not become part of an epoch: rows in the wrong place, answers too few or too many."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lamina.engine.model import CompactedRuns, TaskResult
from lamina.engine.states import _compacted
from lamina.engine.task import results_of
from lamina.errors import Refused
from lamina.state.vnodes import SlotRange
from tests.engine.pipelines import World, kill
from tests.support import in_process


def test_rows_on_a_task_that_does_not_own_their_keys_stop_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark with adaptive execution may put them there, in silence."""
    everything: Any = lambda batch, *_: [] if batch is None else [batch]  # noqa: E731
    monkeypatch.setattr(in_process, "_owned", everything)
    engine = World(tmp_path).open()
    try:
        with pytest.raises(Refused, match="does not own their keys"):
            engine.step()
        assert engine.epoch == 0
    finally:
        kill(engine)


@pytest.mark.parametrize("answers", [(), (0,), (1,), (0, 0), (0, 1, 1), (0, 2), (0, 1, 2)])
def test_a_task_that_did_not_answer_or_answered_twice_stops_the_epoch(
    answers: tuple[int, ...],
) -> None:
    """Spark may run no task, one, or others than the keys have owners."""
    with pytest.raises(Refused, match=f"{len(answers)} tasks have answered for 2 partitions"):
        results_of((TaskResult(number) for number in answers), 2)


def test_answers_count_in_the_order_of_their_partitions() -> None:
    found = results_of((TaskResult(number) for number in (2, 0, 3, 1)), 4)
    assert [result.partition for result in found] == [0, 1, 2, 3]


@pytest.mark.parametrize("inputs", [("a", "c"), ("b", "a"), ("c", "d"), ("x", "a")])
def test_a_compacted_run_whose_inputs_are_not_all_there_is_not_used(
    inputs: tuple[str, ...],
) -> None:
    """It would hide what stands between them, or bring back what is gone."""
    runs: list[Any] = [SimpleNamespace(name=name) for name in "abc"]
    made = CompactedRuns("totals", inputs, "/no/such/file.run")
    assert _compacted(runs, made, SlotRange.of_partition(0, 1)) == runs

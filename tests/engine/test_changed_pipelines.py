"""A pipeline that is another one than yesterday: state is used again, kept aside, or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.engine.engine import Engine, EnginePlan, StreamPlan
from lamina.engine.model import OperatorPlan
from lamina.engine.steps import Merges
from lamina.errors import Diverged, Refused, StateChanged, UsageError
from lamina.format.pipeline_record import Owner
from lamina.pipeline.model import Emit
from lamina.recovery import RecoveryConfig
from lamina.state.merge import Merge
from tests.engine.pipelines import (
    FROM_ORDERS,
    LOCAL,
    PLAN,
    SINKS,
    STREAMS,
    UPDATING,
    WINDOW,
    World,
    by_key,
    expected,
    kill,
    operator,
    run_out,
)
from tests.support.in_process import LocalStream


def without(name: str) -> EnginePlan:
    """Without a stream; its sink stays, and gets nothing."""
    silent = StreamPlan("silent", ("trades",), frozenset({"trades"}))
    kept = tuple(stream for stream in STREAMS if stream.name != name)
    return replace(PLAN, streams=(*kept, silent), sinks={**SINKS, name: "silent"})


def world_of(root: Path) -> World:
    silent = LocalStream(lambda table: table.slice(0, 0))
    return World(root, streams={**LOCAL, "silent": silent})


def state_of(engine: Engine, name: str) -> set[tuple[object, ...]]:
    operator = engine._states.operators[name]
    return {
        tuple(row.values())
        for partition in operator.partitions
        for batch in partition.scan()
        for row in batch.to_pylist()
    }


@pytest.mark.parametrize("name", ["vwap", "totals"])
@pytest.mark.parametrize("partitions", [1, 4])
def test_the_state_of_a_stream_that_is_gone_comes_back_with_it(
    name: str, partitions: int, tmp_path: Path
) -> None:
    world = world_of(tmp_path)
    engine = world.open()
    run_out(engine, epochs=5)
    before = state_of(engine, name)
    assert before
    kill(engine)
    world.plan = without(name)
    for process in range(3):
        engine = world.open(partitions=partitions)
        run_out(engine, epochs=2)
        if process:
            engine.checkpoint()
        kill(engine)
    world.plan = PLAN
    engine = world.open()
    assert state_of(engine, name) == before
    run_out(engine)
    engine.checkpoint()
    engine.close()


def test_a_new_stream_begins_with_no_state(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    engine = world.open()
    run_out(engine, epochs=4)
    engine.checkpoint()
    kill(engine)
    added = StreamPlan("again", ("orders",), FROM_ORDERS, {"again": operator_of_key(pa.string())})
    world.plan = replace(PLAN, streams=(*STREAMS, added))
    world.streams = {**LOCAL, "again": LocalStream(by_key)}
    engine = world.open()
    assert state_of(engine, "again") == set()
    run_out(engine, epochs=1)
    assert 0 < sum(row[2] for row in state_of(engine, "again")) <= 15  # type: ignore[misc]
    kill(engine)


def operator_of_key(kind: pa.DataType, name: str = "key"):  # noqa: ANN201
    return operator(pa.schema([(name, kind)]), Emit.ON_UPDATE)


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(
    "key",
    [
        operator_of_key(pa.int64()),
        operator_of_key(pa.string(), "other"),
        operator(WINDOW, Emit.ON_UPDATE),
    ],
    ids=["type", "name", "more"],
)
def test_another_key_is_refused_and_the_old_one_goes_on(
    key: object, saved: bool, tmp_path: Path
) -> None:
    world = world_of(tmp_path)
    engine = world.open()
    run_out(engine, epochs=4)
    if saved:
        engine.checkpoint()
    before = state_of(engine, "totals")
    kill(engine)
    changed = StreamPlan("totals", ("orders",), FROM_ORDERS, {"totals": key})  # type: ignore[arg-type]
    streams = tuple(changed if stream.name == "totals" else stream for stream in STREAMS)
    world.plan = replace(PLAN, streams=streams)
    for _ in range(2):
        with pytest.raises(StateChanged, match="totals"):
            world.open()
    world.plan = PLAN
    engine = world.open()
    assert state_of(engine, "totals") == before
    kill(engine)


@pytest.mark.parametrize("saved", [False, True])
def test_another_way_to_merge_is_refused(saved: bool, tmp_path: Path) -> None:
    """The columns are the same, but yesterday's values are no maxima."""
    world = world_of(tmp_path)
    engine = world.open()
    run_out(engine, epochs=4)
    if saved:
        engine.checkpoint()
    kill(engine)
    plan = replace(UPDATING, step=Merges((Merge("max", ("total",)), Merge("count", ("rows",)))))
    changed = StreamPlan("totals", ("orders",), FROM_ORDERS, {"totals": plan})
    streams = tuple(changed if stream.name == "totals" else stream for stream in STREAMS)
    world.plan = replace(PLAN, streams=streams)
    with pytest.raises(StateChanged, match="totals"):
        world.open()


def defined_as(digest: str) -> EnginePlan:
    changed = StreamPlan(
        "totals", ("orders",), FROM_ORDERS, {"totals": replace(UPDATING, definition=digest)}
    )
    streams = tuple(changed if stream.name == "totals" else stream for stream in STREAMS)
    return replace(PLAN, streams=streams)


@pytest.mark.parametrize("saved", [False, True])
def test_another_select_over_the_same_columns_is_a_persons_decision(
    saved: bool, tmp_path: Path
) -> None:
    world = world_of(tmp_path)
    world.plan = defined_as("sum(volume)")
    engine = world.open()
    run_out(engine, epochs=4)
    if saved:
        engine.checkpoint()
    before = state_of(engine, "totals")
    kill(engine)
    world.plan = defined_as("sum(volume * 2)")
    with pytest.raises(StateChanged, match="--reuse-state"):
        world.open()
    world.settings = replace(world.settings, reuse_state=frozenset({"totals"}))
    engine = world.open()
    assert state_of(engine, "totals") == before
    run_out(engine, epochs=4)
    kill(engine)
    world.settings = replace(world.settings, reuse_state=frozenset())
    kill(world.open())  # it was said once


ONE_LESS = replace(PLAN, sinks={name: stream for name, stream in SINKS.items() if name != "totals"})


def test_a_sink_that_is_added_later_begins_where_a_person_says_from_now(tmp_path: Path) -> None:
    """It was `Diverged`: what it lacks is not kept, so somebody has to say that it may lack it."""
    world = World(tmp_path, plan=replace(ONE_LESS, streams=PLAN.streams))
    engine = world.open()
    run_out(engine, epochs=6)
    engine.checkpoint()
    before = engine.epoch
    engine.close()
    world.plan = PLAN
    with pytest.raises(Diverged, match=r"'totals' is at its start .* at epoch 6") as refused:
        world.open()
    assert "--sink-from-now totals" in refused.value.advice
    engine = world.open(recovery=RecoveryConfig(sinks_from_now=frozenset({"totals"})))
    kill(engine)  # it is in the history now, by what it holds itself
    world.finish()
    assert min(world.tables["totals"].epochs) == before
    assert world.got("totals") == expected(world.data, 15)["totals"][before:]
    assert world.got("vwap") == expected(world.data, 15)["vwap"]


def test_a_sink_that_comes_back_has_a_gap_only_if_a_person_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    engine = world.open()
    run_out(engine, epochs=2)
    engine.checkpoint()
    engine.close()
    world.plan = replace(ONE_LESS, streams=PLAN.streams)
    engine = world.open()
    run_out(engine, epochs=3)
    engine.checkpoint()
    engine.close()
    world.plan = PLAN
    with pytest.raises(Diverged, match=r"'totals' is at epoch 2 .* at epoch 5"):
        world.open()
    world.open(recovery=RecoveryConfig(sinks_from_now=frozenset({"totals"}))).close()
    world.finish()
    whole = expected(world.data, 15)["totals"]
    assert world.got("totals") == [*whole[:2], *whole[5:]]


def test_settings_that_results_depend_on_are_in_the_manifest_and_may_not_change(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, plan=replace(PLAN, settings={"zone": "UTC", "ansi": "true"}))
    engine = world.open()
    run_out(engine, epochs=4)
    engine.checkpoint()
    engine.close()
    world.plan = replace(PLAN, settings={"zone": "CET", "ansi": "true", "new": "1"})
    with pytest.raises(StateChanged, match="zone was 'UTC' and is 'CET'"):
        world.open()
    world.plan = replace(PLAN, settings={"zone": "UTC", "new": "1"})
    world.finish()
    assert world.outcome() == expected(world.data, 15)


def test_state_that_is_kept_aside_goes_when_a_person_says_so_and_stays_gone(tmp_path: Path) -> None:
    """Also for a recovery that falls back to a checkpoint from before."""
    world = world_of(tmp_path)
    engine = world.open()
    run_out(engine, epochs=4)
    engine.checkpoint()
    engine.close()
    world.plan = without("totals")
    world.settings = replace(world.settings, drop_state=frozenset({"totals"}), checkpoint_epochs=0)
    engine = world.open()
    run_out(engine, epochs=1)
    kill(engine)  # before any checkpoint: the old one and the log say the same
    world.settings = replace(world.settings, drop_state=frozenset())
    world.plan = PLAN
    engine = world.open()
    assert engine.report.checkpoint_epoch == 4
    at = engine._offsets["orders"]["row"]
    run_out(engine)
    engine.checkpoint()
    engine.close()
    later = {**world.data, "orders": world.data["orders"][int(at) :]}
    assert world.got("totals")[-1] == expected(later, 15)["totals"][-1]


def test_only_state_that_is_kept_aside_can_be_dropped(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.finish()
    world.settings = replace(world.settings, drop_state=frozenset({"totals"}))
    with pytest.raises(UsageError, match=r"'totals' is in use"):
        world.open()


def test_a_start_that_a_supervisor_repeats_was_refused_because_the_state_was_dropped_already(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path)
    world.finish()
    world.plan = without("totals")
    world.settings = replace(world.settings, drop_state=frozenset({"total", "totals"}))
    first = world.open()
    [note] = first.notes
    assert note == "no state is kept under the name 'total': nothing to drop"
    epoch = first.epoch
    first.close()
    second = world.open()
    assert [note.partition(":")[0] for note in second.notes] == [
        "no state is kept under the name 'total'",
        "no state is kept under the name 'totals'",
    ]
    assert second.epoch == epoch, "and it costs no epoch"
    second.close()


def test_a_sink_is_not_given_empty_epochs_of_the_time_when_it_was_left_out(tmp_path: Path) -> None:
    """It was: the log still had the COMMITs, and they had no files for it."""
    world = World(tmp_path)
    world.settings = replace(world.settings, retain=3)
    engine = world.open()
    run_out(engine, epochs=2)
    engine.checkpoint()
    engine.close()
    for before, plan in ((2, replace(ONE_LESS, streams=PLAN.streams)), (5, PLAN)):
        world.plan = plan
        if plan is PLAN:
            with pytest.raises(Diverged, match=rf"'totals' is at epoch 2 .* at epoch {before}"):
                world.open()
            break
        engine = world.open()
        run_out(engine, epochs=3)
        engine.checkpoint()
        engine.close()
    world.open(recovery=RecoveryConfig(sinks_from_now=frozenset({"totals"}))).close()
    world.finish()
    whole = expected(world.data, 15)["totals"]
    assert world.got("totals") == [*whole[:2], *whole[5:]]


def test_a_new_sink_gets_no_empty_past_even_if_the_log_reaches_back_to_the_start(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, plan=replace(ONE_LESS, streams=PLAN.streams))
    world.settings = replace(world.settings, checkpoint_epochs=0)
    engine = world.open()
    run_out(engine, epochs=3)
    engine.close()
    world.plan = PLAN
    with pytest.raises(Diverged, match="'totals' is at its start"):
        world.open()


def test_a_sink_of_another_pipeline_does_not_join(tmp_path: Path) -> None:
    world = World(tmp_path, plan=replace(ONE_LESS, streams=PLAN.streams))
    world.finish()
    world.tables["totals"].pipeline = Owner(name="another")
    world.plan = PLAN
    with pytest.raises(Refused, match="belongs to the pipeline 'another'"):
        world.open(recovery=RecoveryConfig(sinks_from_now=frozenset({"totals"})))


def swapped(table: pa.Table) -> pa.Table:
    """The partials of `by_key` in other places: what a runner calls `total` is now the count."""
    return by_key(table).rename_columns(["key", "rows", "total"]).select(["key", "total", "rows"])


@pytest.mark.parametrize("saved", [False, True])
def test_reused_state_of_columns_that_changed_places_went_to_the_wrong_ones(
    saved: bool, tmp_path: Path
) -> None:
    world = world_of(tmp_path)
    before = replace(UPDATING, definition="one", meanings=("key", "sum(amount)", "count(*)"))
    world.plan = with_totals(before)
    engine = world.open()
    run_out(engine, epochs=4)
    if saved:
        engine.checkpoint()
    kill(engine)
    after = replace(
        before,
        definition="two",
        step=Merges((Merge("count", ("total",)), Merge("sum", ("rows",)))),
        meanings=("key", "count(*)", "sum(amount)"),
    )
    world.plan = with_totals(after)
    world.streams = {**world.streams, "totals": LocalStream(swapped)}
    with pytest.raises(StateChanged, match="--reuse-state"):
        world.open()
    world.settings = replace(world.settings, reuse_state=frozenset({"totals"}))
    engine = world.open()
    run_out(engine, epochs=1)
    kill(engine)
    world.settings = replace(world.settings, reuse_state=frozenset())  # it was said once
    world.finish(partitions=4)
    whole = expected(world.data, 15)["totals"]
    turned = [sorted((key, rows, total) for key, total, rows in epoch) for epoch in whole]
    assert world.got("totals") == [*whole[:4], *turned[4:]]


def with_totals(plan: OperatorPlan) -> EnginePlan:
    changed = StreamPlan("totals", ("orders",), FROM_ORDERS, {"totals": plan})
    return replace(
        PLAN, streams=tuple(changed if each.name == "totals" else each for each in STREAMS)
    )

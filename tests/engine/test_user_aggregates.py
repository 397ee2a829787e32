"""A user's own aggregate, without Spark: what its code gets and gives, and what can be wrong."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from lamina.engine.checked_code import check_code
from lamina.engine.model import OperatorPlan
from lamina.engine.own_columns import as_shown, own_of, with_states
from lamina.engine.steps import Merges
from lamina.engine.task import output_schema
from lamina.engine.task_state import ROWS
from lamina.engine.user_aggregates import UserAggregate
from lamina.errors import BadPipeline, Refused, UsageError
from lamina.pipeline import PipelineBuilder
from lamina.pipeline.model import Emit
from lamina.state.merge import Merge, merge_rows
from lamina.state.schema import StateSchema
from tests.spark.python_aggregates import (
    GeometricMean,
    Longest,
    Tally,
    WeightedSum,
    geometric_mean,
    longest,
    tally,
    weighted_sum,
)

COUNTED = pa.struct([("nulls", pa.int64()), ("nans", pa.int64()), ("zeros", pa.int64())])
KINDS: dict[str, tuple[Any, list[pa.DataType], pa.DataType, Any, list[list[Any]]]] = {
    "gmean": (
        GeometricMean,
        [pa.float64()],
        pa.float64(),
        lambda rows: geometric_mean([x for (x,) in rows]),
        [[None, -0.0, float("nan"), 0.5, 2.0, 4.0]],
    ),
    "wsum": (
        WeightedSum,
        [pa.int64(), pa.int64()],
        pa.int64(),
        weighted_sum,
        [[None, -2, 0, 3, 2**40], [None, 1, 2]],
    ),
    "longest": (
        Longest,
        [pa.string()],
        pa.string(),
        lambda rows: longest([s for (s,) in rows]),
        [[None, "", "a", "b", "ü", "long"]],
    ),
    "tally": (
        Tally,
        [pa.float64()],
        COUNTED,
        lambda rows: tally([x for (x,) in rows]),
        [[None, -0.0, 0.0, float("nan"), 1.0]],
    ),
}
NAMES = {"gmean": ["x"], "wsum": ["v", "w"], "longest": ["s"], "tally": ["x"]}


def aggregate(name: str, **more: bool) -> UserAggregate:
    code, types, returns, _, _ = KINDS[name]
    parameters = pa.schema(list(zip(NAMES[name], types, strict=True)))
    return UserAggregate(name, code, parameters, pa.schema(code.state), returns, **more)


def arguments(name: str) -> pa.DataType:
    """A struct of them, as Spark gives it."""
    return pa.struct([(f"a{i}", kind) for i, kind in enumerate(KINDS[name][1])])


def structs(rows: list[tuple[Any, ...] | None], kind: pa.DataType) -> list[dict[str, Any] | None]:
    names = [field.name for field in kind]
    return [None if row is None else dict(zip(names, row, strict=True)) for row in rows]


def plan_of(*own: UserAggregate) -> tuple[OperatorPlan, StateSchema]:
    key = pa.schema([("k0", pa.float64())])
    values = [pa.field(f"p{i}", each.stored) for i, each in enumerate(own)]
    merges = [Merge("python", (f"p{i}",), code=each) for i, each in enumerate(own)]
    merges.append(Merge("count", ("p9",)))
    value = pa.schema([*values, pa.field("p9", pa.int64())])
    plan = OperatorPlan(
        key.serialize().to_pybytes(),
        value.serialize().to_pybytes(),
        Merges(tuple(merges)),
        None,
        Emit.ON_UPDATE,
    )
    return plan, StateSchema(key, value, merges=tuple(merges))


def close(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        return isinstance(found, float) and found == pytest.approx(wanted, rel=1e-12)
    return bool(found == wanted)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_rows_that_come_as_lists_or_alone_or_as_a_bag_come_to_the_same(
    name: str, seed: int
) -> None:
    """Some rows are left out by a FILTER; a group may have none left."""
    rng = random.Random(seed)
    *_, model, pools = KINDS[name]
    keys = [rng.choice([0.0, 1.0, 2.0, 3.0, float("nan"), -0.0]) for _ in range(40)]
    rows = [rng.choice([None, *([tuple(map(rng.choice, pools))] * 3)]) for _ in keys]
    groups: dict[str, list[Any]] = {}
    for key, row in zip(keys, rows, strict=True):
        groups.setdefault(str(key + 0.0), []).extend([] if row is None else [row])
    own, kind = aggregate(name), arguments(name)
    plan, schema = plan_of(own)
    alone = pa.record_batch(
        {
            "k0": pa.array(keys, pa.float64()),
            "p0": pa.array(structs(rows, kind), kind),
            "p9": pa.array([1] * len(rows)),
            ROWS: pa.array([1] * len(rows)),
        }
    )
    halves = [alone.slice(0, 13), alone.slice(13)]
    (made,) = with_states(own_of(plan), schema, halves)
    assert made.num_rows == len(groups)
    assert made.column(ROWS).to_pylist() == made.column("p9").to_pylist()
    shown = as_shown(own_of(plan), made.select(["k0", "p0", "p9"]))
    assert shown.schema.field("p0").type == output_schema(plan).field("p0").type == own.returns
    for key, value in zip(*(shown.column(n).to_pylist() for n in ("k0", "p0")), strict=True):
        assert close(value, model(groups[str(key)]) if groups[str(key)] else None)

    listed = pa.array([structs(each, kind) for each in groups.values()], pa.list_(kind))
    (lists,) = with_states(own_of(plan), schema, [pa.record_batch({"p0": listed})])
    found = as_shown(own_of(plan), lists).column("p0").to_pylist()
    bag = pa.list_(pa.struct([("v", kind), ("n", pa.int64())]))
    twice = [[{"v": each, "n": 2} for each in structs(g, kind)] for g in groups.values()]
    doubled = aggregate(name, of_bag=True).shown(pa.array(twice, bag)).to_pylist()
    once = aggregate(name, of_bag=True, distinct=True).shown(pa.array(twice, bag)).to_pylist()
    for number, group in enumerate(groups.values()):
        assert close(found[number], model(group) if group else None)
        assert close(doubled[number], model([*group, *group]) if group else None)
        assert close(once[number], model(group) if group else None)


@pytest.mark.parametrize("name", KINDS)
def test_states_merged_in_any_order_are_those_of_all_rows(name: str) -> None:
    rng = random.Random(len(name))
    *_, model, pools = KINDS[name]
    own, kind = aggregate(name), arguments(name)
    merges = [Merge("python", ("p0",), code=own)]
    groups = [[tuple(map(rng.choice, pools)) for _ in range(rng.randint(0, 6))] for _ in range(30)]
    parts = [[[] for _ in groups] for _ in range(4)]
    for number, group in enumerate(groups):
        for row in group:
            rng.choice(parts)[number].append(row)  # type: ignore[arg-type]
    rng.shuffle(parts)
    old = pa.record_batch({"p0": pa.nulls(len(groups), own.stored)})
    for number, part in enumerate(parts):
        new = own.partial(pa.array([structs(each, kind) for each in part], pa.list_(kind)))
        batch = pa.record_batch({"p0": new})
        sides = (old, batch) if number % 2 else (batch, old)
        old = merge_rows(merges, *sides, np.ones(len(groups), np.bool_))
    shown = own.shown(old.column("p0")).to_pylist()
    assert all(close(s, model(g) if g else None) for s, g in zip(shown, groups, strict=True))


def test_a_merge_without_its_code_is_for_readers_only() -> None:
    batch = pa.record_batch({"p0": pa.array([{"n": 1}])})
    with pytest.raises(UsageError, match="merged by the code of a pipeline"):
        merge_rows([Merge("python", ("p0",))], batch, batch, np.ones(1, np.bool_))


class Sum:
    """The simplest one, to be broken."""

    state: ClassVar = {"n": pa.int64()}

    def partial(self, rows: Any) -> Any:
        return {"n": np.add.reduceat(rows.numpy("x", 0), rows.starts[:-1])}

    def merge(self, old: Any, new: Any) -> Any:
        return {"n": old.numpy("n") + new.numpy("n")}

    def finish(self, state: Any) -> Any:
        return state["n"]


def broken(**methods: Any) -> UserAggregate:
    code = type("Broken", (Sum,), methods)
    types = pa.schema([("x", pa.int64())])
    return UserAggregate("broken", code, types, pa.schema(Sum.state), pa.int64())


LISTS = pa.array([[{"x": 1}], [], [{"x": 2}, {"x": 0}]], pa.list_(pa.struct([("x", pa.int64())])))


def test_nothing_is_called_where_there_is_nothing() -> None:
    never = broken(partial=None, merge=None, finish=None)
    empty = LISTS.slice(1, 1)
    assert never.partial(empty).to_pylist() == [None]
    assert never.shown(never.partial(empty)).to_pylist() == [None]
    (merged,) = merge_rows(
        [Merge("python", ("p",), code=never)],
        pa.record_batch({"p": pa.array([None, {"n": 1}], never.stored)}),
        pa.record_batch({"p": pa.array([{"n": 2}, None], never.stored)}),
        np.ones(2, np.bool_),
    ).columns
    assert merged.to_pylist() == [{"n": 2}, {"n": 1}]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda *_: None, "what partial() gives, is a NoneType"),
        (lambda *_: {"m": [1, 2]}, "has the columns m, and declared are n"),
        (lambda *_: {"n": [1]}, "has 1 rows for 2 keys"),
        (lambda *_: {"n": pa.array([1.0, 2.0])}, "has 'n' of double, declared is int64"),
        (lambda *_: {"n": ["a", "b"]}, "has a 'n' that is not int64"),
        (lambda _, rows: 1 / min(rows["x"].to_pylist()), "with the rows {'x': 2}, {'x': 0}: Zero"),
    ],
)
def test_what_partial_gives_is_checked_and_named(given: Any, said: str) -> None:
    with pytest.raises(Refused) as raised:
        broken(partial=given).partial(LISTS)
    assert "the aggregate 'broken'" in str(raised.value)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("method", "given", "said"),
    [
        ("merge", lambda *_: {"n": [1]}, "what merge() gives, has 1 rows for 3 keys"),
        ("merge", lambda _, old, new: old["none"], "failed in merge() with the state {'n': 1} and"),
        ("finish", lambda *_: [1, 2], "what finish() gives, has 2 rows for 3 keys"),
        ("finish", lambda *_: pa.array(["a", "b", "c"]), "'the result' of string, declared is int"),
        ("finish", lambda _, state: 1 / (3 - state["n"][-1].as_py()), "in finish() with the state"),
    ],
)
def test_what_merge_and_finish_give_is_checked_and_named(
    method: str, given: Any, said: str
) -> None:
    code = broken(**{method: given})
    states = pa.array([{"n": 1}, {"n": 2}, {"n": 3}], code.stored)
    with pytest.raises(Refused) as raised:
        code.merge(states, states) if method == "merge" else code.shown(states)
    assert said in str(raised.value)


def with_state(state: Any) -> Any:
    return type("Odd", (Sum,), {"state": state})


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (type("A", (), {"state": Sum.state}), "which has no method partial()"),
        (type("B", (Sum,), {"merge": None}), "which has no method merge()"),
        (type("C", (Sum,), {"finish": lambda _: 0}), "cannot be called as finish(state)"),
        (type("D", (Sum,), {"__init__": lambda _, n: None}), "cannot be made without arguments"),
        (len, "which is a builtin_function_or_method"),
        (with_state(None), "which does not say what its state is"),
        (with_state({}), "whose state has no column"),
        (with_state({"n": "BIGINT"}), "whose state is not names and Arrow types"),
        (with_state("n BIGINT"), "whose state is not names and Arrow types"),
        (with_state({"n": pa.large_string()}), "Write pa.string()"),
        (with_state({"n": pa.dictionary(pa.int8(), pa.string())}), "Keep the values themselves"),
    ],
)
def test_code_that_cannot_be_an_aggregate_is_refused_before_anything_runs(
    code: Any, said: str
) -> None:
    builder = PipelineBuilder().source("t", "x BIGINT", "json", {"path": "in"})
    pipeline = builder.aggregate("mine", code, "x BIGINT", "BIGINT").build()
    with pytest.raises(BadPipeline) as raised:
        check_code(pipeline, file="p.sql")
    assert "the aggregate 'mine' is" in str(raised.value)
    assert said in str(raised.value)


def test_an_object_is_an_aggregate_as_well_as_its_class() -> None:
    builder = PipelineBuilder().source("t", "x BIGINT", "json", {"path": "in"})
    check_code(builder.aggregate("mine", Sum(), "x BIGINT", "BIGINT").build(), file="p.sql")

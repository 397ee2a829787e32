"""Sessions of keys, step by step: as if all rows had come at once, whatever they came with."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lamina.engine.changing import PAIR, changes_of
from lamina.engine.model import OperatorPlan
from lamina.engine.ports import CHANGE, NEW
from lamina.engine.sessions import Sessions
from lamina.engine.steps import Stepped, Stepping
from lamina.errors import Overflow
from lamina.pipeline.model import Emit
from lamina.state.merge import Merge

TIME = pa.timestamp("us", "UTC")
STEP = Sessions("s", "e", (Merge("sum", ("total",)), Merge("count", ("n",))))
ROWS = pa.schema(
    [("k", pa.int64()), ("s", TIME), ("e", TIME), ("total", pa.int64()), ("n", pa.int64())]
)
LISTS = pa.schema([pa.field(each.name, pa.list_(each.type)) for each in list(ROWS)[1:]])
Session = tuple[int, int, int, int, int]


def stepped(
    state: dict[int, dict[str, list[int]]],
    rows: list[Session],
    due: set[int],
    floor: int | None,
    step: Sessions = STEP,
) -> tuple[list[Session], dict[int, int | None]]:
    """One epoch of the step; the sessions that come out, and the timers of the keys."""
    keys = sorted({row[0] for row in rows} | due)
    old = [state.get(key) for key in keys]
    columns = [
        pa.array([None if each is None else each[field.name] for each in old], field.type)
        for field in LISTS
    ]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(ROWS)],
        schema=ROWS,
    )
    made: Stepped = step.step(
        Stepping(
            pa.record_batch({"k": pa.array(keys, pa.int64())}),
            pa.RecordBatch.from_arrays(columns, schema=LISTS),
            np.array([each is not None for each in old]),
            batch,
            np.array([keys.index(row[0]) for row in rows], np.int64),
            np.array([key in due for key in keys]),
            floor,
        )
    )
    assert made.gone is not None
    assert made.output is not None
    assert made.timers is not None
    values = pa.RecordBatch.from_arrays(
        [column.cast(pa.list_(pa.int64())) for column in made.values.columns], LISTS.names
    ).to_pylist()
    for key, value, gone in zip(keys, values, made.gone, strict=True):
        state[key] = value
        if gone:
            del state[key]
    out = [column.cast(pa.int64()).to_pylist() for column in made.output.columns]
    timers = made.timers.cast(pa.int64()).to_pylist()
    return list(zip(*out, strict=True)), dict(zip(keys, timers, strict=True))


def islands(rows: list[Session]) -> list[Session]:
    """In plain Python: what begins at the end of what is before it, or earlier, is a part of it."""
    by_key = defaultdict(list)
    for key, start, end, total, n in sorted(rows):
        sessions = by_key[key]
        if sessions and start <= sessions[-1][2]:
            _, first, until, more, others = sessions.pop()
            sessions.append((key, first, max(end, until), total + more, n + others))
        else:
            sessions.append((key, start, end, total, n))
    return [each for sessions in by_key.values() for each in sessions]


@pytest.mark.parametrize("seed", range(30))
def test_sessions_of_epochs_are_those_of_all_rows(seed: int) -> None:
    rng = random.Random(seed)
    rows: list[Session] = []
    for _ in range(rng.randint(1, 120)):
        start = rng.randint(0, 300)
        end = start + rng.choice([1, 5, 10, rng.randint(1, 60)])
        rows.append((rng.randint(0, 4), start, end, rng.randint(-9, 9), 1))
    state: dict[int, dict[str, list[int]]] = {}
    for epoch in range(5):
        out, _ = stepped(state, rows[epoch::5], set(), None)
        assert not out, "nothing is known to be over"
    out, timers = stepped(state, [], set(state), 1 << 60)
    assert sorted(out) == sorted(islands(rows))
    assert not state
    assert set(timers.values()) == {None}


@pytest.mark.parametrize("seed", range(10))
def test_rows_form_the_sessions_of_their_epoch_and_are_counted(seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        (rng.randint(0, 3), start, start + rng.randint(1, 20), rng.randint(-9, 9), 1)
        for start in (rng.randint(0, 200) for _ in range(rng.randint(1, 80)))
    ]
    plan = OperatorPlan(
        key_schema=pa.schema([ROWS.field("k")]).serialize().to_pybytes(),
        value_schema=LISTS.serialize().to_pybytes(),
        step=STEP,
        time=None,
        emit=Emit.ON_WINDOW_CLOSE,
        rows_schema=ROWS.serialize().to_pybytes(),
    )
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), ROWS, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=ROWS)
    counted = batch.append_column("_rows", pa.array([1] * len(rows), pa.int64()))
    halves = [counted.slice(0, len(rows) // 2), counted.slice(len(rows) // 2)]
    (made,) = STEP.formed(plan, halves)
    expected = sorted((*session, session[-1]) for session in islands(rows))
    found = [made.column(name).cast(pa.int64()).to_pylist() for name in counted.schema.names]
    assert sorted(zip(*found, strict=True)) == expected, "the last column counts rows, as n does"
    (again,) = STEP.formed(plan, [made])
    assert again.equals(made), "what Spark has formed is passed on"


@pytest.mark.parametrize("seed", range(30))
def test_changes_of_sessions_come_to_those_of_all_rows(seed: int) -> None:
    """What is taken back is there, and no two rows of a key have the same end at any time."""
    rng = random.Random(seed)
    step = replace(STEP, gives_changes=True)
    rows: list[Session] = []
    for _ in range(rng.randint(1, 120)):
        start = rng.randint(0, 300)
        rows.append((rng.randint(0, 2), start, start + rng.choice([1, 5, 10, 40]), 1, 1))
    state: dict[int, dict[str, list[int]]] = {}
    shown: dict[tuple[int, int], Session] = {}
    kinds: set[str] = set()
    for epoch in range(6):
        out, _ = stepped(state, rows[epoch::5] if epoch < 5 else [], set(state), None, step)
        changes = changes_of(_batch(out)) if out else pa.record_batch({CHANGE: pa.array([], "str")})
        kinds |= set(changes[CHANGE].to_pylist())
        listed = [tuple(each.values()) for each in changes.to_pylist()]
        for *session, kind in sorted(listed, key=lambda each: each[-1] in NEW):
            found: Session = tuple(session)
            if kind in NEW:
                assert (found[0], found[2]) not in shown
                shown[found[0], found[2]] = found
            else:
                assert shown.pop((found[0], found[2])) == found
    assert sorted(shown.values()) == sorted(islands(rows))
    out, _ = stepped(state, [], set(state), 1 << 60, step)
    assert not out, "what closes has come out already"
    assert not state
    assert kinds <= {"+I", "-U", "+U", "-D"}


def test_a_session_whose_end_stays_is_replaced_and_one_that_grows_is_another_row() -> None:
    """A sink that writes by key ignores -U: the row of another end would stay."""
    step = replace(STEP, gives_changes=True)
    state: dict[int, dict[str, list[int]]] = {}
    stepped(state, [(1, 5, 10, 1, 1), (1, 20, 30, 1, 1), (1, 50, 60, 1, 1)], set(), None, step)
    out, _ = stepped(state, [(1, 2, 7, 1, 1), (1, 25, 35, 1, 1)], set(), None, step)
    changes = [tuple(each.values()) for each in changes_of(_batch(out)).to_pylist()]
    assert sorted(changes, key=str) == [
        (1, 2, 10, 2, 2, "+U"),
        (1, 20, 30, 1, 1, "-D"),
        (1, 20, 35, 2, 2, "+I"),
        (1, 5, 10, 1, 1, "-U"),
    ]


def _batch(rows: list[Session]) -> pa.RecordBatch:
    names = [*ROWS.names, PAIR]
    return pa.record_batch(
        {n: pa.array(c) for n, c in zip(names, zip(*rows, strict=True), strict=True)}
    )


def test_a_bag_of_a_single_session_has_each_value_once() -> None:
    """Spark gives values as it found them; a session that met no other was kept as it came."""
    kind = pa.list_(pa.struct([("v", pa.float64()), ("n", pa.int64())]))
    rows = pa.record_batch(
        {
            "s": pa.array([0], TIME),
            "e": pa.array([10], TIME),
            "bag": pa.array([[{"v": v, "n": 1} for v in (2.0, -0.0, 0.0, 2.0)]], kind),
        }
    )
    old = pa.RecordBatch.from_arrays(
        [pa.nulls(1, pa.list_(each.type)) for each in rows.schema], rows.schema.names
    )
    nothing = np.zeros(1, np.bool_)
    keys = pa.record_batch({"k": pa.array([1])})
    step = Sessions("s", "e", (Merge("bag", ("bag",)),))
    made = step.step(Stepping(keys, old, nothing, rows, np.zeros(1, np.int64), nothing, None))
    ((bag,),) = made.values.column("bag").to_pylist()
    assert [(each["v"], each["n"]) for each in bag] == [(0.0, 2), (2.0, 2)]


def test_an_error_while_sessions_meet_says_what_the_column_holds() -> None:
    state: dict[int, dict[str, list[int]]] = {}
    step = replace(STEP, called=(("total", "sum(v)"),))
    most = (1 << 63) - 1
    with pytest.raises(Overflow, match=r"sum\(v\)"):
        stepped(state, [(1, 0, 10, most, 1), (1, 5, 12, most, 1)], set(), None, step)


def test_a_session_closes_at_the_watermark_and_others_stay() -> None:
    state: dict[int, dict[str, list[int]]] = {}
    stepped(state, [(1, 0, 10, 1, 1), (1, 20, 30, 2, 1), (2, 20, 31, 4, 1)], set(), None)
    out, timers = stepped(state, [], {1, 2}, 31)  # the watermark is 30
    assert sorted(out) == [(1, 0, 10, 1, 1), (1, 20, 30, 2, 1)]
    assert timers == {1: None, 2: 31}
    assert state == {2: {"s": [20], "e": [31], "total": [4], "n": [1]}}


def test_the_timer_is_the_end_of_the_first_session_that_is_open() -> None:
    state: dict[int, dict[str, list[int]]] = {}
    _, timers = stepped(state, [(1, 50, 60, 1, 1), (1, 0, 10, 1, 1), (1, 5, 12, 1, 1)], set(), 3)
    assert timers == {1: 12}
    assert state[1]["s"] == [0, 50]


def test_a_new_column_is_null_for_sessions_that_were_open_before() -> None:
    """An aggregate was added, and a person has said that the state still means the same."""
    state = {1: {"s": [0, 50], "e": [10, 60], "total": [3, 4], "n": None}}
    stepped(state, [(1, 5, 12, 1, 1), (2, 0, 1, 0, 1)], set(), None)  # type: ignore[arg-type]
    assert state[1] == {"s": [0, 50], "e": [12, 60], "total": [4, 4], "n": [1, None]}

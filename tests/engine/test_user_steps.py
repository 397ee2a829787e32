"""A user's keyed step: what it is given, what it may give, and what is said if it gives wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lamina.engine.steps import Stepped, Stepping
from lamina.engine.user_columns import Columns, KeyedResult, Keys, Rows
from lamina.engine.user_steps import EXPIRES, TIME, UserStep, initial_of
from lamina.errors import Refused

STATE = pa.schema([("n", pa.int64()), ("last", TIME)])
OUTPUT = pa.schema([("k", pa.string()), ("n", pa.int64())])
ROWS = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", TIME)])
Function = Callable[[Keys, Rows, Columns], Any]


def step_of(function: Function, **more: Any) -> UserStep:
    schemas = (STATE.serialize().to_pybytes(), OUTPUT.serialize().to_pybytes())
    return UserStep("s", function, *schemas, **{"time": "ts", **more})


def given(
    rows: Sequence[tuple[int, int, int]],
    old: Sequence[tuple[int, int] | None],
    *,
    due: Sequence[bool] | None = None,
    floor: int | None = None,
    expires: Sequence[int | None] | None = None,
) -> Stepping:
    """Rows are (number of the key, v, ts); a key without old values is not found."""
    keys = pa.record_batch({"k": [f"k{i}" for i in range(len(old))]})
    columns = [
        pa.array([None if each is None else each[0] for each in old], pa.int64()),
        pa.array([None if each is None else each[1] for each in old], pa.int64()).cast(TIME),
    ]
    names = STATE.names
    if expires is not None:
        columns, names = [*columns, pa.array(expires, pa.int64()).cast(TIME)], [*names, EXPIRES]
    return Stepping(
        keys,
        pa.RecordBatch.from_arrays(columns, names=names),
        np.array([each is not None for each in old]),
        pa.record_batch(
            [
                pa.array([f"k{key}" for key, _, _ in rows], pa.string()),
                pa.array([v for _, v, _ in rows], pa.int64()),
                pa.array([ts for _, _, ts in rows], pa.int64()).cast(TIME),
            ],
            schema=ROWS,
        ),
        np.array([key for key, _, _ in rows], np.int64),
        np.zeros(len(old), np.bool_) if due is None else np.array(due),
        floor,
    )


def counted(keys: Keys, rows: Rows, state: Columns) -> Any:
    n = state.numpy("n", 0) + rows.counts
    last = state.numpy("last", np.datetime64(0, "us"))
    np.maximum.at(last, rows.key_of, rows.numpy("ts"))
    return {"n": n, "last": last}, {"k": keys["k"], "n": n}


def values(stepped: Stepped) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = stepped.values.to_pylist()
    return rows


def test_rows_of_a_key_stand_together_in_the_order_of_time() -> None:
    seen: list[Any] = []

    def look(keys: Keys, rows: Rows, state: Columns) -> Any:
        seen.extend([rows["v"].to_pylist(), rows.starts.tolist(), rows.key_of.tolist()])
        seen.extend([keys.is_new.tolist(), keys.watermark, len(rows), len(keys)])
        return state.batch, None

    step_of(look).step(given([(2, 1, 9), (0, 2, 5), (2, 3, 4), (0, 4, 3)], [None, None, (1, 1)]))
    assert seen == [[4, 2, 3, 1], [0, 2, 2, 4], [0, 0, 2, 2], [True, True, False], None, 4, 3]


def test_state_and_output_come_back_in_their_types() -> None:
    made = step_of(counted).step(given([(0, 1, 7), (1, 1, 3), (1, 1, 2)], [None, (5, 9)], floor=4))
    assert [row["n"] for row in values(made)] == [1, 7]
    assert made.values.column("last").cast(pa.int64()).to_pylist() == [7, 9]
    assert made.output is not None
    assert made.output.to_pylist() == [{"k": "k0", "n": 1}, {"k": "k1", "n": 7}]
    assert made.gone is None
    assert made.timers is None


def test_a_key_without_state_starts_with_what_is_said() -> None:
    initial = initial_of([("n", 100)], STATE)
    made = step_of(counted, initial=initial).step(given([(0, 1, 7), (1, 1, 3)], [None, (5, 9)]))
    assert [row["n"] for row in values(made)] == [101, 6]


def test_timers_and_what_is_gone_go_through() -> None:
    def called(keys: Keys, rows: Rows, state: Columns) -> KeyedResult:
        assert keys.watermark == np.datetime64(9, "us")
        return KeyedResult(state, timers=np.array([20, "NaT"], "M8[us]"), gone=keys.due)

    some = given([(0, 1, 12)], [(1, 1), (2, 2)], due=[False, True], floor=10)
    made = step_of(called, has_timers=True).step(some)
    assert made.timers is not None
    assert made.timers.cast(pa.int64()).to_pylist() == [20, None]
    assert made.gone is not None
    assert made.gone.tolist() == [False, True]


def test_with_a_ttl_what_has_expired_starts_anew_or_is_gone() -> None:
    """k0 is new, k1 lives on, k2 has expired and has rows, k3 has expired and has none."""
    some = given(
        [(0, 1, 30), (1, 1, 31), (2, 1, 32), (1, 1, 29)],
        [None, (5, 28), (5, 3), (5, 2)],
        due=[False, False, True, True],
        floor=20,
        expires=[None, 48, 13, 12],
    )
    made = step_of(counted, ttl_us=10).step(some)
    assert [row["n"] for row in values(made)] == [1, 7, 1, None]
    assert made.values.column(EXPIRES).cast(pa.int64()).to_pylist() == [40, 48, 42, None]
    assert made.timers is not None
    assert made.timers.cast(pa.int64()).to_pylist() == [40, 48, 42, None]
    assert made.gone is not None
    assert made.gone.tolist() == [False, False, False, True]
    assert made.output is not None
    assert made.output.to_pylist() == [{"k": f"k{i}", "n": n} for i, n in enumerate([1, 7, 1])]


def test_a_function_is_not_called_for_keys_that_only_expire() -> None:
    def never(keys: Keys, rows: Rows, state: Columns) -> Any:
        raise AssertionError

    some = given([], [(1, 1)], due=[True], floor=20, expires=[5])
    made = step_of(never, ttl_us=10).step(some)
    assert made.gone is not None
    assert made.gone.tolist() == [True]


def test_a_time_at_the_end_of_all_times_does_not_overflow() -> None:
    last = np.iinfo(np.int64).max - 5
    made = step_of(counted, ttl_us=10).step(given([(0, 1, last)], [None], expires=[None]))
    assert made.values.column(EXPIRES).cast(pa.int64()).to_pylist() == [np.iinfo(np.int64).max - 1]


def fails_for_k2(keys: Keys, rows: Rows, state: Columns) -> Any:
    if "k2" in keys["k"].to_pylist():
        raise ValueError("not\nthis one")
    return counted(keys, rows, state)


def test_a_function_that_raises_is_named_with_its_key() -> None:
    some = given([(i, 1, i) for i in range(5)], [None] * 5)
    with pytest.raises(Refused) as raised:
        step_of(fails_for_k2).step(some)
    said = str(raised.value)
    assert "the function of the stream 's' failed for the key k 'k2': ValueError: not this" in said
    assert "test_user_steps.py:" in said


N = pa.array([1, 2])
LAST = pa.array([1, 2]).cast(TIME)
WRONG: list[tuple[Any, str]] = [
    (None, "has given a NoneType"),
    (({"n": N}, None), "its state has the columns n, and declared are n, last"),
    (({"n": N, "last": LAST, "more": N}, None), "its state has the columns n, last, more"),
    (({"n": N.slice(1), "last": LAST.slice(1)}, None), "its state has 1 rows for 2 keys"),
    (({"n": N, "last": LAST.slice(1)}, None), "columns of the lengths [1, 2]"),
    (({"n": N.cast(pa.int32()), "last": LAST}, None), "'n' of int32, declared is int64"),
    (({"n": ["a", "b"], "last": LAST}, None), "a 'n' that is not int64"),
    (({"n": np.array([0.5, 1.0]), "last": LAST}, None), "a 'n' that is not int64"),
    ((N, None), "its state is a Int64Array"),
    (({"n": N, "last": LAST}, {"k": ["a"]}), "its output has the columns k, and declared are k, n"),
    (({"n": N, "last": LAST}, {"k": ["a"], "n": ["b"]}), "its output has a 'n' that is not"),
    (KeyedResult({"n": N, "last": LAST}, timers=LAST), "has given timers, and none are declared"),
    (KeyedResult({"n": N, "last": LAST}, gone=[True]), "what is gone has 1 rows for 2 keys"),
    (KeyedResult({"n": N, "last": LAST}, gone=[True, None]), "what is gone has nulls"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG)
def test_what_does_not_fit_is_refused_by_name(wrong: Any, said: str) -> None:
    with pytest.raises(Refused) as raised:
        step_of(lambda *_: wrong).step(given([(0, 1, 1), (1, 1, 1)], [None, None]))
    assert "the function of the stream 's'" in str(raised.value)
    assert said in str(raised.value)

"""What columns of state hold: names for people, and which column is which after a change."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from lamina.errors import Corrupt, StateChanged, UsageError
from lamina.state.meanings import as_stored, for_people, names_for_people
from lamina.state.merge import Merge
from lamina.state.schema import MEANINGS_META, StateSchema, schema_of_run

WINDOW = "window(ts, '1 minute')"
TIME = pa.timestamp("us", "UTC")


def state(
    *parts: str, keys: tuple[str, ...] = ("symbol",), definition: str | None = "one"
) -> StateSchema:
    """State of sums: columns k0, k1, ... and p0, p1, ... in the order of their meanings."""
    values = [f"p{number}" for number in range(len(parts))]
    return StateSchema(
        pa.schema([(f"k{number}", pa.string()) for number in range(len(keys))]),
        pa.schema([(name, pa.int64()) for name in values]),
        merges=tuple(Merge("sum", (name,)) for name in values),
        definition=definition,
        meanings=(*keys, *parts),
    )


def held(schema: StateSchema) -> dict[str, str]:
    return dict(zip(schema.row.names, schema.meanings, strict=True))


def test_columns_that_changed_places_are_found_by_what_they_hold() -> None:
    """State was attached by place: sums of one column went on as sums of another."""
    today = state("sum(b)", "sum(c)", "sum(a)", definition="two")
    found = as_stored(state("sum(a)", "sum(b)", "sum(c)"), today, "s", reuse=True)
    assert held(found) == {"k0": "symbol", "p0": "sum(a)", "p1": "sum(b)", "p2": "sum(c)"}
    assert found.value.names == ["p1", "p2", "p0"]
    assert found.merges == tuple(Merge("sum", (name,)) for name in ("p1", "p2", "p0"))


def test_a_new_aggregate_gets_a_name_that_no_other_column_has() -> None:
    today = state("count(*)", "sum(b)", "sum(a)", definition="two")
    found = as_stored(state("sum(a)", "sum(b)"), today, "s", reuse=True)
    assert held(found) == {"k0": "symbol", "p0": "sum(a)", "p1": "sum(b)", "p2": "count(*)"}


def test_by_the_same_definition_columns_stay_where_they_are() -> None:
    """After a change was accepted, the names of the state are no longer in order."""
    stored = as_stored(
        state("sum(a)", "sum(b)"), state("sum(b)", "sum(a)", definition="two"), "s", reuse=True
    )
    again = as_stored(stored, state("sum(b)", "sum(a)", definition="two"), "s", reuse=False)
    assert held(again) == held(stored)
    spelled = state("sum( b )", "sum( a )", definition="two")  # of a release that spells otherwise
    assert as_stored(stored, spelled, "s", reuse=False).value.names == stored.value.names


def test_one_aggregate_may_be_written_anew_and_two_may_not() -> None:
    stored = state("sum(a)", "sum(b)")
    today = state("sum(b)", "sum(a * 2)", definition="two")
    found = as_stored(stored, today, "s", reuse=True)
    assert held(found) == {"k0": "symbol", "p0": "sum(a * 2)", "p1": "sum(b)"}
    with pytest.raises(StateChanged, match=r"has sum\(a\), sum\(b\), and the SELECT has sum\(x\),"):
        as_stored(stored, state("sum(x)", "sum(y)", definition="two"), "s", reuse=True)
    counted = replace(today, merges=(Merge("sum", ("p0",)), Merge("count", ("p1",))))
    with pytest.raises(StateChanged, match="unclear which is which"):
        as_stored(stored, counted, "s", reuse=True)


def test_an_aggregate_that_is_gone_is_named() -> None:
    with pytest.raises(StateChanged, match=r"its state has sum\(b\), and the SELECT has not"):
        as_stored(state("sum(a)", "sum(b)"), state("sum(a)", definition="two"), "s", reuse=True)


def test_keys_in_another_order_are_refused_by_name() -> None:
    """Their hash would be another one; before, one key's values were taken for the other's."""
    stored = state("sum(a)", keys=("symbol", "side"))
    today = state("sum(a)", keys=("side", "symbol"), definition="two")
    with pytest.raises(StateChanged, match="keys are side, symbol, and symbol, side in its") as why:
        as_stored(stored, today, "s", reuse=True)
    assert "order of the state" in why.value.advice
    today = state("sum(a)", keys=("upper(symbol)", "side"), definition="two")
    assert as_stored(stored, today, "s", reuse=True) == today


def test_state_that_does_not_say_what_it_holds_goes_on_only_by_its_own_definition() -> None:
    unsaid = replace(state("sum(a)"), meanings=())
    assert as_stored(unsaid, state("sum(a)"), "s", reuse=True).value.names == ["p0"]
    with pytest.raises(StateChanged, match="does not say what its columns hold") as why:
        as_stored(unsaid, state("sum(a)", definition="two"), "s", reuse=True)
    assert "Run the old SELECT once" in why.value.advice


def test_people_see_what_columns_hold() -> None:
    names = ["k0", "k1_start", "k1_end", "p0"]
    meanings = ["symbol", f"{WINDOW}.start", f"{WINDOW}.end", "sum(price * volume)"]
    shown = ["symbol", "window_start", "window_end", "sum(price * volume)"]
    assert names_for_people(names, meanings) == shown
    assert names_for_people(names, ()) == names
    taken = ["window_start", f"{WINDOW}.start", f"{WINDOW}.end", "window_start"]
    shown = ["window_start", f"{WINDOW}.start", "window_end", "p0"]
    assert names_for_people(names, taken) == shown


def test_a_schema_for_people_has_their_names_throughout() -> None:
    schema = StateSchema(
        pa.schema([("k0", pa.string()), ("k1_start", TIME), ("k1_end", TIME)]),
        pa.schema([("p0", pa.int64())]),
        time="k1_end",
        merges=(Merge("sum", ("p0",)),),
        meanings=("symbol", f"{WINDOW}.start", f"{WINDOW}.end", "sum(x)"),
    )
    shown = for_people(schema)
    assert shown.row.names == ["symbol", "window_start", "window_end", "sum(x)"]
    assert shown.time == "window_end"
    assert for_people(shown) is shown


def test_meanings_are_in_a_runs_schema_and_are_read_back() -> None:
    schema = state("sum(a)")
    assert schema_of_run(schema.run) == schema
    unsaid = replace(schema, meanings=())
    assert MEANINGS_META not in unsaid.run.metadata
    metadata = {**schema.run.metadata, MEANINGS_META: b'["symbol"]'}
    with pytest.raises(Corrupt, match="meanings"):
        schema_of_run(schema.run.with_metadata(metadata))
    with pytest.raises(UsageError, match="2 columns have 1 meanings"):
        replace(schema, meanings=("symbol",))


class _Sums:
    def merge(self, old: pa.Array, new: pa.Array) -> pa.Array:
        return pa.concat_arrays([old, new])


def test_a_merge_keeps_its_code_under_other_names() -> None:
    """Of a user's own aggregate: what is stored has the columns, and no code."""
    code = _Sums()
    today = state("mine(b)", "sum(a)", definition="two")
    today = replace(today, merges=(Merge("sum", ("p0",), code=code), Merge("sum", ("p1",))))
    found = as_stored(state("sum(a)", "mine(b)"), today, "s", reuse=True)
    assert [merge.code for merge in found.merges] == [code, None]
    assert found.merges[0].columns == ("p1",)

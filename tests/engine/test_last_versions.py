"""Versions of rows by key become changes: against a plain dictionary, epoch after epoch."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lamina.engine.changing import changes_of
from lamina.engine.last_versions import AT, GONE, PLACE, LastVersions
from lamina.engine.ports import CHANGE
from lamina.engine.steps import Stepping
from lamina.errors import Refused

STEP = LastVersions("s", ("name", "id", "size"))
VALUES = pa.schema([("name", pa.string()), ("size", pa.int64()), (PLACE, pa.string())])
ROWS = pa.schema([("id", pa.int64()), *VALUES, (GONE, pa.bool_()), (AT, pa.int64())])
Version = tuple[int, str | None, int | None, str, bool]  # id, name, size, place, gone
State = dict[int, tuple[Any, ...]]


def given(versions: list[Version], state: State, random: Random) -> Stepping:
    """The rows of an epoch, in no order, for a task that has *state*."""
    keys = sorted({each[0] for each in versions})
    numbered = list(enumerate(versions))
    random.shuffle(numbered)
    listed = [
        {"id": k, "name": n, "size": s, PLACE: p, GONE: g, AT: at}
        for at, (k, n, s, p, g) in numbered
    ]
    old = [dict(zip(VALUES.names, state[key], strict=True)) if key in state else {} for key in keys]
    return Stepping(
        keys=pa.RecordBatch.from_pydict({"id": keys}),
        old=pa.RecordBatch.from_pylist(old, VALUES),
        found=np.array([key in state for key in keys], np.bool_),
        rows=pa.RecordBatch.from_pylist(listed, ROWS),
        key_of=np.array([keys.index(each["id"]) for each in listed], np.int64),
        due=np.zeros(len(keys), np.bool_),
    )


def stepped(versions: list[Version], state: State, random: Random) -> list[dict[str, Any]]:
    """The changes of an epoch; *state* is as it is after it."""
    asked = given(versions, state, random)
    made = STEP.step(asked)
    assert made.gone is not None
    assert made.same is not None
    assert made.output is not None
    keys, rows = asked.keys.column(0).to_pylist(), made.values.to_pylist()
    for key, row, gone, same in zip(keys, rows, made.gone, made.same, strict=True):
        before = state.pop(key, None)
        if not gone:
            state[key] = tuple(row.values())
        assert same == (before is not None and before == state.get(key))
    found: list[dict[str, Any]] = changes_of(made.output).to_pylist()
    return found


@pytest.mark.parametrize("seed", range(20))
def test_changes_are_those_of_the_last_version_of_each_row(seed: int) -> None:
    random, state, table = Random(seed), State(), State()
    for _ in range(12):
        versions: list[Version] = []
        for _ in range(random.randrange(1, 15)):
            key = random.randrange(6)
            name, size = random.choice(("a", None)), random.choice((1, None))
            versions.append((key, name, size, f"t/{key % 2}", random.random() < 0.3))
        versions += versions[-random.randrange(1, 4) :]  # events that come again
        before = dict(table)
        for key, name, size, _, gone in versions:
            table.pop(key, None)
            if not gone:
                table[key] = (name, key, size)
        left = dict(before)
        changes = stepped(versions, state, random)
        for each in sorted(changes, key=lambda row: row[CHANGE] in ("+I", "+U")):
            row = (each["name"], each["id"], each["size"])
            if each[CHANGE] in ("-U", "-D"):
                assert left.pop(each["id"]) == row
            else:
                assert each["id"] not in left
                left[each["id"]] = row
        assert left == table
        moved = {key for key in {*before, *table} if before.get(key) != table.get(key)}
        assert {each["id"] for each in changes} == moved, "rows that stay are not mentioned"


def test_an_event_that_comes_again_in_a_later_epoch_changes_nothing() -> None:
    random, state = Random(1), State()
    created: Version = (1, "a", 1, "t/0", False)
    assert [each[CHANGE] for each in stepped([created], state, random)] == ["+I"]
    assert stepped([created], state, random) == []
    removed: Version = (1, None, None, "t/0", True)
    assert [each[CHANGE] for each in stepped([removed], state, random)] == ["-D"]
    assert stepped([removed], state, random) == []
    assert state == {}


def test_versions_of_one_row_from_two_places_are_refused() -> None:
    random, state = Random(1), State()
    here: Version = (1, "a", 1, "t/0", False)
    there: Version = (1, "b", 1, "t/1", False)
    with pytest.raises(Refused, match="nobody knows which of them is the last"):
        stepped([here, there], state, random)
    stepped([here], state, random)
    with pytest.raises(Refused, match="the row id 1 come from t/0 and from t/1"):
        stepped([there], state, random)

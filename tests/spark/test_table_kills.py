"""Killed with SIGKILL between plan and COMMIT, on Spark; then the table is another one."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.spark.running import Place, batch, comparable
from tests.spark.test_joins import ORDERS, cut, orders_of
from tests.spark.test_tables import ITEM_ROWS, ITEMS, QUERIES, put_tables, show, text_of
from tests.spark.victims import Nursery

IS_LONG = "LAMINA_KILLS" in os.environ
NAMES = ("lefts", "inner")


@pytest.mark.skipif(not IS_LONG, reason="LAMINA_KILLS=100 kills; tests/engine does without Spark")
def test_an_epoch_that_was_killed_meets_the_version_that_is_there_then(
    spark: Any, processes: Nursery, tmp_path: Path
) -> None:
    place, epochs = Place(tmp_path), cut(orders_of(random.Random(3), 45), 3)
    Place(tmp_path / "orders").put_json(epochs)
    put_tables(tmp_path)
    text = text_of({name: QUERIES[name] for name in NAMES})
    (tmp_path / "kills.sql").write_text(text)
    asked = {
        "folder": str(tmp_path),
        "home": "home",
        "partitions": 2,
        "rows": None,
        "checkpoint_epochs": 0,
    }
    child = processes.child()
    child.tell({**asked, "bomb": ["before COMMIT", 2, signal.SIGKILL]})
    said = list(child.events())
    assert child.wait() == -signal.SIGKILL, child.said()
    assert said[-1] == {"event": "at", "place": "before COMMIT"}
    later = [{**row, "name": "later"} for row in ITEM_ROWS]
    put_tables(tmp_path, later)
    child = processes.child()
    child.tell(asked)
    assert child.until("ended", "error")["event"] == "ended"
    wanted: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
    for rows, items in zip(epochs, (ITEM_ROWS, later, later), strict=True):
        show(spark, "o", ORDERS, rows)
        show(spark, "items", ITEMS, items)
        for name in NAMES:
            wanted[name] += batch(spark, QUERIES[name])
    for name in NAMES:
        assert comparable(place.rows(name)) == comparable(wanted[name]), name

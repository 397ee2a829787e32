"""Commits of an Iceberg sink with a wrong answer, a clock that went back, or no answer at all."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from lamina.connectors.iceberg.catalog import Outdated
from lamina.errors import Fenced
from tests.contract.sinks import PIPELINE
from tests.contract.test_iceberg_sink import WORDS, At, Shop, append_beside, listed, words


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


# a commit that counted, and was refused


def refused_after(act: Any) -> At:
    """The catalog does the commit, and answers a second copy of the request; meanwhile, *act*."""

    def refuse() -> None:
        act()
        raise Outdated("409")

    return At("commit done", refuse)


def test_files_of_a_commit_that_counted_stay_though_a_claim_came_before_its_refusal(
    shop: Shop,
) -> None:
    shop.claimed(WORDS)
    old = shop.sink(WORDS, hook=refused_after(lambda: shop.sink(WORDS).fence(2, PIPELINE)))
    with pytest.raises(Fenced):
        old.publish(shop.publication(1, words((1, "a"))))
    assert listed(shop.rows()) == [(1, "a")]


def test_files_stay_though_the_snapshot_that_counted_is_expired_already(shop: Shop) -> None:
    """Then the mark tells: it is at the epoch, or past it."""
    shop.claimed(WORDS)

    def replace() -> None:
        new = shop.sink(WORDS)
        new.fence(2, PIPELINE)
        new.publish(shop.publication(2, words((2, "b")), generation=2))
        table = shop.table()
        ids = [s.snapshot_id for s in table.snapshots() if s != table.current_snapshot()]
        table.maintenance.expire_snapshots().by_ids(ids).commit()

    old = shop.sink(WORDS, hook=refused_after(replace))
    with pytest.raises(Fenced):
        old.publish(shop.publication(1, words((1, "a"))))
    assert listed(shop.rows()) == [(1, "a"), (2, "b")]


def test_files_stay_though_the_mark_was_set_back(shop: Shop) -> None:
    """Then the snapshot tells, though it is not the newest one."""
    shop.claimed(WORDS)

    def set_back() -> None:
        append_beside(shop, (7, "theirs"))
        with shop.table().transaction() as transaction:
            transaction.set_properties({"lamina.generation": "2", "lamina.epoch": "0"})

    old = shop.sink(WORDS, hook=refused_after(set_back))
    with pytest.raises(Fenced):
        old.publish(shop.publication(1, words((1, "a"))))
    assert listed(shop.rows()) == [(1, "a"), (7, "theirs")]


# the clock


def test_a_clock_that_goes_back_does_not_take_the_history_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's readers refuse a table whose history goes back by more than a minute."""
    sink = shop.claimed(WORDS)
    sink.publish(shop.publication(1, words((1, "a"))))
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 3600)
    sink.publish(shop.publication(2, words((2, "b"))))
    sink.publish(shop.publication(3))
    monkeypatch.undo()
    sink.publish(shop.publication(4, words((4, "d"))))
    metadata = shop.table().metadata
    for times in (
        [entry.timestamp_ms for entry in metadata.snapshot_log],
        [entry.timestamp_ms for entry in metadata.metadata_log],
        [snapshot.timestamp_ms for snapshot in metadata.snapshots],
    ):
        assert times == sorted(times)
    assert metadata.last_updated_ms == metadata.snapshot_log[-1].timestamp_ms
    assert listed(shop.rows()) == [(1, "a"), (2, "b"), (4, "d")]

"""A start checks every range of the log that it replays, and checks none of them twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import lamina
from lamina.checkpoint.checkpointer import Checkpointer
from lamina.disk import LocalDisk
from lamina.recovery import RecoveryConfig, rehearse
from lamina.store import Store, open_store
from lamina.wal import reader
from lamina.wal.home import read_home
from tests.engine.pipelines import World, kill, run_out

Checks = Counter[tuple[str, int]]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    """How often each record, by segment and offset, was held against its checksum."""
    count: Checks = Counter()
    matches = reader.SegmentReader._matches

    def counting(self: reader.SegmentReader, *args: Any) -> bool:
        count[self.path, args[-1]] += 1
        return matches(self, *args)

    monkeypatch.setattr(reader.SegmentReader, "_matches", counting)
    return count


def to_replay(home: Path, store: Store, checks: Checks) -> list[tuple[str, int]]:
    """Where the ranges lie that the next start will replay; the count begins after this."""
    state = rehearse(read_home(LocalDisk(home)), Checkpointer(store), RecoveryConfig()).state
    checks.clear()
    return [(place.segment, place.offset) for c in state.replayed for place in c.ranges]


def test_an_engine_checks_every_range_that_it_replays_once(tmp_path: Path, checks: Checks) -> None:
    world = World(tmp_path)
    engine = world.open()
    run_out(engine, epochs=5)
    kill(engine)
    ranges = to_replay(world.home, world.store, checks)
    assert len(ranges) > len({segment for segment, _ in ranges}), "several in a segment"
    world.open().close()
    assert [checks[place] for place in ranges] == [1] * len(ranges)


def test_an_embedded_store_checks_every_range_that_it_replays_once(
    tmp_path: Path, checks: Checks
) -> None:
    with lamina.open(tmp_path) as store:
        for number in range(5):
            store.put(b"key", b"%d" % number)
            store.commit()
    ranges = to_replay(tmp_path / "home", open_store(str(tmp_path / "checkpoints")), checks)
    assert len(ranges) == 5
    with lamina.open(tmp_path) as store:
        assert store.get(b"key") == b"4"
    assert [checks[place] for place in ranges] == [1] * len(ranges)

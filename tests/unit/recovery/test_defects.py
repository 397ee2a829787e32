"""What went wrong in recovery, one test each, on the real code."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from lamina.disk import LocalDisk
from lamina.errors import NotFound, StoreError, WouldLose
from lamina.protocol.history import COPY_HOME
from lamina.recovery import RecoveryConfig
from lamina.store import MemoryStore
from tests.support.recoveries import Pipeline, recovered_state

TAKE_OVER = RecoveryConfig(partitions=2, take_over_home=True)


@pytest.fixture
def line(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


def test_a_loss_did_not_name_the_file_that_was_lost(line: Pipeline) -> None:
    line.start()
    line.epoch(1, {b"a": b"1"})
    line.checkpoint()
    for writer in line.logs.writers:
        writer.rotate()
    line.epoch(2, {b"a": b"2"})
    lost = line.commits[-1].ranges[0].segment
    line.stop()
    line.disk.unlink(lost)
    with pytest.raises(WouldLose) as caught:
        line.start()
    assert f"needed from epoch 2 on: {lost}" in caught.value.message
    assert "lose_after=1 in Python" in caught.value.advice
    found = line.start(RecoveryConfig(partitions=2, lose_after=1))
    assert recovered_state(found) == {b"a": b"1"}
    assert [point.epoch for point in found.report.given_up] == [2]


def test_what_another_home_acknowledged_was_reported_as_nothing_given_up(line: Pipeline) -> None:
    line.start()
    line.epoch(1, {b"a": b"1"})
    line.checkpoint()
    line.epoch(2, {b"a": b"2"})
    line.stop()
    owner = line.recovered.home.name
    assert line.start().report.given_up_home is None
    line.stop()
    line.home = "other"
    found = line.start(TAKE_OVER)
    assert (found.report.given_up, found.report.given_up_home) == ((), owner)
    assert found.report.head_epoch == 1
    line.stop()
    assert line.start().report.given_up_home is None


def test_a_copy_of_checkpoints_gives_up_no_home(line: Pipeline) -> None:
    line.manager()
    line._checkpointer.log.take_over(lambda _: f"{COPY_HOME}memory://", generation=1)
    assert line.start().report.given_up_home is None


class SweptStore(MemoryStore):
    """While a file of a checkpoint is fetched, somebody tidies up the scratch folder."""

    scratch: Path

    def get_range(self, key: str, start: int, size: int) -> bytes:
        if key.endswith(".snap"):
            shutil.rmtree(self.scratch, ignore_errors=True)
        return super().get_range(key, start, size)


def test_a_scratch_folder_that_went_away_was_taken_for_a_damaged_checkpoint(
    tmp_path: Path,
) -> None:
    store = SweptStore()
    store.scratch = tmp_path / "nowhere"
    line = Pipeline(tmp_path, store=store)
    line.start()
    line.epoch(1, {b"a": b"1"})
    line.checkpoint()
    line.stop()
    store.scratch = tmp_path / "scratch"
    with pytest.raises(StoreError, match="scratch folder was removed") as caught:
        line.start()
    assert caught.value.where.startswith(str(tmp_path / "scratch"))
    store.scratch = tmp_path / "nowhere"
    found = line.start()
    assert (found.report.skipped, recovered_state(found)) == ((), {b"a": b"1"})


def test_a_file_of_the_scratch_folder_that_went_away_later_is_named(line: Pipeline) -> None:
    line.start()
    line.epoch(1, {b"a": b"1"})
    line.checkpoint()
    line.stop()
    found = line.start()
    shutil.rmtree(line.root / "scratch")
    with pytest.raises(NotFound) as caught:
        recovered_state(found)
    assert str(line.root / "scratch") in caught.value.where


def test_a_segment_was_opened_again_for_every_range(
    line: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.start()
    for epoch in range(1, 21):
        line.epoch(epoch, {b"a": b"%d" % epoch, b"b": b"%d" % epoch})
    line.stop()
    looks: Counter[str] = Counter()
    size = LocalDisk.size

    def counted(self: LocalDisk, path: str) -> int:
        looks[path] += 1
        return size(self, path)

    monkeypatch.setattr(LocalDisk, "size", counted)
    found = line.start()
    assert recovered_state(found) == line.state
    cores = {place.segment for commit in line.commits for place in commit.ranges}
    assert len(cores) == 2
    # the scan asks if it is there and reads its tail; the proof and the replay open it; a new
    # writer looks where it may go on
    assert all(looks[path] <= 8 for path in cores)

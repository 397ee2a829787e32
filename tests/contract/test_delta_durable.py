"""On a file system deltalake syncs nothing. The sink does, before it says that it is there."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from lamina.connectors.delta.place import LocalPlace
from lamina.engine.ports import Publication
from lamina.testing.faulty import Killed
from tests.contract.sinks import PIPELINE
from tests.contract.test_delta_sink import MONDAY, claimed
from tests.support.delta_tables import DeltaShop, rows
from tests.support.syncs import Syncs, record_syncs

WAYS = [{}, {"partition_by": "day"}, {"keys": "k"}, {"compact": "1"}]


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return record_syncs(monkeypatch)


def killed_at(place: str, shop: DeltaShop, publication: Publication) -> None:
    def hook(call: str) -> None:
        if call == place:
            raise Killed(call)

    with pytest.raises(Killed):
        shop.open(hook).publish(publication)


@pytest.mark.parametrize("options", WAYS)
def test_what_was_published_is_on_disk(
    tmp_path: Path, syncs: Syncs, options: dict[str, str]
) -> None:
    shop = DeltaShop(tmp_path, options=options)
    sink = claimed(shop)
    assert syncs.lost(shop.table) == []
    for epoch in range(1, 13):
        sink.publish(shop.publication(epoch, rows((epoch % 5, MONDAY, "a"))))
        assert syncs.lost(shop.table) == [], f"after epoch {epoch}"
    assert (shop.table / "_delta_log" / "_last_checkpoint").exists()


@pytest.mark.parametrize("options", WAYS)
def test_files_are_on_disk_before_a_version_names_them(
    tmp_path: Path, syncs: Syncs, options: dict[str, str]
) -> None:
    shop = DeltaShop(tmp_path, options=options)
    claimed(shop).publish(shop.publication(1, rows((1, MONDAY, "a"))))
    looked = []

    def look(call: str) -> None:
        if call == "commit":
            looked.append(syncs.lost(shop.table))

    shop.open(look).publish(shop.publication(2, rows((1, None, "b"))))
    assert looked
    assert all(lost == [] for lost in looked)


def test_a_staged_file_that_cannot_be_linked_is_copied_and_synced(
    tmp_path: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = DeltaShop(tmp_path)
    sink = claimed(shop)
    publication = shop.publication(1, rows((1, MONDAY, "a")))
    monkeypatch.setattr(publication.staged.__class__, "local_path", lambda *_: None)
    sink.publish(publication)
    assert syncs.lost(shop.table) == []
    assert [row[0] for row in shop.listed()] == [1]


@pytest.mark.parametrize("asked", ["position", "fence"])
def test_killed_between_a_commit_and_its_sync_the_next_process_syncs_it_before_it_counts(
    tmp_path: Path, syncs: Syncs, asked: str
) -> None:
    """Other writers go on meanwhile, and sync nothing."""
    shop = DeltaShop(tmp_path)
    claimed(shop).publish(shop.publication(1, rows((1, MONDAY, "a"))))
    publication = shop.publication(2, rows((2, MONDAY, "b")))
    killed_at("commit done", shop, publication)
    assert syncs.lost(shop.table) != []
    write_deltalake(str(shop.table), rows((3, None, "theirs")), mode="append")
    sink = shop.open()
    found = sink.position() if asked == "position" else sink.fence(2, PIPELINE)
    assert found.point == publication.point
    log = shop.table / "_delta_log"
    assert [lost for lost in syncs.lost(log) if str(log) in lost] == []


def test_a_disk_that_fails_at_the_sync_is_asked_again_before_the_epoch_counts(
    tmp_path: Path, syncs: Syncs
) -> None:
    shop, failed = DeltaShop(tmp_path), []

    def fail_once(call: str) -> None:
        if call == "sync log" and failed == ["commit"]:
            failed.append("sync")
            raise OSError(28, "no space")
        if call == "commit" and not failed:
            failed.append("commit")

    claimed(shop)
    sink = shop.open(fail_once)
    publication = shop.publication(1, rows((1, MONDAY, "a")))
    with pytest.raises(Exception, match="errno 28"):
        sink.publish(publication)
    assert syncs.lost(shop.table) != []
    assert sink.position().point == publication.point
    assert syncs.lost(shop.table) == []


def test_what_a_power_cut_leaves_of_a_log_entry_is_published_again(tmp_path: Path) -> None:
    """The name of the entry, and none of its bytes."""
    shop = DeltaShop(tmp_path)
    claimed(shop).publish(shop.publication(1, rows((1, MONDAY, "a"))))
    publication = shop.publication(2, rows((2, MONDAY, "b")), generation=2)
    killed_at("commit done", shop, publication)
    newest = max((shop.table / "_delta_log").glob("*.json"))
    newest.write_bytes(b"")
    sink = shop.open()
    assert sink.fence(2, PIPELINE).point == shop.publication(1).point
    sink.publish(publication)
    assert [row[0] for row in shop.listed()] == [1, 2]


def test_copies_that_a_killed_process_left_are_swept_by_the_next_claim(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    claimed(shop)
    left = shop.table / ".epoch-00000000000000000001-ab-00000.parquet.123456789abc"
    left.write_bytes(b"half")
    shop.open().fence(2, PIPELINE)
    assert not left.exists()


def test_the_log_of_a_thousand_versions_is_loaded_from_its_checkpoint(tmp_path: Path) -> None:
    """And old entries go when the table's properties say so."""
    shop = DeltaShop(tmp_path)
    sink = claimed(shop)
    properties = {"delta.logRetentionDuration": "interval 0 seconds"}
    DeltaTable(str(shop.table)).alter.set_table_properties(properties)
    for epoch in range(1, 111):
        sink.publish(shop.publication(epoch))
    entries = list((shop.table / "_delta_log").glob("*.json"))
    assert len(entries) < 40
    assert shop.open().position().point == shop.publication(110).point


def checkpoints(shop: DeltaShop) -> list[int]:
    log = shop.table / "_delta_log"
    return sorted(int(path.name.split(".")[0]) for path in log.glob("*.checkpoint.parquet"))


@pytest.mark.parametrize("starts", [1, 2])
def test_a_log_whose_epochs_are_two_versions_each_gets_checkpoints(
    tmp_path: Path, starts: int
) -> None:
    """After a second start every epoch ended at an odd version, and none was one of the tenth."""
    shop = DeltaShop(tmp_path, options={"compact": "1"})
    for generation in range(1, starts + 1):
        sink = shop.open()
        sink.fence(generation, PIPELINE)
    for epoch in range(1, 30):
        given = rows((epoch, MONDAY, "a"))
        sink.publish(shop.publication(epoch, given, generation=starts))
    found = checkpoints(shop)
    assert len(found) >= 5
    assert all(9 < later - earlier < 12 for earlier, later in itertools.pairwise([0, *found]))


def test_checkpoints_of_others_count_and_a_new_process_does_not_repeat_them(
    tmp_path: Path,
) -> None:
    shop = DeltaShop(tmp_path)
    sink = claimed(shop)
    for epoch in range(1, 8):
        sink.publish(shop.publication(epoch))
    DeltaTable(str(shop.table)).create_checkpoint()
    (theirs,) = checkpoints(shop)
    for epoch in range(8, 16):
        shop.open().publish(shop.publication(epoch))
    assert checkpoints(shop) == [theirs]
    for epoch in range(16, 20):
        shop.open().publish(shop.publication(epoch))
    assert checkpoints(shop) == [theirs, theirs + 10]


def test_the_table_says_how_often_its_log_gets_a_checkpoint(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    sink = claimed(shop)
    properties = {"delta.checkpointInterval": "3"}
    DeltaTable(str(shop.table)).alter.set_table_properties(properties)
    for epoch in range(1, 9):
        sink.publish(shop.publication(epoch))
    assert checkpoints(shop) == [3, 6, 9]


def test_old_entries_stay_if_the_table_says_so(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    sink = claimed(shop)
    properties = {
        "delta.logRetentionDuration": "interval 0 seconds",
        "delta.enableExpiredLogCleanup": "false",
        "delta.checkpointInterval": "2",
    }
    DeltaTable(str(shop.table)).alter.set_table_properties(properties)
    for epoch in range(1, 31):
        sink.publish(shop.publication(epoch))
    assert len(list((shop.table / "_delta_log").glob("*.json"))) == shop.versions() + 1


def test_a_torn_note_of_the_last_checkpoint_does_not_stop_the_sink(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    sink = claimed(shop)
    for epoch in range(1, 15):
        sink.publish(shop.publication(epoch))
    (shop.table / "_delta_log" / "_last_checkpoint").write_bytes(b"")
    for epoch in range(15, 21):
        sink.publish(shop.publication(epoch))
    assert checkpoints(shop) == [10, 20]


def test_a_copy_of_a_table_is_the_same_table(tmp_path: Path) -> None:
    """Nothing in it depends on where it is: a backup goes on where it was taken."""
    shop = DeltaShop(tmp_path)
    claimed(shop).publish(shop.publication(1, rows((1, MONDAY, "a"))))
    shutil.copytree(shop.table, tmp_path / "copy")
    copy = DeltaShop(tmp_path, name="copy")
    assert copy.open().position() == shop.open().position()
    assert copy.listed() == shop.listed()


def test_a_place_with_spaces_quotes_and_unicode(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path, name="a 'b\" #?é=ü/deep/er")
    claimed(shop).publish(shop.publication(1, rows((1, MONDAY, "a"))))
    assert [row[0] for row in shop.listed()] == [1]
    assert LocalPlace(shop.table, lambda _: None).where == str(shop.table)


def test_the_rows_of_an_epoch_are_linked_and_not_copied(tmp_path: Path) -> None:
    shop = DeltaShop(tmp_path)
    publication = shop.publication(1, rows((1, MONDAY, "a")))
    claimed(shop).publish(publication)
    (file,) = shop.table.glob("*.parquet")
    assert file.samefile(tmp_path / "home" / publication.files[0].path)


def test_vacuum_does_not_take_a_file_that_waited_long_before_its_version(tmp_path: Path) -> None:
    """It takes old files that no version names. A sink that was away for a week links old ones."""
    shop = DeltaShop(tmp_path)
    claimed(shop)
    publication = shop.publication(1, rows((1, MONDAY, "a")))
    os.utime(tmp_path / "home" / publication.files[0].path, (0, 0))

    def vacuum(call: str) -> None:
        if call == "commit":
            DeltaTable(str(shop.table)).vacuum(dry_run=False, full=True)

    shop.open(vacuum).publish(publication)
    assert shop.listed() == [(1, MONDAY, "a")]

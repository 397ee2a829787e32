"""What a review of stores, log, gc and copies found, each by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lamina.checkpoint import commit_log, copy_checkpoint, run_gc, verify
from lamina.errors import AccessDenied, Fenced, LaminaError, NotFound, Refused, UsageError
from lamina.format.manifest import RunEntry
from lamina.protocol.history import COPY_HOME
from lamina.protocol.retention import wal_floor
from lamina.store import LocalStore, MemoryStore, ObjectInfo, open_store
from lamina.testing import Fault, FaultKind, FaultyStore, Killed
from tests.support.checkpoints import (
    WatchedStore,
    assert_loads_exactly,
    copy_of,
    keys,
    open_pipeline,
    reader,
    snapshot_of,
    take_checkpoint,
)


def test_a_copy_fenced_a_pipeline_that_took_the_target_over_meanwhile() -> None:
    source = open_pipeline(base="live")
    made = take_checkpoint(source, 1)
    store = MemoryStore()

    def meanwhile(operation: str, key: str) -> None:
        if operation == "put_if_absent" and key.endswith("log/00000000000000000001.json"):
            with suppress(LaminaError):
                reader(store, base="t", seed=9).log.take_over("home of a pipeline")

    with pytest.raises(Refused, match="home of a pipeline"):
        copy_checkpoint(source, made.id, reader(WatchedStore(store, meanwhile), base="t"))
    assert reader(store, base="t").history().home == "home of a pipeline"


def test_a_copy_made_while_a_gc_was_deleting_lost_its_files() -> None:
    source = open_pipeline(base="live")
    made = [take_checkpoint(source, 1), take_checkpoint(source, 2), take_checkpoint(source, 3)]
    for stop in range(1, 60):
        store = MemoryStore()
        for each in made:
            copy_checkpoint(source, each.id, reader(store, base="t", limit=1))
        countdown = iter([*[False] * (stop - 1), True])

        def meanwhile(
            operation: str,
            key: str,
            store: MemoryStore = store,
            at: Iterator[bool] = countdown,
        ) -> None:
            if next(at, False):
                with suppress(Refused, Fenced):
                    copy_checkpoint(source, made[0].id, reader(store, base="t", seed=8, limit=1))

        with suppress(Fenced):
            run_gc(reader(WatchedStore(store, meanwhile), base="t", seed=7, limit=1), retain=1)
        look = reader(store, base="t", seed=6)
        assert verify(look).ok, stop
        for committed in look.list_checkpoints():
            assert_loads_exactly(look, committed.id)


def test_the_slower_of_two_copies_overwrote_begin_json_of_the_first() -> None:
    source = open_pipeline(base="live")
    made = take_checkpoint(source, 1)
    store = MemoryStore()
    raced = iter([True])

    def meanwhile(operation: str, key: str) -> None:
        if operation == "put_if_absent" and "/log/" in key and next(raced, False):
            copy_checkpoint(source, made.id, reader(store, base="t", seed=8))

    copy_checkpoint(source, made.id, reader(WatchedStore(store, meanwhile), base="t"))
    assert verify(reader(store, base="t")).ok


def test_a_manifest_that_was_lost_at_the_target_did_not_come_again() -> None:
    source = open_pipeline(base="live")
    made = take_checkpoint(source, 1)
    there = reader(MemoryStore(), base="t")
    copy_checkpoint(source, made.id, there)
    there.store.delete(there.paths.manifest(made.id))
    copy_checkpoint(source, made.id, there)
    assert_loads_exactly(there, made.id)


def test_a_copy_onto_itself_was_reported_as_a_backup(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    source = open_pipeline(store)
    made = take_checkpoint(source, 1)
    with pytest.raises(UsageError, match="the same"):
        copy_checkpoint(source, made.id, reader(LocalStore(tmp_path), base=source.paths.base))


def test_a_process_that_was_fenced_in_its_takeover_owned_the_pipeline_all_the_same() -> None:
    store = MemoryStore()
    loser, winner = reader(store, seed=1), reader(store, seed=2)
    winner.log.take_over("home-b", generation=2)
    with pytest.raises(Fenced):
        loser.log.take_over("home-a", generation=2)
    with pytest.raises(UsageError, match="not taken the pipeline over"):
        loser.begin()


class LeavesOut(MemoryStore):
    """A listing that does not show an entry which was created while it ran."""

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        found = super().list(prefix, after=after)
        return (info for info in found if not info.key.endswith("02.json"))


def test_an_entry_that_a_listing_left_out_was_called_missing() -> None:
    store = LeavesOut()
    pipeline = open_pipeline(store)
    take_checkpoint(pipeline, 1)
    take_checkpoint(pipeline, 2)
    store.delete(pipeline.paths.latest_pointer())
    assert reader(store).history().seq == 3


def test_an_entry_that_no_reader_takes_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = open_pipeline()
    before = keys(pipeline.store)
    monkeypatch.setattr(commit_log, "ENTRY_BYTES_MAX", 100)
    with pytest.raises(Refused, match="lamina gc"):
        pipeline.log.take_over("another home")
    assert keys(pipeline.store) == before


def test_a_full_checkpoint_let_the_wal_go_that_its_predecessor_needs() -> None:
    pipeline = open_pipeline()
    take_checkpoint(pipeline, 10)
    pipeline.log.take_over("home")  # the next begin() stands on nothing
    take_checkpoint(pipeline, 20)
    assert wal_floor(pipeline.history(), 2, [30]) == 10


def test_a_gc_deleted_what_is_not_ours() -> None:
    pipeline = open_pipeline()
    first = take_checkpoint(pipeline, 1)
    for epoch in (2, 3):
        take_checkpoint(pipeline, epoch)
    foreign = f"{pipeline.paths.checkpoint_dir(first.id)}/notes/README.txt"
    pipeline.store.put(foreign, b"of a person")
    run_gc(pipeline, retain=1)
    assert pipeline.store.get(foreign) == b"of a person"


def test_local_files_that_cannot_be_read_or_written_give_typed_errors(tmp_path: Path) -> None:
    pipeline = open_pipeline()
    begin = pipeline.begin()
    arguments = {"first_epoch": 1, "last_epoch": 1, "rows": 1}
    with pytest.raises(NotFound):
        pipeline.save_snapshot(begin.id, "op", 0, tmp_path / "none", **arguments)
    inline = RunEntry.inline("snap", b"x" * 100, first_epoch=1, last_epoch=1, rows=1)
    with pytest.raises((NotFound, AccessDenied)):
        pipeline.load_artifact(inline, into=tmp_path / "no folder" / "file")
    pipeline.load_artifact(inline, into=tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"x" * 100
    with pytest.raises(UsageError):
        pipeline.save_output(begin.id, "sink", b"", epoch=-1, file="f", rows=0)


def test_an_endpoint_without_a_scheme_broke_the_client_down() -> None:
    with pytest.raises(UsageError, match="http://"):
        open_store("s3://bucket/x", endpoint="127.0.0.1:9000", region="us-east-1")


def test_a_base_of_copies_is_nobodys_after_a_gc() -> None:
    source = open_pipeline(base="live")
    made = [take_checkpoint(source, 1), take_checkpoint(source, 2)]
    there = reader(MemoryStore(), base="t")
    for each in made:
        copy_checkpoint(source, each.id, there)
    run_gc(there, retain=1)
    assert there.history().home.startswith(COPY_HOME)
    third = take_checkpoint(source, 3)
    copy_checkpoint(source, third.id, there)
    assert verify(there).ok


def test_a_gc_killed_after_its_last_delete_kept_copies_out_for_ever() -> None:
    source = open_pipeline(base="live")
    made = [take_checkpoint(source, 1), take_checkpoint(source, 2), take_checkpoint(source, 3)]
    prepared = MemoryStore()
    for each in made[:2]:
        copy_checkpoint(source, each.id, reader(prepared, base="t", limit=1))
    counted = FaultyStore(copy_of(snapshot_of(prepared)))
    run_gc(reader(counted, base="t", seed=7, limit=1), retain=1)
    for operation, calls in sorted(counted.calls.items()):
        for call in range(1, calls + 1):
            store = copy_of(snapshot_of(prepared))
            fault = Fault(operation, FaultKind.KILL_AFTER, call=call)
            with suppress(Killed):
                run_gc(reader(FaultyStore(store, faults=[fault]), base="t", seed=7), retain=1)
            run_gc(reader(store, base="t", seed=8), retain=1)
            copy_checkpoint(source, made[2].id, reader(store, base="t", seed=9))
            assert verify(reader(store, base="t")).ok, (operation, call)

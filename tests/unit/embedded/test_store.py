"""lamina.open as a program uses it: bytes, tables, commits, and every way to use it wrongly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lamina
from lamina.checkpoint import verify
from lamina.errors import BadName, Fenced, NotFound, Refused, StateChanged, UsageError
from lamina.recovery.operators import FoundState
from lamina.state.layers import PlacedRun
from lamina.state.run import run_of_batch
from lamina.state.schema import StateSchema
from lamina.state.vnodes import EVERYTHING
from tests.support.embedded_stores import KEY, NARROW, SUM, VALUE, as_dict, dying, kill, rows

# bytes


def test_a_program_reads_what_it_wrote_before_and_after_the_commit(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        store.put(b"a", b"1")
        store.put(b"b", b"")
        assert store.get(b"a") == b"1"
        assert dict(store.scan()) == {b"a": b"1", b"b": b""}
        assert store.epoch == 0
        assert store.commit() == 1
        store.put(b"a", b"2")
        store.delete(b"b")
        assert (store.get(b"a"), store.get(b"b")) == (b"2", None)
        store.commit()
    with lamina.open(tmp_path) as store:
        assert store.epoch == 2
        assert dict(store.scan()) == {b"a": b"2"}
        assert store.report.epochs_replayed == 2
        assert store.report.complete


def test_what_was_not_committed_is_gone_after_close_crash_and_rollback(tmp_path: Path) -> None:
    store = lamina.open(tmp_path)
    store.put(b"kept", b"1")
    store.commit()
    for end in (store.rollback, store.close):
        store.put(b"lost", b"1")
        assert store.get(b"lost") == b"1"
        end()
    with dying(lamina.open(tmp_path)) as store:
        assert dict(store.scan()) == {b"kept": b"1"}
        store.put(b"lost", b"1")
    with lamina.open(tmp_path) as store:
        assert dict(store.scan()) == {b"kept": b"1"}


def test_a_rollback_takes_back_puts_deletes_tables_and_expiry(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        table = store.table("t", KEY, VALUE, time="v")
        table.write(rows({1: 10, 2: 20}))
        store.put(b"a", b"1")
        store.commit()
        store.delete(b"a")
        table.delete(pa.record_batch({"k": pa.array([2]), "v": pa.array([0])}))
        list(table.expire(15))
        assert as_dict(table) == {}
        store.rollback()
        assert as_dict(table) == {1: 10, 2: 20}
        assert store.get(b"a") == b"1"
        assert not table.changed


def test_a_delete_of_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        store.delete(b"never")
        assert store.get(b"never") is None
        store.commit()
        assert list(store.scan()) == []


def test_more_puts_than_are_collected_at_once_are_all_there(tmp_path: Path) -> None:
    expected = {b"%d" % n: b"%d" % (n * n) for n in range(9000)}
    with lamina.open(tmp_path, partitions=4) as store:
        for key, value in expected.items():
            store.put(key, value)
        store.put(b"5", b"again")
        store.commit()
    with lamina.open(tmp_path) as store:
        assert dict(store.scan()) == expected | {b"5": b"again"}


@pytest.mark.parametrize("wrong", ["text", 5, None, bytearray(b"x")])
def test_what_is_not_bytes_is_refused_and_not_taken_for_a_delete(
    tmp_path: Path, wrong: object
) -> None:
    with lamina.open(tmp_path) as store:
        store.put(b"text", b"1")
        with pytest.raises(UsageError, match="are bytes"):
            store.put(b"text", wrong)  # type: ignore[arg-type]
        for use in (store.get, store.delete, lambda key: store.put(key, b"")):
            with pytest.raises(UsageError, match="are bytes"):
                use(wrong)  # type: ignore[arg-type]
        assert store.get(b"text") == b"1"


# commits


def test_a_commit_of_nothing_is_an_epoch_that_a_checkpoint_can_hold(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        assert store.commit() == 1
        assert store.checkpoint() is not None
    with lamina.open(tmp_path) as store:
        assert (store.epoch, store.tables) == (1, ())


def test_offsets_and_watermarks_are_carried_through_commits_crashes_and_checkpoints(
    tmp_path: Path,
) -> None:
    store = lamina.open(tmp_path)
    store.commit(offsets={"a": {"p": "1"}, "b": {"p": "2"}}, watermark=10)
    store.commit(offsets={"a": {"p": "3"}}, source_watermarks={"a": 7})
    for life in ("wal", "checkpoint"):
        said = {name: dict(each.offsets) for name, each in store.offsets.items()}
        assert said == {"a": {"p": "3"}, "b": {"p": "2"}}, life
        assert (store.watermark, store._at.source_watermarks) == (10, {"a": 7})
        store.checkpoint()
        kill(store)
        store = lamina.open(tmp_path)
    store.close()
    with lamina.snapshot(tmp_path) as snapshot:
        assert snapshot.manifest.source_offsets["a"].offsets == {"p": "3"}
        assert snapshot.manifest.watermark == 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"offsets": {"s": {"at": 5}}},
        {"offsets": {"s": 5}},
        {"offsets": {5: {"at": "5"}}},
        {"watermark": "noon"},
        {"watermark": 1 << 70},
        {"source_watermarks": {"s": "noon"}},
    ],
    ids=str,
)
def test_a_commit_that_is_refused_can_be_made_again_with_everything_in_it(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with dying(lamina.open(tmp_path)) as store:
        store.put(b"a", b"1")
        with pytest.raises(UsageError):
            store.commit(**wrong)
        assert (store.epoch, store.get(b"a")) == (0, b"1")
        assert store.commit() == 1
        store.checkpoint()
    with lamina.open(tmp_path) as store:
        assert dict(store.scan()) == {b"a": b"1"}


def test_a_checkpoint_before_the_first_commit_is_refused(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store, pytest.raises(UsageError, match="nothing is committed"):
        store.checkpoint()


def test_a_second_checkpoint_of_one_epoch_is_the_first(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        store.put(b"a", b"1")
        store.commit()
        first, second = store.checkpoint(), store.checkpoint()
        assert first is not None
        assert second is not None
        assert first.id == second.id == store.last_checkpoint


# opening and closing


def test_a_closed_store_refuses_everything_and_closes_twice(tmp_path: Path) -> None:
    store = lamina.open(tmp_path)
    store.close()
    store.close()
    uses = (
        lambda: store.put(b"a", b"1"),
        lambda: store.delete(b"a"),
        lambda: store.get(b"a"),
        lambda: list(store.scan()),
        lambda: store.table("t", KEY, VALUE),
        store.commit,
        store.rollback,
        store.checkpoint,
        lambda: store.savepoint("s"),
        lambda: store.rewind(1),
    )
    for use in uses:
        with pytest.raises(UsageError, match="closed"):
            use()


def test_a_second_writer_is_told_to_stop_the_first(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        store.put(b"a", b"1")
        with pytest.raises(Fenced, match="stop the other one first"):
            lamina.open(tmp_path)
        assert store.commit() == 1, "the first one does not notice"
        assert len(list((tmp_path / "home" / "state").iterdir())) == 1
    with lamina.open(tmp_path) as store:
        assert store.get(b"a") == b"1"


def test_a_url_without_a_home_says_how_to_name_one() -> None:
    with pytest.raises(UsageError, match="home="):
        lamina.open("s3://bucket/folder")


@pytest.mark.parametrize("partitions", [0, 3, 512, -1])
def test_a_number_of_partitions_that_cannot_be_is_refused(tmp_path: Path, partitions: int) -> None:
    with pytest.raises(UsageError):
        lamina.open(tmp_path, partitions=partitions)
    assert not list(tmp_path.iterdir())


def test_a_home_of_its_own_and_a_path_that_is_not_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with lamina.open("data", home="log") as store:
        monkeypatch.chdir(tmp_path / "elsewhere")
        for number in range(6):
            store.put(b"%d" % number, b"1")
            store.commit()
        store.checkpoint()
    assert not list((tmp_path / "elsewhere").iterdir())
    with lamina.open(tmp_path / "data", home=tmp_path / "log") as store:
        assert len(dict(store.scan())) == 6


def test_every_folder_above_a_new_home_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of run files that was made first hid the missing parents from those who sync."""
    synced: set[str] = set()
    honest = os.fsync

    def fsync(fd: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{fd}"))  # noqa: PTH115
        honest(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    home = tmp_path / "a" / "b" / "home"
    with lamina.open(tmp_path / "store", home=home) as store:
        store.commit()
    for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "b", home):
        assert str(folder) in synced


def test_run_files_of_a_process_that_is_gone_are_removed(tmp_path: Path) -> None:
    for _ in range(3):
        with dying(lamina.open(tmp_path)) as store:
            for number in range(6):
                store.put(b"%d" % number, b"1")
                store.commit()
    with lamina.open(tmp_path):
        assert len(list((tmp_path / "home" / "state").iterdir())) == 1


# tables


def test_a_table_that_is_not_there_asks_for_its_columns(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store, pytest.raises(UsageError, match="no table 't' yet"):
        store.table("t")


def test_a_table_whose_key_type_changed_is_refused_with_the_column(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        store.table("t", KEY, VALUE).write(rows({1: 1}))
        store.commit()
        store.checkpoint()
    with lamina.open(tmp_path) as store:
        for key in (pa.schema([("k", pa.int32())]), pa.schema([("other", pa.int64())])):
            with pytest.raises(StateChanged, match=f"{key.names[0]} {key.types[0]}"):
                store.table("t", key, VALUE)
        assert as_dict(store.table("t")) == {1: 1}


def test_a_value_that_became_wider_is_read_and_one_that_became_narrower_refused(
    tmp_path: Path,
) -> None:
    with lamina.open(tmp_path) as store:
        store.table("t", KEY, NARROW).write(rows({1: 1}, pa.int32()))
        store.commit()
        store.checkpoint()
        store.table("t", KEY, NARROW).write(rows({2: 2}, pa.int32()))
        store.commit()
    wide = pa.schema([("v", pa.int64()), ("note", pa.string())])
    with lamina.open(tmp_path) as store:
        table = store.table("t", KEY, wide)
        assert as_dict(table) == {1: 1, 2: 2}
        added = {"k": pa.array([3]), "v": pa.array([1 << 40]), "note": pa.array(["x"])}
        table.write(pa.record_batch(added))
        store.commit()
        with pytest.raises(StateChanged, match="'v'"):
            store.table("t", KEY, NARROW)
        store.checkpoint()
    with lamina.open(tmp_path) as store:
        assert store.table("t").schema.value == wide
        assert as_dict(store.table("t")) == {1: 1, 2: 2, 3: 1 << 40}


def test_a_newest_run_that_is_narrower_than_merged_ones_can_be_opened() -> None:
    """Merges take today's columns, a run keeps those of its time: the newest need not be widest."""
    narrow, wide = StateSchema(KEY, NARROW), StateSchema(KEY, VALUE)

    def run(schema: StateSchema, epoch: int) -> PlacedRun:
        batch = pa.RecordBatch.from_pylist([], schema.run)
        return PlacedRun(run_of_batch(batch, first_epoch=epoch, last_epoch=epoch), EVERYTHING)

    found = FoundState([run(wide, 4), run(narrow, 5)])
    assert found.schema("t") == wide
    assert found.schema("t", narrow) == wide
    other = StateSchema(pa.schema([("k", pa.string())]), VALUE)
    with pytest.raises(StateChanged, match="'k'"):
        FoundState([run(wide, 4), run(other, 5)]).schema("t")
    assert FoundState().schema("t") is None
    assert FoundState().schema("t", wide) == wide


def test_a_table_with_changes_is_not_reopened_with_other_columns(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        store.table("t", KEY, NARROW).write(rows({1: 1}, pa.int32()))
        with pytest.raises(Refused, match="commit them first"):
            store.table("t", KEY, VALUE)
        store.commit()
        assert as_dict(store.table("t", KEY, VALUE)) == {1: 1}


def test_a_table_that_was_named_and_never_written_does_not_keep_the_store_from_opening(
    tmp_path: Path,
) -> None:
    with lamina.open(tmp_path) as store:
        store.table("empty", KEY, VALUE)
        store.put(b"a", b"1")
        store.commit()
        store.checkpoint()
    with lamina.open(tmp_path) as store:
        assert store.tables == ("state",)
        assert as_dict(store.table("empty", KEY, VALUE)) == {}
    with lamina.snapshot(tmp_path) as snapshot:
        assert snapshot.tables == ("state",)


def test_sums_go_on_after_a_crash_when_the_merge_is_named_again(tmp_path: Path) -> None:
    for life in range(4):
        with dying(lamina.open(tmp_path, partitions=2)) as store:
            table = store.table("sums", KEY, VALUE, merges=SUM)
            for _ in range(2):
                table.write(rows({1: 10, 2: 1}))
                store.commit()
            assert as_dict(table) == {1: 20 * (life + 1), 2: 2 * (life + 1)}
            if life % 2:
                store.checkpoint()


def test_many_writes_of_one_epoch_become_one_run_with_all_of_them(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        table = store.table("sums", KEY, VALUE, merges=SUM)
        for number in range(40):
            table.write(rows({number % 7: 1}))
        expected = {key: len(range(key, 40, 7)) for key in range(7)}
        assert as_dict(table) == expected
        store.commit()
        assert as_dict(table) == expected
        assert table.statistics(count=True).live == 7
        assert table.statistics().runs == 1


def test_what_expired_stays_away_after_the_commit_and_after_a_crash(tmp_path: Path) -> None:
    """The floor was dropped from the run of the commit: expired rows came back."""
    with dying(lamina.open(tmp_path, partitions=2)) as store:
        table = store.table("t", KEY, VALUE, time="v")
        table.write(rows({1: 10, 2: 20, 3: 30}))
        store.commit()
        gone = [row for batch in table.expire(15) for row in batch.to_pylist()]
        assert gone == [{"k": 1, "v": 10}]
        table.write(rows({4: 40}))
        list(table.expire(25))
        assert as_dict(table) == {3: 30, 4: 40}
        store.commit()
        assert as_dict(table) == {3: 30, 4: 40}
    for _ in range(2):
        with dying(lamina.open(tmp_path)) as store:
            table = store.table("t")
            assert as_dict(table) == {3: 30, 4: 40}
            with pytest.raises(UsageError, match="before 25"):
                table.write(rows({5: 24}))
            store.checkpoint()


def test_keys_that_come_twice_in_one_batch_are_refused(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        table = store.table("t", KEY, VALUE)
        twice = pa.record_batch({"k": pa.array([1, 1]), "v": pa.array([1, 2])})
        with pytest.raises(UsageError):
            table.write(twice)
        assert not table.changed


def test_values_before_and_after_a_write_are_told_on_request(tmp_path: Path) -> None:
    with lamina.open(tmp_path, partitions=4) as store:
        table = store.table("t", KEY, VALUE, merges=SUM)
        table.write(rows({1: 10, 2: 20}))
        store.commit()
        said = {}
        for each in table.write(rows({1: 1, 3: 3}), old_values=True):
            keys = each.keys.column(0).to_pylist()
            old, new = each.old.values.column(0).to_pylist(), each.new.values.column(0).to_pylist()
            said |= dict(zip(keys, zip(old, new, strict=True), strict=True))
        assert said == {1: (10, 11), 3: (None, 3)}


def test_a_get_answers_row_by_row_over_all_partitions(tmp_path: Path) -> None:
    with lamina.open(tmp_path, partitions=16) as store:
        table = store.table("t", KEY, VALUE)
        table.write(rows({n: n * n for n in range(100)}))
        looked = table.get(pa.table({"k": pa.array([99, 1000, 3, 3])}))
        assert looked.found.tolist() == [True, False, True, True]
        assert looked.values.column(0).to_pylist() == [99 * 99, None, 9, 9]
        assert np.count_nonzero(table.get(pa.table({"k": pa.array([], pa.int64())})).found) == 0


# savepoints and readers


def test_a_savepoint_has_its_name_once_and_is_found_by_it(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as store:
        store.put(b"a", b"1")
        store.commit()
        made = store.savepoint("before the change")
        assert made.checkpoint.id == store.last_checkpoint
        store.put(b"a", b"2")
        store.commit()
        with pytest.raises(lamina.LaminaError):
            store.savepoint("before the change")
        with pytest.raises(UsageError, match="printable"):
            store.savepoint("")
    with lamina.snapshot(tmp_path, "before the change") as snapshot:
        assert [r["value"] for r in snapshot.to_table("state").to_pylist()] == [b"1"]


def test_a_reader_sees_one_checkpoint_while_the_writer_goes_on(tmp_path: Path) -> None:
    with lamina.open(tmp_path, partitions=2) as store:
        table = store.table("t", KEY, VALUE)
        made = {}
        for number in range(5):
            table.write(rows({number: number, 100: number}))
            epoch = store.commit()
            checkpoint = store.checkpoint()
            assert checkpoint is not None
            made[epoch] = checkpoint.id
        newest = lamina.snapshot(tmp_path)
        table.write(rows({100: 100}))
        store.commit()
        store.checkpoint()
        assert newest.epoch == 5
        assert newest.to_table("t").num_rows == 6
        for epoch, id in made.items():
            for at in (epoch, str(epoch), id, str(id)):
                with lamina.snapshot(tmp_path, at, table="t") as snapshot:
                    found = {r["k"]: r["v"] for r in snapshot.to_table("t").to_pylist()}
                    assert found == {n: n for n in range(epoch)} | {100: epoch - 1}
                    looked = snapshot.get("t", pa.table({"k": pa.array([100, 77])}))
                    assert looked.found.tolist() == [True, False]
        newest.close()


def test_a_reader_is_told_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        lamina.snapshot(tmp_path / "nothing")
    with lamina.open(tmp_path) as store:
        with pytest.raises(NotFound, match="no checkpoint yet"):
            lamina.snapshot(tmp_path)
        store.put(b"a", b"1")
        store.commit()
        store.checkpoint()
    with pytest.raises(NotFound, match="is called 77"):
        lamina.snapshot(tmp_path, 77)
    with (
        lamina.snapshot(tmp_path) as snapshot,
        pytest.raises(NotFound, match="It has: state"),
    ):
        snapshot.to_table("other")


def test_many_commits_without_a_checkpoint_do_not_use_up_the_mappings_of_the_process(
    tmp_path: Path,
) -> None:
    """Every run of the WAL had a mapping of its own; Linux allows some 65,000."""
    with dying(lamina.open(tmp_path, partitions=16)) as store:
        for number in range(30):
            for key in range(100):
                store.put(b"%d" % key, b"%d" % number)
            store.commit()
    before = mappings(tmp_path)
    with lamina.open(tmp_path) as store:
        assert len(store.table("state").state.runs()) > 400
        assert mappings(tmp_path) - before <= 4
        assert dict(store.scan()) == {b"%d" % key: b"29" for key in range(100)}


def mappings(folder: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(folder))


def test_a_writer_whose_store_another_home_took_over_is_fenced_at_its_next_checkpoint(
    tmp_path: Path,
) -> None:
    with dying(lamina.open(tmp_path / "data", home=tmp_path / "one")) as old:
        old.put(b"a", b"1")
        old.commit()
        old.checkpoint()
        old.put(b"a", b"2")
        old.commit()
        with lamina.open(tmp_path / "data", home=tmp_path / "two", take_over_home=True) as new:
            assert new.get(b"a") == b"1"
            with pytest.raises(Fenced):
                old.checkpoint()
            new.put(b"b", b"2")
            new.commit()
            new.checkpoint()
            with pytest.raises(Fenced):
                old.savepoint("mine")
    with lamina.open(tmp_path / "data", home=tmp_path / "two") as store:
        assert dict(store.scan()) == {b"a": b"1", b"b": b"2"}


@pytest.mark.parametrize("name", ["", "表" * 25, "t" * 201, "\ud800"])
def test_a_table_whose_name_fits_no_path_is_refused_when_it_is_made(
    name: str, tmp_path: Path
) -> None:
    """It was noticed when its state had outgrown the manifest: no checkpoint after that."""
    with lamina.open(tmp_path) as store, pytest.raises(BadName):
        store.table(name, KEY, VALUE)


def test_a_caller_that_uses_its_memory_again_changed_the_state(tmp_path: Path) -> None:
    """Rows that came in the order of their hashes were kept where the caller had them."""
    with lamina.open(tmp_path) as store:
        table = store.table("t", KEY, VALUE)
        for key in range(5):  # one row is always in order
            keys, values = np.array([key]), np.array([key * 10])
            table.write(pa.record_batch({"k": pa.array(keys), "v": pa.array(values)}))
            keys[0] = values[0] = 999
        expected = {key: key * 10 for key in range(5)}
        assert as_dict(table) == expected
        store.commit()
        assert as_dict(table) == expected
    with lamina.open(tmp_path) as store:
        assert as_dict(store.table("t")) == expected


@pytest.mark.parametrize("writes", [1, 3, 30])
def test_a_commit_that_is_larger_than_a_record_is_several(
    writes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than 1 GiB of a partition was refused: split the batch, which no caller could."""
    monkeypatch.setattr("lamina.wal.segment.PAYLOAD_BYTES_MAX", 50_000)
    monkeypatch.setattr("lamina.embedded.table.PIECE_BYTES_MAX", 10_000)
    value = pa.schema([("v", pa.string())])
    expected: dict[int, str] = {}
    with dying(lamina.open(tmp_path)) as store:
        table = store.table("t", KEY, value)
        for write in range(writes):
            fresh = {key: f"{write}-{key}" * 20 for key in range(write, write + 400)}
            columns = {"k": pa.array(list(fresh)), "v": pa.array(list(fresh.values()))}
            table.write(pa.record_batch(columns))
            expected |= fresh
        assert as_dict(table) == expected
        store.commit()
        assert len(store._saves.commits[-1].ranges) > 1
        assert as_dict(table) == expected
    with lamina.open(tmp_path, partitions=4) as store:
        assert as_dict(store.table("t")) == expected
        store.checkpoint()
        assert verify(store._checkpointer).ok
        assert as_dict(store.table("t")) == expected
    with lamina.open(tmp_path, partitions=2) as store:
        assert as_dict(store.table("t")) == expected


def test_a_row_that_no_record_can_hold_is_refused_and_nothing_else_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lamina.wal.segment.PAYLOAD_BYTES_MAX", 20_000)
    monkeypatch.setattr("lamina.embedded.table.PIECE_BYTES_MAX", 10_000)
    with lamina.open(tmp_path) as store:
        store.put(b"a", b"1")
        store.commit()
        store.put(b"b", bytes(30_000))
        with pytest.raises(UsageError, match="fewer or smaller rows"):
            store.commit()
        store.rollback()
        store.put(b"c", b"3")
        store.commit()
    with lamina.open(tmp_path) as store:
        assert dict(store.scan()) == {b"a": b"1", b"c": b"3"}


def test_a_store_that_keeps_no_checkpoint_was_opened_and_failed_at_its_first_one(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match="at least one checkpoint"):
        lamina.open(tmp_path / "new", retain=0)
    assert not (tmp_path / "new").exists()


def test_a_home_in_an_object_store_is_not_taken_for_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a folder on a local disk"):
        lamina.open(tmp_path / "store", home="s3://bucket/home")
    assert not list(tmp_path.iterdir())

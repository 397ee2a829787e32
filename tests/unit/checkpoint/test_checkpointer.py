"""A checkpoint is written whole or does not exist; what is loaded is what was saved."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lamina.checkpoint import Checkpointer, PartitionData
from lamina.errors import (
    AlreadyExists,
    BadManifest,
    BadName,
    Corrupt,
    DigestMismatch,
    Fenced,
    LaminaError,
    NotFound,
    Refused,
    SizeMismatch,
    StoreReadOnly,
    StoreUnavailable,
    Unsupported,
    UploadFailed,
    UsageError,
)
from lamina.format import manifest as manifests
from lamina.format.canonical import sha256_hex
from lamina.format.log import Begin
from lamina.format.manifest import (
    MANIFEST_BYTES_MAX,
    Artifact,
    CheckpointManifest,
    OutputFile,
    PlacedEntry,
    RunEntry,
    Sidecar,
    read_states,
)
from lamina.format.names import CheckpointPaths, RunName
from lamina.store import MemoryStore, ReadOnlyStore, RetryingStore, RetryPolicy
from lamina.testing import Fault, FaultKind, FaultyStore, Killed, ManualClock
from tests.support.checkpoints import (
    HOME,
    WatchedStore,
    assert_loads_exactly,
    cid,
    keys,
    manifest_of,
    open_pipeline,
    placed_runs,
    reader,
    run_bytes,
    save_runs,
    snapshot_of,
    take_checkpoint,
    with_run,
)


def part(partition: int, *, operator: str = "sum", data: bytes | None = None) -> PartitionData:
    content = f"run of {partition}".encode() if data is None else data
    return PartitionData(operator, partition, "snap", 1, 1, 1, content)


def one_run(pipeline: Checkpointer, begin: Begin, data: bytes = b"state") -> RunEntry:
    return pipeline.save_snapshot(begin.id, "sum", 0, data, first_epoch=1, last_epoch=1, rows=1)


# names and folders


@pytest.mark.parametrize("base", ["", "p", "/a/b/", "s3://bucket/a//b"])
def test_everything_saved_under_an_id_is_found_under_its_folder(base: str) -> None:
    """A1: names were glued to the id, so a listing of the folder found nothing."""
    store = MemoryStore()
    pipeline = Checkpointer(store, CheckpointPaths(base), clock=ManualClock())
    pipeline.log.take_over(HOME)
    begin = pipeline.begin()
    before = set(keys(store))
    run = one_run(pipeline, begin)
    states, sidecar = pipeline.save_states(begin.id, {"op": b"x" * 9}, inline_bytes_max=4)
    output = pipeline.save_output(begin.id, "sink", b"rows", epoch=1, file="a.parquet", rows=1)
    manifest = replace(
        with_run(manifest_of(1), run),
        operator_states=states,
        sidecar=sidecar,
        output={"sink": (output,)},
        sink_names=("sink",),
    )
    pipeline.commit(begin, manifest)
    folder = pipeline.paths.checkpoint_dir(begin.id)
    found = {info.key for info in store.list(folder)}
    log = set(store.list(pipeline.paths.log_dir()))
    assert len(log) == 2
    assert found == {
        pipeline.paths.begin(begin.id),
        pipeline.paths.manifest(begin.id),
        *(pipeline.paths.absolute(a.path) for a in manifest.artifacts()),
    }
    assert len(found) == 5
    latest_and_log = {pipeline.paths.latest_pointer(), pipeline.paths.log_entry(2)}
    assert set(keys(store)) == before | found | latest_and_log


@pytest.mark.parametrize(
    "name",
    ["..", ".", "a/b", "/", "with space", "été", "数据", "!", "\x00", "%2F", "a" * 200, "CON"],
)
def test_any_name_can_be_an_operator_and_comes_back_as_it_was(name: str) -> None:
    pipeline = open_pipeline()
    begin = pipeline.begin()
    [placed] = pipeline.save_partitions(begin.id, [part(0, operator=name)])
    output = pipeline.save_output(begin.id, name, b"rows", epoch=1, file="f", rows=1)
    sinks = {name: (output,)}
    manifest = replace(manifest_of(1, [placed]), output=sinks, sink_names=(name,))
    pipeline.commit(begin, manifest)
    loaded = reader(pipeline.store).load_manifest(begin.id)
    assert [p.operator for p in placed_runs(loaded)] == [name]
    assert reader(pipeline.store).load_artifact(placed.run) == b"run of 0"
    folder = pipeline.paths.checkpoint_dir(begin.id) + "/"
    outside = [k for k in keys(pipeline.store) if not k.startswith((folder, "p/log/", "p/_latest"))]
    assert outside == []
    assert isinstance(pipeline.paths.parse(f"p/{placed.run.path}"), RunName)


@pytest.mark.parametrize("name", ["", "x" * 4096, "\ud800", "é" * 200])
def test_a_name_that_no_path_can_hold_changes_nothing(name: str) -> None:
    pipeline = open_pipeline()
    begin = pipeline.begin()
    before = snapshot_of(pipeline.store)
    attempts: list[Callable[[], object]] = [
        lambda: pipeline.save_partitions(begin.id, [part(0), part(1, operator=name), part(2)]),
        lambda: pipeline.save_snapshot(begin.id, name, 0, b"", first_epoch=1, last_epoch=1, rows=0),
        lambda: pipeline.save_output(begin.id, name, b"", epoch=1, file="f", rows=0),
        lambda: pipeline.save_output(begin.id, "s", b"", epoch=1, file=name, rows=0),
    ]
    for attempt in attempts:
        with pytest.raises(BadName) as caught:
            attempt()
        assert caught.value.advice
    assert snapshot_of(pipeline.store) == before


@pytest.mark.parametrize(("partition", "first", "last"), [(-1, 1, 1), (0, 2, 1), (0, -1, 1)])
def test_a_run_that_cannot_be_is_refused(partition: int, first: int, last: int) -> None:
    pipeline = open_pipeline()
    begin = pipeline.begin()
    before = snapshot_of(pipeline.store)
    with pytest.raises(UsageError):
        pipeline.save_delta(
            begin.id, "sum", partition, b"", first_epoch=first, last_epoch=last, rows=0
        )
    assert snapshot_of(pipeline.store) == before


# many uploads at once


@pytest.mark.parametrize(("count", "limit"), [(10, 4), (256, 16), (3, 4), (1, 1), (0, 4), (9, 1)])
def test_every_upload_comes_back_however_many_there_are(count: int, limit: int) -> None:
    """A2: whatever was finished when the limit was reached was thrown away."""
    pipeline = open_pipeline(limit=limit)
    begin = pipeline.begin()
    placed = pipeline.save_partitions(begin.id, [part(n) for n in range(count)])
    assert [p.partition for p in placed] == list(range(count))
    for operator, partition, run in placed:
        assert operator == "sum"
        assert pipeline.load_artifact(run) == f"run of {partition}".encode()


def test_the_result_is_sorted_whatever_the_order_of_the_uploads() -> None:
    pipeline = open_pipeline()
    begin = pipeline.begin()
    parts = [
        PartitionData(op, p, "delta", first, last, 1, b"x")
        for op in ("b", "a")
        for p in (10, 2)
        for first, last in ((3, 4), (1, 2))
    ]
    placed = pipeline.save_partitions(begin.id, parts)
    order = [(p.operator, p.partition, p.run.last_epoch) for p in placed]
    assert order == sorted(order)
    assert len(order) == 8


def test_two_runs_of_one_name_are_refused_before_anything_is_saved() -> None:
    pipeline = open_pipeline()
    begin = pipeline.begin()
    before = snapshot_of(pipeline.store)
    with pytest.raises(UsageError, match="partition-3-1-1"):
        pipeline.save_partitions(begin.id, [part(3), part(4), part(3, data=b"other")])
    assert snapshot_of(pipeline.store) == before


def test_the_number_of_uploads_at_once_is_bounded_and_used() -> None:
    inner = MemoryStore()
    lock = threading.Lock()
    meeting = threading.Barrier(3)
    now, most = 0, 0

    class Counting(WatchedStore):
        def put_if_absent(self, key: str, data: object) -> None:
            nonlocal now, most
            if "/operators/" not in key:
                return super().put_if_absent(key, data)  # type: ignore[arg-type]
            with lock:
                now += 1
                most = max(most, now)
            meeting.wait(timeout=10)  # passes only if three are under way at once
            super().put_if_absent(key, data)  # type: ignore[arg-type]
            with lock:
                now -= 1
            return None

    pipeline = open_pipeline(Counting(inner, lambda *_: None), limit=3)
    begin = pipeline.begin()
    assert len(pipeline.save_partitions(begin.id, [part(n) for n in range(30)])) == 30
    assert most == 3


def test_when_one_upload_fails_the_others_are_awaited_and_named() -> None:
    """A53: the rest was dropped in mid-flight, and nobody knew what lay around."""
    inner = MemoryStore()
    faulty = FaultyStore(
        inner,
        faults=[Fault("put_if_absent", FaultKind.SERVER_ERROR, call=5)],  # log, begin, then runs
    )
    pipeline = open_pipeline(faulty, limit=2)
    begin = pipeline.begin()
    with pytest.raises(UploadFailed, match="1 of 200 uploads failed") as caught:
        pipeline.save_partitions(begin.id, [part(n) for n in range(200)])
    folder = pipeline.paths.checkpoint_dir(begin.id)
    there = {i.key for i in inner.list(folder)} - {pipeline.paths.begin(begin.id)}
    assert {pipeline.paths.absolute(path) for path in caught.value.uploaded} == there
    assert 2 <= len(there) < 150  # after the failure nothing new was started
    assert list(caught.value.uploaded) == sorted(caught.value.uploaded)
    assert isinstance(caught.value.__cause__, StoreUnavailable)
    assert caught.value.advice


def test_a_kill_during_an_upload_is_no_failed_upload() -> None:
    faulty = FaultyStore(MemoryStore(), faults=[Fault("put_if_absent", FaultKind.KILL_AFTER, 6)])
    pipeline = open_pipeline(faulty)
    begin = pipeline.begin()
    with pytest.raises(Killed):
        pipeline.save_partitions(begin.id, [part(n) for n in range(20)])


def test_at_least_one_upload_at_a_time() -> None:
    with pytest.raises(UsageError):
        Checkpointer(MemoryStore(), max_concurrent_uploads=0)


def test_a_run_is_create_only() -> None:
    """B7: a second attempt under the same id mixed old and new bytes."""
    pipeline = open_pipeline()
    begin = pipeline.begin()
    run = one_run(pipeline, begin, b"first")
    assert one_run(pipeline, begin, b"first") == run
    with pytest.raises(AlreadyExists):
        one_run(pipeline, begin, b"second")
    assert pipeline.load_artifact(run) == b"first"


# sources of bytes


def test_a_file_and_a_mapped_file_are_saved_like_bytes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 70
    path = tmp_path / "run"
    path.write_bytes(content)
    pipeline = open_pipeline()
    begin = pipeline.begin()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        sources = [content, bytearray(content), memoryview(content), path, mapped]
        runs = [
            pipeline.save_snapshot(begin.id, "sum", n, source, first_epoch=1, last_epoch=1, rows=1)
            for n, source in enumerate(sources)
        ]
    assert {(run.size, run.sha256) for run in runs} == {(len(content), sha256_hex(content))}
    for run in runs:
        assert pipeline.load_artifact(run) == content


def test_a_missing_file_is_a_typed_error_and_saves_nothing(tmp_path: Path) -> None:
    pipeline = open_pipeline()
    begin = pipeline.begin()
    before = snapshot_of(pipeline.store)
    gone = tmp_path / "gone"
    with pytest.raises((LaminaError, FileNotFoundError)):
        pipeline.save_snapshot(begin.id, "sum", 0, gone, first_epoch=1, last_epoch=1, rows=1)
    assert snapshot_of(pipeline.store) == before


def test_an_empty_run_is_a_run(tmp_path: Path) -> None:
    pipeline = open_pipeline()
    begin = pipeline.begin()
    run = one_run(pipeline, begin, b"")
    assert pipeline.load_artifact(run) == b""
    pipeline.load_artifact(run, into=tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""


# loading


def saved(faults: list[Fault], content: bytes = b"state" * 10) -> tuple[Checkpointer, RunEntry]:
    inner = MemoryStore()
    pipeline = open_pipeline(inner)
    run = one_run(pipeline, pipeline.begin(), content)
    return reader(FaultyStore(inner, faults=faults)), run


@pytest.mark.parametrize("kind", [FaultKind.WRONG_BYTES, FaultKind.SHORT_READ])
def test_a_read_that_goes_wrong_once_is_read_again(kind: FaultKind, tmp_path: Path) -> None:
    look, run = saved([Fault("get_range", kind, call=1)])
    assert look.load_artifact(run) == b"state" * 10
    look, run = saved([Fault("get_range", kind, call=1)])
    look.load_artifact(run, into=tmp_path / "run")
    assert (tmp_path / "run").read_bytes() == b"state" * 10


@pytest.mark.parametrize(
    ("kind", "error"),
    [(FaultKind.WRONG_BYTES, DigestMismatch), (FaultKind.SHORT_READ, SizeMismatch)],
)
def test_a_read_that_goes_wrong_twice_is_named_and_leaves_nothing(
    kind: FaultKind, error: type[LaminaError], tmp_path: Path
) -> None:
    target = tmp_path / "run"
    for into in (None, target):
        look, run = saved([Fault("get_range", kind, call=1), Fault("get_range", kind, call=2)])
        with pytest.raises(error) as caught:
            look.load_artifact(run, into=into)
        assert run.path is not None
        assert run.path in caught.value.where
    assert list(tmp_path.iterdir()) == []


def test_a_failed_load_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    target = tmp_path / "run"
    target.write_bytes(b"precious")
    look, run = saved([Fault("get_range", FaultKind.KILL_BEFORE, call=1)])
    with pytest.raises(Killed):
        look.load_artifact(run, into=target)
    look, run = saved([])
    wrong = replace(run, sha256="0" * 64)
    with pytest.raises(DigestMismatch):
        look.load_artifact(wrong, into=target)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    assert target.read_bytes() == b"precious"


def test_the_size_is_looked_at_before_any_byte_is_read() -> None:
    look, run = saved([])
    assert isinstance(look.store, FaultyStore)
    with pytest.raises(SizeMismatch, match="50 bytes where 51"):
        look.load_artifact(replace(run, size=51))
    assert look.store.calls["get_range"] == 0


def test_a_missing_object_is_not_found_and_named() -> None:
    look, run = saved([])
    assert run.path is not None
    look.store.delete(f"p/{run.path}")
    with pytest.raises(NotFound) as caught:
        look.load_artifact(run)
    assert run.path in caught.value.where


def test_an_inline_run_is_loaded_from_the_manifest(tmp_path: Path) -> None:
    pipeline = open_pipeline()
    run = RunEntry.inline("snap", b"small", first_epoch=1, last_epoch=1, rows=1)
    assert pipeline.load_artifact(run) == b"small"
    assert pipeline.load_artifact(run, into=tmp_path / "run") == b""
    assert (tmp_path / "run").read_bytes() == b"small"
    with pytest.raises(Corrupt):
        pipeline.load_artifact(replace(run, sha256="0" * 64))
    with pytest.raises(BadManifest):
        pipeline.load_artifact(replace(run, state_b64=None))


# commit: all or nothing


def test_a_checkpoint_exists_only_after_its_commit() -> None:
    pipeline = open_pipeline()
    begin = pipeline.begin()
    runs = save_runs(pipeline, begin, 1)
    manifest = replace(
        manifest_of(1, runs), checkpoint_id=begin.id, generation=1, parent_id=begin.parent
    )
    pipeline.save_manifest(manifest)
    for look in (pipeline, reader(pipeline.store)):
        assert look.list_checkpoints() == ()
        assert look.read_latest() is None
        with pytest.raises(NotFound, match=str(begin.id)):
            look.load_manifest(begin.id)
    committed = pipeline.commit(begin, manifest)
    assert reader(pipeline.store).list_checkpoints() == (committed,)
    assert_loads_exactly(reader(pipeline.store), begin.id)


def test_to_begin_needs_a_takeover() -> None:
    store = MemoryStore()
    with pytest.raises(UsageError) as caught:
        reader(store).begin()
    assert "take_over" in caught.value.advice
    assert keys(store) == []


def test_the_log_names_the_digest_and_the_totals_are_the_writers(tmp_path: Path) -> None:
    """A54: totals were left to the caller."""
    pipeline = open_pipeline()
    committed = take_checkpoint(pipeline, 1)
    raw = pipeline.store.get(pipeline.paths.manifest(committed.id))
    assert committed.entry.manifest_sha256 == sha256_hex(raw)
    assert committed.entry.manifest_size == len(raw)
    begin_raw = pipeline.store.get(pipeline.paths.begin(committed.id))
    assert committed.entry.begin_sha256 == sha256_hex(begin_raw)
    assert committed.entry.total_size == sum(len(run_bytes("sum", p, 1, 1)) for p in (0, 1))


def _not_there(run: RunEntry, _: Checkpointer) -> RunEntry:
    assert run.path is not None
    return replace(run, path=run.path.replace("partition-0", "partition-7"))


def _deleted(run: RunEntry, pipeline: Checkpointer) -> RunEntry:
    pipeline.store.delete(f"p/{run.path}")
    return run


def _other_size(run: RunEntry, _: Checkpointer) -> RunEntry:
    return replace(run, size=run.size + 1)


def _truncated(run: RunEntry, pipeline: Checkpointer) -> RunEntry:
    pipeline.store.put(f"p/{run.path}", b"")
    return run


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (_not_there, BadManifest),
        (_deleted, BadManifest),
        (_other_size, SizeMismatch),
        (_truncated, SizeMismatch),
    ],
)
def test_a_manifest_that_names_what_is_not_there_is_refused(
    spoil: Callable[[RunEntry, Checkpointer], RunEntry], error: type[LaminaError]
) -> None:
    pipeline = open_pipeline()
    begin = pipeline.begin()
    run = spoil(one_run(pipeline, begin), pipeline)
    partition = 7 if "partition-7" in (run.path or "") else 0
    with pytest.raises(error) as caught:
        pipeline.commit(begin, with_run(manifest_of(1), run, partition))
    assert str(begin.id) in caught.value.where
    assert pipeline.list_checkpoints() == ()
    with pytest.raises(NotFound):
        pipeline.store.head(pipeline.paths.manifest(begin.id))


def test_files_of_the_parent_may_be_used_again_and_those_of_others_may_not() -> None:
    pipeline = open_pipeline()
    first = take_checkpoint(pipeline, 1)
    [run, *_] = list(placed_runs(pipeline.load_manifest(first.id)))
    second = take_checkpoint(pipeline, 2, full=True)
    begin = pipeline.begin()
    assert begin.parent == second.id
    with pytest.raises(BadManifest, match="nor is its parent's"):
        pipeline.commit(begin, manifest_of(3, [run]))
    assert [c.id for c in pipeline.list_checkpoints()] == [first.id, second.id]


def test_a_file_of_the_parent_with_another_digest_is_not_the_parents() -> None:
    pipeline = open_pipeline()
    first = take_checkpoint(pipeline, 1)
    [placed, *_] = list(placed_runs(pipeline.load_manifest(first.id)))
    lie = PlacedEntry("sum", 0, replace(placed.run, sha256="0" * 64))
    with pytest.raises(BadManifest):
        pipeline.commit(pipeline.begin(), manifest_of(2, [lie]))


def test_an_unsound_manifest_is_refused_before_it_is_saved() -> None:
    pipeline = open_pipeline()
    begin = pipeline.begin()
    run = one_run(pipeline, begin)
    with pytest.raises(BadManifest, match="M002"):
        pipeline.commit(begin, with_run(manifest_of(0), replace(run, first_epoch=0)))
    with pytest.raises(BadManifest, match="M019"):
        pipeline.commit(begin, replace(with_run(manifest_of(1), run), vnode_count=128))
    assert pipeline.list_checkpoints() == ()
    with pytest.raises(NotFound):
        pipeline.store.head(pipeline.paths.manifest(begin.id))


def test_to_commit_twice_is_to_commit_once() -> None:
    pipeline = open_pipeline()
    begin = pipeline.begin()
    manifest = manifest_of(1, save_runs(pipeline, begin, 1))
    first = pipeline.commit(begin, manifest)
    assert pipeline.commit(begin, manifest) == first
    assert pipeline.history().seq == 2


def test_a_second_manifest_under_one_id_is_refused() -> None:
    """B6, B7: "already exists" was taken for success."""
    pipeline = open_pipeline()
    begin = pipeline.begin()
    runs = save_runs(pipeline, begin, 1)
    pipeline.commit(begin, manifest_of(1, runs))
    with pytest.raises(AlreadyExists):
        pipeline.commit(begin, manifest_of(2, runs))
    assert_loads_exactly(reader(pipeline.store), begin.id)


def test_whoever_was_fenced_cannot_commit_and_leaves_nothing_that_exists() -> None:
    old = open_pipeline()
    begin = old.begin()
    runs = save_runs(old, begin, 1)
    new = open_pipeline(old.store, seed=5)
    with pytest.raises(Fenced):
        old.commit(begin, manifest_of(1, runs))
    assert reader(old.store).list_checkpoints() == ()
    committed = take_checkpoint(new, 1)
    assert [c.id for c in reader(old.store).list_checkpoints()] == [committed.id]


def test_a_checkpoint_begun_before_a_rewind_is_refused() -> None:
    pipeline = open_pipeline()
    first = take_checkpoint(pipeline, 1)
    begin = pipeline.begin()
    runs = save_runs(pipeline, begin, 2)
    pipeline.log.rewind(first.id, epoch=5)
    with pytest.raises(Refused, match="REWIND"):
        pipeline.commit(begin, manifest_of(2, runs))


def test_the_loser_of_two_checkpoints_in_flight_is_refused() -> None:
    pipeline = open_pipeline()
    first, second = pipeline.begin(), pipeline.begin()
    assert first.id != second.id
    runs = {b.id: save_runs(pipeline, b, 1) for b in (first, second)}
    pipeline.commit(second, manifest_of(1, runs[second.id]))
    with pytest.raises(Refused):
        pipeline.commit(first, manifest_of(1, runs[first.id]))


@pytest.mark.parametrize(
    "kind", [FaultKind.TIMEOUT_AFTER, FaultKind.EXISTS_AFTER, FaultKind.TIMEOUT_BEFORE]
)
def test_an_unclear_answer_to_any_put_is_settled(kind: FaultKind) -> None:
    for call in range(1, 7):  # takeover, begin, two runs, manifest, log entry
        inner = MemoryStore()
        faulty = FaultyStore(inner, faults=[Fault("put_if_absent", kind, call=call)])
        clock = ManualClock(call)
        pipeline = open_pipeline(RetryingStore(faulty, RetryPolicy(), clock), seed=call)
        committed = take_checkpoint(pipeline, 1)
        look = reader(inner)
        assert look.list_checkpoints() == (committed,)
        assert look.history().seq == 2
        assert_loads_exactly(look, committed.id)


def test_an_unclear_commit_without_a_retrying_store_can_be_called_again() -> None:
    inner = MemoryStore()
    fault = Fault("put_if_absent", FaultKind.TIMEOUT_AFTER, call=6)
    pipeline = open_pipeline(FaultyStore(inner, faults=[fault]))
    begin = pipeline.begin()
    manifest = manifest_of(1, save_runs(pipeline, begin, 1))
    with pytest.raises(StoreUnavailable):
        pipeline.commit(begin, manifest)
    pipeline.commit(begin, manifest)
    assert reader(inner).history().seq == 2


def test_killed_anywhere_there_is_a_whole_checkpoint_or_none() -> None:
    probe = FaultyStore(MemoryStore())
    take_checkpoint(open_pipeline(probe), 1)
    for call in range(1, probe.calls["put_if_absent"] + 1):
        for kind in (FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER):
            inner = MemoryStore()
            faulty = FaultyStore(inner, faults=[Fault("put_if_absent", kind, call=call)])
            with pytest.raises(Killed):
                take_checkpoint(open_pipeline(faulty), 1)
            look = reader(inner)
            for committed in look.list_checkpoints():
                assert_loads_exactly(look, committed.id)
            is_last = call == probe.calls["put_if_absent"] and kind is FaultKind.KILL_AFTER
            assert len(look.list_checkpoints()) == int(is_last)
            again = open_pipeline(inner, seed=99)
            assert_loads_exactly(again, take_checkpoint(again, 2).id)


def test_a_read_only_store_refuses_and_is_unchanged() -> None:
    pipeline = open_pipeline()
    committed = take_checkpoint(pipeline, 1)
    before = snapshot_of(pipeline.store)
    look = reader(ReadOnlyStore(pipeline.store))
    assert_loads_exactly(look, committed.id)
    look.log.generation = 1
    with pytest.raises(StoreReadOnly):
        look.begin()
    assert snapshot_of(pipeline.store) == before


# manifests that are not what they should be


def in_the_log(
    data: bytes, *, id: int = 1, epoch: int = 1, size: int | None = None
) -> Checkpointer:
    """A pipeline whose log names these bytes as a manifest."""
    pipeline = open_pipeline()
    begin = Begin(cid(id), 1, None, pipeline.history().lineage_seq, "w", 0)
    pipeline.store.put(pipeline.paths.manifest(begin.id), data)
    pipeline.log.checkpoint(
        begin,
        epoch=epoch,
        manifest_sha256=sha256_hex(data),
        manifest_size=len(data) if size is None else size,
        total_size=0,
    )
    return reader(pipeline.store)


SOUND = manifests.encode(
    CheckpointManifest(checkpoint_id=cid(1), epoch=1, timestamp_ms=1, generation=1)
)


def test_a_manifest_that_the_log_names_is_loaded() -> None:
    assert in_the_log(SOUND).load_manifest(cid(1)).epoch == 1


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", BadManifest),
        (b"{", BadManifest),
        (b"<html>404</html>", BadManifest),
        (b'{"name":"package.json"}', BadManifest),
        (SOUND[:-1], BadManifest),
        (SOUND.replace(b'"version":3', b'"version":4'), Unsupported),
        (SOUND.replace(b'"features":[]', b'"features":["zstd-9"]'), Unsupported),
    ],
    ids=["empty", "truncated", "html", "foreign", "short", "newer", "feature"],
)
def test_what_is_no_manifest_is_named(data: bytes, error: type[LaminaError]) -> None:
    with pytest.raises(error) as caught:
        in_the_log(data).load_manifest(cid(1))
    assert str(cid(1)) in caught.value.where
    assert caught.value.advice


def test_a_manifest_of_another_checkpoint_is_refused() -> None:
    with pytest.raises(BadManifest, match=str(cid(1))):
        in_the_log(SOUND, id=2).load_manifest(cid(2))


def test_a_manifest_of_another_epoch_than_the_log_says_is_refused() -> None:
    with pytest.raises(BadManifest, match="epoch 7"):
        in_the_log(SOUND, epoch=7).load_manifest(cid(1))


def test_a_huge_manifest_is_refused_unread() -> None:
    look = in_the_log(SOUND, size=MANIFEST_BYTES_MAX + 1)
    with pytest.raises(BadManifest, match=str(MANIFEST_BYTES_MAX + 1)):
        look.load_manifest(cid(1))


@pytest.mark.parametrize("data", [SOUND[:-1], SOUND + b" ", b"", SOUND.replace(b"1", b"2", 1)])
def test_a_manifest_that_has_changed_since_is_never_returned(data: bytes) -> None:
    look = in_the_log(SOUND)
    look.store.put(look.paths.manifest(cid(1)), data)
    with pytest.raises((SizeMismatch, DigestMismatch)):
        look.load_manifest(cid(1))


def test_another_vnode_count_is_refused() -> None:
    look = in_the_log(SOUND)
    other = Checkpointer(look.store, look.paths, vnode_count=128)
    with pytest.raises(BadManifest, match="128 are expected"):
        other.load_manifest(cid(1))


# order and hint


def test_checkpoints_are_listed_by_epoch_when_the_clock_runs_backwards() -> None:
    """A42: the newest was whichever host had the fastest clock."""
    store = MemoryStore()
    ids = []
    for number in range(3):
        clock = ManualClock(number, now_ms=1_700_000_000_000 - number * 1_000_000)
        pipeline = Checkpointer(store, CheckpointPaths("p"), clock=clock)
        pipeline.log.take_over(HOME)
        ids.append(take_checkpoint(pipeline, number + 1, full=True).id)
    assert ids == sorted(ids, reverse=True)
    look = reader(store)
    assert [c.id for c in look.list_checkpoints()] == ids
    assert look.read_latest() == ids[-1]


def test_the_latest_is_found_with_a_missing_damaged_or_dangling_hint() -> None:
    """A35, B8: a damaged pointer blocked recovery, a missing one meant a fresh start."""
    pipeline = open_pipeline()
    committed = take_checkpoint(pipeline, 1)
    key = pipeline.paths.latest_pointer()
    good = pipeline.store.get(key)
    for hint in (None, b"", b"rot", good.replace(b'"seq":2', b'"seq":9')):
        pipeline.store.delete(key)
        if hint is not None:
            pipeline.store.put(key, hint)
        assert reader(pipeline.store).read_latest() == committed.id
    reader(pipeline.store).update_latest()
    assert pipeline.store.get(key) == good


def test_a_hint_that_cannot_be_updated_is_told_when_asked_for() -> None:
    inner = MemoryStore()
    take_checkpoint(open_pipeline(inner), 1)
    look = reader(FaultyStore(inner, faults=[Fault("put", FaultKind.UNAVAILABLE, call=1)]))
    with pytest.raises(StoreUnavailable):
        look.update_latest()


def test_an_empty_base_has_no_checkpoints_and_no_latest() -> None:
    look = reader(MemoryStore())
    look.update_latest()
    assert (look.list_checkpoints(), look.read_latest()) == ((), None)


def test_listing_does_not_look_at_the_files_of_checkpoints() -> None:
    """A37: listing walked every object of every checkpoint."""
    store = MemoryStore()
    pipeline = open_pipeline(store)
    calls = []
    for partitions in (1, 50):
        take_checkpoint(pipeline, partitions, partitions=range(partitions), full=True)
        counted = FaultyStore(store)
        reader(counted).list_checkpoints()
        calls.append(counted.calls["list"])
        assert counted.calls["list_folder"] == 0
    assert calls == [1, 1]


# states without a key space


def test_small_states_are_inline_and_large_ones_in_the_sidecar() -> None:
    pipeline = open_pipeline()
    begin = pipeline.begin()
    states = {"b": b"large" * 5, "a": b"small", "c": b"also large", "empty": b""}
    entries, sidecar = pipeline.save_states(begin.id, states, inline_bytes_max=5)
    assert sidecar is not None
    assert {name for name, entry in entries.items() if entry.external} == {"b", "c"}
    manifest = replace(manifest_of(1), operator_states=entries, sidecar=sidecar)
    pipeline.commit(begin, manifest)
    look = reader(pipeline.store)
    loaded = look.load_manifest(begin.id)
    assert loaded.sidecar is not None
    assert read_states(loaded, look.load_artifact(loaded.sidecar), "here") == states
    with pytest.raises(NotFound):
        read_states(loaded, None, "here")


def test_without_large_states_there_is_no_sidecar() -> None:
    pipeline = open_pipeline()
    begin = pipeline.begin()
    entries, sidecar = pipeline.save_states(begin.id, {"a": b"x"}, inline_bytes_max=64)
    assert sidecar is None
    assert not any("state.bin" in key for key in keys(pipeline.store))
    assert pipeline.save_states(begin.id, {}, inline_bytes_max=64) == ({}, None)
    assert entries["a"].decode_inline() == b"x"


def test_a_sidecar_that_has_changed_is_never_returned() -> None:
    """B2: the digest of the sidecar got lost on the way, and nobody looked any more."""
    pipeline = open_pipeline()
    begin = pipeline.begin()
    _, sidecar = pipeline.save_states(begin.id, {"a": b"xyz"}, inline_bytes_max=0)
    assert sidecar is not None
    pipeline.store.put(f"p/{sidecar.path}", b"xyy")
    with pytest.raises(DigestMismatch):
        pipeline.load_artifact(sidecar)


def test_whatever_a_manifest_names_can_be_loaded_the_same_way() -> None:
    pipeline = open_pipeline()
    begin = pipeline.begin()
    output = pipeline.save_output(begin.id, "s", b"rows", epoch=1, file="f", rows=1)
    assert isinstance(output, OutputFile)
    assert pipeline.load_artifact(output) == b"rows"
    same = Artifact(output.path, output.size, output.sha256)
    assert pipeline.load_artifact(same) == b"rows"
    assert pipeline.load_artifact(Sidecar(output.path)) == b"rows"  # LaminarDB's has no digest

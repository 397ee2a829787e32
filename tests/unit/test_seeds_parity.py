"""What the tests of the five seeds check, as Lamina behaves; docs/seeds.md says which is which."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from lamina.checkpoint import Checkpointer, PartitionData, delete_checkpoint
from lamina.clock import new_checkpoint_id
from lamina.disk import LocalDisk
from lamina.errors import DigestMismatch, NotFound, Refused, UploadFailed
from lamina.format.canonical import sha256_hex
from lamina.format.findings import Severity
from lamina.format.log import Begin
from lamina.format.manifest import (
    Artifact,
    CheckpointManifest,
    ConnectorCheckpoint,
    OperatorCheckpoint,
    PlacedEntry,
    RunEntry,
    decode,
    encode,
    with_runs,
)
from lamina.format.names import CheckpointPaths
from lamina.format.validation import validate
from lamina.format.wal import HEADER_SIZE
from lamina.recovery import RecoveryConfig
from lamina.store import MemoryStore
from lamina.testing import Fault, FaultKind, FaultyStore, ManualClock
from lamina.wal.standalone import CoreWalWriter, statistics
from tests.support.wal_logs import HOME, open_writer, runs_of

CLOCK = ManualClock(1)
ID = new_checkpoint_id(CLOCK)
HEAD = CheckpointManifest(checkpoint_id=ID, epoch=10, timestamp_ms=1, generation=1)
OLD = b'{"version": 1, "checkpoint_id": 5, "epoch": 3, "timestamp_ms": 1000}'


def back(manifest: CheckpointManifest) -> CheckpointManifest:
    return decode(encode(manifest), "manifest.json")


# Seed 000: the manifest


def test_offsets_epochs_watermark_and_state_come_back() -> None:
    offsets = {"partition-0": "1234", "partition-1": "5678"}
    manifest = replace(
        HEAD,
        source_offsets={"kafka-src": ConnectorCheckpoint.with_offsets(10, offsets)},
        source_names=("kafka-src",),
        sink_epochs={"pg-sink": 9},
        sink_names=("pg-sink",),
        watermark=999_000,
        operator_states={"window-agg": OperatorCheckpoint.inline(b"hello")},
    )
    restored = back(manifest)
    assert restored == manifest
    assert restored.source_offsets["kafka-src"].offsets["partition-0"] == "1234"
    assert restored.operator_states["window-agg"].decode_inline() == b"hello"


def test_an_old_manifest_needs_its_four_mandatory_fields_only() -> None:
    manifest = decode(OLD, "manifest.json")
    assert (manifest.epoch, manifest.timestamp_ms) == (3, 1000)
    assert manifest.source_offsets == manifest.sink_epochs == manifest.operator_states == {}
    assert manifest.source_names == manifest.sink_names == ()
    assert manifest.watermark is None
    assert manifest.pipeline_hash is None


def test_table_offsets_and_the_path_of_the_table_store_come_back() -> None:
    table = ConnectorCheckpoint.with_offsets(1, {"lsn": "0/ABCD"})
    manifest = replace(HEAD, table_offsets={"instruments": table}, table_store_path=f"{ID}/tables")
    assert back(manifest).table_offsets == {"instruments": table}
    assert back(manifest).table_store_path == f"{ID}/tables"


def test_topology_comes_back() -> None:
    manifest = replace(HEAD, source_names=("kafka-clicks", "ws-prices"), sink_names=("pg-sink",))
    assert back(manifest).source_names == ("kafka-clicks", "ws-prices")
    assert back(manifest).sink_names == ("pg-sink",)


def test_offsets_of_an_unknown_source_are_an_error() -> None:
    manifest = replace(
        HEAD, source_names=("a", "b"), source_offsets={"c": ConnectorCheckpoint.new(1)}
    )
    found = [f for f in validate(manifest) if f.severity is Severity.ERROR]
    assert [(f.code, "c" in f.field + f.message) for f in found] == [("M013", True)]


def test_the_pipeline_hash_of_an_old_manifest_is_hex_and_comes_back() -> None:
    document = json.loads(OLD) | {"pipeline_hash": 0xDEAD_BEEF_CAFE_1234}
    manifest = decode(json.dumps(document).encode(), "manifest.json")
    assert manifest.pipeline_hash == "deadbeefcafe1234"
    assert back(manifest).pipeline_hash == "deadbeefcafe1234"


# Seed 001: the checkpointer


@pytest.fixture
def checkpointer() -> Checkpointer:
    made = Checkpointer(MemoryStore(), max_concurrent_uploads=4, clock=ManualClock())
    made.log.take_over("home")
    return made


def part(partition: int, data: bytes, first_epoch: int = 1) -> PartitionData:
    kind = "snap" if first_epoch == 1 else "delta"
    return PartitionData("op1", partition, kind, first_epoch, 5, 1, data)  # type: ignore[arg-type]


def committed(checkpointer: Checkpointer, *runs: PlacedEntry, begin: Begin) -> CheckpointManifest:
    head = CheckpointManifest(
        checkpoint_id=begin.id, epoch=5, timestamp_ms=1, generation=begin.generation
    )
    manifest = with_runs(head, runs)
    checkpointer.commit(begin, manifest)
    return manifest


def test_a_manifest_is_loaded_as_it_was_saved(checkpointer: Checkpointer) -> None:
    begin = checkpointer.begin()
    manifest = committed(checkpointer, begin=begin)
    assert checkpointer.load_manifest(begin.id) == manifest


def test_a_saved_run_knows_its_digest(checkpointer: Checkpointer) -> None:
    run = checkpointer.save_snapshot(
        checkpointer.begin().id,
        "window-agg",
        0,
        b"hello world",
        first_epoch=1,
        last_epoch=1,
        rows=1,
    )
    assert (run.kind, run.size, run.sha256) == ("snap", 11, sha256_hex(b"hello world"))
    delta = checkpointer.save_delta(
        checkpointer.begin().id, "window-agg", 0, b"more", first_epoch=2, last_epoch=2, rows=1
    )
    assert (delta.kind, delta.size, delta.sha256) == ("delta", 4, sha256_hex(b"more"))


def test_an_artifact_is_loaded_as_it_was_saved(checkpointer: Checkpointer, tmp_path: Path) -> None:
    run = checkpointer.save_snapshot(
        checkpointer.begin().id, "op1", 0, b"partition state", first_epoch=1, last_epoch=1, rows=1
    )
    assert checkpointer.load_artifact(run) == b"partition state"
    checkpointer.load_artifact(run, into=tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == b"partition state"


def test_there_is_no_latest_before_the_first_commit(checkpointer: Checkpointer) -> None:
    assert checkpointer.read_latest() is None
    begin = checkpointer.begin()
    assert checkpointer.read_latest() is None
    committed(checkpointer, begin=begin)
    checkpointer.update_latest()
    assert checkpointer.read_latest() == begin.id
    assert Checkpointer(checkpointer.store).read_latest() == begin.id


def test_many_partitions_come_back_with_their_digests(checkpointer: Checkpointer) -> None:
    parts = [part(2, b"delta2", 5), part(0, b"part0"), part(1, b"part1")]
    placed = checkpointer.save_partitions(checkpointer.begin().id, parts)
    assert [(p.operator, p.partition, p.run.kind, p.run.sha256) for p in placed] == [
        ("op1", 0, "snap", sha256_hex(b"part0")),
        ("op1", 1, "snap", sha256_hex(b"part1")),
        ("op1", 2, "delta", sha256_hex(b"delta2")),
    ]


def test_a_failed_upload_names_what_was_uploaded() -> None:
    faults = [Fault("put_if_absent", FaultKind.SERVER_ERROR, call=4)]  # takeover, begin, first part
    store = FaultyStore(MemoryStore(), faults=faults)
    checkpointer = Checkpointer(store, max_concurrent_uploads=1)
    checkpointer.log.take_over("home")
    id = checkpointer.begin().id
    with pytest.raises(UploadFailed) as caught:
        checkpointer.save_partitions(id, [part(n, b"data") for n in range(3)])
    assert caught.value.uploaded == (f"{id}/operators/op1/partition-0-1-5.snap",)


def test_bytes_with_another_digest_are_never_returned(checkpointer: Checkpointer) -> None:
    checkpointer.store.put("test.snap", b"data")
    with pytest.raises(DigestMismatch, match="SHA-256") as caught:
        checkpointer.load_artifact(Artifact("test.snap", 4, "wrong_hash"))
    assert caught.value.where.endswith("test.snap")


def test_a_manifest_is_built_from_what_was_saved(checkpointer: Checkpointer) -> None:
    begin = checkpointer.begin()
    placed = checkpointer.save_partitions(begin.id, [part(0, b"state0"), part(1, b"state1")])
    committed(checkpointer, *placed, begin=begin)
    loaded = checkpointer.load_manifest(begin.id)
    assert list(loaded.operators) == ["op1"]
    assert sorted(loaded.operators["op1"].partitions) == [0, 1]
    assert loaded.operators["op1"].total_bytes == loaded.total_size_bytes == 12
    assert [checkpointer.load_artifact(a) for a in loaded.artifacts()] == [b"state0", b"state1"]


def test_a_deleted_checkpoint_is_listed_no_more(checkpointer: Checkpointer) -> None:
    first, second = (checkpointer.begin(full=True) for _ in range(2))
    committed(checkpointer, begin=first)
    assert [c.id for c in checkpointer.list_checkpoints()] == [first.id]
    after = checkpointer.begin(full=True)
    checkpointer.commit(
        after, CheckpointManifest(checkpoint_id=after.id, epoch=6, timestamp_ms=1, generation=1)
    )
    assert [c.epoch for c in checkpointer.list_checkpoints()] == [5, 6]
    delete_checkpoint(checkpointer, first.id)
    assert [c.id for c in checkpointer.list_checkpoints()] == [after.id]
    with pytest.raises(NotFound):
        checkpointer.load_manifest(second.id)


# Seed 002: the layout


def test_every_path_of_a_checkpoint_is_below_its_folder() -> None:
    paths = CheckpointPaths("s3://my-bucket/checkpoints")
    folder = f"checkpoints/{ID}"
    assert paths.latest_pointer() == "checkpoints/_latest"
    assert paths.checkpoint_dir(ID) == folder
    assert paths.manifest(ID) == f"{folder}/manifest.json"
    snapshot = paths.snapshot(ID, "window-agg", 3, first=1, last=9)
    delta = paths.delta(ID, "window-agg", 3, first=10, last=12)
    assert snapshot == f"{folder}/operators/window-agg/partition-3-1-9.snap"
    assert delta == f"{folder}/operators/window-agg/partition-3-10-12.delta"


def test_a_base_with_and_without_a_slash_is_the_same() -> None:
    assert CheckpointPaths("prefix/").manifest(ID) == CheckpointPaths("prefix").manifest(ID)


V2 = {"version": 2, "checkpoint_id": str(ID), "epoch": 10, "timestamp_ms": 1000}


def test_a_v2_manifest_is_read_with_all_it_says() -> None:
    document = V2 | {
        "watermark": 5000,
        "parent_id": str(new_checkpoint_id(CLOCK)),
        "operators": {
            "window-agg": {
                "partitions": [
                    {
                        "partition_id": 0,
                        "is_delta": False,
                        "path": "operators/window-agg/partition-0.snap",
                        "size_bytes": 1024,
                        "sha256": "abcd1234",
                    },
                    {
                        "partition_id": 1,
                        "is_delta": True,
                        "path": "operators/window-agg/partition-1.delta",
                        "size_bytes": 256,
                        "sha256": None,
                    },
                ],
                "total_bytes": 1280,
            }
        },
        "source_offsets": {
            "kafka-trades": {
                "source_type": "kafka",
                "offsets": {"partition-0": "1234", "partition-1": "5678"},
                "epoch": 10,
            }
        },
    }
    manifest = decode(json.dumps(document).encode(), "manifest.json")
    assert (manifest.checkpoint_id, manifest.epoch, manifest.watermark) == (ID, 10, 5000)
    assert str(manifest.parent_id) == document["parent_id"]
    operator = manifest.operators["window-agg"]
    assert operator.total_bytes == 1280
    assert operator.partitions[0][0] == RunEntry(
        "snap", 0, 10, 1024, sha256="abcd1234", path="operators/window-agg/partition-0.snap"
    )
    assert (operator.partitions[1][0].kind, operator.partitions[1][0].sha256) == ("delta", None)
    source = manifest.source_offsets["kafka-trades"]
    assert (source.offsets["partition-0"], source.epoch) == ("1234", 10)
    assert source.metadata == {"connector_type": "kafka"}


def test_a_v2_manifest_needs_its_four_mandatory_fields_only() -> None:
    manifest = decode(json.dumps(V2).encode(), "manifest.json")
    assert manifest.operators == manifest.source_offsets == {}
    assert manifest.parent_id is None
    assert manifest.watermark is None


# Seed 003: the per-core WAL writer


def test_puts_and_deletes_count_at_once_and_take_their_place_at_the_sync(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        writer.append_put(b"key1", b"value1")
        assert (writer.sequence, writer.position) == (1, HEADER_SIZE)
        writer.sync()
        first = writer.position
        assert first > HEADER_SIZE
        writer.append_put(b"key2", b"value2")
        assert writer.sequence == 2
        writer.append_delete(b"key1")
        assert writer.sequence == 3
        writer.sync()
        assert writer.position > first
        assert runs_of(disk, writer.segment) == [
            [(b"key1", b"value1")],
            [(b"key2", b"value2"), (b"key1", None)],
        ]


def test_an_epoch_begins_at_zero_and_is_what_was_set(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        assert writer.epoch == 0
        writer.set_epoch(5)
        assert writer.epoch == 5
        writer.append_put(b"key", b"value")
        writer.sync()
    with open_writer(disk) as again:
        assert again.epoch == 5


def test_open_at_the_header_leaves_the_rest_in_a_copy(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    with open_writer(disk) as writer:
        writer.append_put(b"key1", b"value1")
        writer.append_put(b"key2", b"value2")
        writer.sync()
    path = tmp_path / writer.segment
    whole = path.read_bytes()
    with pytest.raises(Refused):
        CoreWalWriter.open_at(0, disk, 0, home=HOME)
    with CoreWalWriter.open_at(0, disk, HEADER_SIZE, home=HOME) as again:
        assert (again.position, again.sequence) == (HEADER_SIZE, 2)
    assert path.read_bytes() == whole[:HEADER_SIZE]
    assert Path(f"{path}.cut-{HEADER_SIZE}-2").read_bytes() == whole[HEADER_SIZE:]


# Seed 004: recovery


def test_a_recovery_gives_nothing_up_unless_it_is_told_to() -> None:
    settings = asdict(RecoveryConfig())
    assert settings.pop("partitions") == 1
    assert settings.pop("max_concurrent") > 0
    assert settings.pop("sinks_from_now") == frozenset()
    assert settings == {
        "lose_after": None,
        "take_over_home": False,
        "same_pipeline": False,
        "start_fresh": False,
    }
    assert RecoveryConfig(lose_after=1000).lose_after == 1000


def test_a_log_that_is_not_there_has_no_bytes(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path / "home")
    assert statistics(disk, HOME).bytes == 0
    with open_writer(disk) as writer:
        writer.append_put(b"key", b"value")
        writer.sync()
        assert statistics(disk, HOME).bytes == writer.position > HEADER_SIZE

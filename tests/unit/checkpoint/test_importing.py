"""Checkpoints of LaminarDB become checkpoints of Lamina: whole, or not at all."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import lamina
from lamina.checkpoint import Checkpointer, import_checkpoint, read_checkpoint, verify
from lamina.errors import (
    Corrupt,
    DigestMismatch,
    LaminaError,
    NotFound,
    Refused,
    SizeMismatch,
    StateChanged,
    UsageError,
)
from lamina.format.manifest_v1 import read_states
from lamina.store import LocalStore, MemoryStore, Store
from lamina.testing import Fault, FaultKind, FaultyStore, Killed
from tests.support.checkpoints import open_pipeline, snapshot_of, take_checkpoint
from tests.support.embedded_stores import KEY, VALUE, all_epochs, as_dict, dying, rows

GOLDEN = Path(__file__).parents[2] / "golden"
V1 = GOLDEN / "v1" / "release-0.18"
ID = "01997a1c-6200-7000-8000-00000000000b"


def importing(folder: Path, target: Store, key: str = "manifest.json") -> Checkpointer:
    receiver = Checkpointer(target)
    report = import_checkpoint(read_checkpoint(LocalStore(folder), key), receiver)
    assert report.verified.ok
    return receiver


def states_of(checkpointer: Checkpointer, at: int = -1) -> dict[str, bytes]:
    manifest = checkpointer.load_manifest(checkpointer.list_checkpoints()[at].id)
    sidecar = checkpointer.load_artifact(manifest.sidecar) if manifest.sidecar else None
    return read_states(manifest, sidecar, "")


def original_states() -> dict[str, bytes]:
    manifest = read_checkpoint(LocalStore(V1)).manifest
    return read_states(manifest, (V1 / "state.bin").read_bytes(), "")


def v2(folder: Path, *, key: str = "manifest.json", **more: Any) -> Path:
    """A version 2 checkpoint of two partitions, one of them without a digest."""
    entries = []
    for number, data in enumerate([b"zero", b"one" * 1000]):
        path = folder / key.removesuffix("manifest.json")
        file = Path(f"{path}/operators/agg/partition-{number}.snap")
        if key != "manifest.json":
            file = Path(f"{path}operators/agg/partition-{number}.snap")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        entries.append(
            {
                "partition_id": number,
                "is_delta": False,
                "path": f"s3://bucket/checkpoints/{ID}operators/agg/partition-{number}.snap",
                "size_bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest() if number else None,
            }
        )
    document = {
        "version": 2,
        "checkpoint_id": ID,
        "epoch": 11,
        "timestamp_ms": 1758700001000,
        "operators": {"agg": {"partitions": entries, "total_bytes": 0}},
        "source_offsets": {
            "trades": {"source_type": "kafka", "offsets": {"partition-0": "1234"}, "epoch": 11}
        },
        "watermark": 5000,
    }
    (folder / key).write_text(json.dumps(document | more))
    return folder


def test_a_version_1_checkpoint_is_the_same_states_offsets_and_epoch() -> None:
    found = importing(V1, MemoryStore())
    (committed,) = found.list_checkpoints()
    manifest = found.load_manifest(committed.id)
    original = read_checkpoint(LocalStore(V1)).manifest
    assert states_of(found) == original_states()
    assert (manifest.epoch, manifest.origin) == (original.epoch, original.origin)
    assert manifest.source_offsets == original.source_offsets
    assert manifest.sidecar is None or manifest.sidecar.sha256 is not None
    assert verify(found).ok


@pytest.mark.parametrize("key", ["manifest.json", f"{ID}manifest.json"])
def test_a_version_2_checkpoint_is_found_whatever_its_paths_were(key: str, tmp_path: Path) -> None:
    """Also if a slash was forgotten: then the id stands before every name."""
    found = importing(v2(tmp_path, key=key), MemoryStore(), key)
    manifest = found.load_manifest(found.list_checkpoints()[0].id)
    runs = manifest.operators["agg"].partitions
    assert [found.load_artifact(runs[n][0]) for n in (0, 1)] == [b"zero", b"one" * 1000]
    assert all(run[0].sha256 and run[0].rows is None for run in runs.values())
    assert manifest.source_offsets["trades"].metadata == {"connector_type": "kafka"}


def test_the_same_import_twice_is_one_checkpoint(tmp_path: Path) -> None:
    store = MemoryStore()
    importing(v2(tmp_path), store)
    before = snapshot_of(store)
    assert len(importing(tmp_path, store).list_checkpoints()) == 1
    assert snapshot_of(store) == before


@pytest.mark.parametrize("when", [FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER])
@pytest.mark.parametrize("operation", ["put_if_absent", "put"])
def test_an_import_that_was_killed_anywhere_is_gone_on_with(
    operation: str, when: FaultKind, tmp_path: Path
) -> None:
    v2(tmp_path)
    probe = FaultyStore(MemoryStore())
    importing(tmp_path, probe)
    assert probe.calls[operation] > 1
    for call in range(1, probe.calls[operation] + 1):
        store = MemoryStore()
        with pytest.raises(Killed):
            importing(tmp_path, FaultyStore(store, faults=[Fault(operation, when, call=call)]))
        assert verify(Checkpointer(store)).ok
        assert verify(importing(tmp_path, store)).ok


def test_a_store_begins_where_the_checkpoint_ends_and_carries_on_its_states(
    tmp_path: Path,
) -> None:
    """Operator states that no table of Lamina's has were gone with the next checkpoint."""
    importing(V1, LocalStore(tmp_path / "checkpoints"))
    original = read_checkpoint(LocalStore(V1)).manifest
    with dying(lamina.open(tmp_path)) as store:
        assert store.epoch == original.epoch
        assert store.offsets == original.source_offsets
        store.table("t", KEY, VALUE).write(rows({1: 1}))
        store.commit()
        store.checkpoint()
        assert states_of(store._checkpointer) == original_states()
    with dying(lamina.open(tmp_path)) as store:
        assert as_dict(store.table("t")) == {1: 1}
        store.commit()
        store.checkpoint()
        assert states_of(store._checkpointer) == original_states()
        base = store.last_checkpoint
        assert base is not None
        (tmp_path / "checkpoints" / str(base) / "manifest.json").write_bytes(b"{}")
        store.commit()
        store.checkpoint()
        assert states_of(store._checkpointer) == original_states(), "also in a full one"
        last = store._checkpointer.list_checkpoints()[-1]
        assert last.entry.parent is None
        assert len(all_epochs(store)) == 4
        assert verify(store._checkpointer, (last.id,)).ok


def test_runs_that_lamina_cannot_read_are_carried_on_too(tmp_path: Path) -> None:
    folder = tmp_path / "laminar"
    folder.mkdir()
    importing(v2(folder), LocalStore(tmp_path / "checkpoints"))
    with dying(lamina.open(tmp_path)) as store:
        with pytest.raises(StateChanged, match="did not write as columns"):
            store.table("agg", KEY, VALUE)
        for _ in range(2):
            store.commit()
            store.checkpoint()
        base = store.last_checkpoint
        (tmp_path / "checkpoints" / str(base) / "manifest.json").write_bytes(b"{}")
        store.commit()
        made = store.checkpoint()
        assert made is not None
        assert made.entry.parent is None
        manifest = store._checkpointer.load_manifest(made.id)
        runs = manifest.operators["agg"].partitions
        loaded = [store._checkpointer.load_artifact(runs[n][0]) for n in (0, 1)]
        assert loaded == [b"zero", b"one" * 1000]
        assert store.offsets["trades"].offsets == {"partition-0": "1234"}


def changed(folder: Path, **fields: object) -> Path:
    shutil.copytree(V1, folder)
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return folder


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"is_incremental": True, "parent_id": 6}, Refused),
        ({"table_store_checkpoint_path": "/var/tables"}, Refused),
        ({"inflight_data": {"a": [1]}}, Corrupt),
        ({"version": 4}, LaminaError),
        ({"state_checksum": "00" * 32}, DigestMismatch),
    ],
)
def test_what_would_not_be_whole_is_refused_and_nothing_is_written(
    fields: dict[str, object], error: type[LaminaError], tmp_path: Path
) -> None:
    store = MemoryStore()
    with pytest.raises(error):
        importing(changed(tmp_path / "v1", **fields), store)
    assert Checkpointer(store).list_checkpoints() == ()


def test_a_table_that_came_with_a_delta_is_refused(tmp_path: Path) -> None:
    entry = {"partition_id": 0, "is_delta": True, "path": "x", "size_bytes": 1}
    v2(tmp_path, operators={"agg": {"partitions": [entry]}})
    with pytest.raises(Refused, match="incremental"):
        importing(tmp_path, MemoryStore())


def test_files_that_are_missing_or_wrong_are_noticed(tmp_path: Path) -> None:
    v2(tmp_path)
    file = tmp_path / "operators/agg/partition-1.snap"
    whole = file.read_bytes()
    for data, error in ((whole[:-1], SizeMismatch), (b"x" * len(whole), DigestMismatch)):
        file.write_bytes(data)
        store = MemoryStore()
        with pytest.raises(error):
            importing(tmp_path, store)
        assert Checkpointer(store).list_checkpoints() == ()
    file.unlink()
    with pytest.raises(NotFound, match="which is not here"):
        importing(tmp_path, MemoryStore())


def test_a_checkpoint_of_lamina_is_for_copy(tmp_path: Path) -> None:
    pipeline = open_pipeline()
    made = take_checkpoint(pipeline, 1)
    key = pipeline.paths.manifest(made.id)
    with pytest.raises(UsageError, match="already a checkpoint of Lamina"):
        read_checkpoint(pipeline.store, key)


def test_a_store_in_which_a_pipeline_lives_is_left_alone(tmp_path: Path) -> None:
    pipeline = open_pipeline(base="")
    take_checkpoint(pipeline, 1)
    before = snapshot_of(pipeline.store)
    with pytest.raises(Refused, match="is at the target"):
        importing(v2(tmp_path), pipeline.store)
    assert snapshot_of(pipeline.store) == before

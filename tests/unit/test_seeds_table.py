"""docs/seeds.md: every item of the seeds has a row, and every name in a row exists."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "seeds.md"

# What the seeds hold; they are not part of this repository. Every public struct, enum, variant,
# constant, function and method, the fields of public structs, and every test.
REQUIRED = {
    "000": """
        SinkCommitStatus SinkCommitStatus::Pending SinkCommitStatus::Committed
        SinkCommitStatus::Failed VNODE_COUNT CheckpointManifest CheckpointManifest.version
        CheckpointManifest.checkpoint_id CheckpointManifest.epoch
        CheckpointManifest.timestamp_ms CheckpointManifest.source_offsets
        CheckpointManifest.sink_epochs CheckpointManifest.sink_commit_statuses
        CheckpointManifest.table_offsets CheckpointManifest.operator_states
        CheckpointManifest.table_store_checkpoint_path CheckpointManifest.watermark
        CheckpointManifest.source_watermarks CheckpointManifest.source_names
        CheckpointManifest.sink_names CheckpointManifest.pipeline_hash
        CheckpointManifest.vnode_count CheckpointManifest.state_checksum
        ManifestValidationError ManifestValidationError.message CheckpointManifest::validate
        CheckpointManifest::new ConnectorCheckpoint ConnectorCheckpoint.offsets
        ConnectorCheckpoint.epoch ConnectorCheckpoint.metadata ConnectorCheckpoint::new
        ConnectorCheckpoint::with_offsets OperatorCheckpoint OperatorCheckpoint.state_b64
        OperatorCheckpoint.external OperatorCheckpoint.external_offset
        OperatorCheckpoint.external_length OperatorCheckpoint::inline
        OperatorCheckpoint::external OperatorCheckpoint::decode_inline
        OperatorCheckpoint::try_decode_inline OperatorCheckpoint::from_bytes
        test_manifest_new test_manifest_json_round_trip
        test_manifest_backward_compat_missing_fields test_connector_checkpoint_new
        test_connector_checkpoint_with_offsets test_operator_checkpoint_inline
        test_operator_checkpoint_external test_operator_checkpoint_empty_inline
        test_manifest_table_offsets test_manifest_topology_fields_round_trip
        test_manifest_topology_backward_compat test_validate_orphaned_source_offset
        test_manifest_pipeline_hash_round_trip test_from_bytes_inline
        test_from_bytes_external test_from_bytes_at_threshold_boundary
        test_from_bytes_empty_data test_manifest_pipeline_hash_backward_compat
    """,
    "001": """
        CheckpointerError CheckpointerError::ObjectStore CheckpointerError::Serialization
        CheckpointerError::IntegrityMismatch CheckpointerError::JoinError
        ObjectStoreCheckpointer ObjectStoreCheckpointer::new
        ObjectStoreCheckpointer::save_partitions_concurrent
        ObjectStoreCheckpointer::save_manifest ObjectStoreCheckpointer::load_manifest
        ObjectStoreCheckpointer::save_snapshot ObjectStoreCheckpointer::save_delta
        ObjectStoreCheckpointer::load_artifact ObjectStoreCheckpointer::update_latest
        ObjectStoreCheckpointer::read_latest ObjectStoreCheckpointer::list_checkpoints
        ObjectStoreCheckpointer::delete_checkpoint verify_integrity
        test_save_and_load_manifest test_save_snapshot_with_digest test_load_artifact
        test_latest_pointer test_concurrent_partition_uploads test_integrity_mismatch
        test_save_and_build_manifest
    """,
    "002": """
        CheckpointId CheckpointId::now CheckpointId::from_uuid CheckpointId::as_uuid
        CheckpointId::to_string_id CheckpointPaths CheckpointPaths::new
        CheckpointPaths::latest_pointer CheckpointPaths::checkpoint_dir
        CheckpointPaths::manifest CheckpointPaths::snapshot CheckpointPaths::delta
        CheckpointPaths::source_offset CheckpointManifestV2 CheckpointManifestV2.version
        CheckpointManifestV2.checkpoint_id CheckpointManifestV2.epoch
        CheckpointManifestV2.timestamp_ms CheckpointManifestV2.operators
        CheckpointManifestV2.source_offsets CheckpointManifestV2.parent_id
        CheckpointManifestV2.watermark CheckpointManifestV2.total_size_bytes
        CheckpointManifestV2::new OperatorSnapshotEntry OperatorSnapshotEntry.partitions
        OperatorSnapshotEntry.total_bytes PartitionSnapshotEntry
        PartitionSnapshotEntry.partition_id PartitionSnapshotEntry.is_delta
        PartitionSnapshotEntry.path PartitionSnapshotEntry.size_bytes
        PartitionSnapshotEntry.sha256 SourceOffsetEntry SourceOffsetEntry.source_type
        SourceOffsetEntry.offsets SourceOffsetEntry.epoch test_checkpoint_id_time_sortable
        test_checkpoint_id_display test_checkpoint_paths
        test_checkpoint_paths_trailing_slash test_manifest_v2_json_round_trip
        test_manifest_v2_backward_compat_missing_fields
    """,
    "003": """
        CoreWalWriter CoreWalWriter::new CoreWalWriter::open_at CoreWalWriter::core_id
        CoreWalWriter::position CoreWalWriter::synced_position CoreWalWriter::epoch
        CoreWalWriter::sequence CoreWalWriter::path CoreWalWriter::entries_since_sync
        CoreWalWriter::set_epoch CoreWalWriter::append_put CoreWalWriter::append_delete
        CoreWalWriter::append CoreWalWriter::mark_synced CoreWalWriter::append_checkpoint
        CoreWalWriter::append_epoch_barrier CoreWalWriter::append_commit CoreWalWriter::sync
        CoreWalWriter::truncate CoreWalWriter::reset test_writer_creation test_append_put
        test_append_delete test_sync test_epoch_setting test_truncate test_reset
        test_append_checkpoint test_append_epoch_barrier test_append_commit
        test_synced_position_tracks_sync test_debug_format test_open_at
    """,
    "004": """
        RecoveredState RecoveredState.epoch RecoveredState.state_snapshot
        RecoveredState.wal_position RecoveredState.wal_entries_replayed
        RecoveredState.source_offsets RecoveredState.watermark RecoveredState.checkpoint_id
        RecoveredState.state_changes RecoveredState::empty RecoveredState::has_state
        RecoveryConfig RecoveryConfig.checkpoint_dir RecoveryConfig.wal_path
        RecoveryConfig.repair_wal RecoveryConfig.collect_state_changes
        RecoveryConfig.max_wal_entries RecoveryConfig::new RecoveryConfig::with_repair_wal
        RecoveryConfig::with_collect_state_changes RecoveryConfig::with_max_wal_entries
        RecoveryManager RecoveryManager::new RecoveryManager::recover
        RecoveryManager::recover_simple RecoveryManager::recover_with_changes
        WriteAheadLog::new WriteAheadLog::set_sync_on_write
        validate_checkpoint wal_size test_recovered_state_empty test_recovery_config
        test_recovery_no_checkpoint_no_wal test_recovery_with_checkpoint_only
        test_recovery_with_wal_only test_recovery_checkpoint_plus_wal
        test_validate_checkpoint test_wal_size test_recovery_max_entries
    """,
}


class Row(NamedTuple):
    seed: str
    item: str
    ours: str
    test: str
    note: str


def rows() -> list[Row]:
    found, seed = [], ""
    for line in TABLE.read_text().splitlines():
        if heading := re.match(r"## Seed (\d{3})", line):
            seed = heading[1]
        elif line.startswith("| `"):
            cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
            found.append(Row(seed, *cells))
    return found


ROWS = rows()
BUILT = [row for row in ROWS if row.ours != "none"]


@pytest.mark.parametrize("seed", REQUIRED)
def test_every_item_of_a_seed_has_one_row(seed: str) -> None:
    assert Counter(row.item for row in ROWS if row.seed == seed) == Counter(REQUIRED[seed].split())


@pytest.mark.parametrize("name", sorted({row.ours for row in BUILT}))
def test_a_name_in_the_table_exists(name: str) -> None:
    resolve(name)


@pytest.mark.parametrize("test", sorted({row.test for row in BUILT}))
def test_a_test_in_the_table_exists(test: str) -> None:
    path, _, function = test.partition("::")
    assert function in functions_of(ROOT / path)


def test_what_has_no_counterpart_has_a_reason() -> None:
    for row in ROWS:
        assert row.note, row.item
        if row.ours == "none":
            assert row.test == "none", row.item
            assert len(row.note) > 40, row.item


def test_nothing_is_planned_any_more() -> None:
    assert not [row.item for row in ROWS if "planned" in (row.ours, row.test)]


def test_a_wrong_name_is_found() -> None:
    with pytest.raises(AttributeError):
        resolve("lamina.format.manifest_model.CheckpointManifest.no_such_field")
    with pytest.raises(ModuleNotFoundError):
        resolve("no_such_package.Thing")


def resolve(name: str) -> object:
    """Import as much of the dotted name as is a module, and look up the rest."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            if count == 1:
                raise
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))

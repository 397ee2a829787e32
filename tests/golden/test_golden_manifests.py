"""What was ever written is read for ever: real files, and the model each must give."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from lamina.errors import DigestMismatch, NotFound, SizeMismatch
from lamina.format.manifest import (
    CheckpointManifest,
    ConnectorCheckpoint,
    Failed,
    KeyedState,
    OperatorCheckpoint,
    OperatorRuns,
    Origin,
    OutputFile,
    Pending,
    RunEntry,
    Sidecar,
    SinkCommitted,
    StateColumn,
    decode,
    encode,
    read_states,
)
from lamina.format.pipeline_record import Owner, PipelineRecord
from lamina.ids import CheckpointId

HERE = Path(__file__).parent
OWN = CheckpointId.parse("019a5e10-8c00-7abc-8def-0123456789ab")
PARENT = CheckpointId.parse("019a5e00-8c00-7abc-8def-0123456789ab")
SIDECAR_SHA256 = "8d44882a9bf6c16058554c87e64200b512a4f1bf564995798dd597fa8780adc8"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


V1_MINIMAL = CheckpointManifest(
    checkpoint_id=CheckpointId.from_parts(1000, 1),
    epoch=1,
    timestamp_ms=1000,
    vnode_count=0,
    origin=Origin(1, "1"),
)

V1_FULL = CheckpointManifest(
    checkpoint_id=CheckpointId.from_parts(1_760_000_000_000, 42),
    epoch=10,
    timestamp_ms=1_760_000_000_000,
    pipeline_hash="deadbeefcafe1234",
    source_offsets={
        "kafka-src": ConnectorCheckpoint(
            {"partition-0": "1234", "partition-1": "5678"}, 10, {"connector": "kafka"}
        )
    },
    table_offsets={"instruments": ConnectorCheckpoint.with_offsets(10, {"lsn": "0/ABCD"})},
    sink_epochs={"pg-sink": 10, "delta-sink": 9},
    sink_commit_statuses={
        "pg-sink": SinkCommitted(),
        "delta-sink": Failed("timeout after 30s"),
        "files": Pending(),
    },
    operator_states={
        "window-agg": OperatorCheckpoint(state_b64="aGVsbG8=", sha256=sha256(b"hello")),
        "empty": OperatorCheckpoint(state_b64="", sha256=sha256(b"")),
    },
    table_store_path="/tmp/rocksdb_cp",
    watermark=999_000,
    source_watermarks={"kafka-src": 999_000},
    source_names=("kafka-src",),
    sink_names=("delta-sink", "files", "pg-sink"),
    origin=Origin(1, "42"),
)

V1_RELEASE_018 = CheckpointManifest(
    checkpoint_id=CheckpointId.from_parts(1_755_000_000_000, 7),
    epoch=7,
    timestamp_ms=1_755_000_000_000,
    sink_epochs={"pg-sink": 6},
    operator_states={
        "window": OperatorCheckpoint(external=True, external_offset=0, external_length=24),
        "join": OperatorCheckpoint(external=True, external_offset=24, external_length=22),
        "dedup": OperatorCheckpoint(state_b64="AAEC", sha256=sha256(b"\0\1\2")),
    },
    sidecar=Sidecar("state.bin", None, SIDECAR_SHA256),
    watermark=-5,
    origin=Origin(1, "7"),
    extra={
        "v1.wal_position": 4096,
        "v1.per_core_wal_positions": [1024, 3072],
        "v1.inflight_data": {},
        "v1.assignment_version": 3,
        "v1.vnode_map": {"0": "node-a", "255": "node-b"},
        "v1.size_bytes": 49,
        "v1.is_incremental": False,
        "v1.parent_id": 6,
    },
)

V2_MINIMAL = CheckpointManifest(
    checkpoint_id=CheckpointId.parse("01997a1c-6200-7000-8000-000000000001"),
    epoch=1,
    timestamp_ms=1000,
    vnode_count=0,
    origin=Origin(2, "01997a1c-6200-7000-8000-000000000001"),
)

V2_FULL = CheckpointManifest(
    checkpoint_id=CheckpointId.parse("01997a1c-6200-7000-8000-00000000000a"),
    epoch=10,
    timestamp_ms=1_758_700_000_000,
    parent_id=CheckpointId.parse("01997a1c-6200-7000-8000-000000000009"),
    operators={
        "window-agg": OperatorRuns(
            {
                0: (
                    RunEntry(
                        "snap",
                        0,
                        10,
                        1024,
                        sha256="abcd1234",
                        path="operators/window-agg/partition-0.snap",
                    ),
                ),
                1: (RunEntry("delta", 10, 10, 256, path="operators/window-agg/partition-1.delta"),),
            },
            {"v2.total_bytes": 1280},
        )
    },
    source_offsets={
        "kafka-trades": ConnectorCheckpoint(
            {"partition-0": "1234", "partition-1": "5678"}, 10, {"connector_type": "kafka"}
        )
    },
    watermark=5000,
    vnode_count=0,
    origin=Origin(2, "01997a1c-6200-7000-8000-00000000000a"),
    extra={"v2.total_size_bytes": 0},
)

V2_GLUED = CheckpointManifest(
    checkpoint_id=CheckpointId.parse("01997a1c-6200-7000-8000-00000000000b"),
    epoch=11,
    timestamp_ms=1_758_700_001_000,
    operators={
        "agg": OperatorRuns(
            {
                3: (
                    RunEntry(
                        "snap",
                        0,
                        11,
                        5,
                        sha256=sha256(b"hello"),
                        path="s3://bucket/checkpoints/01997a1c-6200-7000-8000-00000000000b"
                        "operators/agg/partition-3.snap",
                    ),
                )
            },
            {"v2.total_bytes": 0},
        )
    },
    vnode_count=0,
    origin=Origin(2, "01997a1c-6200-7000-8000-00000000000b"),
    extra={"v2.total_size_bytes": 5},
)

V3_MINIMAL = CheckpointManifest(
    checkpoint_id=OWN, epoch=1, timestamp_ms=1_762_500_000_000, generation=1
)

V3_EXAMPLE = CheckpointManifest(
    checkpoint_id=OWN,
    epoch=12,
    timestamp_ms=1_762_500_000_000,
    generation=2,
    parent_id=PARENT,
    parent_epoch=11,
    commit_digest=sha256(b"commit 12"),
    parent_commit_digest=sha256(b"commit 11"),
    source_offsets={"trades": ConnectorCheckpoint({"trades-0": "1234"}, 12)},
    sink_epochs={"out": 12},
    sink_commit_statuses={"out": SinkCommitted()},
    operators={
        "by symbol": OperatorRuns(
            {
                0: (
                    RunEntry(
                        "snap",
                        1,
                        8,
                        4096,
                        rows=40,
                        sha256=sha256(b"base"),
                        path=f"{PARENT}/operators/by!20symbol/partition-0-1-8.snap",
                    ),
                    RunEntry(
                        "delta",
                        9,
                        12,
                        512,
                        rows=3,
                        sha256=sha256(b"delta"),
                        path=f"{OWN}/operators/by!20symbol/partition-0-9-12.delta",
                    ),
                )
            }
        )
    },
    watermark=1_762_499_990_000_000,
    source_watermarks={"trades": 1_762_499_990_000_000},
    source_names=("trades",),
    sink_names=("out",),
)

V3_FULL = CheckpointManifest(
    checkpoint_id=OWN,
    epoch=12,
    timestamp_ms=1_762_500_000_000,
    generation=2,
    parent_id=PARENT,
    parent_epoch=11,
    commit_digest=sha256(b"commit 12"),
    parent_commit_digest=sha256(b"commit 11"),
    pipeline_id="trades-ünïcode",
    pipeline_hash=sha256(b'{"sql":"select 1"}'),
    source_offsets={
        "trades": ConnectorCheckpoint(
            {"trades-0": "1234"}, 12, {"connector": "kafka"}, {"lag": {"new": [1, None]}}
        )
    },
    table_offsets={"instruments": ConnectorCheckpoint({"version": "42"}, 4)},
    sink_epochs={"a": 12, "b": 10},
    sink_commit_statuses={"a": SinkCommitted(), "b": Failed("no route"), "c": Pending()},
    operators={
        "by/symbol": OperatorRuns(
            {
                0: (
                    RunEntry(
                        "snap",
                        1,
                        8,
                        4096,
                        rows=40,
                        sha256=sha256(b"base"),
                        path=f"{PARENT}/operators/by!2Fsymbol/partition-0-1-8.snap",
                    ),
                    RunEntry(
                        "delta",
                        9,
                        12,
                        5,
                        rows=3,
                        sha256=sha256(b"hello"),
                        state_b64="aGVsbG8=",
                        extra={"codec": "arrow"},
                    ),
                )
            },
            {"merge": "sum"},
        )
    },
    operator_states={
        "dedup": OperatorCheckpoint.inline(b"\0\1\2"),
        "join": OperatorCheckpoint.in_sidecar(0, 9, sha256(b"join here")),
    },
    sidecar=Sidecar(f"{OWN}/state.bin", 9, sha256(b"join here")),
    output={
        "b": (
            OutputFile(11, f"{OWN}/output/b/11/part-0.parquet", 700, sha256(b"out 11"), 7),
            OutputFile(12, f"{OWN}/output/b/12/part-0.parquet", 300, sha256(b"out 12"), 3),
        )
    },
    table_store_path="tables/instruments-42",
    watermark=-5,
    source_watermarks={"trades": 1_762_499_990_000_000},
    source_names=("trades",),
    sink_names=("a", "b", "c"),
    extra={"note": "a field of a newer minor version"},
)

V3_SETTINGS = replace(
    V3_EXAMPLE,
    settings={"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"},
    source_offsets={
        "trades": ConnectorCheckpoint(
            {"trades-0": "1234"}, 12, {"applied_watermark_us": "1762499985000000"}
        )
    },
)
V3_PIPELINE = replace(
    V3_EXAMPLE,
    pipeline_id="00112233445566778899aabbccddee00",
    pipeline_hash="e" * 64,
    pipeline=PipelineRecord(
        Owner("00112233445566778899aabbccddee00", "orders"),
        "e" * 64,
        {"trades": "1" * 64},
        {"by symbol": "2" * 64},
        {"out": "3" * 64},
        {"note": "a field of a newer minor version"},
    ),
)
_SNAP, _DELTA = V3_EXAMPLE.operators["by symbol"].partitions[0]
V3_KEYED = replace(
    V3_EXAMPLE,
    features=("keyed-state-1",),
    operators={
        "by symbol": OperatorRuns(
            {
                0: (replace(_SNAP, ranks=(0, 127)), replace(_DELTA, ranks=(0, 127))),
                1: (replace(_SNAP, ranks=(128, 255)),),
            },
            keyed=KeyedState(
                partitions=2,
                hash="spark-murmur3-xxhash64-1",
                key=(StateColumn("symbol", "string"),),
                value=(
                    StateColumn("volume", "int64"),
                    StateColumn("seen", "timestamp[us, tz=UTC]"),
                ),
                time="seen",
            ),
        )
    },
)
_KEYED = V3_KEYED.operators["by symbol"].keyed
assert _KEYED is not None
V3_MEANINGS = replace(
    V3_KEYED,
    operators={
        "by symbol": replace(
            V3_KEYED.operators["by symbol"],
            keyed=replace(_KEYED, meanings=("symbol", "sum(price * volume)", "max(ts)")),
        )
    },
)

GOLDEN = {
    "v1/minimal.json": V1_MINIMAL,
    "v1/full-0.20.json": V1_FULL,
    "v1/release-0.18/manifest.json": V1_RELEASE_018,
    "v2/minimal.json": V2_MINIMAL,
    "v2/full.json": V2_FULL,
    "v2/glued-paths.json": V2_GLUED,
    "v3/minimal.json": V3_MINIMAL,
    "v3/example.json": V3_EXAMPLE,
    "v3/full.json": V3_FULL,
    "v3/keyed.json": V3_KEYED,
    "v3/meanings.json": V3_MEANINGS,
    "v3/settings.json": V3_SETTINGS,
    "v3/pipeline.json": V3_PIPELINE,
    "v3/upgraded-from-v1.json": V1_RELEASE_018,
    "v3/upgraded-from-v2.json": V2_FULL,
}


@pytest.mark.parametrize("file", GOLDEN)
def test_a_golden_file_reads_to_its_model(file: str) -> None:
    assert decode((HERE / file).read_bytes(), file) == GOLDEN[file]


@pytest.mark.parametrize("file", [file for file in GOLDEN if file.startswith("v3/")])
def test_a_version_3_file_is_written_again_byte_for_byte(file: str) -> None:
    assert encode(GOLDEN[file]) == (HERE / file).read_bytes()


@pytest.mark.parametrize("file", GOLDEN)
def test_an_upgraded_manifest_survives_being_written(file: str) -> None:
    assert decode(encode(GOLDEN[file]), file) == GOLDEN[file]


def test_every_golden_manifest_has_a_model() -> None:
    found = {str(path.relative_to(HERE)) for path in HERE.glob("v[123]/**/*.json")}
    assert {file for file in found if "log" not in file} == set(GOLDEN)


def test_the_sidecar_of_018_gives_every_state() -> None:
    sidecar = (HERE / "v1/release-0.18/state.bin").read_bytes()
    assert read_states(V1_RELEASE_018, sidecar, "golden") == {
        "window": b"window state of epoch 7\0",
        "join": b"join state of epoch 7\xff",
        "dedup": b"\0\1\2",
    }


def test_a_missing_short_or_changed_sidecar_is_an_error() -> None:
    sidecar = (HERE / "v1/release-0.18/state.bin").read_bytes()
    with pytest.raises(NotFound):
        read_states(V1_RELEASE_018, None, "golden")
    for damaged in (b"", sidecar[:-1], sidecar + b"x", b"W" + sidecar[1:]):
        with pytest.raises(DigestMismatch):
            read_states(V1_RELEASE_018, damaged, "golden")


def test_without_a_checksum_a_short_sidecar_is_still_an_error() -> None:
    text = (HERE / "v1/release-0.18/manifest.json").read_text()
    manifest = decode(text.replace(f'"{SIDECAR_SHA256}"', "null").encode(), "golden")
    sidecar = (HERE / "v1/release-0.18/state.bin").read_bytes()
    assert read_states(manifest, sidecar, "golden")["join"] == b"join state of epoch 7\xff"
    with pytest.raises(SizeMismatch):
        read_states(manifest, sidecar[:-1], "golden")


FORMAT = HERE.parents[1] / "docs" / "FORMAT.md"


def test_the_example_of_format_md_is_the_golden_file() -> None:
    data, text = (HERE / "v3/example.json").read_bytes(), FORMAT.read_text(encoding="utf-8")
    assert f"```json\n{data.decode()}\n```" in text
    assert f"`{sha256(data)}`" in text


def test_format_md_describes_every_field() -> None:
    section = FORMAT.read_text(encoding="utf-8").split("## 4 Manifest")[1].split("**Reading.**")[0]
    described = set(re.findall(r"[a-z][a-z0-9_]+", section))
    value = json.loads((HERE / "v3/full.json").read_bytes())
    written = value.keys() - {"note"} | {"origin"}
    for part in (
        RunEntry,
        OperatorCheckpoint,
        Sidecar,
        OutputFile,
        ConnectorCheckpoint,
        OperatorRuns,
    ):
        written |= {field.name for field in fields(part)} - {"extra"}
    assert written <= described

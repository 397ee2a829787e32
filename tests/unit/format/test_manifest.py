"""The manifest as bytes: what is written, what is read, what is refused and how."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import BadManifest, Corrupt, DigestMismatch, Unsupported, UsageError
from lamina.format import manifest as module
from lamina.format.canonical import sha256_hex
from lamina.format.manifest import (
    Artifact,
    CheckpointManifest,
    ConnectorCheckpoint,
    Failed,
    OperatorCheckpoint,
    OperatorRuns,
    OutputFile,
    Pending,
    PlacedEntry,
    RunEntry,
    Sidecar,
    SinkCommitted,
    decode,
    encode,
    pipeline_hash,
    read_states,
    with_runs,
)
from lamina.format.names import RunName, relative
from lamina.format.validation import check
from lamina.ids import CheckpointId

ID = CheckpointId.from_parts(1_760_000_000_000, 42)
SHA = "ab" * 32
HEAD = CheckpointManifest(checkpoint_id=ID, epoch=5, timestamp_ms=1, generation=1)
FULL = Path(__file__).parents[2] / "golden" / "v3" / "full.json"


def stored(operator: str, partition: int, first: int, last: int, size: int = 10) -> PlacedEntry:
    kind = "snap" if first == 1 else "delta"
    path = relative(RunName(ID, operator, partition, first, last, kind))
    run = RunEntry(kind, first, last, size, rows=1, sha256=SHA, path=path)
    return PlacedEntry(operator, partition, run)


def document(manifest: CheckpointManifest = HEAD) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(encode(manifest))
    return value


def read(value: Any) -> CheckpointManifest:
    return decode(json.dumps(value).encode(), "some/manifest.json")


# --- the model, test by test as in the seeds ---


def test_a_new_manifest_is_empty() -> None:
    assert HEAD.source_offsets == HEAD.sink_epochs == HEAD.operator_states == {}
    assert HEAD.vnode_count == 256
    assert HEAD.total_size_bytes == 0
    assert document()["version"] == 3


def test_a_connector_checkpoint_is_new_or_has_offsets() -> None:
    assert ConnectorCheckpoint.new(5) == ConnectorCheckpoint({}, 5, {})
    assert ConnectorCheckpoint.with_offsets(3, {"lsn": "0/ABCD"}).offsets["lsn"] == "0/ABCD"


def test_inline_state_comes_back_even_if_it_is_empty() -> None:
    for data in (b"state-data", b"", bytes(range(256))):
        state = OperatorCheckpoint.inline(data)
        assert not state.external
        assert state.sha256 == sha256_hex(data)
        assert state.decode_inline() == data


def test_external_state_is_a_reference() -> None:
    state = OperatorCheckpoint.in_sidecar(1024, 256, SHA)
    assert state.external
    assert (state.external_offset, state.external_length, state.external_end) == (1024, 256, 1280)
    assert state.decode_inline() is None


def test_from_bytes_is_inline_up_to_the_threshold() -> None:
    at, nothing = OperatorCheckpoint.from_bytes(b"\xff" * 100, 100, 512)
    assert nothing is None
    assert at.decode_inline() == b"\xff" * 100
    above, sidecar = OperatorCheckpoint.from_bytes(b"\xff" * 101, 100, 512)
    assert sidecar == b"\xff" * 101
    assert above == OperatorCheckpoint.in_sidecar(512, 101, sha256_hex(b"\xff" * 101))
    empty, nothing = OperatorCheckpoint.from_bytes(b"", 0, 0)
    assert (empty.decode_inline(), nothing) == (b"", None)


@pytest.mark.parametrize("text", ["%%%", "AAE", "AAEC\n", "AAF=", "é", "AA==AA==", "-_=="])
def test_bad_base64_is_corrupt_and_never_no_state(text: str) -> None:
    with pytest.raises(Corrupt):
        OperatorCheckpoint(state_b64=text).decode_inline("there")


def test_inline_state_with_another_digest_is_corrupt() -> None:
    with pytest.raises(DigestMismatch, match="SHA-256"):
        OperatorCheckpoint(state_b64="AAEC", sha256=SHA).decode_inline()
    with pytest.raises(DigestMismatch):
        replace(
            RunEntry.inline("snap", b"x", first_epoch=1, last_epoch=1, rows=1), sha256=SHA
        ).decode_inline()


# --- building ---


def test_totals_are_computed_by_the_writer() -> None:
    manifest = replace(
        with_runs(
            HEAD, [stored("b", 0, 1, 2, 100), stored("a", 1, 1, 5, 7), stored("b", 0, 3, 5, 1)]
        ),
        sidecar=Sidecar(f"{ID}/state.bin", 1000, SHA),
        output={"out": (OutputFile(5, f"{ID}/output/out/5/x", 10_000, SHA, 1),)},
    )
    assert {name: runs.total_bytes for name, runs in manifest.operators.items()} == {
        "a": 7,
        "b": 101,
    }
    assert manifest.total_size_bytes == 11_108
    assert document(manifest)["total_size_bytes"] == 11_108
    assert document(manifest)["operators"]["b"]["total_bytes"] == 101


def test_runs_in_any_order_give_the_same_bytes() -> None:
    runs = [stored(op, part, first, first) for op in "ba" for part in (3, 1) for first in (1, 2, 3)]
    assert encode(with_runs(HEAD, runs)) == encode(with_runs(HEAD, reversed(runs)))
    check(with_runs(HEAD, runs))


def test_names_are_sorted_and_completed() -> None:
    head = replace(
        HEAD,
        source_names=("z", "a", "z"),
        source_offsets={"m": ConnectorCheckpoint.new(5)},
        sink_names=("y",),
        sink_epochs={"b": 5},
        sink_commit_statuses={"b": SinkCommitted(), "c": Pending()},
    )
    built = with_runs(head, [])
    assert built.source_names == ("a", "m", "z")
    assert built.sink_names == ("b", "c", "y")


def test_the_same_run_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="partition 1"):
        with_runs(HEAD, [stored("a", 1, 1, 5), stored("a", 1, 1, 5)])


def test_artifacts_lists_every_file_once_and_sorted() -> None:
    inline = PlacedEntry("a", 0, RunEntry.inline("snap", b"x", first_epoch=1, last_epoch=1, rows=1))
    manifest = replace(
        with_runs(HEAD, [inline, stored("a", 1, 1, 5)]),
        sidecar=Sidecar(f"{ID}/state.bin", 3, SHA),
        output={"out": (OutputFile(5, f"{ID}/output/out/5/x", 4, SHA, 1),)},
    )
    assert manifest.artifacts() == (
        Artifact(f"{ID}/operators/a/partition-1-1-5.snap", 10, SHA),
        Artifact(f"{ID}/output/out/5/x", 4, SHA),
        Artifact(f"{ID}/state.bin", 3, SHA),
    )


# --- bytes ---


def test_statuses_are_written_as_serde_wrote_them() -> None:
    statuses = {"a": Pending(), "b": SinkCommitted(), "c": Failed("why")}
    written = document(replace(HEAD, sink_commit_statuses=statuses))["sink_commit_statuses"]
    assert written == {"a": "Pending", "b": "Committed", "c": {"Failed": "why"}}


@pytest.mark.parametrize(
    "status", ["pending", None, 1, {}, {"Failed": 1}, {"Failed": "a", "More": 1}, ["Failed", "a"]]
)
def test_an_unknown_status_is_refused(status: Any) -> None:
    with pytest.raises(BadManifest, match="sink_commit_statuses"):
        read(document() | {"sink_commit_statuses": {"out": status}})


def test_the_order_of_maps_does_not_matter() -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(item) for key, item in reversed(value.items())}
        return [turned(item) for item in value] if isinstance(value, list) else value

    text = json.dumps(turned(json.loads(FULL.read_bytes())), indent=2)
    assert encode(decode(text.encode(), "")) == FULL.read_bytes()


def test_the_pipeline_hash_is_the_same_in_every_process() -> None:
    definition = {"sql": "select 'ü'", "sources": {"b": 1, "a": [True, None]}}
    code = f"from lamina.format.manifest import pipeline_hash; print(pipeline_hash({definition!r}))"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert pipeline_hash(definition) == other
    assert other == "c8fcb699837e0a8631b72eb3e20423a4c2d4bed5ae8072de0a9b2e16a4bad728"


def test_extra_may_not_hide_a_known_field() -> None:
    for manifest in (
        replace(HEAD, extra={"parent_id": "x"}),
        replace(HEAD, operators={"a": OperatorRuns({}, {"total_bytes": 5})}),
    ):
        with pytest.raises(UsageError, match="place of their own"):
            encode(manifest)


# --- refusals ---


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "empty"),
        (b" ", "not JSON"),
        (b"\x00\x00\x00\x00", "not JSON"),
        (b"\xff\xfe{", "not UTF-8"),
        (b"[]", "not an object"),
        (b'"text"', "not an object"),
        (b"{}", "version is missing"),
        (b'{"version":0}', "version is 0"),
        (b'{"version":-1}', "version is -1"),
        (b'{"version":true}', "version is True"),
        (b'{"version":"3"}', "version is '3'"),
        (b'{"version":3.0}', "not an integer"),
        (b'{"version":3,"version":3}', "twice"),
        (b'{"version":3}', "is missing"),
        (b'{"version":1}', "checkpoint_id is missing"),
        (b'{"version":2}', "is missing"),
        (b'{"name":"left-pad","version":"1.3.0"}', "version is '1.3.0'"),
        (b'{"seq":1,"kind":"TAKEOVER"}', "version is missing"),
        (FULL.read_bytes()[:-1], "not JSON"),
        (FULL.read_bytes() + b"x", "not JSON"),
        (FULL.read_bytes() * 2, "not JSON"),
    ],
)
def test_what_is_no_manifest_is_refused_with_its_place(data: bytes, what: str) -> None:
    with pytest.raises(BadManifest, match=what) as caught:
        decode(data, "base/x/manifest.json")
    assert caught.value.where == "base/x/manifest.json"
    assert caught.value.code == "LAM-3003"


def test_every_prefix_of_a_manifest_is_refused() -> None:
    data = FULL.read_bytes()
    for end in range(len(data)):
        with pytest.raises(BadManifest):
            decode(data[:end], "cut")


def test_a_huge_manifest_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANIFEST_BYTES_MAX", 1000)
    with pytest.raises(BadManifest, match="too many"):
        decode(b"x" * 1001, "huge")  # not even JSON: nobody looked
    with pytest.raises(UsageError):
        encode(replace(HEAD, pipeline_id="x" * 1000))


@pytest.mark.parametrize("version", [4, 99, (1 << 64) - 1])
def test_a_newer_version_is_unsupported_whatever_else_it_holds(version: int) -> None:
    with pytest.raises(Unsupported, match="version") as caught:
        read({"version": version, "checkpoint_id": ["new", "form"]})
    assert "Upgrade" in caught.value.advice


def test_an_unknown_required_feature_is_unsupported_whatever_else_is_in_it() -> None:
    with pytest.raises(Unsupported, match="encrypted-runs"):
        read({"version": 3, "features": ["encrypted-runs"], "operators": "sealed"})


@pytest.mark.parametrize("field", sorted(document()))
def test_no_field_that_is_always_written_may_be_missing(field: str) -> None:
    value = document()
    del value[field]
    with pytest.raises(BadManifest, match=field):
        read(value)


BAD_PATHS = [
    "/etc/passwd",
    "s3://bucket/x",
    "../x",
    f"{ID}/../x",
    f"{ID}/operators/a/../../partition-0-1-5.snap",
    f"/{ID}/operators/a/partition-0-1-5.snap",
    f"{ID}//operators/a/partition-0-1-5.snap",
    f"{ID}/manifest.json",
    "_latest",
    "",
]


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_path_outside_the_base_is_refused(path: str) -> None:
    value = document(with_runs(HEAD, [stored("a", 0, 1, 5)]))
    value["operators"]["a"]["partitions"]["0"][0]["path"] = path
    with pytest.raises(BadManifest, match=r"operators\['a'\].partitions.0\[0\]"):
        read(value)
    file = {"epoch": 5, "path": path, "size": 1, "sha256": SHA, "rows": 1}
    with pytest.raises(BadManifest, match="output"):
        read(document() | {"output": {"out": [file]}})
    with pytest.raises(BadManifest, match="sidecar"):
        read(document() | {"sidecar": {"path": path, "size": 1, "sha256": SHA}})


@pytest.mark.parametrize("path", ["/tmp/rocksdb_cp", "a/../b", "", "file:///tmp"])
def test_a_host_path_of_the_table_store_is_refused(path: str) -> None:
    with pytest.raises(BadManifest, match="table_store_path"):
        read(document() | {"table_store_path": path})


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"total_size_bytes": 11}, "total_size_bytes is 11"),
        ({"checkpoint_id": str(ID).upper()}, "checkpoint_id"),
        ({"checkpoint_id": "00000000-0000-0000-0000-000000000000"}, "checkpoint_id"),
        ({"checkpoint_id": 42}, "checkpoint_id"),
        ({"epoch": -1}, "epoch"),
        ({"epoch": True}, "epoch"),
        ({"epoch": 1 << 64}, "64 bits"),
        ({"commit_digest": "AB" * 32}, "commit_digest"),
        ({"pipeline_hash": "deadbeefcafe1234"}, "pipeline_hash"),
        ({"pipeline_hash": 16045690984503054900}, "pipeline_hash"),
        ({"sink_epochs": {"a": -1}}, "sink_epochs"),
        ({"sink_epochs": []}, "sink_epochs"),
        ({"sink_commit_statuses": []}, "sink_commit_statuses"),
        ({"source_names": "abc"}, "source_names"),
        ({"source_offsets": {"a": {"epoch": 1}}}, r"source_offsets\['a'\].offsets is missing"),
        ({"source_offsets": {"a": {"epoch": 1, "offsets": {}}}}, "metadata is missing"),
        ({"source_offsets": {"a": {"epoch": 1, "offsets": {"x": 1}, "metadata": {}}}}, "offsets"),
        ({"operators": {"a": {"total_bytes": 0}}}, "partitions"),
        ({"operators": {"a": {"partitions": {"00": []}, "total_bytes": 0}}}, "partition number"),
        ({"operators": {"a": {"partitions": {"-1": []}, "total_bytes": 0}}}, "partition number"),
        ({"operators": {"a": {"partitions": {"0": {}}, "total_bytes": 0}}}, "partitions.0"),
        ({"operators": {"a": {"partitions": {"0": [1]}, "total_bytes": 0}}}, "partitions.0"),
        ({"operators": {"a": {"partitions": {}, "total_bytes": 1}}}, "total_bytes is 1"),
        ({"operator_states": {"a": {"state_b64": "AAEC", "sha256": SHA}}}, "SHA-256"),
        ({"operator_states": {"a": {"state_b64": "A", "sha256": SHA}}}, "base64"),
        ({"operator_states": {"a": {"state_b64": "AAEC"}}}, "sha256 is missing"),
        ({"operator_states": {"a": {"external": 1, "sha256": SHA}}}, "external"),
        ({"output": []}, "output"),
        ({"origin": {"version": 3, "checkpoint_id": "1"}}, "origin"),
        ({"origin": []}, "origin"),
    ],
)
def test_a_field_of_the_wrong_form_is_refused_by_name(change: dict[str, Any], what: str) -> None:
    with pytest.raises(BadManifest, match=what):
        read(document() | change)


@pytest.mark.parametrize(
    "change",
    [{"kind": "full"}, {"sha256": None}, {"sha256": "abcd1234"}, {"size": -1}, {"rows": "1"}],
)
def test_a_run_of_the_wrong_form_is_refused(change: dict[str, Any]) -> None:
    value = document(with_runs(HEAD, [stored("a", 0, 1, 5)]))
    value["operators"]["a"]["partitions"]["0"][0].update(change)
    with pytest.raises(BadManifest, match=r"operators\['a'\]"):
        read(value)


# --- LaminarDB ---

V1 = {"version": 1, "checkpoint_id": 1, "epoch": 1, "timestamp_ms": 1000}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"operator_states": {"a": {"state_b64": "%%%"}}}, r"operator_states\['a'\].*base64"),
        ({"timestamp_ms": 1 << 48}, "timestamp_ms"),
        ({"checkpoint_id": "1"}, "checkpoint_id"),
        ({"source_offsets": {"a": {"epoch": 1}}}, "offsets is missing"),
        ({"pipeline_hash": "x"}, "pipeline_hash"),
        ({"sink_commit_statuses": {"a": "Lost"}}, "not a status"),
    ],
)
def test_a_damaged_v1_manifest_is_refused(change: dict[str, Any], what: str) -> None:
    with pytest.raises(BadManifest, match=what):
        read(V1 | change)


def test_unknown_fields_of_v1_are_kept_where_they_cannot_be_mistaken() -> None:
    states = {"a": {"state_b64": "", "sha256": "theirs"}}
    manifest = read(V1 | {"parent_id": 7, "operator_states": states})
    assert manifest.parent_id is None
    assert manifest.extra == {"v1.parent_id": 7}
    assert manifest.operator_states["a"].extra == {"v1.sha256": "theirs"}
    assert decode(encode(manifest), "") == manifest


V2 = {"version": 2, "checkpoint_id": str(ID), "epoch": 1, "timestamp_ms": 1000}


@pytest.mark.parametrize(
    "change",
    [
        {"checkpoint_id": 1},
        {"parent_id": "x"},
        {"operators": {"a": {}}},
        {"operators": {"a": {"partitions": [{"partition_id": 0}]}}},
        {"source_offsets": {"a": {"epoch": 1, "offsets": {}}}},
        {"source_offsets": {"a": {"epoch": 1, "source_type": "kafka"}}},
    ],
)
def test_a_damaged_v2_manifest_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BadManifest):
        read(V2 | change)


def test_several_entries_of_a_v2_partition_stay_in_order() -> None:
    entries = [
        {"partition_id": 3, "is_delta": delta, "path": f"p{delta}", "size_bytes": 1}
        for delta in (False, True)
    ]
    manifest = read(V2 | {"operators": {"a": {"partitions": entries}}})
    assert [run.kind for run in manifest.operators["a"].partitions[3]] == ["snap", "delta"]


def test_numbers_of_v2_are_as_large_as_rust_had_them() -> None:
    entry = {"partition_id": 2**32 - 1, "is_delta": False, "path": "p", "size_bytes": 2**64 - 1}
    manifest = read(V2 | {"operators": {"a": {"partitions": [entry]}}})
    assert decode(encode(manifest), "") == manifest
    for bad in ([entry | {"partition_id": 2**32}], [entry, entry]):
        with pytest.raises(BadManifest, match="bits"):
            read(V2 | {"operators": {"a": {"partitions": bad}}})


def test_states_are_inline_or_external_and_exactly_one_of_them() -> None:
    for state in (OperatorCheckpoint(), OperatorCheckpoint(state_b64="", external=True)):
        with pytest.raises(Corrupt, match="either inline or external"):
            read_states(replace(HEAD, operator_states={"a": state}), None, "here")


def test_a_state_in_the_sidecar_is_checked_by_its_own_digest() -> None:
    data = b"0123456789"
    state = OperatorCheckpoint.in_sidecar(2, 3, sha256_hex(b"234"))
    manifest = replace(HEAD, operator_states={"a": state}, sidecar=Sidecar("x", 10))
    assert read_states(manifest, data, "here") == {"a": b"234"}
    with pytest.raises(DigestMismatch, match="the state"):
        read_states(manifest, b"01x3456789", "here")
    with pytest.raises(Corrupt, match="not 10"):
        read_states(manifest, data[:5], "here")


def test_a_large_manifest_is_read_in_well_under_a_second() -> None:
    runs = [
        stored(f"op-{op}", partition, epoch, epoch)
        for op in range(10)
        for partition in range(256)
        for epoch in range(1, 6)
    ]
    data = encode(with_runs(HEAD, runs))
    started = time.perf_counter()
    decode(data, "large")
    assert time.perf_counter() - started < 2  # 0.2 s on two cores; slow machines run tests too

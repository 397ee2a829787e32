"""One manifest per finding: the smallest change to a sound one that must be noticed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import BadManifest
from lamina.format.findings import RULES, Severity
from lamina.format.manifest import (
    KEYED_STATE,
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
)
from lamina.format.validation import check, validate
from lamina.ids import CheckpointId

OWN = CheckpointId.from_parts(1_760_000_000_000, 2)
PARENT = CheckpointId.from_parts(1_750_000_000_000, 1)
SHA = "ab" * 32
SNAP = RunEntry(
    "snap", 1, 8, 100, rows=1, sha256=SHA, path=f"{PARENT}/operators/agg/partition-0-1-8.snap"
)
DELTA = RunEntry(
    "delta", 9, 12, 50, rows=1, sha256=SHA, path=f"{OWN}/operators/agg/partition-0-9-12.delta"
)
OUTPUT = OutputFile(12, f"{OWN}/output/slow/12/part-0.parquet", 10, SHA, 1)

SOUND = CheckpointManifest(
    checkpoint_id=OWN,
    epoch=12,
    timestamp_ms=1_760_000_000_000,
    generation=1,
    parent_id=PARENT,
    parent_epoch=11,
    commit_digest=SHA,
    parent_commit_digest=SHA,
    pipeline_hash=SHA,
    source_offsets={"trades": ConnectorCheckpoint({"0": "1"}, 12)},
    table_offsets={"rates": ConnectorCheckpoint({"version": "1"}, 12)},
    sink_epochs={"fast": 12, "slow": 11},
    sink_commit_statuses={"fast": SinkCommitted(), "slow": Pending()},
    operators={"agg": OperatorRuns({0: (SNAP, DELTA)})},
    operator_states={
        "dedup": OperatorCheckpoint.inline(b"small"),
        "join": OperatorCheckpoint.in_sidecar(0, 6, SHA),
        "rank": OperatorCheckpoint.in_sidecar(6, 4, SHA),
    },
    sidecar=Sidecar(f"{OWN}/state.bin", 10, SHA),
    output={"slow": (OUTPUT,)},
    table_store_path="tables/rates",
    watermark=5,
    source_watermarks={"trades": 5},
    source_names=("trades",),
    sink_names=("fast", "slow"),
)
LEGACY = CheckpointManifest(
    checkpoint_id=OWN, epoch=12, timestamp_ms=1_760_000_000_000, origin=Origin(1, "7")
)


def sound(**changes: Any) -> CheckpointManifest:
    return replace(SOUND, **changes)


def legacy(**changes: Any) -> CheckpointManifest:
    return replace(LEGACY, **changes)


def runs(*listed: RunEntry, partition: int = 0, **changes: Any) -> CheckpointManifest:
    return sound(operators={"agg": OperatorRuns({partition: listed})}, **changes)


KEYED_SNAP = replace(SNAP, ranks=(0, 255))


def keyed(
    *listed: RunEntry, partition: int = 0, of: int = 1, features: tuple[str, ...] = (KEYED_STATE,)
) -> CheckpointManifest:
    columns = KeyedState(of, "spark-1", (StateColumn("k", "int64"),), (StateColumn("n", "int64"),))
    return sound(
        operators={"agg": OperatorRuns({partition: listed}, keyed=columns)}, features=features
    )


def states(**changes: OperatorCheckpoint) -> CheckpointManifest:
    return sound(operator_states={**SOUND.operator_states, **changes})


CASES: dict[str, Callable[[], CheckpointManifest]] = {
    "M001": lambda: legacy(origin=Origin(1, "0")),
    "M002": lambda: sound(epoch=0),
    "M003": lambda: sound(timestamp_ms=0),
    "M004": lambda: sound(generation=0),
    "M005": lambda: sound(parent_id=OWN),
    "M006": lambda: sound(parent_epoch=12),
    "M007": lambda: sound(parent_epoch=None),
    "M008": legacy,
    "M009": lambda: sound(commit_digest=SHA.upper()),
    "M010": lambda: sound(pipeline_hash="deadbeefcafe1234"),
    "M011": lambda: sound(source_names=("trades", "trades")),
    "M012": lambda: sound(sink_names=("slow", "fast")),
    "M013": lambda: sound(source_offsets={"trade": ConnectorCheckpoint.new(12)}),
    "M014": lambda: sound(source_offsets={}),
    "M015": lambda: sound(source_watermarks={"trade": 5}),
    "M016": lambda: sound(table_offsets={"rates": ConnectorCheckpoint.new(13)}),
    "M017": lambda: sound(table_offsets={"rates": ConnectorCheckpoint.new(11)}),
    "M018": lambda: sound(vnode_count=0),
    "M019": lambda: sound(vnode_count=128),
    "M020": lambda: legacy(origin=Origin(2, str(OWN)), vnode_count=0),
    "M021": lambda: sound(sink_commit_statuses={"slow": Pending()}),
    "M022": lambda: sound(sink_epochs={"slow": 11}),
    "M023": lambda: sound(sink_names=("fast",)),
    "M024": lambda: sound(sink_epochs={"fast": 13, "slow": 11}),
    "M025": lambda: sound(sink_epochs={"fast": 11, "slow": 11}),
    "M026": lambda: sound(sink_commit_statuses={"fast": Failed("why"), "slow": Pending()}),
    "M031": lambda: states(rank=replace(SOUND.operator_states["rank"], state_b64="")),
    "M032": lambda: states(rank=OperatorCheckpoint()),
    "M033": lambda: states(dedup=OperatorCheckpoint(state_b64="c21hbGw=", sha256=SHA)),
    "M034": lambda: sound(sidecar=None),
    "M035": lambda: states(rank=OperatorCheckpoint.in_sidecar(5, 5, SHA)),
    "M036": lambda: states(rank=OperatorCheckpoint.in_sidecar(6, 5, SHA)),
    "M037": lambda: replace(
        states(rank=OperatorCheckpoint.in_sidecar(6, 4)), sidecar=Sidecar(f"{OWN}/state.bin", 10)
    ),
    "M038": lambda: sound(operator_states={}),
    "M039": lambda: sound(sidecar=Sidecar(f"{OWN}/state.bin", None, SHA)),
    "M041": lambda: runs(SNAP, partition=256),
    "M042": lambda: runs(DELTA),
    "M043": lambda: legacy(
        origin=Origin(2, str(OWN)), operators={"agg": OperatorRuns({0: (DELTA,)})}
    ),
    "M044": lambda: runs(SNAP, replace(DELTA, kind="snap")),
    "M045": lambda: runs(SNAP, replace(DELTA, first_epoch=8)),
    "M046": lambda: runs(SNAP, replace(DELTA, first_epoch=13)),
    "M047": lambda: runs(SNAP, replace(DELTA, last_epoch=13)),
    "M048": lambda: runs(SNAP, partition=1),
    "M049": lambda: runs(SNAP, SNAP),
    "M050": lambda: runs(replace(SNAP, path=None)),
    "M051": lambda: runs(replace(SNAP, sha256=None)),
    "M052": lambda: sound(parent_id=None),
    "M053": runs,
    "M054": lambda: runs(
        replace(RunEntry.inline("snap", b"x", first_epoch=1, last_epoch=1, rows=1), size=2)
    ),
    "M055": lambda: keyed(KEYED_SNAP, features=()),
    "M056": lambda: keyed(KEYED_SNAP, of=3),
    "M057": lambda: keyed(KEYED_SNAP, partition=1, of=2),
    "M061": lambda: sound(table_store_path="/tmp/rocksdb_cp"),
    "M062": lambda: sound(table_store_path="tables/../../etc/passwd"),
    "M063": lambda: sound(output={"slow": (replace(OUTPUT, epoch=13),)}),
    "M064": lambda: sound(output={"slow": (replace(OUTPUT, epoch=11),)}),
    "M071": lambda: legacy(extra={"v1.is_incremental": True}),
    "M072": lambda: legacy(extra={"v1.is_incremental": True, "v1.parent_id": 6}),
    "M073": lambda: legacy(extra={"v1.inflight_data": {"join": [[0, ["AAEC"]]]}}),
    "M074": lambda: legacy(extra={"v2.total_size_bytes": 1}),
    "M075": lambda: legacy(extra={"v1.vnode_map": {"256": "node-a"}}),
}


def codes(manifest: CheckpointManifest) -> set[str]:
    return {finding.code for finding in validate(manifest)}


def test_a_sound_manifest_has_no_findings() -> None:
    assert validate(SOUND) == ()
    check(SOUND)


def test_every_code_has_a_case() -> None:
    assert CASES.keys() == RULES.keys()


@pytest.mark.parametrize("code", CASES)
def test_a_case_gives_its_finding_with_its_severity(code: str) -> None:
    manifest = CASES[code]()
    findings = [finding for finding in validate(manifest) if finding.code == code]
    assert findings, f"{code} was not found"
    rule = RULES[code]
    assert {f.severity for f in findings} == {rule.legacy if manifest.origin else rule.severity}
    assert all(finding.field and finding.message for finding in findings)


@pytest.mark.parametrize("code", [code for code in CASES if RULES[code].severity is Severity.ERROR])
def test_an_error_is_fatal(code: str) -> None:
    with pytest.raises(BadManifest, match=code):
        check(CASES[code]())


def test_warnings_and_notes_are_not_fatal() -> None:
    for code in ("M003", "M014", "M017", "M026"):
        check(CASES[code]())


def test_check_names_the_checkpoint_and_all_errors() -> None:
    with pytest.raises(BadManifest) as caught:
        check(sound(epoch=0, generation=0))
    assert str(OWN) in caught.value.where
    assert "M002" in caught.value.message
    assert "M004" in caught.value.message


def test_the_message_of_a_thousand_errors_stays_readable() -> None:
    many = {str(n): ConnectorCheckpoint.new(12) for n in range(1000)}
    with pytest.raises(BadManifest, match=r"and 98\d more") as caught:
        check(sound(source_offsets=many))
    assert len(caught.value.message) < 4000


def test_another_vnode_count_is_sound_where_it_is_expected() -> None:
    manifest = sound(vnode_count=128)
    check(manifest, expected_vnodes=128)
    advice = [f.message for f in validate(manifest) if f.code == "M019"]
    assert "open it with" in advice[0]


# The cross-checks that LaminarDB did not do (A47), in their variants.
@pytest.mark.parametrize(
    ("code", "manifest"),
    [
        ("M023", sound(sink_commit_statuses={**SOUND.sink_commit_statuses, "gone": Pending()})),
        ("M023", sound(sink_epochs={**SOUND.sink_epochs, "gone": 1})),
        ("M023", sound(output={**SOUND.output, "gone": ()})),
        ("M016", sound(source_offsets={"trades": ConnectorCheckpoint.new(13)})),
        ("M025", sound(sink_epochs={"fast": 12, "slow": 12})),
        ("M007", sound(commit_digest=None)),
        ("M009", runs(replace(SNAP, sha256="abcd1234"))),
        ("M009", sound(sidecar=Sidecar(f"{OWN}/state.bin", 10, "x"))),
        ("M009", states(rank=OperatorCheckpoint.in_sidecar(6, 4, "x"))),
        ("M009", sound(output={"slow": (replace(OUTPUT, sha256=""),)})),
        ("M011", sound(sink_names=("fast", "fast", "slow"))),
        ("M011", sound(features=("x", "x"))),
        ("M033", states(dedup=OperatorCheckpoint(state_b64="%%%"))),
        ("M033", runs(RunEntry("snap", 1, 1, 1, sha256=SHA, state_b64="eA=="))),
        ("M048", runs(replace(SNAP, last_epoch=7))),
        ("M048", runs(replace(SNAP, kind="delta", first_epoch=1))),
        ("M048", sound(output={"slow": (replace(OUTPUT, path=SNAP.path or ""),)})),
        ("M048", sound(sidecar=Sidecar(f"{OWN}/manifest.json", 10, SHA))),
        ("M050", runs(replace(SNAP, state_b64=""))),
        ("M052", sound(parent_id=None, operators={}, sidecar=Sidecar(f"{PARENT}/state.bin", 10))),
        ("M061", runs(replace(SNAP, path="s3://bucket/x"))),
        ("M061", sound(sidecar=Sidecar("/state.bin", 10, SHA))),
        ("M062", runs(replace(SNAP, path="a//b"))),
        ("M062", runs(replace(SNAP, path="a\\b"))),
    ],
)
def test_variants_are_found_too(code: str, manifest: CheckpointManifest) -> None:
    assert code in codes(manifest)


def test_runs_that_cover_the_first_epoch_need_no_base() -> None:
    first = RunEntry(
        "delta", 1, 3, 1, sha256=SHA, path=f"{OWN}/operators/agg/partition-0-1-3.delta"
    )
    assert codes(runs(first)) == set()


def test_empty_external_states_do_not_overlap() -> None:
    assert codes(states(rank=OperatorCheckpoint.in_sidecar(3, 0, SHA))) == set()


def test_legacy_files_are_not_blamed_for_what_they_never_recorded() -> None:
    manifest = legacy(
        source_offsets={"trades": ConnectorCheckpoint.new(12)},
        sink_epochs={"out": 12},
        operator_states={"agg": OperatorCheckpoint.in_sidecar(0, 5)},
        sidecar=Sidecar("state.bin"),
        pipeline_hash="deadbeefcafe1234",
    )
    assert codes(manifest) == {"M008", "M037"}
    check(manifest)


def test_a_sink_epoch_without_status_counts_in_v1_once_there_are_statuses() -> None:
    manifest = legacy(sink_epochs={"a": 1, "b": 1}, sink_commit_statuses={"a": Pending()})
    assert "M021" in codes(manifest)


def test_a_total_of_zero_is_no_claim() -> None:
    assert "M074" not in codes(legacy(extra={"v2.total_size_bytes": 0}))
    wrong = OperatorRuns({0: (SNAP,)}, {"v2.total_bytes": 99})
    assert "M074" in codes(legacy(operators={"agg": wrong}))
    right = OperatorRuns({0: (SNAP,)}, {"v2.total_bytes": 100})
    assert "M074" not in codes(legacy(operators={"agg": right}))


def test_a_delta_without_a_base_has_its_code_in_every_version() -> None:
    alone = runs(DELTA, parent_id=None)
    assert {"M042", "M043"} & codes(alone) == {"M042"}
    old = replace(alone, origin=Origin(2, str(OWN)), vnode_count=0)
    assert {"M042", "M043"} & codes(old) == {"M043"}
    assert {"M042", "M043"} & codes(replace(old, parent_id=PARENT)) == {"M042"}


def test_one_digest_is_enough_for_an_external_state() -> None:
    assert codes(states(rank=OperatorCheckpoint.in_sidecar(6, 4))) == set()
    assert codes(sound(sidecar=Sidecar(f"{OWN}/state.bin", 10))) == set()


def test_a_name_listed_twice_in_order_is_not_called_unsorted() -> None:
    assert codes(sound(source_names=("trades", "trades"))) == {"M011"}


def test_a_path_used_twice_is_reported_at_its_first_use() -> None:
    found = [f.field for f in validate(runs(SNAP, DELTA, DELTA)) if f.code == "M049"]
    assert found == ["operators['agg'].partitions[0][1].path"]


def test_every_hash_of_version_1_is_one() -> None:
    assert "M010" not in codes(legacy(pipeline_hash="0123456789abcdef"))
    assert "M010" in codes(legacy(pipeline_hash="0123456789abcdeF"))


def test_format_md_lists_exactly_these_codes() -> None:
    text = (Path(__file__).parents[3] / "docs" / "FORMAT.md").read_text(encoding="utf-8")
    row = re.compile(r"^\| (M\d{3}) \| (\S+) \| (\S+) \| (.+?) \|$", re.MULTILINE)
    listed = {code: (severity, old, title) for code, severity, old, title in row.findall(text)}
    assert listed == {
        rule.code: (rule.severity or "-", rule.legacy or "-", rule.title) for rule in RULES.values()
    }


def test_after_a_change_of_p_partitions_share_files_and_nothing_is_wrong() -> None:
    slices = [replace(KEYED_SNAP, ranks=(64 * rank, 64 * rank + 63)) for rank in range(4)]
    path = f"{OWN}/operators/agg/partition-2-9-12.delta"
    delta = replace(DELTA, path=path, ranks=(64, 127))
    columns = KeyedState(4, "spark-1", (StateColumn("k", "int64"),), ())
    lists = {0: (slices[0],), 1: (slices[2],), 2: (slices[1], delta), 3: (slices[3],)}
    manifest = sound(operators={"agg": OperatorRuns(lists, keyed=columns)}, features=(KEYED_STATE,))
    assert not [f for f in validate(manifest) if f.severity is Severity.ERROR]
    assert manifest.operators["agg"].total_bytes == KEYED_SNAP.size + delta.size


def test_after_a_merge_of_partitions_runs_stand_side_by_side() -> None:
    sides = tuple(
        replace(
            SNAP,
            path=f"{PARENT}/operators/agg/partition-{p}-1-8.snap",
            ranks=(64 * rank, 64 * rank + 63),
        )
        for rank, p in enumerate((0, 2, 1, 3))
    )
    manifest = keyed(*sides, replace(DELTA, ranks=(0, 255)))
    assert not [f for f in validate(manifest) if f.severity is Severity.ERROR]


def test_two_entries_of_one_file_that_disagree_are_not_slices_of_it() -> None:
    low = replace(KEYED_SNAP, ranks=(0, 9))
    assert "M049" in codes(keyed(low, replace(low, ranks=(10, 255), size=99)))


@pytest.mark.parametrize(
    ("listed", "code"),
    [
        ((replace(DELTA, ranks=(0, 255)),), "M042"),
        ((KEYED_SNAP, replace(DELTA, kind="snap", ranks=(0, 255))), "M044"),
        ((KEYED_SNAP, replace(DELTA, first_epoch=8, ranks=(0, 9))), "M045"),
        ((SNAP,), "M057"),
    ],
)
def test_runs_that_have_vnodes_in_common_are_in_order(
    listed: tuple[RunEntry, ...], code: str
) -> None:
    assert code in codes(keyed(*listed))


def test_a_partition_beyond_p_is_none() -> None:
    assert "M041" in codes(keyed(KEYED_SNAP, partition=2, of=2))

"""Whatever a manifest says, reading it gives back what was written, or a typed error."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.errors import LaminaError
from lamina.format.canonical import Json
from lamina.format.findings import Severity
from lamina.format.manifest import (
    CheckpointManifest,
    ConnectorCheckpoint,
    Failed,
    OperatorCheckpoint,
    OperatorRuns,
    Origin,
    OutputFile,
    Pending,
    RunEntry,
    Sidecar,
    SinkCommitted,
    decode,
    encode,
)
from lamina.format.names import OutputName, RunName, SidecarName, relative
from lamina.format.validation import check, validate
from lamina.ids import CheckpointId
from tests.support.examples import examples

QUICK = settings(deadline=None, max_examples=examples(100))
GOLDEN = Path(__file__).parents[1] / "golden"

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAME = st.text("abcdefgh-_. /ü", min_size=1, max_size=8)
UNSIGNED = st.integers(0, 2**40)
SIGNED = st.integers(-(2**63), 2**63 - 1)
SHA = st.binary(min_size=32, max_size=32).map(bytes.hex)
IDS = st.builds(CheckpointId.from_parts, st.integers(0, 2**48 - 1), st.integers(0, 2**74 - 1))
JSON: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | SIGNED | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
# Version 3 never gives a name with a dot a meaning of its own.
EXTRA = st.dictionaries(TEXT.map(lambda name: f"x.{name}"), JSON, max_size=2)


def maps(values: st.SearchStrategy[Any], size: int = 3) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(NAME, values, max_size=size)


CONNECTORS = st.builds(
    ConnectorCheckpoint,
    st.dictionaries(TEXT, TEXT, max_size=2),
    UNSIGNED,
    st.dictionaries(TEXT, TEXT, max_size=2),
    EXTRA,
)


@st.composite
def runs(draw: st.DrawFn) -> RunEntry:
    first, last = sorted((draw(UNSIGNED), draw(UNSIGNED)))
    kind, extra = draw(st.sampled_from(["snap", "delta"])), draw(EXTRA)
    if draw(st.booleans()):
        data = draw(st.binary(max_size=20))
        inline = RunEntry.inline(
            kind, data, first_epoch=first, last_epoch=last, rows=draw(UNSIGNED)
        )
        return RunEntry(
            **{name: getattr(inline, name) for name in RunEntry.__slots__} | {"extra": extra}
        )
    path = relative(RunName(draw(IDS), draw(NAME), draw(UNSIGNED), first, last, kind))
    rows = draw(st.none() | UNSIGNED)
    return RunEntry(kind, first, last, draw(UNSIGNED), rows, draw(SHA), path, extra=extra)


@st.composite
def outputs(draw: st.DrawFn) -> OutputFile:
    epoch = draw(UNSIGNED)
    path = relative(OutputName(draw(IDS), draw(NAME), epoch, draw(NAME)))
    return OutputFile(epoch, path, draw(UNSIGNED), draw(SHA), draw(UNSIGNED), draw(EXTRA))


OPERATORS = st.builds(
    OperatorRuns,
    st.dictionaries(st.integers(0, 300), st.lists(runs(), max_size=2).map(tuple), max_size=2),
    EXTRA,
)
STATES = st.one_of(
    st.builds(OperatorCheckpoint.inline, st.binary(max_size=20)),
    st.builds(OperatorCheckpoint.in_sidecar, UNSIGNED, UNSIGNED, SHA),
    st.builds(
        OperatorCheckpoint,
        external=st.just(True),
        external_offset=UNSIGNED,
        external_length=UNSIGNED,
        sha256=SHA,
        extra=EXTRA,
    ),
)
STATUSES = st.one_of(st.just(Pending()), st.just(SinkCommitted()), st.builds(Failed, TEXT))
SIDECARS = st.builds(
    lambda id, size, sha, extra: Sidecar(relative(SidecarName(id)), size, sha, extra),
    IDS,
    UNSIGNED,
    SHA,
    EXTRA,
)
MANIFESTS = st.builds(
    CheckpointManifest,
    checkpoint_id=IDS,
    epoch=UNSIGNED,
    timestamp_ms=UNSIGNED,
    generation=UNSIGNED,
    parent_id=st.none() | IDS,
    parent_epoch=st.none() | UNSIGNED,
    commit_digest=st.none() | SHA,
    parent_commit_digest=st.none() | SHA,
    pipeline_id=st.none() | TEXT,
    pipeline_hash=st.none() | SHA,
    source_offsets=maps(CONNECTORS),
    table_offsets=maps(CONNECTORS, 1),
    sink_epochs=maps(UNSIGNED),
    sink_commit_statuses=maps(STATUSES),
    operators=maps(OPERATORS, 2),
    operator_states=maps(STATES),
    sidecar=st.none() | SIDECARS,
    output=maps(st.lists(outputs(), max_size=2).map(tuple), 2),
    table_store_path=st.none() | st.just("tables/x"),
    watermark=st.none() | SIGNED,
    source_watermarks=maps(SIGNED),
    source_names=st.lists(NAME, max_size=3).map(tuple),
    sink_names=st.lists(NAME, max_size=3).map(tuple),
    vnode_count=UNSIGNED,
    origin=st.none() | st.builds(Origin, st.sampled_from([1, 2]), TEXT, EXTRA),
    extra=EXTRA,
)


@QUICK
@given(MANIFESTS)
def test_what_is_written_is_read(manifest: CheckpointManifest) -> None:
    data = encode(manifest)
    assert decode(data, "x") == manifest
    assert encode(decode(data, "x")) == data


@QUICK
@given(MANIFESTS, st.randoms(use_true_random=False))
def test_the_order_of_keys_changes_nothing(
    manifest: CheckpointManifest, rng: random.Random
) -> None:
    data = encode(manifest)
    shuffled = json.dumps(_shuffled(json.loads(data), rng), indent=1)
    assert encode(decode(shuffled.encode(), "x")) == data


def _shuffled(value: Any, rng: random.Random) -> Any:
    if isinstance(value, list):
        return [_shuffled(item, rng) for item in value]
    if not isinstance(value, dict):
        return value
    items = list(value.items())
    rng.shuffle(items)
    return {key: _shuffled(item, rng) for key, item in items}


@QUICK
@given(JSON)
def test_unknown_fields_survive_at_every_level(new: Json) -> None:
    value = json.loads((GOLDEN / "v3" / "full.json").read_bytes())
    operator = value["operators"]["by/symbol"]
    places = [
        value,
        value["source_offsets"]["trades"],
        value["table_offsets"]["instruments"],
        operator,
        operator["partitions"]["0"][0],
        operator["partitions"]["0"][1],
        value["operator_states"]["dedup"],
        value["operator_states"]["join"],
        value["sidecar"],
        value["output"]["b"][0],
    ]
    for place in places:
        place["a field of tomorrow"] = new
    assert json.loads(encode(decode(json.dumps(value).encode(), "x"))) == value


FILES = [path.read_bytes() for path in sorted(GOLDEN.glob("v[123]/**/*.json"))]


@settings(deadline=None, max_examples=examples(400))
@given(st.sampled_from(FILES), st.data())
def test_damage_is_a_typed_error_or_a_value(data: bytes, draw: st.DataObject) -> None:
    damaged = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(damaged) - 1))
        damaged[at] ^= 1 << draw.draw(st.integers(0, 7))
    _read_and_judge(bytes(damaged[: draw.draw(st.integers(0, len(damaged)) | st.none())]))


@settings(deadline=None, max_examples=examples(200))
@given(st.sampled_from(FILES), st.data())
def test_any_value_in_any_place_is_a_typed_error_or_a_value(
    data: bytes, draw: st.DataObject
) -> None:
    value = json.loads(data)
    place = value
    while isinstance(place, dict) and place:
        key = draw.draw(st.sampled_from(sorted(place)))
        inner = place[key]
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            inner = inner[0]
        if not isinstance(inner, dict) or not inner or draw.draw(st.booleans()):
            place[key] = draw.draw(JSON)
            break
        place = inner
    _read_and_judge(json.dumps(value).encode())


@QUICK
@given(st.binary(max_size=100))
def test_random_bytes_are_no_manifest(data: bytes) -> None:
    _read_and_judge(data)


def _read_and_judge(data: bytes) -> None:
    """Reading raises only errors of our own tree; what was read can be judged and written."""
    try:
        manifest = decode(data, "x")
    except LaminaError:
        return
    findings = validate(manifest)
    assert decode(encode(manifest), "x") == manifest
    if not any(finding.severity is Severity.ERROR for finding in findings):
        check(manifest)

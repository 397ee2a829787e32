"""Checks of what a manifest says about state: operator states, runs, output and their paths."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from lamina.errors import Corrupt
from lamina.format import names
from lamina.format.manifest_model import (
    KEYED_STATE,
    CheckpointManifest,
    KeyedState,
    OperatorCheckpoint,
    OutputFile,
    RunEntry,
)
from lamina.ids import CheckpointId

Found: TypeAlias = tuple[str, str, str]
"""Code, field and message; the severity belongs to the code."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_sha256(text: str) -> bool:
    return _SHA256.fullmatch(text) is not None


def operator_states(m: CheckpointManifest) -> Iterator[Found]:
    for name, state in m.operator_states.items():
        field = f"operator_states[{name!r}]"
        if state.external and state.state_b64 is not None:
            yield "M031", field, "both inline and external"
        if not state.external and state.state_b64 is None:
            yield "M032", field, "neither inline nor external"
        yield from _digest(f"{field}.sha256", state.sha256)
        yield from _inline(field, state)
    yield from _sidecar(m)
    yield from _ranges(m)


def _inline(field: str, value: OperatorCheckpoint | RunEntry) -> Iterator[Found]:
    try:
        value.decode_inline()
    except Corrupt as error:
        yield "M033", field, error.message


def _digest(field: str, digest: str | None) -> Iterator[Found]:
    if digest is not None and not is_sha256(digest):
        yield "M009", field, f"{digest[:80]!r} is not 64 hex digits"


def _sidecar(m: CheckpointManifest) -> Iterator[Found]:
    externals = {name: state for name, state in m.operator_states.items() if state.external}
    if m.sidecar is None:
        for name in externals:
            yield "M034", f"operator_states[{name!r}]", "there is no sidecar to find it in"
        return
    yield from _digest("sidecar.sha256", m.sidecar.sha256)
    if m.sidecar.size is None:
        yield "M039", "sidecar.size", "the size is missing"
    if not externals:
        yield "M038", "sidecar", "no state refers to it"
    for name, state in externals.items():
        if m.sidecar.sha256 is None and state.sha256 is None:
            yield "M037", f"operator_states[{name!r}]", "neither it nor its sidecar has a digest"


def _ranges(m: CheckpointManifest) -> Iterator[Found]:
    end = m.sidecar.size if m.sidecar else None
    ranges = sorted(
        (state.external_offset, state.external_end, name)
        for name, state in m.operator_states.items()
        if state.external and state.external_length
    )
    for _, stop, name in ranges:
        if end is not None and stop > end:
            yield "M036", f"operator_states[{name!r}]", f"ends at byte {stop} of {end}"
    for (_, stop, name), (start, _, other) in pairwise(ranges):
        if start < stop:
            yield "M035", f"operator_states[{other!r}]", f"begins inside the state of {name!r}"


def runs(m: CheckpointManifest) -> Iterator[Found]:
    for operator, state in m.operators.items():
        if state.keyed is not None:
            yield from _keyed(m, f"operators[{operator!r}].keyed", state.keyed)
        for partition, listed in state.partitions.items():
            field = f"operators[{operator!r}].partitions[{partition}]"
            count = m.vnode_count if state.keyed is None else state.keyed.partitions
            if count and partition >= count:
                yield "M041", field, f"not below {count}"
                continue
            if state.keyed is None:
                yield from _order(m, field, listed)
            elif _is_power_of_two(state.keyed.partitions, m.vnode_count):
                yield from _keyed_order(m, field, listed, (partition, state.keyed.partitions))
            for index, run in enumerate(listed):
                yield from _run(m, f"{field}[{index}]", run)
                yield from _run_path(m, f"{field}[{index}].path", run, operator, partition)


def _keyed(m: CheckpointManifest, field: str, keyed: KeyedState) -> Iterator[Found]:
    if KEYED_STATE not in m.features:
        yield "M055", field, f"the feature {KEYED_STATE!r} is not named"
    if not _is_power_of_two(keyed.partitions, m.vnode_count):
        yield "M056", field, f"{keyed.partitions} partitions"


def _keyed_order(
    m: CheckpointManifest, field: str, listed: tuple[RunEntry, ...], own: tuple[int, int]
) -> Iterator[Found]:
    """Runs in order wherever they have vnodes in common, and none of another partition's."""
    first, last = _ranks_of(own, m.vnode_count)
    for index, run in enumerate(listed):
        if run.ranks is None or not first <= run.ranks[0] <= run.ranks[1] <= last:
            yield "M057", field, f"ranks {run.ranks}, the partition has {first} to {last}"
            continue
        below = [older.last_epoch for older in listed[:index] if _meet(older.ranks, run.ranks)]
        if run.kind == "delta" and not below:
            yield "M042", field, f"nothing is below the delta from epoch {run.first_epoch}"
        if run.kind == "snap" and below:
            yield "M044", field, f"a snapshot of epoch {run.last_epoch} is not the oldest run"
        if below and run.first_epoch <= max(below):
            yield (
                "M045",
                field,
                f"a run from epoch {run.first_epoch} follows one up to {max(below)}",
            )


def _ranks_of(own: tuple[int, int], vnodes: int) -> tuple[int, int]:
    """The ranks of a partition: its number with the bits reversed, and as many as it has vnodes."""
    bits = max(vnodes.bit_length() - 1, 0)
    first = int(f"{own[0]:0{bits}b}"[::-1], 2)
    return first, first + vnodes // own[1] - 1


def _meet(one: tuple[int, int] | None, other: tuple[int, int]) -> bool:
    return one is not None and one[0] <= other[1] and other[0] <= one[1]


def _is_power_of_two(count: int, most: int) -> bool:
    return 1 <= count <= most and count & (count - 1) == 0


def _order(m: CheckpointManifest, field: str, listed: tuple[RunEntry, ...]) -> Iterator[Found]:
    if not listed:
        yield "M053", field, "the list is empty"
        return
    bottom = listed[0]
    if bottom.kind == "delta" and bottom.first_epoch > 1:  # below epoch 1 there is nothing
        code = "M043" if m.origin and m.parent_id is None else "M042"
        yield code, field, f"the oldest run is a delta that begins with epoch {bottom.first_epoch}"
    for below, above in pairwise(listed):
        if above.kind == "snap":
            yield "M044", field, f"a snapshot of epoch {above.last_epoch} is not the oldest run"
        if above.first_epoch <= below.last_epoch:
            text = f"a run from epoch {above.first_epoch} follows one up to {below.last_epoch}"
            yield "M045", field, text


def _run(m: CheckpointManifest, field: str, run: RunEntry) -> Iterator[Found]:
    if run.first_epoch > run.last_epoch:
        yield "M046", field, f"epochs {run.first_epoch} to {run.last_epoch}"
    if run.last_epoch > m.epoch:
        yield "M047", field, f"epoch {run.last_epoch}, the manifest has {m.epoch}"
    if (run.path is None) == (run.state_b64 is None):
        yield "M050", field, "it has both a path and a state, or none of them"
    if run.sha256 is None:
        yield "M051", field, "nothing can prove its bytes"
    yield from _digest(f"{field}.sha256", run.sha256)
    if run.state_b64 is not None:
        yield from _inline_run(field, run)


def _inline_run(field: str, run: RunEntry) -> Iterator[Found]:
    try:
        data = run.decode_inline() or b""
    except Corrupt as error:
        yield "M033", field, error.message
        return
    if len(data) != run.size:
        yield "M054", f"{field}.size", f"{run.size} is stated, the state has {len(data)} bytes"


def _run_path(
    m: CheckpointManifest, field: str, run: RunEntry, operator: str, partition: int
) -> Iterator[Found]:
    """The path says what the entry says; only who wrote keyed state may have been another P's."""
    if run.path is None:
        return
    named = names.parse(run.path)
    writer = partition
    if run.ranks is not None and isinstance(named, names.RunName):
        writer = named.partition
    said = (operator, writer, run.first_epoch, run.last_epoch, run.kind)
    yield from _place(m, field, run.path, lambda id: names.RunName(id, *said))


def output(m: CheckpointManifest) -> Iterator[Found]:
    for sink, files in m.output.items():
        published = m.sink_epochs.get(sink, 0)
        for index, file in enumerate(files):
            field = f"output[{sink!r}][{index}]"
            if file.epoch > m.epoch:
                yield "M063", field, f"epoch {file.epoch}, the manifest has {m.epoch}"
            if file.epoch <= published:
                yield "M064", field, f"epoch {file.epoch}, the sink is at {published}"
            yield from _digest(f"{field}.sha256", file.sha256)
            yield from _output_path(m, f"{field}.path", sink, file)


def _output_path(m: CheckpointManifest, field: str, sink: str, file: OutputFile) -> Iterator[Found]:
    named = names.parse(file.path)
    base = named.file if isinstance(named, names.OutputName) else ""
    yield from _place(m, field, file.path, lambda id: names.OutputName(id, sink, file.epoch, base))


def _place(
    m: CheckpointManifest, field: str, path: str, expected: Callable[[CheckpointId], names.Name]
) -> Iterator[Found]:
    """The path must be the one that an entry like this gets, in this checkpoint or an older one."""
    named = names.parse(path)
    id = getattr(named, "id", None)
    if id is None or named != expected(id):
        yield "M048", field, f"{path[:200]!r} does not agree with its entry"
    elif id != m.checkpoint_id and m.parent_id is None:
        yield "M052", field, f"it belongs to checkpoint {id}"


def paths(m: CheckpointManifest) -> Iterator[Found]:
    listed = list(_paths(m))
    for field, path in listed:
        problem = names.path_problem(path)
        if problem:
            code = "M061" if "absolute" in problem else "M062"
            yield code, field, f"{path[:200]!r} {problem}"
    shared = _shared(m)
    for path, times in Counter(path for _, path in listed).items():
        if times > 1 and path not in shared:
            field = next(field for field, other in listed if other == path)
            yield "M049", field, f"{path[:200]!r} is named {times} times"
    if m.sidecar is not None:
        yield from _place(m, "sidecar.path", m.sidecar.path, names.SidecarName)


def _shared(m: CheckpointManifest) -> set[str]:
    """Files of keyed state that several entries have slices of, and say the same about."""
    found: dict[str, list[RunEntry]] = {}
    for state in m.operators.values():
        if state.keyed is not None:
            for listed in state.partitions.values():
                for run in listed:
                    found.setdefault(run.path or "", []).append(run)
    return {
        path
        for path, entries in found.items()
        if all(replace(run, ranks=entries[0].ranks) == entries[0] for run in entries)
    }


def _paths(m: CheckpointManifest) -> Iterator[tuple[str, str]]:
    for operator, state in m.operators.items():
        for partition, listed in state.partitions.items():
            for index, run in enumerate(listed):
                if run.path is not None:
                    yield f"operators[{operator!r}].partitions[{partition}][{index}].path", run.path
    for sink, files in m.output.items():
        for index, file in enumerate(files):
            yield f"output[{sink!r}][{index}].path", file.path
    if m.sidecar is not None:
        yield "sidecar.path", m.sidecar.path
    if m.table_store_path is not None:
        yield "table_store_path", m.table_store_path

"""verify finds every wrong byte, and no load ever returns one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest

from lamina.checkpoint import Checkpointer, Progress, VerifyReport, create_savepoint, run_gc, verify
from lamina.errors import LaminaError, NotFound, StoreUnavailable, UsageError
from lamina.format.canonical import sha256_hex
from lamina.format.findings import Severity
from lamina.format.log import Begin, Hint, encode_begin, encode_hint
from lamina.format.manifest import CheckpointManifest, PlacedEntry, RunEntry, encode, read_states
from lamina.store import MemoryStore, Store
from lamina.testing import Fault, FaultKind, FaultyStore
from tests.support.checkpoints import (
    WatchedStore,
    cid,
    copy_of,
    manifest_of,
    open_pipeline,
    reader,
    save_runs,
    snapshot_of,
    take_checkpoint,
)

INLINE = b"inline run"
STATES = {"small": b"tiny", "large": b"a state of some bytes"}
ROWS = b"rows of a slow sink"


@cache
def scenery() -> dict[str, bytes]:
    """Three checkpoints in a line, a savepoint, inline and sidecar states, output."""
    store = MemoryStore()
    pipeline = open_pipeline(store)
    first = take_checkpoint(pipeline, 1, partitions=[0])
    begin = pipeline.begin()
    runs = save_runs(pipeline, begin, 2, partitions=[0])
    inline = RunEntry.inline("snap", INLINE, first_epoch=1, last_epoch=2, rows=1)
    states, sidecar = pipeline.save_states(begin.id, STATES, inline_bytes_max=8)
    output = pipeline.save_output(begin.id, "sink", ROWS, epoch=2, file="a", rows=1)
    pipeline.commit(
        begin,
        replace(
            manifest_of(2, [*runs, PlacedEntry("sum", 1, inline)]),
            operator_states=states,
            sidecar=sidecar,
            output={"sink": (output,)},
            sink_names=("sink",),
        ),
    )
    create_savepoint(pipeline, "monday", first.id)
    take_checkpoint(pipeline, 3, partitions=[0], full=True)
    return snapshot_of(store)


def everything(look: Checkpointer) -> Iterator[object]:
    """All that a restore would read, as values."""
    for committed in look.list_checkpoints():
        manifest = look.load_manifest(committed.id)
        yield committed.id, committed.epoch, encode(manifest)
        for operator in manifest.operators.values():
            for runs in operator.partitions.values():
                yield from (look.load_artifact(run) for run in runs)
        for files in manifest.output.values():
            yield from (look.load_artifact(file) for file in files)
        if manifest.sidecar:
            yield read_states(manifest, look.load_artifact(manifest.sidecar), "")


@cache
def originals() -> list[object]:
    return list(everything(reader(copy_of(scenery()))))


def serious(report: VerifyReport) -> list[object]:
    return [p for p in report.problems if p.severity in (Severity.ERROR, Severity.WARNING)]


def assert_found_and_harmless(store: Store, what: object) -> None:
    """verify says so; a restore gives the right bytes or an error, never anything else."""
    look = reader(store, limit=1)
    try:
        report = verify(look)
    except LaminaError as error:
        pytest.fail(f"verify stopped at {what}: {error}")
    assert serious(report), what
    right = originals()
    got: list[object] = []
    with contextlib.suppress(LaminaError):
        got.extend(everything(look))
    if "/log/" in str(what) or "_latest" in str(what):
        # The last entry has no successor that proves it: verify says so, a reader may see less.
        assert all(value in right for value in got), what
    else:
        assert got == right[: len(got)], what


def test_a_whole_pipeline_has_no_problems() -> None:
    report = verify(reader(copy_of(scenery())))
    assert report.ok
    assert report.problems == ()
    assert report.entries == 5
    assert [c.epoch for c in report.checkpoints] == [1, 2, 3]


def test_every_flipped_bit_of_every_object_is_found_and_never_loaded() -> None:
    objects = scenery()
    store = copy_of(objects)
    flips = 0
    for key, data in objects.items():
        for at in range(len(data)):
            wrong = bytearray(data)
            wrong[at] ^= 1 << (at % 8)
            store.put(key, bytes(wrong))
            assert_found_and_harmless(store, (key, at, data[max(0, at - 20) : at + 5]))
            flips += 1
        store.put(key, data)
    assert flips == sum(map(len, objects.values()))
    assert flips > 5_000


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data + b"\n",
        lambda data: b"\0" * len(data),
        lambda data: b"<html>503</html>",
    ],
    ids=["one byte short", "half", "empty", "one byte long", "zeros", "html"],
)
def test_every_object_that_is_cut_emptied_or_replaced_is_found(
    damage: Callable[[bytes], bytes],
) -> None:
    for key, data in scenery().items():
        store = copy_of(scenery())
        store.put(key, damage(data))
        assert_found_and_harmless(store, key)


def test_every_object_that_is_missing_is_found() -> None:
    last = max(key for key in scenery() if "/log/" in key)
    for key in scenery():
        store = copy_of(scenery())
        store.delete(key)
        if key.endswith("_latest"):
            [note] = verify(reader(store)).problems
            assert note.severity is Severity.NOTE  # a hint may be missing
            continue
        assert_found_and_harmless(store, (key, last))


def test_two_objects_that_changed_places_are_found() -> None:
    runs = [key for key in scenery() if "/operators/" in key]
    store = copy_of(scenery())
    store.put(runs[0], scenery()[runs[1]])
    store.put(runs[1], scenery()[runs[0]])
    assert_found_and_harmless(store, runs)


def test_an_older_entry_that_was_changed_with_its_successor_in_place_is_found() -> None:
    store = copy_of(scenery())
    first, second = "p/log/00000000000000000001.json", "p/log/00000000000000000002.json"
    store.put(second, scenery()[first])
    report = verify(reader(store))
    assert not report.ok
    assert second in report.log_problems[0].where


def test_a_hole_is_found_without_a_hint_too() -> None:
    for hole in range(1, 5):
        store = copy_of(scenery())
        store.delete("p/_latest")
        store.delete(f"p/log/{hole:020d}.json")
        report = verify(reader(store))
        assert not report.ok
        beyond = {p.where for p in report.log_problems if p.severity is Severity.ERROR}
        assert beyond == {f"p/log/{seq:020d}.json" for seq in range(hole + 1, 6)}


# the report


def test_the_report_names_the_object_the_code_and_the_checkpoint() -> None:
    store = copy_of(scenery())
    key = next(k for k in scenery() if k.endswith("state.bin"))
    store.put(key, b"\0" * len(scenery()[key]))
    report = verify(reader(store))
    assert not report.ok
    assert report.log_problems == ()
    [problem] = report.problems
    assert problem.code == "LAM-3002"
    assert key in problem.where
    assert [c.epoch for c in report.checkpoints if not c.ok] == [2]


def test_a_shared_run_that_is_damaged_is_a_problem_of_every_checkpoint_that_names_it() -> None:
    store = copy_of(scenery())
    first = reader(store).list_checkpoints()[0]
    key = next(k for k in scenery() if f"{first.id}/operators" in k)
    store.delete(key)
    report = verify(reader(store))
    assert [c.epoch for c in report.checkpoints if not c.ok] == [1, 2]


def test_a_shared_run_is_read_once_and_counted_for_each() -> None:
    counted = FaultyStore(copy_of(scenery()))
    report = verify(reader(counted))
    files = [k for k in scenery() if "/operators/" in k or "/output/" in k or "state.bin" in k]
    objects = [c.objects for c in report.checkpoints]
    assert objects == [3, 6, 3]
    assert [c.objects_read for c in report.checkpoints] == objects
    manifests_and_begins = 6
    assert counted.calls["get_range"] == len(files) + manifests_and_begins
    assert report.checkpoints[0].bytes_read > 0


def test_one_checkpoint_can_be_verified_and_an_unknown_one_is_not_found() -> None:
    store = copy_of(scenery())
    look = reader(store)
    chosen = look.list_checkpoints()[1]
    report = verify(look, (chosen.id,))
    assert [c.id for c in report.checkpoints] == [chosen.id]
    with pytest.raises(NotFound):
        verify(look, (cid(99),))


def test_a_store_that_fails_is_no_finding() -> None:
    faulty = FaultyStore(copy_of(scenery()), faults=[Fault("head", FaultKind.UNAVAILABLE, call=3)])
    with pytest.raises(StoreUnavailable):
        verify(reader(faulty))


def test_progress_ends_with_the_total() -> None:
    seen: list[Progress] = []
    verify(reader(copy_of(scenery())), report=seen.append)
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert seen[-1].done <= seen[-1].total


def test_an_empty_base_is_whole() -> None:
    report = verify(reader(MemoryStore()))
    assert report.ok
    assert (report.entries, report.problems, report.checkpoints) == (0, (), ())


def test_verify_changes_nothing() -> None:
    store = copy_of(scenery())
    touched: list[str] = []

    def watch(operation: str, key: str) -> None:
        if operation in ("put", "put_if_absent", "delete", "copy"):
            touched.append(key)

    verify(reader(WatchedStore(store, watch)))
    assert touched == []


# what only a comparison with the log can find


def test_a_manifest_of_another_checkpoint_or_epoch_is_found() -> None:
    for id, epoch in ((2, 1), (1, 7)):
        pipeline = open_pipeline()
        data = encode(
            CheckpointManifest(checkpoint_id=cid(1), epoch=1, timestamp_ms=1, generation=1)
        )
        begin = Begin(cid(id), 1, None, 1, "w", 0)
        pipeline.store.put(pipeline.paths.begin(begin.id), encode_begin(begin))
        pipeline.store.put(pipeline.paths.manifest(begin.id), data)
        pipeline.log.checkpoint(
            begin,
            epoch=epoch,
            manifest_sha256=sha256_hex(data),
            manifest_size=len(data),
            total_size=0,
        )
        report = verify(reader(pipeline.store))
        assert not report.ok
        assert [p.code for p in report.problems] == ["LAM-3003"]


def test_another_vnode_count_is_a_finding() -> None:
    store = copy_of(scenery())
    look = Checkpointer(store, reader(store).paths, vnode_count=128)
    report = verify(look)
    assert {p.code for p in report.problems} == {"M019"}
    assert not report.ok


def test_a_hint_from_before_is_no_problem_and_one_that_lies_is() -> None:
    entry = scenery()["p/log/00000000000000000002.json"]
    ids = [c.id for c in reader(copy_of(scenery())).list_checkpoints()]
    cases = [
        (Hint(2, sha256_hex(entry), ids[0]), []),
        (Hint(2, sha256_hex(entry), ids[1]), [Severity.WARNING]),
        (Hint(2, sha256_hex(entry), None), [Severity.WARNING]),
        (Hint(2, "0" * 64, ids[0]), [Severity.ERROR]),
        (Hint(9, sha256_hex(entry), ids[0]), [Severity.ERROR]),
    ]
    for hint, expected in cases:
        store = copy_of(scenery())
        store.put("p/_latest", encode_hint(hint))
        assert [p.severity for p in verify(reader(store)).problems] == expected, hint


def test_a_pipeline_that_goes_on_while_it_is_verified_has_no_hole() -> None:
    """The log was read to its end, then listed: an entry written in between looked lost."""
    probe = FaultyStore(copy_of(scenery()))
    verify(reader(probe, limit=1))
    for stop in range(1, probe.calls.total() + 1):
        store = copy_of(scenery())
        writer = reader(store, seed=stop)
        countdown = iter([*[False] * (stop - 1), True])

        def meanwhile(
            operation: str,
            key: str,
            countdown: Iterator[bool] = countdown,
            writer: Checkpointer = writer,
        ) -> None:
            if next(countdown, False):
                writer.log.pin("meanwhile", writer.list_checkpoints()[0].id)

        report = verify(reader(WatchedStore(store, meanwhile), limit=1))
        assert report.problems == (), stop
        assert "meanwhile" in writer.history().pins


def test_a_checkpoint_that_gc_removes_while_it_is_verified_is_not_missing() -> None:
    probe = FaultyStore(copy_of(scenery()))
    verify(reader(probe, limit=1))
    for stop in range(1, probe.calls.total() + 1):
        store = copy_of(scenery())
        tool = reader(store, seed=stop)
        tool.log.unpin("monday")
        countdown = iter([*[False] * stop, True])

        def meanwhile(
            operation: str,
            key: str,
            countdown: Iterator[bool] = countdown,
            tool: Checkpointer = tool,
        ) -> None:
            if next(countdown, False):
                run_gc(tool, retain=1)

        report = verify(reader(WatchedStore(store, meanwhile), limit=1))
        assert report.problems == (), stop
        assert [c.epoch for c in tool.list_checkpoints()] == [3]


# samples


def test_a_sample_finds_what_is_missing_or_of_another_size() -> None:
    files = [k for k in scenery() if "/operators/" in k or "/output/" in k or "state.bin" in k]
    for key in files:
        for damaged in (None, scenery()[key] + b"x"):
            store = copy_of(scenery())
            store.delete(key)
            if damaged is not None:
                store.put(key, damaged)
            report = verify(reader(store), sample=0.0)
            assert not report.ok
            assert any(key in p.where for p in report.problems)


def test_a_sample_still_proves_log_begin_and_manifest() -> None:
    for key in (k for k in scenery() if k.endswith(("begin.json", "manifest.json"))):
        store = copy_of(scenery())
        store.put(key, bytes([scenery()[key][0] ^ 1]) + scenery()[key][1:])
        assert not verify(reader(store), sample=0.0).ok


def test_a_sample_is_the_same_in_every_run_and_grows_with_its_share() -> None:
    store = MemoryStore()
    take_checkpoint(open_pipeline(store), 1, partitions=range(200))

    def read(share: float) -> int:
        return verify(reader(store), sample=share).checkpoints[0].objects_read - 2

    assert read(0.0) == 0
    assert read(1.0) == 200
    assert 70 < read(0.5) < 130
    assert read(0.5) == read(0.5)
    assert read(0.1) <= read(0.5)


@pytest.mark.parametrize("sample", [-0.1, 1.1, float("nan")])
def test_a_sample_is_a_share(sample: float) -> None:
    with pytest.raises(UsageError):
        verify(reader(MemoryStore()), sample=sample)

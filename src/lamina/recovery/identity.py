"""A look at home, store and sinks before anything is claimed: to whom they belong."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.errors import Corrupt, NotFound
from lamina.format.commit import CommitRecord
from lamina.format.manifest_model import CheckpointManifest
from lamina.format.pipeline_record import NOBODY, Owner, PipelineRecord
from lamina.protocol.driver import accepted_head
from lamina.protocol.history import COPY_HOME, History
from lamina.protocol.identity import Belongings
from lamina.recovery.scan import RecoverableSink
from lamina.wal.driver_log import DriverSegmentContent, read_driver_log
from lamina.wal.home import Home
from lamina.wal.scan import segments_of


def find_owners(
    home: Home | None, checkpointer: Checkpointer, sinks: Sequence[RecoverableSink]
) -> Belongings:
    """Reading only; *home* is locked by the caller, or there is none yet."""
    history = checkpointer.history()
    record = history.pipeline
    store = NOBODY if record is None else record.owner
    if record is None:  # a new store, a copy, or one of a release that did not write it down
        manifest = _newest(checkpointer, history)
        store = _owner_of(manifest)
        record = _last_started(home, manifest, store)
    is_copy = history.home.startswith(COPY_HOME)
    has_log = home is not None and bool(segments_of(home.disk, None))
    return Belongings(
        home=NOBODY if home is None else home.pipeline,
        store=store,
        sinks={sink.name: sink.position().pipeline for sink in sinks},
        record=record,
        is_used=has_log or (history.seq > 0 and not is_copy),
        is_copy=is_copy,
    )


def record_of(
    driver: Sequence[DriverSegmentContent],
    manifest: CheckpointManifest | None,
    replayed: Sequence[CommitRecord],
) -> PipelineRecord | None:
    """What the pipeline was in the last epoch that is restored; None before the first."""
    if not replayed:
        return None if manifest is None else _of_manifest(manifest)
    last = replayed[-1]
    known = (s.pipeline for s in driver if s.generation == last.generation)
    return next((record for record in known if record is not None), None) or _of_commit(last)


def _newest(checkpointer: Checkpointer, history: History) -> CheckpointManifest | None:
    if history.newest is None:
        return None
    try:
        return checkpointer.load_manifest(history.newest.id)
    except (Corrupt, NotFound):
        return None  # recovery will say so, and fall back to another one


def _last_started(
    home: Home | None, manifest: CheckpointManifest | None, store: Owner
) -> PipelineRecord | None:
    """By the last TAKEOVER; before pipelines had ids, by what the last epoch consists of."""
    driver = () if home is None else read_driver_log(home.disk, home.identity)
    if driver and driver[-1].pipeline is not None:
        return driver[-1].pipeline
    commits = {digest: c for segment in driver for digest, c in segment.known().items()}
    head = accepted_head(segment.rules() for segment in driver)
    last = commits.get(head.digest) if head is not None else None
    if last is not None:
        return _of_commit(last, store)
    return None if manifest is None else _of_manifest(manifest)


def _owner_of(manifest: CheckpointManifest | None) -> Owner:
    """Old releases wrote the name of a pipeline where its id is now."""
    if manifest is None or manifest.pipeline_id is None:
        return NOBODY
    return manifest.pipeline.owner if manifest.pipeline else Owner(name=manifest.pipeline_id)


def _of_commit(commit: CommitRecord, owner: Owner = NOBODY) -> PipelineRecord:
    """Sources that are kept aside stand at an earlier epoch."""
    sources = {n: "" for n, each in commit.source_offsets.items() if each.epoch == commit.epoch}
    return PipelineRecord(owner, sources=sources, sinks=dict.fromkeys(commit.sinks, ""))


def _of_manifest(manifest: CheckpointManifest) -> PipelineRecord:
    if manifest.pipeline is not None:
        return manifest.pipeline
    found = manifest.source_offsets.items()
    sources = {name: "" for name, each in found if each.epoch == manifest.epoch}
    sinks = dict.fromkeys(manifest.sink_names, "")
    return PipelineRecord(_owner_of(manifest), sources=sources, sinks=sinks)

"""The checkpoints of a store: manifests, each proven by the log's word on it, and read once.

A manifest never changes, so what was read is kept; one that is damaged is looked at again, because
somebody may restore it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lamina.checkpoint import artifacts
from lamina.checkpoint.checkpointer import check_entry
from lamina.checkpoint.parallel import run_all
from lamina.console.subjects import Subject
from lamina.errors import BadManifest, LaminaError
from lamina.format import manifest as manifests
from lamina.format import validation
from lamina.format.findings import Finding
from lamina.format.log import Committed
from lamina.format.manifest import MANIFEST_BYTES_MAX, Artifact, CheckpointManifest
from lamina.ids import CheckpointId
from lamina.store import Store

MANIFESTS_MAX = 64
PARALLEL = 8


@dataclass(frozen=True, slots=True)
class Facts:
    """What a list says of a checkpoint: little enough to keep it for thousands."""

    files: int = 0
    own_bytes: int = 0  # of files that this checkpoint has uploaded, and not one before it
    rows: int | None = None
    watermark: int | None = None
    created_ms: int | None = None
    error: LaminaError | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A manifest and what is to be said about it."""

    manifest: CheckpointManifest
    findings: tuple[Finding, ...]


class Catalog:
    """Of one store. Safe to use from many threads."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._store: Store | None = None
        self._lock = threading.Lock()
        self._opened: OrderedDict[CheckpointId, Opened] = OrderedDict()
        self._facts: dict[CheckpointId, Facts] = {}

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = self._subject.open_store()
        return self._store

    def open(self, committed: Committed) -> Opened:
        """Corrupt, NotFound or StoreError says what is wrong with it."""
        with self._lock:
            known = self._opened.get(committed.id)
            if known is not None:
                self._opened.move_to_end(committed.id)
                return known
        opened = self._read(committed)
        with self._lock:
            self._opened[committed.id] = opened
            self._facts[committed.id] = _facts_of(opened.manifest)
            while len(self._opened) > MANIFESTS_MAX:
                self._opened.popitem(last=False)
        return opened

    def facts(self, wanted: Iterable[Committed]) -> Mapping[CheckpointId, Facts]:
        """Of each, whatever is wrong with some."""
        listed = list(wanted)
        missing = [each for each in listed if each.id not in self._facts]
        found: dict[CheckpointId, Facts] = {}
        run_all(missing, lambda each: found.update({each.id: self._fact(each)}), limit=PARALLEL)
        return {each.id: found.get(each.id) or self._facts[each.id] for each in listed}

    def _fact(self, committed: Committed) -> Facts:
        try:
            return _facts_of(self.open(committed).manifest)
        except LaminaError as error:
            return Facts(error=error)

    def _read(self, committed: Committed) -> Opened:
        entry, paths = committed.entry, self._subject.paths
        key = paths.manifest(committed.id)
        if entry.manifest_size > MANIFEST_BYTES_MAX:
            raise BadManifest(f"a manifest of {entry.manifest_size} bytes", where=key)
        expected = Artifact(key, entry.manifest_size, entry.manifest_sha256)
        data = artifacts.download(self.store, key, expected)
        manifest = manifests.decode(data, f"{self.store.url}/{key}")
        check_entry(manifest, entry, key)
        findings = validation.validate(manifest, expected_vnodes=manifest.vnode_count)
        return Opened(manifest, tuple(findings))


def own_artifacts(manifest: CheckpointManifest) -> tuple[Artifact, ...]:
    """The files that this checkpoint brought; the others were its parent's."""
    prefix = f"{manifest.checkpoint_id}/"
    return tuple(each for each in manifest.artifacts() if each.path.startswith(prefix))


def _facts_of(manifest: CheckpointManifest) -> Facts:
    files = manifest.artifacts()
    runs = [r for o in manifest.operators.values() for p in o.partitions.values() for r in p]
    inline = sum(run.size for run in runs if run.path is None)
    return Facts(
        files=len(files),
        own_bytes=sum(each.size or 0 for each in own_artifacts(manifest)) + inline,
        rows=None if any(run.rows is None for run in runs) else sum(run.rows or 0 for run in runs),
        watermark=manifest.watermark,
        created_ms=manifest.timestamp_ms,
    )

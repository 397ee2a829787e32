"""Proves that checkpoints are whole, or says exactly what is not.

Every byte below the base is covered: the log by its chain of digests, begin.json and the manifest
by the log, every other file by its manifest. Nothing is changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from lamina.checkpoint import artifacts
from lamina.checkpoint.checkpointer import Checkpointer, check_entry
from lamina.checkpoint.commit_log import hint_of
from lamina.checkpoint.parallel import run_all
from lamina.checkpoint.progress import Progress, Report, silent
from lamina.errors import Corrupt, LaminaError, NotFound, Unsupported, UsageError
from lamina.format import manifest as manifests
from lamina.format import validation
from lamina.format.findings import Finding, Severity
from lamina.format.log import Committed, Hint, decode_hint, encode_hint
from lamina.format.manifest import Artifact, CheckpointManifest, OperatorCheckpoint, RunEntry
from lamina.ids import CheckpointId
from lamina.protocol.history import EMPTY, History, follow


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, with the code of the error it would raise."""

    code: str
    where: str
    message: str
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    id: CheckpointId
    epoch: int
    objects: int  # that a restore needs, manifest and begin.json included
    objects_read: int  # of these, read in full and compared by digest
    bytes_read: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not any(p.severity is Severity.ERROR for p in self.problems)


@dataclass(frozen=True, slots=True)
class VerifyReport:
    entries: int
    log_problems: tuple[Problem, ...]
    checkpoints: tuple[CheckpointReport, ...]

    @property
    def problems(self) -> tuple[Problem, ...]:
        own = (problem for report in self.checkpoints for problem in report.problems)
        return (*self.log_problems, *own)

    @property
    def ok(self) -> bool:
        return not any(p.severity is Severity.ERROR for p in self.problems)


def verify(
    checkpointer: Checkpointer,
    ids: tuple[CheckpointId, ...] | None = None,
    *,
    sample: float = 1.0,
    report: Report = silent,
) -> VerifyReport:
    """Verify these checkpoints; by default the whole log and all that exist.

    With a *sample* below 1 every file's presence and size is checked, and that share of them, the
    same in every run, is read and compared by digest.
    """
    if not 0.0 <= sample <= 1.0:
        raise UsageError(f"a sample is a share from 0 to 1, not {sample}")
    log_problems, history = (
        _verify_log(checkpointer) if ids is None else ((), checkpointer.history())
    )
    chosen = sorted(_choose(checkpointer, history, ids), key=lambda c: (c.epoch, c.seq))
    work = _Work(checkpointer, sample, report, sum(c.entry.total_size for c in chosen))
    reports = tuple(work.checkpoint(committed) for committed in chosen)
    if ids is None and not log_problems and not all(report.ok for report in reports):
        now = checkpointer.history()  # what gc has forgotten meanwhile is not missing
        reports = tuple(report for report in reports if report.ok or now.find(report.id))
    return VerifyReport(history.seq, log_problems, reports)


def _choose(
    checkpointer: Checkpointer, history: History, ids: tuple[CheckpointId, ...] | None
) -> Iterator[Committed]:
    if ids is None:
        yield from history.checkpoints
        return
    for id in ids:
        committed = history.find(id)
        if committed is None:
            raise NotFound(f"no checkpoint {id}", where=checkpointer.store.url)
        yield committed


def _verify_log(checkpointer: Checkpointer) -> tuple[tuple[Problem, ...], History]:
    """Read the whole chain, from the first entry; the head itself is held against the hint.

    Listing and hint come first: what a running pipeline writes meanwhile is neither hole nor lie.
    """
    listed = [info.key for info in checkpointer.store.list(checkpointer.paths.log_dir())]
    raw = _raw_hint(checkpointer)
    hint = None if raw is None else decode_hint(raw, checkpointer.paths.latest_pointer())
    history, right = EMPTY, None
    try:
        for entry, digest in checkpointer.log.entries():
            history = follow(history, entry, digest, checkpointer.paths.log_entry(entry.seq))
            if hint is not None and hint.seq == history.seq:
                right = hint_of(history)
    except (Corrupt, Unsupported) as error:
        return (_problem(error, checkpointer.paths.log_entry(history.seq + 1)),), history
    end = checkpointer.paths.log_entry(history.seq)
    holes = (_beyond(key, history) for key in listed if key > end)
    return (*holes, *_hint(checkpointer, history, raw, hint, right)), history


def _beyond(key: str, history: History) -> Problem:
    """An entry beyond the end: a hole. Reading on has stopped before it."""
    return Problem("LAM-3004", key, f"the log ends with entry {history.seq} before this")


def _raw_hint(checkpointer: Checkpointer) -> bytes | None:
    try:
        return checkpointer.store.get(checkpointer.paths.latest_pointer())
    except NotFound:
        return None


def _hint(
    checkpointer: Checkpointer,
    history: History,
    raw: bytes | None,
    hint: Hint | None,
    right: Hint | None,
) -> Iterator[Problem]:
    """The hint must be, byte for byte, what was written with the entry that it names."""
    key = checkpointer.paths.latest_pointer()
    if raw is None:
        if history.seq:
            yield Problem("LAM-2000", key, "the hint is missing", Severity.NOTE)
    elif hint is None:
        yield Problem("LAM-3000", key, "the hint is damaged; it is ignored", Severity.WARNING)
    elif right is None:
        yield Problem("LAM-3004", key, f"the hint names log entry {hint.seq}, which is missing")
    elif hint.sha256 != right.sha256:
        message = f"log entry {hint.seq} is not the one the hint names"
        yield Problem("LAM-3004", key, message)
    elif raw != encode_hint(right):
        message = f"the hint is not the one written with log entry {hint.seq}; it is ignored"
        yield Problem("LAM-3000", key, message, Severity.WARNING)


@dataclass
class _Work:
    """The verification of one checkpoint after the other, with one progress over all."""

    checkpointer: Checkpointer
    sample: float
    report: Report
    total: int
    done: int = 0
    _proven: dict[Artifact, Problem | None] = field(default_factory=dict)

    def checkpoint(self, committed: Committed) -> CheckpointReport:
        problems: list[Problem] = list(self._begin(committed))
        manifest, found = self._manifest(committed)
        problems += found
        files = manifest.artifacts() if manifest else ()
        read = [a for a in files if self._in_sample(a)]
        problems += self._files(files, read)
        return CheckpointReport(
            id=committed.id,
            epoch=committed.epoch,
            objects=len(files) + 2,
            objects_read=len(read) + 2,
            bytes_read=sum(a.size or 0 for a in read) + committed.entry.manifest_size,
            problems=tuple(problems),
        )

    def _begin(self, committed: Committed) -> Iterator[Problem]:
        key = self.checkpointer.paths.begin(committed.id)
        expected = Artifact(key, None, committed.entry.begin_sha256)
        problem = self._check(key, expected)
        if problem is not None:
            yield problem

    def _manifest(self, committed: Committed) -> tuple[CheckpointManifest | None, list[Problem]]:
        key = self.checkpointer.paths.manifest(committed.id)
        entry = committed.entry
        expected = Artifact(key, entry.manifest_size, entry.manifest_sha256)
        try:
            data = artifacts.download(self.checkpointer.store, key, expected)
            manifest = manifests.decode(data, key)
            check_entry(manifest, entry, key)
        except (Corrupt, NotFound, Unsupported) as error:
            return None, [_problem(error, key)]
        vnodes = self.checkpointer.expected_vnodes(manifest)
        findings = validation.validate(manifest, expected_vnodes=vnodes)
        problems = [_finding(finding, key) for finding in findings]
        problems += _inline(manifest, key)
        return manifest, problems

    def _files(self, files: tuple[Artifact, ...], read: list[Artifact]) -> list[Problem]:
        """Presence and size of all, content of those in the sample; shared ones only once."""
        new = [a for a in files if a not in self._proven]
        chosen = set(read)
        self.done += sum(a.size or 0 for a in files if a in self._proven)

        def note(artifact: Artifact, problem: Problem | None) -> None:
            self._proven[artifact] = problem
            self.done += artifact.size or 0
            self.report(Progress(self.done, self.total, "bytes", artifact.path))

        run_all(
            new,
            lambda a: self._look(a, content=a in chosen),
            limit=self.checkpointer.max_concurrent,
            each=note,
        )
        return [problem for a in files if (problem := self._proven[a]) is not None]

    def _look(self, artifact: Artifact, *, content: bool) -> Problem | None:
        key = self.checkpointer.paths.absolute(artifact.path)
        return self._check(key, artifact) if content else self._check_size(key, artifact)

    def _check(self, key: str, expected: Artifact) -> Problem | None:
        try:
            artifacts.check(self.checkpointer.store, key, expected)
        except (Corrupt, NotFound) as error:
            return _problem(error, key)
        return None

    def _check_size(self, key: str, expected: Artifact) -> Problem | None:
        try:
            artifacts.check_size(self.checkpointer.store.head(key).size, expected, key)
        except (Corrupt, NotFound) as error:
            return _problem(error, key)
        return None

    def _in_sample(self, artifact: Artifact) -> bool:
        if self.sample >= 1.0:
            return True
        draw = hashlib.sha256(artifact.path.encode()).digest()[:8]
        return int.from_bytes(draw, "big") < self.sample * 2**64


def _inline(manifest: CheckpointManifest, key: str) -> Iterator[Problem]:
    """States inside the manifest have digests of their own."""
    runs = [r for o in manifest.operators.values() for rs in o.partitions.values() for r in rs]
    states: list[RunEntry | OperatorCheckpoint] = [*manifest.operator_states.values(), *runs]
    for state in states:
        try:
            state.decode_inline(key)
        except Corrupt as error:
            yield _problem(error, key)


def _problem(error: LaminaError, where: str) -> Problem:
    return Problem(error.code, error.where or where, error.message)


def _finding(finding: Finding, key: str) -> Problem:
    return Problem(finding.code, f"{key}#{finding.field}", finding.message, finding.severity)

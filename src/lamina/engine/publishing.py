"""Driving sinks: every decided epoch reaches every sink, in order, once.

A sink that fails is not skipped and not waited for in every epoch: it is tried again with back-off,
and holds the pipeline when it is too far behind (R6, R7).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.clock import Clock
from lamina.engine.backoff import Backoff
from lamina.engine.plans import EnginePlan
from lamina.engine.ports import Change, Output, Publication, Sink, Truncating
from lamina.errors import LaminaError, Refused, StoreError
from lamina.format.commit import CommitRecord, Point, SinkAhead, StagedFile
from lamina.format.manifest_model import Failed, Pending, SinkCommitStatus, SinkCommitted
from lamina.format.pipeline_record import Owner
from lamina.ids import fold
from lamina.protocol.sinks import Publish, check_owner, decide_publish
from lamina.recovery.manager import Recovered
from lamina.wal.driver_log import rule_commit
from lamina.workspace.base import StagedFiles
from lamina.workspace.model import Staged


@dataclass(slots=True)
class _Line:
    """What one sink has still to get."""

    sink: Sink
    backoff: Backoff
    waiting: deque[CommitRecord] = field(default_factory=deque)
    published: int = 0
    attempts: int = 0
    failures: int = 0


class Publisher:
    """All sinks of a pipeline."""

    def __init__(
        self,
        sinks: Mapping[str, Sink],
        *,
        pipeline: Owner,
        generation: int,
        staged: StagedFiles,
        outputs: Mapping[str, Output],
        accepted: Mapping[str, SinkAhead],
        clock: Clock,
    ) -> None:
        self._pipeline = pipeline
        self._generation = generation
        self._staged = staged
        self._outputs = outputs
        self._accepted = {fold(name): ahead for name, ahead in accepted.items()}
        self._lines = {name: _Line(sink, Backoff(clock)) for name, sink in sinks.items()}

    def add(self, sink: str, commit: CommitRecord) -> None:
        """An epoch that *sink* has to get."""
        self._lines[sink].waiting.append(commit)

    def join(self, sink: str, head: Point | None) -> None:
        """Set a sink to where the pipeline is, without rows: a person lets it begin from here."""
        assert head is not None, "before the first epoch every sink is where the pipeline is"
        check_owner(self._lines[sink].sink.position(), self._pipeline)
        self._lines[sink].sink.publish(self._publication(sink, head, ()))

    def note_published(self, sink: str, epoch: int) -> None:
        """Where a sink stood when the process began."""
        self._lines[sink].published = epoch

    @property
    def behind(self) -> int:
        """How many epochs the slowest sink has still to get."""
        return max((len(line.waiting) for line in self._lines.values()), default=0)

    def statuses(self) -> dict[str, SinkCommitStatus]:
        return {name: _status(line) for name, line in sorted(self._lines.items())}

    def tries(self) -> dict[str, tuple[int, int]]:
        """How often each sink was to get an epoch, and how often it failed to."""
        return {name: (line.attempts, line.failures) for name, line in self._lines.items()}

    def waiting(self) -> dict[str, int]:
        """How many epochs each sink has still to get."""
        return {name: len(line.waiting) for name, line in self._lines.items()}

    def epochs(self) -> dict[str, int]:
        """The last epoch each sink has published."""
        return {name: line.published for name, line in sorted(self._lines.items())}

    def drive(self, *, now: bool = False) -> None:
        """Publish what is waiting, sink by sink; with *now* also to those in back-off.

        A failure of the store or the network is kept and tried again; everything else stops.
        """
        for line in self._lines.values():
            if line.waiting and (now or line.backoff.is_over):
                self._drive(line)

    def _drive(self, line: _Line) -> None:
        try:
            while line.waiting:
                line.attempts += 1
                self._publish(line.sink, line.waiting[0])
                line.published = line.waiting.popleft().epoch
            line.backoff.succeeded()
        except StoreError as error:
            line.failures += 1
            line.backoff.failed(error)

    def _publish(self, sink: Sink, commit: CommitRecord) -> None:
        decision = decide_publish(
            sink.position(),
            rule_commit(commit),
            pipeline=self._pipeline,
            generation=self._generation,
            accepted=self._accepted.get(fold(sink.name)),
        )
        if decision is not Publish.NOW:
            return
        back = {fold(name): to for name, to in commit.takes_back.items()}.get(fold(sink.name))
        if back is not None:
            _able(sink).truncate(self._publication(sink.name, commit.point, ()), back)
            return
        files = [
            Staged(file.path, file.size, file.sha256, file.rows)
            for file in commit.staged
            if fold(file.sink) == fold(sink.name)
        ]
        sink.publish(self._publication(sink.name, commit.point, files))

    def _publication(self, sink: str, point: Point, files: Sequence[Staged]) -> Publication:
        return Publication(
            self._pipeline, self._generation, point, files, self._staged, self._outputs[sink]
        )

    def sample(self, sink: str, files: Iterable[StagedFile], rows_max: int) -> pa.Table | None:
        """Some rows of an epoch's output for *sink*, for people; None if they cannot be read now.

        Nothing depends on it: what is damaged is said by who publishes it.
        """
        for file in files:
            if file.sink == sink and file.rows:
                staged = Staged(file.path, file.size, file.sha256, file.rows)
                try:
                    with self._staged.open(staged) as opened:
                        batches = pq.ParquetFile(opened).iter_batches(batch_size=rows_max)
                        return pa.Table.from_batches([next(batches)])
                except (LaminaError, OSError, pa.ArrowException, StopIteration):
                    return None
        return None

    def errors(self) -> dict[str, str]:
        """Why sinks are behind, for people."""
        return {name: line.backoff.error for name, line in self._lines.items() if line.waiting}

    def close(self) -> None:
        for line in self._lines.values():
            line.sink.close()

    def check_drained(self) -> None:
        """Raise why a sink is behind, if one is."""
        for line in self._lines.values():
            if line.waiting and line.backoff.failure is not None:
                raise line.backoff.failure


def open_publisher(
    sinks: Mapping[str, Sink],
    plan: EnginePlan,
    recovered: Recovered,
    *,
    staged: StagedFiles,
    clock: Clock,
) -> Publisher:
    """Sinks as recovery found them, with what each has still to get."""
    state, driver = recovered.state, recovered.driver
    assert recovered.pipeline is not None, "sinks are a pipeline's"
    publisher = Publisher(
        sinks,
        pipeline=recovered.pipeline.owner,
        generation=driver.generation,
        staged=staged,
        outputs=plan.outputs,
        accepted=driver.sinks,
        clock=clock,
    )
    known = {commit.digest: commit for commit in recovered.commits}
    for name in state.plan.joins:
        publisher.join(name, state.plan.head)
    head = state.head.epoch if state.head else 0
    for name in sinks:
        pending = state.plan.publish.get(name, ())
        publisher.note_published(name, pending[0].epoch - 1 if pending else head)
        for commit in pending:
            publisher.add(name, known[commit.point.digest])
    return publisher


def _able(sink: Sink) -> Truncating:
    """Refused if it cannot do what a rewind has decided for it: it was another kind then."""
    if isinstance(sink, Truncating):
        return sink
    raise Refused(
        f"the sink {sink.name!r} is to take back what came before a rewind, and cannot",
        advice="Give it the format and options back that it had when the pipeline was rewound",
    )


def _status(line: _Line) -> SinkCommitStatus:
    if line.backoff.error:
        return Failed(line.backoff.error)
    return Pending() if line.waiting else SinkCommitted()


def check_taken(sinks: Mapping[str, Sink], outputs: Mapping[str, Output]) -> None:
    """Refused if a sink cannot express what its stream does to rows: before anything is claimed."""
    for name, sink in sinks.items():
        change = outputs[name].change
        if change not in sink.takes:
            known = ", ".join(sorted(each.value for each in sink.takes))
            advice = f"It takes {known}; use another stream, or another kind of sink"
            if change is Change.CHANGES:
                advice = (
                    "It only adds rows, and cannot take any back. Use a sink that goes by keys, "
                    "such as postgres, delta, iceberg or kafka, or EMIT ON UPDATE or ON WINDOW "
                    "CLOSE in the stream"
                )
            raise Refused(
                f"the sink {name!r} cannot take a stream of {change.value} rows", advice=advice
            )

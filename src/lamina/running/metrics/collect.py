"""The values of all metrics, at the moment somebody asks for them."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from lamina.engine.measured import Measured
from lamina.engine.planning import DRAINED
from lamina.format.epoch_row import EpochRow
from lamina.format.manifest_model import Failed, Pending, SinkCommitStatus
from lamina.recovery.state import RecoveryReport
from lamina.running.control import Status
from lamina.running.metrics.table import (
    BUCKETS_S,
    COUNTER,
    EPOCH_SECONDS,
    HISTOGRAM,
    METRICS,
    PHASE_SECONDS,
)

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

Labels = tuple[str, ...]
READY = ("running", "waiting")


@dataclass(slots=True)
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Each with all that is in those before it."""
        bounds, below, found = [*map(str, BUCKETS_S), "+Inf"], 0, []
        for bound, count in zip(bounds, self.counts, strict=True):
            below += count
            found.append((bound, float(below)))
        return found


class PipelineMetrics:
    """Of one run. Told by the thread of the pipeline, asked by those of the server."""

    what = "metrics"

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._lock = Lock()
        self._sums: dict[tuple[str, Labels], float] = defaultdict(float)
        self._histograms: dict[tuple[str, Labels], _Histogram] = defaultdict(_Histogram)
        self._row: EpochRow | None = None
        self._status: Status | None = None
        self._recovery: RecoveryReport | None = None
        self._measured: Measured | None = None

    # told

    def watch(self, measured: Measured, recovery: RecoveryReport) -> None:
        """The engine is open."""
        self._measured, self._recovery = measured, recovery

    def status(self, status: Status) -> None:
        self._status = status

    def add(self, row: EpochRow) -> None:
        """An epoch is over."""
        with self._lock:
            self._row = row
            self._count("lamina_epochs_total", {"": 1})
            self._count("lamina_rows_read_total", row.rows)
            self._count("lamina_rows_written_total", row.rows_out)
            self._count("lamina_rows_late_total", {"": row.late})
            self._count("lamina_rows_bad_total", {"": row.bad})
            self._count("lamina_rows_without_time_total", {"": row.without_time})
            self._count("lamina_rows_ahead_total", {"": row.ahead})
            self._count("lamina_wal_bytes_total", {"": row.wal_bytes})
            seconds = {name: each / 1e6 for name, each in row.streams_us.items()}
            self._count("lamina_stream_seconds_total", seconds)
            self._histograms[EPOCH_SECONDS.name, ()].add(row.took_us / 1e6)
            for phase, took_us in row.phases_us.items():
                self._histograms[PHASE_SECONDS.name, (phase,)].add(took_us / 1e6)

    def finish(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is held."""

    # asked

    @property
    def ready(self) -> tuple[bool, str]:
        """Whether the pipeline does what it is there for, and what it says of itself."""
        said = self._status
        if said is None:
            return False, "starting"
        return said.phase in READY, f"{said.phase}: {said.why}" if said.why else said.phase

    def collect(self) -> Iterator[Family]:
        """For a registry of prometheus_client."""
        from prometheus_client.core import (  # noqa: PLC0415  an extra
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        with self._lock:
            values, histograms = self._values(), dict(self._histograms)
            for metric in METRICS:
                names = ("pipeline", *metric.labels)
                if metric.kind == HISTOGRAM:
                    family = HistogramMetricFamily(metric.name, metric.meaning, labels=names)
                    for (name, labels), each in histograms.items():
                        if name == metric.name:
                            key = (self._pipeline, *labels)
                            family.add_metric(key, each.buckets(), each.total)
                    yield family
                    continue
                kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
                simple = kind(metric.name, metric.meaning, labels=names)
                for labels, value in sorted(values.get(metric.name, {}).items()):
                    simple.add_metric((self._pipeline, *labels), value)
                yield simple

    # steps

    def _count(self, name: str, by: Mapping[str, float]) -> None:
        for label, amount in by.items():
            self._sums[name, (label,) if label else ()] += amount

    def _values(self) -> dict[str, dict[Labels, float]]:
        found: dict[str, dict[Labels, float]] = defaultdict(dict)
        for (name, labels), value in self._sums.items():
            found[name][labels] = value
        parts: list[Iterable[tuple[str, Labels, float]]] = [self._of_status()]
        if self._row is not None:
            parts.append(_of_row(self._row))
        if self._recovery is not None:
            parts.append([("lamina_recovery_seconds", (), self._recovery.seconds)])
        if self._measured is not None:
            parts += [_of_sinks(self._measured), _of_stores(self._measured)]
        for part in parts:
            for name, labels, value in part:
                found[name][labels] = value
        return found

    def _of_status(self) -> Iterator[tuple[str, Labels, float]]:
        phase = self._status.phase if self._status else "starting"
        yield "lamina_ready", (), float(phase in READY)
        yield "lamina_held", (), float(phase == "held")


def _of_row(row: EpochRow) -> Iterator[tuple[str, Labels, float]]:
    yield "lamina_epoch", (), row.epoch
    yield "lamina_epoch_timestamp_seconds", (), row.time_ms / 1000
    yield "lamina_generation", (), row.generation
    yield "lamina_state_keys", (), row.keys
    yield "lamina_state_runs", (), row.state_runs
    yield "lamina_state_bytes", (), row.state_bytes
    if row.watermark is not None and row.watermark not in DRAINED:
        yield "lamina_watermark_seconds", (), row.watermark / 1e6
    for source, micros in row.watermarks.items():
        if micros not in DRAINED:
            yield "lamina_source_watermark_seconds", (source,), micros / 1e6


def _of_sinks(measured: Measured) -> Iterator[tuple[str, Labels, float]]:
    publisher = measured.publisher
    for sink, epoch in publisher.epochs().items():
        yield "lamina_sink_epoch", (sink,), epoch
    for sink, epochs in publisher.waiting().items():
        yield "lamina_sink_behind_epochs", (sink,), epochs
    for sink, status in publisher.statuses().items():
        for name in ("committed", "pending", "failed"):
            yield "lamina_sink_status", (sink, name), float(_name(status) == name)
    for sink, (attempts, failures) in publisher.tries().items():
        yield "lamina_publish_attempts_total", (sink,), attempts
        yield "lamina_publish_failures_total", (sink,), failures


def _name(status: SinkCommitStatus) -> str:
    if isinstance(status, Failed):
        return "failed"
    return "pending" if isinstance(status, Pending) else "committed"


def _of_stores(measured: Measured) -> Iterator[tuple[str, Labels, float]]:
    last = measured.saves.last
    if last is not None:
        yield "lamina_checkpoint_epoch", (), last.epoch
        yield "lamina_checkpoint_timestamp_seconds", (), last.timestamp_ms / 1000
        yield "lamina_checkpoint_bytes", (), last.total_size_bytes
    if measured.saves.last_seconds is not None:
        yield "lamina_checkpoint_seconds", (), measured.saves.last_seconds
    for source, backlog in measured.backlogs().items():
        if backlog.rows is not None:
            yield "lamina_source_backlog_rows", (source,), backlog.rows
        if backlog.files is not None:
            yield "lamina_source_backlog_files", (source,), backlog.files
    requests: dict[str, int] = defaultdict(int)
    counts = measured.store_counts()
    for each in counts:
        for operation, times in list(each.requests.items()):
            requests[operation] += times
    for operation, times in requests.items():
        yield "lamina_store_requests_total", (operation,), times
    if counts:
        yield "lamina_store_retries_total", (), sum(each.retries for each in counts)

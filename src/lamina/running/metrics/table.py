"""Every metric that a pipeline has: docs/metrics.md shows this table."""

from __future__ import annotations

from dataclasses import dataclass

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; each also has the label `pipeline`."""

    name: str  # as Prometheus stores it; a counter ends in _total
    kind: str
    meaning: str
    labels: tuple[str, ...] = ()


EPOCH_SECONDS = Metric("lamina_epoch_seconds", HISTOGRAM, "How long epochs take")
PHASE_SECONDS = Metric(
    "lamina_phase_seconds",
    HISTOGRAM,
    "How long the phases of epochs take: plan, run, decide, commit, publish. `commit` is the time "
    "to write and sync the decision",
    ("phase",),
)
_OF_EPOCHS = (
    Metric("lamina_epochs_total", COUNTER, "Committed epochs"),
    Metric("lamina_rows_read_total", COUNTER, "Rows read", ("source",)),
    Metric("lamina_rows_written_total", COUNTER, "Rows of committed output", ("sink",)),
    Metric("lamina_rows_late_total", COUNTER, "Rows left out because their window has closed"),
    Metric("lamina_rows_bad_total", COUNTER, "Rows put aside because they could not be read"),
    Metric("lamina_rows_without_time_total", COUNTER, "Rows left out: they have no event time"),
    Metric("lamina_rows_ahead_total", COUNTER, "Rows too far ahead to move the watermark"),
    Metric("lamina_stream_seconds_total", COUNTER, "Time spent in each stream", ("stream",)),
    Metric("lamina_wal_bytes_total", COUNTER, "Runs and small output written to the log"),
    EPOCH_SECONDS,
    PHASE_SECONDS,
    Metric("lamina_epoch", GAUGE, "The last committed epoch"),
    Metric("lamina_epoch_timestamp_seconds", GAUGE, "When the last epoch was over"),
    Metric("lamina_generation", GAUGE, "Rises with each process that takes the pipeline over"),
    Metric("lamina_watermark_seconds", GAUGE, "The watermark, as a Unix time"),
    Metric("lamina_source_watermark_seconds", GAUGE, "The watermark of a source", ("source",)),
    Metric("lamina_state_keys", GAUGE, "Rows of the runs of all state: at least its keys"),
    Metric("lamina_state_runs", GAUGE, "Runs that all state consists of"),
    Metric("lamina_state_bytes", GAUGE, "Bytes of these runs"),
)
_OF_NOW = (
    Metric("lamina_ready", GAUGE, "1 if the pipeline runs or waits for input, else 0"),
    Metric("lamina_held", GAUGE, "1 if no epoch may start: a source, sink or store is in trouble"),
    Metric("lamina_recovery_seconds", GAUGE, "How long the recovery of this process took"),
    Metric("lamina_checkpoint_epoch", GAUGE, "The epoch of the last checkpoint"),
    Metric("lamina_checkpoint_timestamp_seconds", GAUGE, "When the last checkpoint was begun"),
    Metric("lamina_checkpoint_bytes", GAUGE, "Bytes that the last checkpoint names"),
    Metric("lamina_checkpoint_seconds", GAUGE, "How long the last one of this process took"),
    Metric("lamina_sink_epoch", GAUGE, "The last epoch that a sink has", ("sink",)),
    Metric("lamina_sink_behind_epochs", GAUGE, "Epochs that a sink still has to get", ("sink",)),
    Metric(
        "lamina_sink_status",
        GAUGE,
        "1 for what it is: committed, pending, failed",
        ("sink", "status"),
    ),
    Metric("lamina_publish_attempts_total", COUNTER, "Times a sink was given an epoch", ("sink",)),
    Metric("lamina_publish_failures_total", COUNTER, "Times it did not take it", ("sink",)),
    Metric(
        "lamina_source_backlog_rows", GAUGE, "Rows (in Kafka: offsets) not planned yet", ("source",)
    ),
    Metric("lamina_source_backlog_files", GAUGE, "Files or objects not planned yet", ("source",)),
    Metric(
        "lamina_store_requests_total",
        COUNTER,
        "Requests of the driver to object stores, tries included",
        ("operation",),
    ),
    Metric("lamina_store_retries_total", COUNTER, "Requests that were tried again"),
)
METRICS = (*_OF_EPOCHS, *_OF_NOW)
BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)

"""OpenTelemetry: one span for each epoch, with a span for each phase and each stream in it.

They are made when the epoch is over, with its times. Where they go is up to the program, or to
`opentelemetry-instrument`; without the package, or without a provider, nothing happens.
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.context import Context

from lamina.engine.phases import PHASES, RUN
from lamina.format.epoch_row import EpochRow


class EpochSpans:
    """Of one run."""

    what = "the spans of epochs"

    def __init__(self, pipeline: str, provider: trace.TracerProvider | None = None) -> None:
        """*provider* is the program's own, unless given."""
        self._pipeline = pipeline
        self._tracer = trace.get_tracer("lamina", tracer_provider=provider)

    def add(self, row: EpochRow) -> None:
        """An epoch that is over."""
        took_us = max(row.took_us, sum(row.phases_us.values()))
        end = row.time_ms * 1_000_000
        start = end - took_us * 1000
        span = self._tracer.start_span("epoch", start_time=start, attributes=self._about(row))
        context = trace.set_span_in_context(span)
        phases = {name: row.phases_us.get(name, 0) for name in PHASES}
        made = self._in_order(phases, start, context)
        inside = trace.set_span_in_context(made[RUN])
        self._in_order(row.streams_us, _start_of(row, start), inside, prefix="stream ")
        span.end(end_time=end)

    def finish(self) -> None:
        """Spans are the provider's."""

    def close(self) -> None:
        """Nothing is held."""

    def _in_order(
        self,
        parts_us: Mapping[str, int],
        start: int,
        context: Context,
        prefix: str = "",
    ) -> dict[str, trace.Span]:
        """A span after the other."""
        made: dict[str, trace.Span] = {}
        for name, took_us in parts_us.items():
            made[name] = self._tracer.start_span(prefix + name, start_time=start, context=context)
            start += took_us * 1000
            made[name].end(end_time=start)
        return made

    def _about(self, row: EpochRow) -> dict[str, str | int]:
        return {
            "lamina.pipeline": self._pipeline,
            "lamina.epoch": row.epoch,
            "lamina.generation": row.generation,
            "lamina.rows": sum(row.rows.values()),
            "lamina.rows_out": sum(row.rows_out.values()),
            "lamina.late": row.late,
            "lamina.wal_bytes": row.wal_bytes,
        }


def _start_of(row: EpochRow, start: int) -> int:
    """Of the phase `run`."""
    before = PHASES[: PHASES.index(RUN)]
    return start + sum(row.phases_us.get(name, 0) for name in before) * 1000

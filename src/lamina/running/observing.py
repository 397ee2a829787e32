"""Who is told of a run beside the history: metrics over HTTP, lines of events, spans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike, fspath
from typing import TYPE_CHECKING, TextIO

from lamina.engine.measured import Measured
from lamina.recovery.state import RecoveryReport
from lamina.running.control import Status
from lamina.running.recorder import RowKeeper

if TYPE_CHECKING:
    from lamina.running.metrics.collect import PipelineMetrics

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Watching:
    """What a person wants to be told of a run, and where."""

    metrics_port: int | None = None  # None: no metrics; 0: any port that is free
    metrics_host: str = HOST
    events: str | PathLike[str] | TextIO | None = None


@dataclass(frozen=True, slots=True)
class Observers:
    """Of one run."""

    keepers: Sequence[RowKeeper] = ()
    metrics: PipelineMetrics | None = None

    def status(self, status: Status) -> None:
        if self.metrics is not None:
            self.metrics.status(status)

    def opened(self, measured: Measured, recovery: RecoveryReport) -> None:
        """The pipeline is recovered."""
        if self.metrics is not None:
            self.metrics.watch(measured, recovery)


@contextmanager
def observing(
    watching: Watching, pipeline: str, note: Callable[[str], None]
) -> Iterator[Observers]:
    """UsageError, before Spark is started, if one of them cannot be served or written."""
    keepers: list[RowKeeper] = []
    metrics = None
    with ExitStack() as stack:
        if watching.events is not None:
            from lamina.running.events import EventLines  # noqa: PLC0415  used by few

            place = watching.events
            place = fspath(place) if isinstance(place, str | PathLike) else place
            events = EventLines(pipeline, place)
            stack.callback(events.close)
            keepers.append(events)
        if watching.metrics_port is not None:
            from lamina.running.metrics.collect import PipelineMetrics  # noqa: PLC0415  an extra
            from lamina.running.metrics.server import served  # noqa: PLC0415

            metrics = PipelineMetrics(pipeline)
            host, port = watching.metrics_host, watching.metrics_port
            address = stack.enter_context(served(metrics, host, port))
            note(f"metrics are at {address}/metrics")
            keepers.append(metrics)
        if _has_spans():
            from lamina.running.spans import EpochSpans  # noqa: PLC0415  an extra

            keepers.append(EpochSpans(pipeline))
        yield Observers(keepers, metrics)


def _has_spans() -> bool:
    """Whether OpenTelemetry is installed: without it there are none."""
    try:
        return find_spec("opentelemetry.trace") is not None
    except ModuleNotFoundError:
        return False

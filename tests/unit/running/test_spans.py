"""Spans of OpenTelemetry: one for each epoch, with its phases and streams in it."""

from __future__ import annotations

import sys

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lamina.engine.phases import PHASES
from lamina.running.observing import Watching, observing
from lamina.running.spans import EpochSpans
from tests.support.histories import row


def spans() -> dict[str, ReadableSpan]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    EpochSpans("orders", provider).add(row(7))
    found = exporter.get_finished_spans()
    assert len({span.name for span in found}) == len(found)
    return {span.name: span for span in found}


def times(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


def test_an_epoch_is_a_span_with_its_phases_and_streams_in_it() -> None:
    found = spans()
    assert set(found) == {"epoch", *PHASES, "stream vwap"}
    epoch = found["epoch"]
    start, end = times(epoch)
    assert end == row(7).time_ms * 1_000_000
    assert end - start == row(7).took_us * 1000
    assert epoch.attributes is not None
    assert epoch.attributes["lamina.epoch"] == 7
    at = start
    for phase in PHASES:
        inside = found[phase]
        assert inside.parent is not None
        assert inside.parent.span_id == epoch.context.span_id
        began, at = times(inside)[0] - at, times(inside)[1]
        assert began == 0, "one after the other"
    assert at == end
    stream, run = found["stream vwap"], found["run"]
    assert stream.parent is not None
    assert stream.parent.span_id == run.context.span_id
    assert times(stream) == times(run)


def test_without_the_package_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with observing(Watching(), "orders", lambda _: None) as observers:
        [keeper] = observers.keepers
        keeper.add(row(1))  # nobody has made a provider: nothing happens
    for name in [each for each in sys.modules if each.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with observing(Watching(), "orders", lambda _: None) as observers:
        assert not observers.keepers

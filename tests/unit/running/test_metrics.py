"""Metrics: every one is in the page and has a value; probes; and errors before anything starts."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lamina.engine.ports import Backlog
from lamina.errors import LaminaError, StoreUnavailable, UsageError
from lamina.front.options import settings_of
from lamina.front.places import place_of
from lamina.running.control import Status
from lamina.running.events import EventLines
from lamina.running.metrics.collect import PipelineMetrics
from lamina.running.metrics.server import served
from lamina.running.metrics.table import METRICS
from lamina.running.observing import Watching, observing
from lamina.running.recorder import row_of
from lamina.store import MemoryStore
from lamina.store.retry import RetryingStore, RetryPolicy
from lamina.testing import Fault, FaultKind, FaultyStore, ManualClock
from tests.engine.pipelines import World
from tests.support.histories import row
from tests.support.running_engines import NEW

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "metrics.md"


def fetch(address: str) -> tuple[int, str]:
    try:
        with urlopen(address, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def said(phase: str, why: str = "") -> Status:
    return Status("orders", 1, "here", phase, 0, 0, why=why)


@contextmanager
def measured(tmp_path: Path) -> Iterator[tuple[PipelineMetrics, str]]:
    """An engine that has run some epochs, with all that can be measured of one."""
    world, metrics = World(tmp_path), PipelineMetrics("orders")
    engine = world.open()
    try:
        for _ in range(3):
            report = engine.step()
            assert report is not None
            metrics.add(row_of(report, 1_700_000_000_000))
        engine.checkpoint()
        store = RetryingStore(FaultyStore(MemoryStore()), RetryPolicy(), ManualClock())
        store.put("a", b"x")
        sources = dict(engine.sources)
        sources["trades"].backlog = Backlog(rows=7, files=3)  # type: ignore[attr-defined]
        found = replace(engine.measured, stores=[store])
        metrics.watch(found, NEW)
        metrics.status(said("running"))
        with served(metrics, "127.0.0.1", 0) as address:
            yield metrics, address
    finally:
        engine.close()


def test_every_metric_has_a_value_and_what_it_says_is_so(tmp_path: Path) -> None:
    with measured(tmp_path) as (_, address):
        status, text = fetch(f"{address}/metrics")
    assert status == 200
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = {
        (each.name, *(value for key, value in sorted(each.labels.items()) if key != "pipeline")): (
            each.value
        )
        for family in families.values()
        for each in family.samples
    }
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total")]
        assert family.samples, f"{metric.name} has no value"
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == {"pipeline", *metric.labels}, metric.name
            assert sample.labels["pipeline"] == "orders"
    assert samples["lamina_epochs_total",] == 3
    assert samples["lamina_rows_read_total", "trades"] == 45
    assert samples["lamina_epoch",] == samples["lamina_checkpoint_epoch",] == 3
    assert samples["lamina_epoch_seconds_count",] == 3
    assert samples["lamina_phase_seconds_bucket", "+Inf", "run"] == 3
    assert samples["lamina_sink_status", "vwap", "committed"] == 1
    assert samples["lamina_publish_attempts_total", "vwap"] == 3
    assert samples["lamina_source_backlog_rows", "trades"] == 7
    assert samples["lamina_store_requests_total", "put"] == 1
    assert samples["lamina_checkpoint_bytes",] > 0


def test_the_page_shows_the_table() -> None:
    """LAMINA_UPDATE_DOCS=1 is not needed: the rows are these."""
    rows = [
        f"| `{m.name}` | {m.kind} | {', '.join(f'`{each}`' for each in m.labels) or '-'} "
        f"| {m.meaning} |"
        for m in METRICS
    ]
    page = PAGE.read_text()
    assert "\n".join(rows) in page
    assert set(re.findall(r"lamina_\w+", page)) <= {
        *(m.name for m in METRICS),
        *(f"{m.name}_{part}" for m in METRICS for part in ("bucket", "sum", "count")),
    }


def test_before_the_first_epoch_it_answers_and_is_not_ready() -> None:
    metrics = PipelineMetrics("orders")
    with served(metrics, "127.0.0.1", 0) as address:
        assert fetch(f"{address}/livez")[0] == 200
        assert fetch(f"{address}/readyz") == (503, '{"ready": false, "state": "starting"}')
        assert "lamina_ready{" in fetch(f"{address}/metrics")[1]
        assert fetch(f"{address}/")[0] == 404
        for phase, expected in (
            *(("starting", 503), ("running", 200), ("waiting", 200)),
            *(("held", 503), ("ended", 503), ("failed", 503)),
        ):
            metrics.status(said(phase, "out: no answer"))
            status, text = fetch(f"{address}/readyz")
            assert (status, json.loads(text)["state"]) == (expected, f"{phase}: out: no answer")
            assert fetch(f"{address}/livez")[0] == 200


def test_who_goes_away_or_talks_nonsense_hurts_nobody() -> None:
    metrics = PipelineMetrics('a"b\n{}')
    with served(metrics, "127.0.0.1", 0) as address:
        port = int(address.rpartition(":")[2])
        for words in (
            b"",
            b"GET /metrics HTTP/1.1\r\n",
            b"\x00\xff\r\n\r\n",
            b"DELETE / HTTP/1.1\r\n\r\n",
        ):
            with socket.create_connection(("127.0.0.1", port)) as visitor:
                visitor.sendall(words)
        [one] = [
            family
            for family in text_string_to_metric_families(fetch(f"{address}/metrics")[1])
            if family.name == "lamina_ready"
        ]
        assert one.samples[0].labels["pipeline"] == 'a"b\n{}'


# errors, before Spark starts


def test_a_port_in_use_a_bad_host_and_bad_options_are_refused() -> None:
    metrics = PipelineMetrics("orders")
    with served(metrics, "127.0.0.1", 0) as address:
        port = int(address.rpartition(":")[2])
        with pytest.raises(UsageError, match="in use"), served(metrics, "127.0.0.1", port):
            pass
    for host in ("no-such-host.invalid", "256.1.1.1", "192.0.2.1", "a" * 300):
        with pytest.raises(UsageError, match="cannot be served"), served(metrics, host, 0):
            pass
    place = place_of("orders.sql")
    for options in ({"metrics_port": 65536}, {"metrics_port": -1}, {"metrics_host": "::1"}):
        with pytest.raises(UsageError):
            settings_of(place, "orders.sql", options)  # type: ignore[arg-type]


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with (
        pytest.raises(UsageError, match="prometheus_client") as refused,
        observing(Watching(metrics_port=0), "orders", lambda _: None),
    ):
        pass
    assert refused.value.advice == "pip install 'lamina[metrics]'"


def test_the_port_is_free_again_when_a_run_has_ended() -> None:
    notes: list[str] = []
    with observing(Watching(metrics_port=0), "orders", notes.append) as observers:
        assert observers.metrics is not None
    port = int(notes[0].rpartition(":")[2].partition("/")[0])
    with observing(Watching(metrics_port=port), "orders", notes.append):
        pass
    assert notes == [f"metrics are at http://127.0.0.1:{port}/metrics"] * 2


# events


def test_an_epoch_is_one_line_of_events(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    for epoch in (1, 2):  # appended by each run
        with observing(Watching(events=file), "orders", lambda _: None) as observers:
            for keeper in observers.keepers:
                keeper.add(row(epoch))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["event"], line["pipeline"], line["epoch"]) for line in lines] == [
        ("epoch", "orders", 1),
        ("epoch", "orders", 2),
    ]
    assert lines[0]["rows"] == {"trades": 101}


def test_events_that_cannot_be_written(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "no" / "events", "a\0b"):
        with pytest.raises(UsageError, match="events cannot be written"):
            EventLines("orders", place)
    full = Path("/dev/full")
    if full.exists():
        events = EventLines("orders", full)
        with pytest.raises(LaminaError):
            events.add(row(1))
        events.close()


# the store


def test_each_try_of_a_request_is_counted() -> None:
    clock = ManualClock()
    faults = [Fault("get", FaultKind.UNAVAILABLE, call=call) for call in (1, 2)]
    store = RetryingStore(FaultyStore(MemoryStore(), faults=faults), RetryPolicy(), clock)
    store.put("a", b"x")
    store.get("a")
    assert [*store.list("")]
    assert dict(store.counts.requests) == {"put": 1, "get": 3, "list": 1}
    assert store.counts.retries == 2
    always = [Fault("get", FaultKind.UNAVAILABLE, probability=1.0)]
    down = FaultyStore(MemoryStore(), faults=always)
    with pytest.raises(StoreUnavailable):
        RetryingStore(down, RetryPolicy(budget_seconds=1), clock).get("a")

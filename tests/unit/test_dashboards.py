"""deploy/grafana and deploy/prometheus: well-formed, and about metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from lamina.running.metrics.table import HISTOGRAM, METRICS

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "lamina.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
LABELS = {metric.name: {"pipeline", *metric.labels} for metric in METRICS} | {
    f"{metric.name}_{part}": {"pipeline", "le", *metric.labels}
    for metric in METRICS
    if metric.kind == HISTOGRAM
    for part in ("bucket", "sum", "count")
}
PLAIN = {metric.name for metric in METRICS if metric.kind == HISTOGRAM}
"""No sample has the name of a histogram alone."""


def queries() -> Iterator[str]:
    for panel in PANELS:
        yield from (target["expr"] for target in panel["targets"])
    yield from (rule["expr"] for rule in RULES)


@pytest.mark.parametrize("query", list(queries()))
def test_a_query_is_about_metrics_and_labels_that_exist(query: str) -> None:
    names = set(re.findall(r"\blamina_\w+", query))
    assert names
    assert names <= LABELS.keys() - PLAIN
    grouped = re.findall(r"\bby \(([^)]*)\)", query)
    known = set[str]().union(*(LABELS[name] for name in names))
    for labels in grouped:
        assert {each.strip() for each in labels.split(",")} <= known
    assert query.count("(") == query.count(")")
    assert query.count("{") == query.count("}")
    for counter in (name for name in names if name.endswith(("_total", "_bucket", "_sum"))):
        assert re.search(rf"(rate|increase)\({counter}\b", query), "a counter is only its changes"


def test_every_metric_but_a_few_is_on_the_dashboard() -> None:
    shown = set(re.findall(r"\blamina_\w+", " ".join(queries())))
    shown |= {name.rpartition("_")[0] for name in shown}
    missing = {metric.name for metric in METRICS} - shown
    assert missing == {
        *("lamina_epochs_total", "lamina_epoch_timestamp_seconds", "lamina_generation"),
        *("lamina_source_watermark_seconds", "lamina_sink_status"),
    }


def test_the_dashboard_has_what_grafana_asks_for() -> None:
    assert {"uid", "title", "schemaVersion", "templating", "time", "panels"} <= DASHBOARD.keys()
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["query"] == "prometheus"
    assert variables["pipeline"]["definition"] == "label_values(lamina_ready, pipeline)"
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(PANELS)))
    assert used <= {*variables, "__rate_interval"}
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        assert {"type", "title", "gridPos", "targets", "fieldConfig", "options"} <= panel.keys()
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        for label in re.findall(r"{{(\w+)}}", json.dumps(panel["targets"])):
            assert any(label in labels for labels in LABELS.values())


def test_panels_do_not_lie_on_each_other() -> None:
    places = [panel["gridPos"] for panel in PANELS]
    assert all(at["x"] + at["w"] <= 24 for at in places)
    for a, b in combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or above


def test_the_five_alerts_say_what_is_wrong_and_what_to_do() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert len(RULES) == 5
    for rule in RULES:
        assert f"| `{rule['alert']}` |" in page
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert "{{ $labels.pipeline }}" in rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
        for label in re.findall(r"\$labels\.(\w+)", json.dumps(rule)):
            names = re.findall(r"\blamina_\w+", rule["expr"])
            assert all(label in LABELS[name] for name in names)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_takes_the_alerts() -> None:
    """They fire when they should, and only then: alerts_test.yml."""
    tests = str(ALERTS.with_name("alerts_test.yml"))
    for command in (["check", "rules", str(ALERTS)], ["test", "rules", tests]):
        checked = subprocess.run(
            ["promtool", *command], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr

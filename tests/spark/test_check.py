"""`lamina check` with Spark: what docs/cli.md shows of it is what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lamina
from lamina.cli.pipeline.check import _types
from lamina.pipeline import parse_pipeline
from lamina.spark.explanation import explain_types

ROOT = Path(__file__).parents[2]
LONG = f"v IN ({', '.join(str(10**7 + number) for number in range((1 << 20) // 10))})"
"""A megabyte of SQL, which Spark compiles as well."""


def test_state_and_size_are_as_the_page_shows_them(spark: Any) -> None:
    plan = lamina.check(ROOT / "examples" / "trades" / "pipeline.sql", spark=spark)
    page = (ROOT / "docs" / "cli.md").read_text()
    assert "\n".join(_types(plan)) in page


def test_what_is_kept_beside_the_state_has_a_size(spark: Any) -> None:
    """Timers of sessions, and the rows that wait for their interval."""
    text = f"""
CREATE SOURCE t (k STRING, v BIGINT, ts TIMESTAMP) USING json OPTIONS (path 'in')
  WATERMARK ts DELAY OF INTERVAL 1 SECOND;
CREATE STREAM visits AS SELECT k, session_window.start AS at, sum(v) AS total FROM t
  GROUP BY k, session_window(ts, '1 hour') EMIT ON WINDOW CLOSE;
CREATE STREAM totals AS SELECT k, sum(v) AS total FROM t GROUP BY k EMIT EVERY INTERVAL 1 MINUTE;
CREATE STREAM plain AS SELECT k, sum(v) AS total FROM t WHERE {LONG} GROUP BY k EMIT ON UPDATE;
CREATE SINK a FROM visits USING console;
CREATE SINK b FROM totals USING console;
CREATE SINK c FROM plain USING console;
"""
    found = explain_types(parse_pipeline(text, file="p.sql"), name="p", file="p.sql", spark=spark)
    beside = {name: found[name]["beside"] for name in found}
    assert beside["plain"] == {}
    assert {name: {*sizes} for name, sizes in beside.items() if sizes} == {
        "visits": {"visits timers"},
        "totals": {"totals pending"},
    }
    assert all(20 < size < 100 for sizes in beside.values() for size in sizes.values())
    streams = [{"name": name, **said} for name, said in found.items()]
    said = "\n".join(_types({"streams": streams}))
    size = beside["visits"]["visits timers"]
    assert f"  beside     visits timers: about {size:,.0f} MB for a million" in said

"""`lamina check` with Spark: what docs/cli.md shows of it is what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lamina
from lamina.cli.pipeline.check import _types

ROOT = Path(__file__).parents[2]


def test_state_and_size_are_as_the_page_shows_them(spark: Any) -> None:
    plan = lamina.check(ROOT / "examples" / "trades" / "pipeline.sql", spark=spark)
    page = (ROOT / "docs" / "cli.md").read_text()
    assert "\n".join(_types(plan)) in page

"""The pipeline of examples/iceberg, run on Spark: killed in the middle, and read with pyiceberg."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lamina.engine.plans import EngineSettings
from lamina.engine.ports import Limits
from lamina.testing.faulty import Killed
from tests.spark.projects import Project

EXAMPLE = Path(__file__).parents[2] / "examples" / "iceberg" / "pipeline.sql"


def test_the_tables_are_what_spark_makes_of_all_trades(spark: Any, tmp_path: Path) -> None:
    engine = EngineSettings(partitions=2, limits=Limits(rows=7_000), checkpoint_epochs=0)
    project = Project(tmp_path, spark, EXAMPLE.read_text(), engine)

    def kill(place: str) -> None:
        if place == "after COMMIT":
            raise Killed(place)

    with pytest.raises(Killed):
        project.run(kill)  # it is decided, and no table has it
    project.run()
    folder = tmp_path / "warehouse"
    catalog = SqlCatalog(
        "default", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
    )
    with catalog:
        vwap = catalog.load_table("market.vwap").scan().to_arrow()
        totals = catalog.load_table("market.totals").scan().to_arrow()
    assert totals.num_rows == 10
    assert sum(totals["trades"].to_pylist()) == 20_000
    windows = [(row["symbol"], row["minute"]) for row in vwap.to_pylist()]
    assert len(set(windows)) == len(windows) > 100
    assert {row["symbol"] for row in vwap.to_pylist()} == set(totals["symbol"].to_pylist())

"""`lamina rewind` on a pipeline that was run without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lamina.cli.support.exits import Exit
from lamina.connectors.parquet import ParquetSink
from lamina.engine.ports import Sink
from lamina.pipeline.digests import record_of_text
from lamina.pipeline.statements import parse_pipeline
from lamina.store import LocalStore
from tests.engine.pipelines import LIMITS, ORDERS, PLAN, SINKS, TRADES, Epochs, World, expected
from tests.support.command_line import answer, lamina

assert LIMITS.rows is not None
DATA = {"trades": TRADES[:75], "orders": ORDERS[:60]}
EXPECTED = expected(DATA, LIMITS.rows)
SQL = """
CREATE SOURCE trades (key STRING, amount BIGINT, ts TIMESTAMP) USING json
  OPTIONS (path 'in/trades') WATERMARK ts DELAY OF INTERVAL 20 SECONDS;
CREATE SOURCE orders (key STRING, amount BIGINT, ts TIMESTAMP) USING json
  OPTIONS (path 'in/orders') WATERMARK ts DELAY OF INTERVAL 20 SECONDS;
CREATE STREAM vwap AS SELECT key, amount FROM trades;
CREATE STREAM totals AS SELECT key, amount FROM orders;
CREATE STREAM busiest AS SELECT key, amount FROM trades WHERE amount > 50;
CREATE SINK vwap_out FROM vwap USING parquet OPTIONS (path 'out/vwap_out');
CREATE SINK totals_out FROM totals USING parquet OPTIONS (path 'out/totals_out');
CREATE SINK busiest_out FROM busiest USING parquet OPTIONS (path 'out/busiest_out');
"""


class ShopWorld(World):
    """The streams of tests/engine, with Parquet sinks beside a pipeline file."""

    def sinks(self) -> dict[str, Sink]:
        return {name: ParquetSink(name, self.root / "out" / name) for name in self.plan.sinks}

    def got(self, sink: str) -> Epochs:
        found = []
        for folder in sorted((self.root / "out" / sink).glob("epoch-*")):
            tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
            found.append(sorted(tuple(r.values()) for t in tables for r in t.to_pylist()))
        return found

    def outcome(self) -> dict[str, Epochs]:
        return {sink.removesuffix("_out"): self.got(sink) for sink in self.plan.sinks}


def hash_of_text() -> str:
    """As if it had been compiled: no start of Spark is needed to see that nothing has changed."""
    return record_of_text(parse_pipeline(SQL, {}), "p").hash


@pytest.fixture
def world(tmp_path: Path) -> ShopWorld:
    (tmp_path / "p.sql").write_text(SQL)
    sinks = {f"{name}_out": stream for name, stream in SINKS.items()}
    made = ShopWorld(
        tmp_path,
        store=LocalStore(tmp_path / ".lamina" / "p" / "store"),
        data=DATA,
        plan=replace(PLAN, sinks=sinks, pipeline_hash=hash_of_text()),
        home_name=".lamina/p/home",
        is_remote=False,
    )
    made.settings = replace(made.settings, retain=5)
    made.finish()
    assert made.outcome() == EXPECTED
    return made


def rewind(world: World, *arguments: str) -> Any:
    return lamina("rewind", str(world.root / "p.sql"), *arguments)


def test_dry_run_then_yes_and_run_again(world: ShopWorld) -> None:
    plan = answer(rewind(world, "--to", "3", "--dry-run", "--json"))
    assert plan["to"]["epoch"] == plan["to"]["checkpoint_epoch"] == 3
    assert plan["rewound"] is None
    assert [sink["choices"] for sink in plan["sinks"]] == [["truncate", "keep"]] * 3
    assert world.outcome() == EXPECTED
    done = rewind(world, "--to", "3", "--sinks", "truncate", "--yes")
    assert done.exit_code == Exit.OK, done.output
    assert f"rewound: epoch {plan['epoch'] + 1} continues epoch 3" in done.stdout
    assert "vwap_out is as it was at epoch 3" in done.stdout
    assert [len(each) for each in world.outcome().values()] == [
        len([e for e in world.got(sink) if e]) for sink in world.plan.sinks
    ]
    assert world.outcome() != EXPECTED
    world.finish()
    assert world.outcome() == EXPECTED


def test_a_dry_run_and_a_refusal_leave_every_file_as_it_was(world: ShopWorld) -> None:
    def files() -> dict[str, bytes]:
        found = (path for path in sorted(world.root.rglob("*")) if path.is_file())
        return {str(path): path.read_bytes() for path in found}

    before = files()
    assert rewind(world, "--to", "3", "--dry-run", "--sinks", "truncate").exit_code == Exit.OK
    assert rewind(world, "--to", "3", "--yes").exit_code == Exit.CONFLICT
    assert rewind(world, "--to", "99", "--yes").exit_code == Exit.NOT_FOUND
    assert files() == before


def test_what_it_says_of_each_sink_is_what_is_there(world: ShopWorld) -> None:
    plan = answer(rewind(world, "--to", "4", "--dry-run", "--json"))
    for sink in plan["sinks"]:
        folders = sorted((world.root / "out" / sink["name"]).glob("epoch-*"))
        later = [each for each in folders if int(each.name.split("-")[1]) > 4]
        files = [path for each in later for path in each.glob("*.parquet")]
        assert sink["epochs"] == len(later)
        assert sink["rows"] == sum(pq.read_metadata(path).num_rows for path in files)
        assert sink["bytes"] == sum(path.stat().st_size for path in files)


def test_without_a_choice_it_is_refused_with_the_choices(world: ShopWorld) -> None:
    refused = rewind(world, "--to", "3", "--yes")
    assert refused.exit_code == Exit.CONFLICT
    assert "totals_out: truncate or keep" in refused.stderr
    mixed = rewind(world, "--to", "3", "--yes", "--sink", "totals_out=keep", "--sinks", "truncate")
    assert mixed.exit_code == Exit.OK
    assert "totals_out keeps what it has since then; the same rows come again" in mixed.stdout


def test_nobody_at_the_terminal_is_not_asked(world: ShopWorld) -> None:
    refused = rewind(world, "--to", "3", "--sinks", "keep")
    assert refused.exit_code == Exit.USAGE
    assert "give --yes" in refused.output


@pytest.mark.parametrize("given", ["totals_out", "=keep", "totals_out=restate", "totals_out="])
def test_a_choice_that_is_none_is_a_usage_error(given: str, world: ShopWorld) -> None:
    done = rewind(world, "--to", "3", "--yes", "--sink", given)
    assert done.exit_code == Exit.USAGE
    assert "NAME=keep or NAME=truncate" in done.output


def test_a_running_pipeline_is_refused_with_advice(world: ShopWorld) -> None:
    engine = world.open()
    try:
        refused = rewind(world, "--to", "3", "--sinks", "keep", "--yes")
    finally:
        engine.close()
    assert refused.exit_code == Exit.CONFLICT
    assert "is running" in refused.stderr
    assert "lamina stop" in refused.stderr


def test_a_stream_that_is_not_there_cannot_be_confirmed(world: ShopWorld) -> None:
    done = rewind(world, "--to", "3", "--dry-run", "--reuse-state", "other")
    assert done.exit_code == Exit.USAGE
    assert "no stream of this name" in done.output


def test_a_pipeline_that_never_ran_is_not_begun(tmp_path: Path) -> None:
    (tmp_path / "p.sql").write_text(SQL)
    done = lamina("rewind", str(tmp_path / "p.sql"), "--to", "3", "--yes")
    assert done.exit_code == Exit.NOT_FOUND
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.sql"]


def test_the_file_of_another_pipeline_is_refused(world: ShopWorld) -> None:
    other = world.root / "q.sql"
    other.write_text(SQL.replace("_out", "_to").replace("trades", "t").replace("orders", "o"))
    done = lamina(
        *("rewind", str(other), "--to", "3", "--sinks", "keep", "--yes"),
        *("--home", str(world.home), "--store", str(world.root / ".lamina" / "p" / "store")),
    )
    assert done.exit_code == Exit.CONFLICT
    assert "nothing in common" in done.stderr

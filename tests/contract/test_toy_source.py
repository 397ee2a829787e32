"""A connector of another package: found by its entry point, checked, and run in a pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.connectors.opening import open_source
from lamina.connectors.registry import sink_kind, source_kind
from lamina.engine.model import SourceRange
from lamina.engine.ports import Source
from lamina.errors import UsageError
from lamina.pipeline.model import Column, Option
from lamina.pipeline.model import DeclaredSource as Definition
from tests.contract.toy_source import TOY, ToySource, install
from tests.engine.pipelines import ORDERS, TRADES, Row, World, kill, run_out, table_of
from tests.support.command_line import answer, lamina

SQL = """CREATE SOURCE s (line STRING) USING toy OPTIONS (path 'in'{options});
CREATE STREAM n AS SELECT line FROM s;
CREATE SINK o FROM n USING parquet OPTIONS (path '{out}');
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "packages"
    folder.mkdir()
    install(folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder


@dataclass
class ToyWorld(World):
    """Both sources are toys: their rows are lines."""

    opened: dict[str, ToySource] = field(default_factory=dict)

    def sources(self) -> dict[str, Source]:
        for name in self.data:
            options = {"path": Option.plain("."), "file": Option.plain(f"{name}.txt")}
            definition = Definition(name, (Column("line", "STRING"),), "toy", options)
            source = open_source(definition, self.root)
            assert isinstance(source, ToySource)
            self.opened[name] = source
        return dict(self.opened)

    def read(self, wanted: SourceRange) -> pa.Table:
        lines = self.opened[wanted.source].read(wanted).column("line").to_pylist()
        return table_of(_row(line) for line in lines)


def _row(line: str) -> Row:
    key, amount, ts = line.split(" ")
    return key, int(amount), int(ts)


@pytest.mark.usefixtures("packages")
def test_a_pipeline_of_toys_has_the_results_of_any_other(tmp_path: Path) -> None:
    plain = World(tmp_path / "plain")
    plain.finish()
    world = ToyWorld(tmp_path / "toys")
    world.root.mkdir()
    for name, rows in (("trades", TRADES), ("orders", ORDERS)):
        text = "".join(f"{key} {amount} {ts}\n" for key, amount, ts in rows)
        (world.root / f"{name}.txt").write_text(text)
    for _ in range(3):
        engine = world.open()
        run_out(engine, epochs=2)
        kill(engine)
    world.finish()
    assert world.outcome() == plain.outcome()


@pytest.mark.usefixtures("packages")
def test_check_knows_it_by_its_declaration(tmp_path: Path) -> None:
    file = tmp_path / "p.sql"
    file.write_text(SQL.format(options="", out="out"))
    (source,) = answer(lamina("check", file, "--no-spark", "--json"))["sources"]
    assert (source["format"], source["missing"]) == ("toy", True)
    file.write_text(SQL.format(options=", fil 'x'", out="out"))
    assert "Known options: path, file" in lamina("check", file, "--no-spark").stderr
    file.write_text(SQL.format(options="", out="in/out"))
    assert "the folder that the source 's' reads" in lamina("check", file, "--no-spark").stderr


def test_without_its_package_it_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "p.sql").write_text(SQL.format(options="", out="out"))
    result = lamina("check", tmp_path / "p.sql", "--no-spark")
    assert "has the format 'toy', which is not known" in result.stderr
    assert "json, csv, parquet, kafka, postgres_cdc, mysql_cdc, trades, nexmark" in result.stderr


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("other", "tests.contract.toy_source:TOY", "two connectors are called 'toy'"),
        ("other", "tests.contract.toy_source:BYTE", "a SourceKind, a SinkKind or a TableKind"),
        ("other", "tests.contract.toy_source:GONE", "cannot be loaded"),
        ("other", "no_such_module:X", "cannot be loaded"),
    ],
)
def test_a_package_whose_connector_does_not_work_is_named(
    name: str, value: str, said: str, packages: Path
) -> None:
    install(packages, name=name, value=value)
    with pytest.raises(UsageError, match=said) as raised:
        source_kind("toy")
    assert value in raised.value.where
    assert "lamina-" in raised.value.where


@pytest.mark.usefixtures("packages")
def test_kinds_are_found_by_name_and_side() -> None:
    assert source_kind("toy") is TOY
    assert sink_kind("toy") is None
    assert source_kind("parquet") is not sink_kind("parquet")

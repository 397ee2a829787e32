"""`lamina.run`, `lamina.check` and `lamina.Pipeline`, as far as they come without Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lamina
from lamina.errors import BadPipeline, NotFound, UsageError
from lamina.front.locate import locate
from lamina.front.run import Launch
from lamina.pipeline.model import Pipeline
from lamina.running.control import Status
from lamina.running.settings import RunSettings

ROOT = Path(__file__).parents[3]
SQL = """CREATE SOURCE s (symbol STRING) USING trades;
CREATE STREAM counts AS SELECT symbol, count(*) AS n FROM s GROUP BY symbol EMIT ON UPDATE;
CREATE SINK out FROM counts USING parquet OPTIONS (path 'out');
"""
ENDED = Status("p", 1, "here", "ended", 0, 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "orders.sql"
    path.write_text(SQL)
    return path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Pipeline, RunSettings, Launch]]:
    """What would be run, in place of running it."""
    got: list[tuple[Pipeline, RunSettings, Launch]] = []

    def fake(pipeline: Pipeline, settings: RunSettings, launch: Launch, **_: object) -> Status:
        got.append((pipeline, settings, launch))
        return ENDED

    monkeypatch.setattr("lamina.front.run._run", fake)
    return got


def made() -> lamina.Pipeline:
    return (
        lamina.Pipeline()
        .source("s", "symbol STRING", "trades")
        .stream(
            "counts",
            "SELECT symbol, count(*) AS n FROM s GROUP BY symbol",
            emit=lamina.Emit.ON_UPDATE,
        )
        .sink("out", "counts", "parquet", {"path": "out"})
    )


def test_a_file_is_run_with_what_it_keeps_beside_it(
    file: Path, started: list[tuple[Pipeline, RunSettings, Launch]]
) -> None:
    assert lamina.run(file, available_now=True) is ENDED
    [(pipeline, settings, launch)] = started
    assert list(pipeline.streams) == ["counts"]
    assert (settings.name, settings.folder) == ("orders", file.parent)
    assert settings.home == file.parent / ".lamina" / "orders" / "home"
    assert settings.until.available_now
    assert settings.engine.partitions == 2
    assert (launch.master, launch.session) == ("local[*]", None)


def test_a_pipeline_of_python_has_a_name_and_a_folder(
    tmp_path: Path, started: list[tuple[Pipeline, RunSettings, Launch]]
) -> None:
    lamina.run(made(), name="orders", folder=tmp_path)
    [(pipeline, settings, _)] = started
    assert list(pipeline.sinks) == ["out"]
    assert (settings.name, settings.folder) == ("orders", tmp_path)
    assert settings.home == tmp_path / ".lamina" / "orders" / "home"


def test_what_is_wrong_is_said_before_spark_is_started(file: Path) -> None:
    with pytest.raises(NotFound):
        lamina.run(file.with_name("no.sql"))
    with pytest.raises(UsageError, match="no option 'partition'"):
        lamina.run(file, partition=3)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="power of two"):
        lamina.run(file, partitions=3)
    with pytest.raises(UsageError, match="power of two"):
        lamina.run(file, partitions=0)
    with pytest.raises(UsageError, match="max_rows"):
        lamina.run(file, max_rows=0)
    with pytest.raises(UsageError, match="negative"):
        lamina.run(file, interval_s=-1)
    with pytest.raises(UsageError, match="no stream"):
        lamina.run(file, reuse_state=["count"])
    with pytest.raises(UsageError, match="own name"):
        lamina.run(file, name="orders")
    with pytest.raises(UsageError, match=r"spark\.master"):
        lamina.run(file, conf={"spark.master": "local[1]"})
    with pytest.raises(UsageError, match="already"):
        lamina.run(file, spark=object(), master="local[1]")  # type: ignore[arg-type]
    assert not (file.parent / ".lamina").exists()


def test_check_says_what_the_text_says(file: Path, tmp_path: Path) -> None:
    plan = lamina.check(file, with_spark=False)
    assert (plan["pipeline"], plan["checked_with_spark"]) == ("orders", False)
    assert plan["streams"][0]["keys"] == ["symbol"]
    of_python = lamina.check(made(), name="orders", folder=tmp_path, with_spark=False)
    assert of_python["streams"] == plan["streams"]
    file.write_text(SQL.replace("FROM s GROUP", "FROM nothing GROUP"))
    with pytest.raises(BadPipeline):
        lamina.check(file, with_spark=False)


def test_a_pipeline_that_is_built_is_taken_too(tmp_path: Path) -> None:
    place, model = locate(made().build(), folder=tmp_path)
    assert model is not None
    assert place.name == "pipeline"


def test_no_example_reaches_below_the_front_door() -> None:
    public = "(?!spark$|spark import (?:register|sink)$)"  # what needs Spark has a door of its own
    deep = re.compile(rf"^\s*(?:from lamina\.|import lamina\.){public}.*$", re.MULTILINE)
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.py")]
    found = {page.name: deep.findall(page.read_text()) for page in pages}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_every_name_of_the_package_is_known_to_type_checkers_and_at_run_time() -> None:
    """It stands twice in lamina/__init__.py, for each of them."""
    text = (ROOT / "src" / "lamina" / "__init__.py").read_text()
    typed, _, lazy = text.partition("\nelse:\n")
    for name in set(lamina.__all__) - {"__version__"}:
        assert re.search(rf"\b{name}\b", typed), name
        assert re.search(rf"[\" ]{name}[\"= ]", lazy), name
        assert getattr(lamina, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lamina.nothing  # type: ignore[attr-defined]  # noqa: B018

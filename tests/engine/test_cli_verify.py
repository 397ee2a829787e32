"""`lamina verify` of a pipeline: its file says where everything is."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from lamina.store import Store, open_store
from tests.engine.pipelines import kill, run_out
from tests.engine.test_parquet_sink import ParquetWorld
from tests.support.command_line import answer, lamina

SQL = """
CREATE SOURCE trades (key STRING, amount BIGINT, ts TIMESTAMP) USING json OPTIONS (path 'in');
CREATE STREAM totals AS SELECT key, sum(amount) AS total FROM trades GROUP BY key;
CREATE SINK vwap FROM totals USING parquet OPTIONS (path 'out/vwap');
CREATE SINK totals_out FROM totals USING parquet OPTIONS (path 'out/totals');
CREATE SINK busiest FROM totals USING parquet OPTIONS (path 'out/busiest');
"""
SINKS = {"vwap": "vwap", "totals_out": "totals", "busiest": "busiest"}


@dataclass
class Project(ParquetWorld):
    """A folder as `lamina run p.sql` leaves it."""

    home_name: str = ".lamina/p/home"
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = open_store(str(self.root / ".lamina/p/store"))
        self.plan = replace(self.plan, sinks=SINKS)
        (self.root / "p.sql").write_text(SQL)

    def folder(self, sink: str) -> Path:
        return self.root / "out" / sink.removesuffix("_out")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    engine = made.open()
    run_out(engine, epochs=4)
    kill(engine)
    return made


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def test_a_whole_pipeline_is_verified_with_its_store(project: Project) -> None:
    result = lamina("verify", project.root / "p.sql", "--json")
    assert result.exit_code == 0
    found = answer(result)
    assert (found["ok"], found["home"]["start_epoch"]) == (True, 4)
    assert found["home"]["folder"] == str(project.home)
    assert [each["epoch"] for each in found["checkpoints"]] == [3]
    assert found["home"]["problems"] == []


def test_what_it_says_to_a_person_names_file_and_remedy(project: Project) -> None:
    [segment, *_] = sorted((project.home / "core-0").glob("*.wal"))
    flip(segment)
    result = lamina("verify", project.root / "p.sql")
    assert result.exit_code == 4
    assert f"core-0/{segment.name}" in result.output
    assert "What to do: Restore the file" in result.output
    assert "home DAMAGED, 1 error" in result.output


def test_damage_of_the_store_is_damage_of_the_pipeline(project: Project) -> None:
    [entry, *_] = sorted((project.root / ".lamina/p/store/log").iterdir())
    flip(entry)
    assert lamina("verify", project.root / "p.sql").exit_code == 4


def test_a_run_file_that_is_damaged_is_a_warning(project: Project) -> None:
    [run, *_] = sorted((project.home / "state").rglob("*.run"))
    flip(run)
    result = lamina("verify", project.root / "p.sql")
    assert result.exit_code == 1
    assert "start it again" in result.output


def test_home_and_store_can_be_named_without_the_file(project: Project) -> None:
    where = ("--home", project.home, "--store", project.root / ".lamina/p/store")
    assert lamina("verify", *where).exit_code == 0
    assert lamina("verify", *where[:2]).exit_code == 0
    found = answer(lamina("verify", *where[:2], "--json"))
    assert (found["store"], found["home"]["start_epoch"]) == (None, None)


def test_checkpoints_that_are_named_are_all_that_is_looked_at(project: Project) -> None:
    flip(project.home / "home.json")
    where = ("--home", project.home, "--store", project.root / ".lamina/p/store")
    assert lamina("verify", "latest", *where).exit_code == 0
    assert lamina("verify", *where).exit_code == 4


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("p.sql", "latest"), 2),
        (("no-such.sql",), 3),
        (("--home", "nowhere"), 3),
        (("latest", "--home", "nowhere"), 2),
    ],
)
def test_what_is_not_there_or_makes_no_sense_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int
) -> None:
    monkeypatch.chdir(project.root)
    assert lamina("verify", *arguments).exit_code == code


def test_a_pipeline_that_has_never_run_is_not_found(project: Project) -> None:
    shutil.rmtree(project.home)
    result = lamina("verify", project.root / "p.sql")
    assert result.exit_code == 3
    assert "Has it ever run?" in result.output

"""`lamina state` and `diff` of a pipeline by its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.pipelines import kill, run_out
from tests.engine.test_cli_verify import Project
from tests.support.command_line import answer, lamina


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Killed after epoch 5; its newest checkpoint is of epoch 3."""
    made = Project(tmp_path)
    engine = made.open()
    run_out(engine, epochs=5)
    kill(engine)
    return made


def test_a_pipeline_file_stands_for_its_store_and_its_home(project: Project) -> None:
    file = project.root / "p.sql"
    newest = answer(lamina("state", file, "totals", "--json"))
    head = answer(lamina("state", file, "TOTALS", "--at", "head", "--json"))
    assert (newest["at"]["epoch"], head["at"]["epoch"]) == (3, 5)
    rows = {row["key"]: row["rows"] for row in head["rows"]}
    few = answer(lamina("state", file, "totals", "--at", "5", "--where", "rows < 12", "--json"))
    assert 0 < len(few["rows"]) < len(rows)
    assert few["rows"] == [row for row in head["rows"] if row["rows"] < 12]
    assert [row["name"] for row in answer(lamina("state", file, "--json"))["operators"]] == [
        "busiest",
        "totals",
        "vwap",
    ]
    assert lamina("diff", file, "3", "head", "totals").exit_code == 1


def test_without_its_home_a_pipeline_has_its_checkpoints(project: Project, tmp_path: Path) -> None:
    project.home.rename(tmp_path / "elsewhere")
    file = project.root / "p.sql"
    assert answer(lamina("state", file, "totals", "--json"))["at"]["epoch"] == 3
    assert lamina("state", file, "totals", "--at", "head").exit_code == 3
    found = lamina("state", file, "totals", "--at", "head", "--home", tmp_path / "elsewhere")
    assert found.exit_code == 0

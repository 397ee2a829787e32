"""`lamina init`: an example that is what the repository shows, and that passes its own checks."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import answer, lamina, tree

EXAMPLE = Path(__file__).parents[3] / "examples" / "trades" / "pipeline.sql"


def test_the_project_is_the_example_of_the_repository_and_passes_check(tmp_path: Path) -> None:
    made = answer(lamina("init", tmp_path / "new", "--json"))
    assert sorted(made["files"]) == [".gitignore", "README.md", "pipeline.sql"]
    file = tmp_path / "new" / "pipeline.sql"
    assert file.read_text() == EXAMPLE.read_text()
    assert lamina("check", file, "--no-spark").exit_code == 0


def test_an_empty_folder_will_do_and_a_used_one_will_not(tmp_path: Path) -> None:
    assert lamina("init", tmp_path).exit_code == 0
    (tmp_path / "pipeline.sql").unlink()
    before = tree(tmp_path)
    result = lamina("init", tmp_path)
    assert result.exit_code == 5
    assert "Choose a new folder" in result.stderr
    assert tree(tmp_path) == before


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert lamina("init", tmp_path / "file" / "x").exit_code == 3
    assert lamina("init", " ").exit_code == 2

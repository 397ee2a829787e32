"""The README is short and true; the examples and commands of docs/library.md are run."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from click.testing import CliRunner

from lamina.cli.main import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
LIBRARY = (ROOT / "docs" / "library.md").read_text()
PICTURES = ROOT / "docs" / "pictures"
LINES_MAX = 120


def test_the_readme_is_a_landing_page() -> None:
    assert README.count("\n") <= LINES_MAX
    assert README.index("pip install") < README.index("CREATE SOURCE") < README.index("## ")


def test_the_pipeline_of_the_readme_passes_check_and_its_commands_exist(tmp_path: Path) -> None:
    (sql,) = re.findall(r"```sql\n(.*?)```", README, re.DOTALL)
    file = tmp_path / "pipeline.sql"
    file.write_text(sql)
    checked = CliRunner().invoke(cli, ["check", str(file), "--no-spark"])
    assert checked.exit_code == 0, checked.output
    for command in re.findall(r"^lamina (\w+)", README, re.MULTILINE):
        assert CliRunner().invoke(cli, [command, "--help"]).exit_code == 0, command


GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_pipelines_of_the_guide_pass_check_and_commands_and_links_exist(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "secret")
    text = page.read_text()
    for sql in re.findall(r"```sql\n(?:-- Lamina\n)?(CREATE SOURCE.*?)```", text, re.DOTALL):
        if "CREATE SINK" in sql:
            file = tmp_path / "pipeline.sql"
            file.write_text(sql)
            checked = CliRunner().invoke(cli, ["check", str(file), "--no-spark"])
            assert checked.exit_code == 0, checked.output
    for command in re.findall(r"(?:^|`)lamina (\w+)", text, re.MULTILINE):
        assert CliRunner().invoke(cli, [command, "--help"]).exit_code == 0, command
    for link in re.findall(r"\]\(([^)#:]+)", text):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("name", ["epoch", "ratios", "milliseconds"])
def test_pictures_are_what_their_scripts_draw(name: str) -> None:
    picture = PICTURES / f"{name}.svg"
    before = picture.read_bytes()
    try:
        runpy.run_path(str(PICTURES / f"{name}.py"), run_name="__main__")
        assert picture.read_bytes() == before, "run `make pictures`"
    finally:
        picture.write_bytes(before)


def test_the_examples_of_the_library_run_one_after_the_other_and_so_do_its_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"```python\n(.*?)```", LIBRARY, re.DOTALL):
        exec(compile(code, "library.md", "exec"), {})  # the reader would do the same
    commands = re.findall(r"^lamina (.+)$", LIBRARY, re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        result = CliRunner().invoke(cli, command.split())
        differ = command.startswith("diff ")  # its states do, and then it ends with 1 like diff(1)
        assert result.exit_code == int(differ), (command, result.output)
        assert "no checkpoints" not in result.output
        assert "no segments" not in result.output


def test_the_two_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_links_and_test_paths_in_the_documents_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
    promises = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    for path in re.findall(r"pytest (tests/[\w/.]+)", promises):
        assert (ROOT / path).exists(), path

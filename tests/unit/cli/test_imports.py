"""What commands import, and what they do not: a start should not wait for what it does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from lamina.cli.commands import SECTIONS, WAL, LazyGroup
from lamina.cli.main import cli
from tests.support.command_line import make_pipeline
from tests.support.homes import make_home

HEAVY = ("numpy", "obstore", "pyarrow", "pyspark", "rich", "sqlglot")
RUN = """
import sys
from lamina.cli.main import cli
try:
    cli.main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
print(code, *sorted({heavy} & set(sys.modules)), file=sys.stderr)
"""
SQL = """CREATE SOURCE s ({column}) USING {source};
CREATE STREAM counts AS SELECT {name}, count(*) AS n FROM s GROUP BY {name} EMIT ON UPDATE;
CREATE SINK out FROM counts USING {sink};
"""


def imported(*arguments: str | Path) -> list[str]:
    """The slow packages that a command has imported when it ends."""
    code = RUN.format(heavy=set(HEAVY))
    command = [sys.executable, "-c", code, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    exit_code, *found = ran.stderr.splitlines()[-1].split()
    assert exit_code == "0", ran.stderr
    return found


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["wal", "--help"]])
def test_help_imports_nothing_slow(arguments: list[str]) -> None:
    assert imported(*arguments) == []


def test_commands_about_checkpoints_import_nothing_slow(tmp_path: Path) -> None:
    store = make_pipeline(tmp_path / "pipeline").root
    for command in (
        ["list"],
        ["show"],
        ["log"],
        ["savepoint", "list"],
        ["gc", "--retain", "1", "--dry-run"],
    ):
        assert imported(*command, "--store", store) == [], command


def test_commands_about_a_home_import_nothing_slow(tmp_path: Path) -> None:
    """Decisions are JSON; only rows are Arrow."""
    made = make_home(tmp_path)
    for command in (
        ["wal", "list", "--home", made.home],
        ["status", "--home", made.home, "--store", made.store],
        ["recover", "--dry-run", "--home", made.home, "--store", made.store],
        ["history", "orders.sql", "--home", made.home],
        ["top", "orders.sql", "--home", made.home],
    ):
        assert imported(*command) == [], command


def test_commands_that_show_rows_import_arrow(tmp_path: Path) -> None:
    made = make_home(tmp_path)
    assert "pyarrow" in imported("wal", "dump", "--home", made.home)


@pytest.mark.parametrize(
    ("source", "column"),
    [
        ("trades", "symbol STRING"),
        ("nexmark OPTIONS (kind 'bid')", "price BIGINT"),
        ("json OPTIONS (path 'in')", "a BIGINT"),
    ],
)
@pytest.mark.parametrize("sink", ["parquet OPTIONS (path 'out')", "console"])
def test_a_check_of_the_text_imports_only_what_reads_sql(
    source: str, column: str, sink: str, tmp_path: Path
) -> None:
    sql = SQL.format(source=source, column=column, name=column.split(maxsplit=1)[0], sink=sink)
    (tmp_path / "p.sql").write_text(sql)
    assert imported("check", tmp_path / "p.sql", "--no-spark") == ["sqlglot"]


def test_what_stands_in_the_help_is_what_each_command_says() -> None:
    context = click.Context(cli)
    wal = cli.get_command(context, "wal")
    assert isinstance(wal, LazyGroup)
    groups = [(cli, section) for section in SECTIONS.values()] + [(wal, WAL)]
    for group, section in groups:
        for name, entry in section.items():
            command = group.get_command(context, name)
            assert command is not None
            assert command.name == name
            said = command.get_short_help_str(200)
            assert said.startswith(entry.summary.removesuffix(".")), (name, said)


def test_the_package_imports_nothing_slow_and_knows_its_names() -> None:
    code = f"import sys, lamina; print(*sorted({set(HEAVY)} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []

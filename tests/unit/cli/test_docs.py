"""docs/cli.md names every command and option, and its examples print what it says.

LAMINA_UPDATE_DOCS=1 writes what the examples print now into the page; read the difference.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from lamina.cli.main import cli
from lamina.cli.support.exits import MEANINGS
from tests.support.command_line import Pipeline, answer, lamina, make_pipeline
from tests.support.histories import write as write_history
from tests.support.homes import HomeAndStore, flip, make_home, tear
from tests.support.shop import Shop, make_shop
from tests.support.spark_checkpoints import remove, unpack

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"
GOLDEN = Path(__file__).parents[2] / "golden"
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)


def commands(group: click.Group = cli, path: str = "lamina") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


@pytest.mark.parametrize(
    ("path", "command"), list(commands()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_every_command_and_option_is_in_the_page(path: str, command: click.Command) -> None:
    page = PAGE.read_text()
    heading = " ".join(path.split()[:2])
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    everywhere = page.partition("## For all commands")[2].partition("\n## ")[0]
    assert path in section
    for option in (o for o in command.params if isinstance(o, click.Option)):
        for name in option.opts:
            assert re.search(rf"`{name}[ `]", section + everywhere), f"{path} {name}"


def test_every_exit_code_is_in_the_page() -> None:
    for code, meaning in MEANINGS.items():
        assert f"| {int(code)} | {meaning}" in PAGE.read_text()


def test_the_examples_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAGE.read_text()
    make_pipeline(tmp_path / "pipeline")
    write_history(make_homes(tmp_path).home, range(7, 10))
    make_shop(tmp_path / "shop")
    shutil.copy(GOLDEN / "v1" / "full-0.20.json", tmp_path / "laminardb-v1.json")
    shutil.copytree(GOLDEN / "v1" / "release-0.18", tmp_path / "laminardb")
    unpack("hdfs", tmp_path / "spark-checkpoint")
    remove("state/0/1/10.delta", "commits/3")(unpack("hdfs", tmp_path / "damaged-checkpoint"))
    monkeypatch.chdir(tmp_path)
    session = Session(tmp_path)
    now = BLOCK.sub(lambda block: session.run(block[0]), page)
    if os.environ.get("LAMINA_UPDATE_DOCS"):
        PAGE.write_text(now)
    assert session.comparable(now) == session.comparable(page)


def make_homes(folder: Path) -> HomeAndStore:
    """`home`, as a crash has left it, and `damaged-home`, as a bad disk has."""
    made = make_home(folder)
    tear(made.core(0))
    shutil.copytree(made.home, folder / "damaged-home")
    damaged = HomeAndStore(folder / "damaged-home", made.store, made.ids)
    flip(damaged.core(0), 64 + 100)
    flip(damaged.driver, 1024 + 9)
    return made


class Session:
    """A shell that knows `lamina` and `echo $?`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._status = 0

    def run(self, block: str) -> str:
        lines = [line for line in block.splitlines() if line.startswith("$ ")]
        return "".join(f"{line}\n{self._output(line[2:])}" for line in lines)

    def comparable(self, page: str) -> list[str]:
        """What doctor says is true of this computer only; its first column is for all."""
        before, _, rest = page.partition("$ lamina doctor")
        table, _, after = rest.partition("```")
        return [*before.splitlines(), *(line.split()[0] for line in table.splitlines()), after]

    def _output(self, line: str) -> str:
        if line == "echo $?":
            return f"{self._status}\n"
        program, *arguments = shlex.split(line)
        assert program == "lamina"
        result = lamina(*arguments)
        self._status = result.exit_code
        text = result.output.replace(str(self._folder), "/data")
        text = text.replace(sys.executable, ".venv/bin/python").replace(
            platform.platform(), "Linux"
        )
        return text if text.endswith("\n") else text + "\n"


OPAQUE = {
    *("phases_us", "streams_us", "rows", "rows_out", "watermarks", "sinks", "sink_errors"),  # names
    *("manifest", "body", "payload"),  # FORMAT.md has them
    *("extras", "source_offsets", "table_offsets", "source_watermarks"),  # names of other things
}


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            if key not in OPAQUE:
                yield from keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item)


def home_documents(made: HomeAndStore) -> Iterator[tuple[str, Any]]:
    segment = made.name(made.core(0))
    for line in (
        "wal list",
        "wal dump",
        f"wal dump {segment} --values --limit 3",
        "wal verify",
        "verify",
        f"verify --store {made.store}",
        f"wal repair {segment} --yes",
        f"recover --store {made.store} --dry-run",
        "history x.sql",
        f"recover --store {made.store} --dry-run --lose-after 3",
    ):
        yield line, answer(lamina(*line.split(), "--home", made.home, "--json"))


def state_documents(shop: Shop) -> Iterator[tuple[str, Any]]:
    for line in (
        "state",
        "state --count",
        "state totals --count",
        "state totals --limit 0",
        "diff monday head totals --limit 0",
    ):
        command, *rest = line.split()
        yield line, answer(lamina(command, shop.folder, *rest, "--json"))


def documents(pipeline: Pipeline, target: Path) -> Iterator[tuple[str, Any]]:
    asked = [
        "list",
        "show",
        f"show {pipeline.ids[1]}",
        "show no-such-savepoint",
        "log",
        "verify",
        "savepoint create x",
        "savepoint list",
        "savepoint drop x",
        f"delete {pipeline.ids[1]} --dry-run",
        "gc --retain 1 --yes",
        f"copy latest --to {target}",
        f"export latest {target}.tar",
        f"doctor --store {target}/nothing",
    ]
    for line in asked:
        words = line.split()
        yield line, answer(lamina(*words, "--store", pipeline.root, "--json"))
    for name, source in (("laminar", GOLDEN / "v1" / "release-0.18"), ("tar", f"{target}.tar")):
        line = f"import {source}"
        yield line, answer(lamina(*line.split(), "--store", f"{target}-{name}", "--json"))


def test_every_field_of_every_answer_is_in_the_page(tmp_path: Path) -> None:
    section = PAGE.read_text().partition("\n## JSON\n")[2]
    pipeline = make_pipeline(tmp_path / "pipeline")
    documented = set(re.findall(r"`(\w+)`", section))
    flip((made := make_homes(tmp_path)).artifact(1), 20)
    write_history(made.home, range(7, 10))
    found = [
        *documents(pipeline, tmp_path / "target"),
        *home_documents(made),
        *state_documents(make_shop(tmp_path / "shop")),
    ]
    for line, document in found:
        row = section.partition(f"| `{' '.join(line.split()[:2])}` |")[2]
        row = row or section.partition(f"| `{line.split()[0]}` |")[2]
        fields = set(re.findall(r"`(\w+)`", row.partition("\n")[0]))
        if "error" not in document and "FOLDER" not in row.partition("\n")[0]:
            assert document.keys() <= fields, line
        assert set(keys(document)) <= documented, line

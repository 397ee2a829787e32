"""`lamina history`: from the files of a home, running, dead or damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

import lamina as package
from lamina.errors import NotFound
from lamina.format.home_names import HISTORY
from tests.support.command_line import answer, lamina, tree
from tests.support.histories import row, write
from tests.support.homes import make_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = make_home(tmp_path)
    write(made.home, range(1, 61))
    return made.home


def test_the_newest_come_first_and_pages_go_on(home: Path) -> None:
    before = tree(home)
    said = answer(lamina("history", "orders.sql", "--home", home, "--json"))
    assert [each["epoch"] for each in said["epochs"]] == list(range(60, 10, -1))
    assert (said["older"], said["skipped"]) == (11, [])
    said = answer(lamina("history", "x.sql", "--home", home, "--before", "11", "--json"))
    assert [each["epoch"] for each in said["epochs"]] == list(range(10, 0, -1))
    assert said["older"] is None
    assert tree(home) == before, "nothing was changed"


def test_a_row_says_what_a_person_asks(home: Path) -> None:
    result = lamina("history", "orders.sql", "--home", home, "--limit", "1")
    head, line = result.output.splitlines()
    assert head.split() == [
        *("EPOCH", "ENDED", "ROWS", "OUT", "LATE", "SECONDS"),
        *("PLAN", "RUN", "DECIDE", "COMMIT", "PUBLISH"),
        *("WATERMARK", "CHECKPOINT", "SINKS"),
    ]
    assert line.split() == [
        *("60", "2023-11-14T22:14:20.000Z", "160", "4", "0", "0.250"),
        *("1", "200", "1", "5", "43"),
        *("2023-11-14T22:13:20.000Z", "-", "ok"),
    ]


def test_damage_is_named_and_the_rest_is_shown(home: Path) -> None:
    [lines] = (home / HISTORY).iterdir()
    data = bytearray(lines.read_bytes())
    data[10] ^= 1
    lines.write_bytes(data)
    result = lamina("history", "orders.sql", "--home", home, "--limit", "100")
    assert result.exit_code == 0
    assert (
        f"not read: [LAM-3000] a line of the history is torn or damaged (at {lines}, line 1)"
        in (result.output)
    )
    assert len(result.output.splitlines()) == 1 + 59 + 1


def test_no_home_no_epochs_and_bad_pages(tmp_path: Path) -> None:
    result = lamina("history", tmp_path / "orders.sql")
    assert (result.exit_code, "there is no home here" in result.stderr) == (3, True)
    (tmp_path / "home").mkdir()
    result = lamina("history", "orders.sql", "--home", tmp_path / "home")
    assert (result.exit_code, result.output) == (0, "no epochs\n")
    for bad in (["--limit", "0"], ["--before", "-1"], ["--limit", "x"]):
        assert lamina("history", "orders.sql", "--home", tmp_path, *bad).exit_code == 2


def test_python_has_it_too(home: Path) -> None:
    page = package.history("orders.sql", home=home, limit=3)
    assert page.rows == (row(60), row(59), row(58))
    with pytest.raises(package.LaminaError):
        package.history("orders.sql", home=home, limit=0)
    with pytest.raises(NotFound):
        package.history("orders.sql", home=home / "nowhere")


def test_a_hostile_name_cannot_steer_a_terminal(tmp_path: Path) -> None:
    from dataclasses import replace  # noqa: PLC0415

    from lamina.running.history import HistoryWriter  # noqa: PLC0415
    from lamina.testing import ManualClock  # noqa: PLC0415

    history = HistoryWriter(tmp_path, ManualClock())
    history.add(replace(row(2), sinks={"a\x1b[2J": 1}, sink_errors={"a\x1b[2J": "\x07no"}))
    history.close()
    result = lamina("history", "orders.sql", "--home", tmp_path)
    assert "\x1b" not in result.output
    assert "\\x1b[2J 1 epoch behind" in result.output

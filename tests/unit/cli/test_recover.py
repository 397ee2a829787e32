"""`lamina recover --dry-run` says what a person's flag would give up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import answer, lamina
from tests.support.homes import HomeAndStore, make_home


@pytest.fixture
def made(tmp_path: Path) -> HomeAndStore:
    return make_home(tmp_path / "made")


def at(made: HomeAndStore) -> tuple[object, ...]:
    return "--home", made.home, "--store", made.store


def test_taking_over_a_home_was_said_to_give_up_no_epochs(
    made: HomeAndStore, tmp_path: Path
) -> None:
    asked = ("recover", "--home", tmp_path / "new", "--store", made.store, "--dry-run")
    owner = json.loads((made.home / "home.json").read_bytes())["id"]
    text = lamina(*asked, "--take-over-home").stdout
    assert "0 epochs" not in text
    said = f"given up:   whatever the home {owner} acknowledged after epoch 4 (unknown here)"
    assert said in text
    found = answer(lamina(*asked, "--take-over-home", "--json"))
    assert (found["given_up"], found["given_up_home"]) == ([], owner)


def test_in_its_own_home_nothing_unknown_is_given_up(made: HomeAndStore) -> None:
    assert "given up:   0 epochs" in lamina("recover", *at(made), "--dry-run").stdout
    found = answer(lamina("recover", *at(made), "--dry-run", "--json"))
    assert found["given_up_home"] is None


@pytest.mark.parametrize("index", [0, 1])
def test_a_lost_segment_is_named_with_the_flag_that_goes_on_without_it(
    made: HomeAndStore, index: int
) -> None:
    lost = made.core(index)
    lost.unlink()
    result = lamina("recover", *at(made), "--dry-run")
    assert result.exit_code == 5
    assert f"needed from epoch 5 on: core-{index}/{lost.name}" in result.stderr
    assert "--lose-after 4" in result.stderr
    assert "lose_after=4 in Python" in result.stderr
    assert lamina("recover", *at(made), "--dry-run", "--lose-after", "4").exit_code == 0

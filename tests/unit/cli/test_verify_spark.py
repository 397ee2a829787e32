"""`lamina verify-spark`: its exit codes, and its JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import answer, lamina
from tests.support.spark_checkpoints import CASES, Case, unpack

EXITS = {"nothing": 0, "no commit": 0, "old gap": 1, "torn commit": 4, "no state": 4}


@pytest.mark.parametrize("case", [c for c in CASES if c.name in EXITS], ids=lambda c: c.name)
def test_it_ends_by_what_it_has_found(case: Case, tmp_path: Path) -> None:
    case.damage(unpack("hdfs", tmp_path))
    assert lamina("verify-spark", str(tmp_path)).exit_code == EXITS[case.name]
    said = answer(lamina("verify-spark", str(tmp_path), "--json"))
    assert (said["restart"]["does"], said["restart"]["batch"]) == (case.does, case.batch)
    assert said["ok"] == (EXITS[case.name] != 4)
    assert [each["code"] for each in said["findings"]][:1] == ([case.code] if case.code else [])


def test_a_folder_without_a_checkpoint_is_not_found(tmp_path: Path) -> None:
    assert lamina("verify-spark", str(tmp_path)).exit_code == 3
    nowhere = lamina("verify-spark", str(tmp_path / "nowhere"))
    assert nowhere.exit_code == 3
    assert "checkpointLocation" in nowhere.output

"""`LAMINA_WORKSPACE=remote pytest tests/engine`: the same pipelines, with homes in an object store.

Tests that look into the files of a home on a disk, harm or copy them, are left out then;
test_remote_homes.py has what takes their place. Some modules run over both in every run.
"""

from __future__ import annotations

import pytest

from tests.engine import pipelines
from tests.engine.pipelines import REMOTE

BOTH = ("test_carried", "test_source_outage", "test_two_engines", "test_unclear_saves")
"""Modules that matter most for a home in an object store, and are quick."""

OF_FILES = {
    "test_bounds": ["test_what_no_process_needs_is_gone_after_a_restart_too"],
    "test_checksums": ["test_an_engine_checks_every_range_that_it_replays_once"],
    "test_cli_verify": [],
    "test_damage": [],
    "test_failed_starts": ["test_killed_while_leftovers_go_nothing_that_was_decided_is_lost"],
    "test_identity": [],
    "test_moved_files": [],
    "test_parquet_sink": ["test_killed_while_an_epoch_is_published_it_is_there_once"],
    "test_sinks": ["test_some_rows_of_an_epoch_can_be_shown_and_what_is_gone_shows_none"],
    "test_staging": ["test_output_that_a_sink_has_still_to_get_outlives_the_checkpoint_before_it"],
    "test_syncs": [],
    "test_twins": [],
    "test_verification": [],
    "test_watermarks": ["test_a_partition_in_which_nothing_happens_writes_nothing"],
}
"""By module; none named: all of them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skipped = pytest.mark.skip(reason="it looks into the files of a home on a disk")
    for item in items if REMOTE else ():
        module = item.path.stem
        named = OF_FILES.get(module)
        if named is not None and (not named or item.name.partition("[")[0] in named):
            item.add_marker(skipped)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in BOTH and not REMOTE:
        metafunc.parametrize("workspace", ["local", "remote"], indirect=True)


@pytest.fixture(autouse=True)
def workspace(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the homes of a test are."""
    where: str = getattr(request, "param", "remote" if REMOTE else "local")
    monkeypatch.setattr(pipelines, "REMOTE", where == "remote")
    return where

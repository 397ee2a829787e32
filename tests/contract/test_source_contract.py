"""What every source promises, asked of every kind in the registry; rows are tests/spark's to ask.

A new kind needs a row in `SUBJECTS`: without it the first test fails.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lamina.connectors.opening import check_source
from lamina.connectors.registry import source_kind, source_names
from lamina.errors import BadPipeline, LaminaError
from lamina.pipeline.model import Option
from tests.contract.source_subjects import (
    EVERYTHING,
    SMALL,
    SUBJECTS,
    AnyServer,
    Subject,
    subject,
)
from tests.contract.toy_source import install
from tests.servers.mariadb import MariaServer
from tests.servers.postgres import PostgresServer

KINDS = pytest.mark.parametrize("kind", SUBJECTS)


@pytest.fixture(autouse=True)
def _toy_package(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.mktemp("packages")
    install(folder)
    monkeypatch.syspath_prepend(str(folder))


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> AnyServer:
    """What a subject that is on a server is made with."""
    needed = {
        "kafka": "topics",
        "postgres_cdc": "postgres_server",
        "mysql_cdc": "mariadb_server",
    }
    return request.getfixturevalue(needed[kind]) if kind in needed else None


@pytest.fixture
def made(kind: str, tmp_path: Path, server: AnyServer) -> Iterator[Subject]:
    made = subject(kind, tmp_path, server)
    yield made
    made.drop()


def test_every_kind_of_source_is_asked() -> None:
    assert set(source_names()) == set(SUBJECTS)


@KINDS
def test_a_plan_that_was_not_committed_is_made_again(made: Subject) -> None:
    source = made.open()
    first = made.plan(source, SMALL)
    assert first.start != first.end
    again = made.plan(source, SMALL)
    assert (again.start, again.end, again.data) == (first.start, first.end, first.data)
    other = made.plan(made.open(), SMALL)
    assert (other.start, other.end, other.data) == (first.start, first.end, first.data)


@KINDS
def test_epochs_follow_each_other_until_there_is_nothing_new(made: Subject) -> None:
    source = made.open()
    begin = made.offset
    ranges = made.read_all(source)
    assert len(ranges) > 1, "the limit is small"
    assert [each.start for each in ranges] == [begin, *(each.end for each in ranges[:-1])]
    idle = made.plan(source)
    assert idle.start == idle.end == ranges[-1].end
    assert idle.learned is None
    source.confirm(idle)  # another source of the epoch may have rows


@KINDS
def test_without_limits_everything_is_one_epoch(made: Subject) -> None:
    source = made.open()
    begin = made.offset
    (whole,) = made.read_all(source, EVERYTHING)
    assert whole.start == begin


@KINDS
def test_a_process_goes_on_from_any_committed_offset(
    made: Subject, tmp_path: Path, server: AnyServer
) -> None:
    """A new object after each epoch plans what the old one would have."""
    if isinstance(server, PostgresServer | MariaServer):
        pytest.skip("two tables of one log have no position in common: see test_*_cdc.py")
    (tmp_path / "twin").mkdir()
    twin = subject(made.definition.format, tmp_path / "twin", server)
    ends = [each.end for each in twin.read_all(twin.open())]
    for end in ends:
        planned = made.plan(made.open(), SMALL)
        assert planned.end == end
        made.commit(planned)
    assert made.plan(made.open()).end == ends[-1]


@KINDS
def test_what_comes_later_begins_where_the_last_epoch_ended(made: Subject) -> None:
    source = made.open()
    last = made.read_all(source)[-1]
    made.grow(made)
    more = made.plan(made.open())
    assert more.start == last.end != more.end


@KINDS
def test_a_running_source_sees_what_comes(made: Subject) -> None:
    source = made.open()
    made.read_all(source)
    before = made.definition
    made.grow(made)
    if made.definition is not before:
        pytest.skip("there is more only when the pipeline says so")
    more = made.plan(source)
    assert more.start != more.end


@KINDS
def test_ranges_are_text_and_can_be_sent_to_tasks(made: Subject) -> None:
    planned = made.plan(made.open())
    for offset in (planned.start, planned.end):
        assert all(isinstance(text, str) for pair in offset.items() for text in pair)
    assert pickle.loads(pickle.dumps(planned.data)) == planned.data


@KINDS
def test_confirm_is_silent_about_what_is_as_it_was_and_names_what_has_changed(
    made: Subject,
) -> None:
    source = made.open()
    planned = made.plan(source)
    source.confirm(planned)
    source.confirm(planned)
    if made.spoil is None:
        return
    made.spoil(made, planned)
    with pytest.raises(LaminaError, match="'s'"):
        source.confirm(planned)


@KINDS
def test_an_acknowledged_offset_changes_nothing_after_it(made: Subject) -> None:
    source = made.open()
    first = made.plan(source, SMALL)
    made.commit(first)
    wanted = made.plan(source, SMALL)
    for _ in range(2):
        source.acknowledge(first.start)
        source.acknowledge(first.end)
    planned = made.plan(source, SMALL)
    assert (planned.start, planned.end, planned.data) == (wanted.start, wanted.end, wanted.data)


@KINDS
def test_what_the_pipeline_says_is_checked_without_a_look_at_the_world(
    kind: str, made: Subject, tmp_path: Path
) -> None:
    check_source(made.definition, tmp_path / "not there")
    wrong = {**made.definition.options, "no_such_option": Option.plain("1")}
    declared = source_kind(kind)
    assert declared is not None
    assert all(option.doc for option in declared.options)
    with pytest.raises(BadPipeline, match="no_such_option"):
        check_source(replace(made.definition, options=wrong), tmp_path)

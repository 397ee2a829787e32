"""A table whose rows the source remembers: what the log does not say, and a log that is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from lamina.connectors.changes import remembered
from lamina.connectors.changes import source as source_module
from lamina.errors import Refused
from tests.contract.cdc_rig import CdcRig, random_change
from tests.servers.postgres import PostgresServer
from tests.support.examples import IS_LONG

pytestmark = pytest.mark.server


@pytest.fixture
def rig(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[CdcRig]:
    """Its REPLICA IDENTITY is the default."""
    made = CdcRig(postgres_server, postgres_server.new_schema(), tmp_path).remember()
    made.create()
    yield made
    made.drop()


@pytest.mark.parametrize("seed", range(20 if IS_LONG else 2))
def test_every_epoch_is_a_committed_state_with_truncate_and_without_old_rows(
    rig: CdcRig, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of epochs of any size, with processes that end before and after a COMMIT; in memory and by
    way of files."""
    random = Random(seed)
    monkeypatch.setattr(source_module, "MEMORY_BYTES", random.choice((1, 20_000, 1 << 28)))
    if seed % 2:
        rig.run("ALTER TABLE TABLE_ REPLICA IDENTITY FULL")
    source, epochs = rig.open(), 0
    for _ in range(50):
        match random.choice(("change", "change", "epoch", "epoch", "kill", "unplanned", "slot")):
            case "change":
                random_change(rig, random)
            case "epoch" if rig.epoch(source, random.choice((1, 10, None))):
                epochs += 1
                assert rig.state in rig.states or not rig.states
            case "kill":
                source = rig.open()
            case "unplanned":
                rig.plan(source, random.choice((1, 10, None)))  # and never committed
                source = rig.open()
            case "slot" if random.random() < 0.3:
                rig.drop()
                source = rig.open()
            case _:
                pass
    random_change(rig, random)
    while rig.epoch(source, 1):
        assert rig.state in rig.states
    assert rig.state == rig.there()
    assert epochs > 3


def test_truncate_takes_back_exactly_the_rows_that_there_were(rig: CdcRig) -> None:
    rig.change("INSERT INTO TABLE_ SELECT g, 'x', g, NULL FROM generate_series(1, 100) g")
    source = rig.open()
    rig.epoch(source)
    rig.change(
        "INSERT INTO TABLE_ VALUES (101, 'gone', 1, NULL)",
        "UPDATE TABLE_ SET amount = 0 WHERE id = 5",
        "TRUNCATE TABLE_",
        "INSERT INTO TABLE_ VALUES (7, 'x', 7, NULL), (8, 'other', 8, NULL), (200, 'n', 1, NULL)",
    )
    planned = rig.plan(source)
    assert planned.data.rows == 98 + 2 + 1, "7 is as it was"
    rig.commit(planned)
    assert rig.state == rig.there()
    rig.change("TRUNCATE TABLE_")
    rig.epoch(source)
    assert rig.state == frozenset()
    assert not rig.notes, "the log was followed"


def test_long_values_that_an_update_leaves_alone_are_remembered(rig: CdcRig) -> None:
    long = "(SELECT string_agg(md5(g::text), '') FROM generate_series(1, 500) g)"
    rig.change(f"INSERT INTO TABLE_ VALUES (1, 'a', 1, {long}), (2, 'b', 2, {long})")
    source = rig.open()
    rig.epoch(source)
    rig.change("UPDATE TABLE_ SET name = 'c'", f"INSERT INTO TABLE_ VALUES (3, 'c', 3, {long})")
    rig.change("UPDATE TABLE_ SET amount = 7")
    rig.change("UPDATE TABLE_ SET amount = 8 WHERE id = 3")
    assert rig.epoch(source)
    assert rig.state == rig.there()
    assert not rig.notes
    rig.change("UPDATE TABLE_ SET id = 4 WHERE id = 2")
    assert rig.epoch(source)
    assert rig.state == rig.there()
    assert "a long value that it kept is not in the log" in rig.notes[0]
    assert not rig.epoch(source) or rig.state == rig.there()


LOST = [
    ("SELECT pg_drop_replication_slot('SLOT_')", "is gone"),
    (
        "SELECT pg_replication_slot_advance('SLOT_', pg_current_wal_insert_lsn())",
        "what lies between can no longer be read",
    ),
    (
        "DROP TABLE TABLE_; CREATE TABLE TABLE_ (id bigint PRIMARY KEY, name text, "
        "amount numeric(12, 2), big text); ALTER PUBLICATION PUB_ ADD TABLE TABLE_; "
        "INSERT INTO TABLE_ VALUES (1, 'z', 5, NULL), (9, 'y', 6, NULL)",
        "another one has its name",
    ),
    (
        "DROP PUBLICATION PUB_; UPDATE TABLE_ SET name = 'c'; "
        "CREATE PUBLICATION PUB_ FOR TABLE TABLE_",
        "was changed or made anew",
    ),
    (
        "ALTER PUBLICATION PUB_ DROP TABLE TABLE_; DELETE FROM TABLE_ WHERE id = 4; "
        "ALTER PUBLICATION PUB_ ADD TABLE TABLE_",
        "was changed or made anew",
    ),
    (
        "ALTER PUBLICATION PUB_ SET (publish = 'insert'); DELETE FROM TABLE_ WHERE id = 4; "
        "ALTER PUBLICATION PUB_ SET (publish = 'insert, update, delete, truncate')",
        "was changed or made anew",
    ),
    (
        "ALTER TABLE TABLE_ ALTER amount TYPE numeric(11, 1); UPDATE TABLE_ SET name = 'c'",
        "type of the column 'amount'",
    ),
    (
        "ALTER TABLE TABLE_ RENAME amount TO other; UPDATE TABLE_ SET name = 'c'; "
        "ALTER TABLE TABLE_ RENAME other TO amount; UPDATE TABLE_ SET name = 'd'",
        "column 'amount' was dropped, renamed",
    ),
]


@pytest.mark.parametrize(("statements", "said"), LOST, ids=[each[0][:40] for each in LOST])
def test_a_log_that_cannot_be_followed_is_made_good_by_comparing(
    rig: CdcRig, statements: str, said: str
) -> None:
    rig.change("INSERT INTO TABLE_ SELECT g, 'x', 1.25, NULL FROM generate_series(1, 20) g")
    rig.epoch(rig.open())
    rig.run("DELETE FROM TABLE_ WHERE id % 3 = 0", "UPDATE TABLE_ SET amount = 3 WHERE id = 1")
    rig.opened[-1].close()
    for each in statements.split("; "):
        rig.run(each.replace("SLOT_", rig.slot).replace("PUB_", rig.schema))
    lost = rig.plan(rig.open())
    again = rig.plan(rig.open())  # the first one was never committed
    assert said in lost.notes[0]
    assert lost.data.rows == again.data.rows
    rig.commit(again)
    assert rig.state == rig.there()
    source = rig.opened[-1]
    assert not rig.epoch(source), "the log that the snapshot has is not read again"
    for number in range(3):
        rig.change(f"INSERT INTO TABLE_ VALUES ({number + 100}, 'new', 1, NULL)")
        assert rig.epoch(source, 1)
    while rig.epoch(source):
        pass
    assert rig.state == rig.there()
    assert len(rig.notes) == 1
    source.acknowledge(rig.offset)


def test_a_new_name_of_the_slot_is_how_a_person_says_that_the_server_is_another(
    rig: CdcRig,
) -> None:
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1, NULL), (2, 'b', 2, NULL)")
    rig.epoch(rig.open())
    rig.change("DELETE FROM TABLE_ WHERE id = 1")
    rig.offset = {**rig.offset, "system": "1"}
    with pytest.raises(Refused, match=r"another database cluster(?s:.*)write another slot"):
        rig.plan(rig.open())
    assert rig.epoch(rig.open(slot=f"{rig.slot}_2"))
    assert rig.state == rig.there()
    rig.opened[-1].close()
    rig.server.execute(f"SELECT pg_drop_replication_slot('{rig.slot}_2')")


def test_rows_are_remembered_from_the_first_epoch_or_not_at_all(rig: CdcRig) -> None:
    memory, rig.memory = rig.memory, None
    rig.run("ALTER TABLE TABLE_ REPLICA IDENTITY FULL")
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1, NULL)")
    rig.epoch(rig.open())
    rig.memory = memory
    with pytest.raises(Refused, match="is to remember rows, and has read some without that"):
        rig.plan(rig.open())


def test_more_than_one_epoch_can_remember_is_refused(
    rig: CdcRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "LEARNED_BYTES_MAX", 1000)
    rig.run("INSERT INTO TABLE_ SELECT g, 'x', 1.25, NULL FROM generate_series(1, 200) g")
    with pytest.raises(Refused, match="too large for remember_rows"):
        rig.plan(rig.open())

"""Changes of a table whose server gives up its slot, or is replaced by its standby."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lamina.connectors.postgres_cdc.lsn import lsn_of
from lamina.errors import Refused, StoreReadOnly
from tests.contract.cdc_rig import CdcRig
from tests.servers import postgres_missing
from tests.servers.postgres import PostgresServer, postgres, standby

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Of these tests alone: others have slots that must not be given up."""
    if reason := postgres_missing():
        pytest.skip(reason)
    with postgres() as made:
        yield made


@pytest.fixture(params=["rows are remembered", "rows are not remembered"])
def rig(server: PostgresServer, tmp_path: Path, request: pytest.FixtureRequest) -> CdcRig:
    rig = CdcRig(server, server.new_schema(), tmp_path)
    if request.param == "rows are remembered":
        rig.remember()
    rig.create()
    rig.change("INSERT INTO TABLE_ SELECT g, 'x', g, NULL FROM generate_series(1, 50) g")
    rig.epoch(rig.open())
    return rig


def settings(server: PostgresServer, **given: str) -> None:
    for name, value in given.items():
        server.execute(f"ALTER SYSTEM SET {name} = '{value}'")
    server.execute("SELECT pg_reload_conf()")


def give_up(rig: CdcRig) -> None:
    """Write so much log that PostgreSQL does not keep it for the slot."""
    settings(rig.server, max_slot_wal_keep_size="1MB")
    status = f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{rig.slot}'"
    deadline = time.monotonic() + 60
    while rig.server.execute(status) != [("lost",)]:
        assert time.monotonic() < deadline
        rig.server.execute("SELECT pg_logical_emit_message(false, 'x', 'x'), pg_switch_wal()")
        rig.server.execute("CHECKPOINT")
    settings(rig.server, max_slot_wal_keep_size="-1")


def test_a_slot_that_postgresql_has_given_up(rig: CdcRig) -> None:
    source = rig.opened[-1]
    old = rig.offset
    rig.change("DELETE FROM TABLE_ WHERE id % 2 = 0", "UPDATE TABLE_ SET name = 'y' WHERE id = 1")
    give_up(rig)
    source.acknowledge(old)  # of no use any more, and no reason to stop
    if rig.memory is None:
        for _ in range(2):
            with pytest.raises(Refused, match=r"given up(?s:.*)raise max_slot_wal_keep_size"):
                rig.plan(rig.open())
        return rig.drop()
    assert rig.epoch(source)
    assert "has given up the replication slot" in rig.notes[0]
    assert rig.state == rig.there()
    rig.change("INSERT INTO TABLE_ VALUES (100, 'z', 1, NULL)")
    while rig.epoch(source):
        pass
    assert rig.state == rig.there()
    assert len(rig.notes) == 1
    return rig.drop()


def test_a_standby_that_takes_over_without_the_last_transactions(
    rig: CdcRig, server: PostgresServer
) -> None:
    with standby(server) as other:
        with pytest.raises(StoreReadOnly, match="standby"):
            replace(rig, server=other, opened=[]).open().probe(None)  # type: ignore[arg-type]
        rig.change("DELETE FROM TABLE_ WHERE id % 2 = 0")
        caught_up(server, other)
        other.kill()
        rig.change("INSERT INTO TABLE_ SELECT g, 'lost', g, NULL FROM generate_series(51, 90) g")
        rig.epoch(rig.opened[-1])
        assert len(rig.state) == 25 + 40
        rig.opened[-1].close()
        with server.down():
            other.start()
            other.execute("SELECT pg_promote()")
        old, rig.server = rig.offset, other
        if rig.memory is None:
            with pytest.raises(Refused, match="another server has taken over"):
                rig.plan(rig.open())
        else:
            follow(rig, old)
    rig.opened[-1].close()
    rig.server = server
    rig.drop()


def follow(rig: CdcRig, old: dict[str, str]) -> None:
    """The new primary: what it does not have is taken back, and its slot is its own."""
    source = rig.open()
    assert rig.epoch(source)
    assert "another server has taken over" in rig.notes[0]
    assert rig.state == rig.there()
    assert len(rig.state) == 25
    rig.change("TRUNCATE TABLE_", "INSERT INTO TABLE_ VALUES (3, 'new', 1, NULL)")
    assert rig.epoch(source)
    assert rig.state == rig.there()
    source.acknowledge({**old, "lsn": rig.offset["lsn"]})
    sql = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = "
    ((at,),) = rig.server.execute(f"{sql}'{rig.slot}'")
    assert lsn_of(at) < lsn_of(rig.offset["lsn"]), (
        "a place in the log of the old server is no place"
    )
    assert len(rig.notes) == 1


def caught_up(primary: PostgresServer, other: PostgresServer) -> None:
    ((end,),) = primary.execute("SELECT pg_current_wal_insert_lsn()::text")
    deadline = time.monotonic() + 60
    while lsn_of(other.execute("SELECT pg_last_wal_replay_lsn()::text")[0][0]) < lsn_of(end):
        assert time.monotonic() < deadline
        time.sleep(0.02)

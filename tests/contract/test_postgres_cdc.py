"""Changes of a real PostgreSQL table, read epoch after epoch: whole, once, and in any process."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import md5
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.connectors.changes import source as skeleton
from lamina.connectors.changes.journal import Versions
from lamina.connectors.opening import open_source
from lamina.connectors.postgres_cdc import source as source_module
from lamina.connectors.postgres_cdc.lsn import lsn_of
from lamina.engine.model import Offset
from lamina.engine.ports import CHANGE, Limits
from lamina.errors import AccessDenied, NotFound, Refused, StoreUnavailable
from lamina.pipeline.model import DeclaredSource
from tests.contract.cdc_rig import CdcRig, random_change
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.server


@pytest.fixture
def rig(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[CdcRig]:
    made = CdcRig(postgres_server, postgres_server.new_schema(), tmp_path)
    made.create()
    yield made
    made.drop()


def slot_lsn(rig: CdcRig) -> int:
    sql = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = "
    ((found,),) = rig.server.execute(f"{sql}'{rig.slot}'")
    return lsn_of(found)


@pytest.mark.parametrize("seed", range(3))
def test_every_epoch_is_a_committed_state_whatever_is_killed(rig: CdcRig, seed: int) -> None:
    """Processes end before and after a COMMIT, the database crashes, epochs are of any size."""
    random = Random(seed)
    for _ in range(5):
        random_change(rig, random)
    source, epochs, kept = rig.open(), 0, [rig.offset]
    for _ in range(40):
        match random.choice(("change", "change", "epoch", "epoch", "kill", "unplanned", "ack")):
            case "change":
                random_change(rig, random)
            case "epoch" if rig.epoch(source, random.choice((1, 10, None))):
                epochs += 1
                assert rig.state in rig.states
                kept.append(rig.offset)
            case "kill":
                source = rig.open()
            case "unplanned":
                rig.plan(source, random.choice((1, 10, None)))  # and never committed
                source = rig.open()
            case "ack":
                source.acknowledge(kept[max(0, len(kept) - 3)])
            case _:
                pass
    rig.server.kill()
    rig.server.start()
    random_change(rig, random)
    while rig.epoch(rig.open(), 1):
        assert rig.state in rig.states
    assert rig.state == rig.there()
    assert epochs > 3


def test_a_snapshot_among_writers_misses_nothing_and_has_nothing_twice(rig: CdcRig) -> None:
    """Transactions are open before, while and after the snapshot is taken, on four connections."""
    rig.run("INSERT INTO TABLE_ SELECT g, 'x', 0, NULL FROM generate_series(1, 400) g")
    stop = threading.Event()

    def write(part: int) -> None:
        random = Random(part)
        with rig.server.connect(autocommit=False) as connection:
            while not stop.is_set():
                for _ in range(random.randrange(1, 4)):
                    key = random.randrange(100) * 4 + part + 1
                    connection.execute(
                        f"UPDATE {rig.table} SET amount = amount + 1 WHERE id = {key}"
                    )
                    connection.execute(f"DELETE FROM {rig.table} WHERE id = {key + 1000}")
                    connection.execute(
                        f"INSERT INTO {rig.table} VALUES ({key + 1000}, 'y', 1, NULL)"
                    )
                connection.commit()

    writers = [threading.Thread(target=write, args=(part,)) for part in range(4)]
    for writer in writers:
        writer.start()
    try:
        source = rig.open()
        for _ in range(4):
            rig.epoch(source, 50)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    while rig.epoch(source):
        pass
    assert rig.state == rig.there()


def test_the_same_changes_are_planned_by_another_process(rig: CdcRig) -> None:
    rig.epoch(rig.open())
    for number in range(6):
        rig.change(f"INSERT INTO TABLE_ VALUES ({number}, 'a', {number}, NULL)")
    first = rig.plan(rig.open(), 4)
    again = rig.plan(rig.opened[-1], 4)
    assert again is first
    rows = pq.read_table(first.data.path)
    other = rig.plan(rig.open(), 4)
    assert (other.start, other.end, other.data) == (first.start, first.end, first.data)
    assert pq.read_table(other.data.path) == rows


def test_a_start_that_was_killed_begins_again_with_its_own_slot(rig: CdcRig) -> None:
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1, NULL)")
    first = rig.plan(rig.open())
    rig.change("UPDATE TABLE_ SET amount = 2")
    assert rig.plan(rig.open()).end["lsn"] == first.end["lsn"]
    rig.epoch(rig.opened[-1])
    assert rig.state == rig.there()
    assert not rig.epoch(rig.open()) or rig.state == rig.there()


def test_a_snapshot_waits_for_transactions_that_are_older_than_its_slot(rig: CdcRig) -> None:
    rig.plan(rig.open())  # the slot is there, and nothing is committed
    with rig.server.connect(autocommit=False) as other:
        other.execute(f"INSERT INTO {rig.table} VALUES (1, 'a', 1, NULL)")
        with pytest.raises(StoreUnavailable, match="was there before the slot, and still runs"):
            rig.plan(rig.open(answer_timeout="1 second"))
        commit = threading.Timer(0.5, other.commit)
        commit.start()
        rig.epoch(rig.open())
        assert rig.state == rig.there() != frozenset()
        commit.join()


def test_a_process_that_is_killed_lets_go_of_the_slot(rig: CdcRig) -> None:
    """SIGKILL in the middle of plans: the next process goes on where the last COMMIT was."""
    rig.run("INSERT INTO TABLE_ SELECT g, 'x', 0, NULL FROM generate_series(1, 2000) g")
    for wait_s in (0.0, 0.02, 0.3):
        given = rig.declared(lock_timeout="10 seconds"), dict(rig.offset), rig.home
        child = multiprocessing.get_context("spawn").Process(target=plan_for_ever, args=given)
        child.start()
        deadline = time.monotonic() + 30
        while not (rig.home / "planning").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(wait_s)
        child.kill()
        child.join()
        (rig.home / "planning").unlink()
        rig.change("UPDATE TABLE_ SET amount = amount + 1 WHERE id % 100 = 1")
        rig.epoch(rig.open(lock_timeout="10 seconds"), 1)
    while rig.epoch(rig.opened[-1]):
        pass
    assert rig.state == rig.there()


def plan_for_ever(declared: DeclaredSource, offset: Offset, home: Path) -> None:
    (home / "planning").touch()
    while True:
        source = open_source(declared, Path(), scratch=home)
        source.plan(offset, Limits(), None)
        del source


def test_a_server_that_dies_while_it_gives_rows_is_waited_for(rig: CdcRig) -> None:
    """Arrow's own error for that would end the pipeline."""
    source, batches = rig.open(), list[int]()
    rig.epoch(source)
    rig.server.execute("CHECKPOINT")  # what the epoch is at is on disk before the crash

    def take(batch: pa.RecordBatch) -> None:
        batches.append(batch.num_rows)
        rig.server.kill()

    rows = "SELECT repeat('x', 1000) FROM generate_series(1, 200000)"
    try:
        with pytest.raises(StoreUnavailable, match="lost while rows were read"):
            source._session.read("read the table", rows, take)
    finally:
        rig.server.kill()
        rig.server.start()
    assert batches
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1, NULL)")
    for _ in range(120):  # after its crash the server may end an epoch before the row
        rig.epoch(source)
        if rig.state == rig.there():
            break
        time.sleep(0.25)
    assert rig.state == rig.there()


def test_a_slot_that_another_has_made_is_not_taken(rig: CdcRig, tmp_path: Path) -> None:
    rig.server.execute(f"SELECT pg_create_logical_replication_slot('{rig.slot}', 'pgoutput')")
    with pytest.raises(Refused, match="this pipeline has not made it"):
        rig.plan(rig.open())


def test_two_pipelines_on_one_slot(rig: CdcRig) -> None:
    rig.epoch(rig.open())
    with pytest.raises(Refused, match=r"another pipeline or process reads .* lamina pipeline s"):
        rig.plan(rig.open_another())
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1, NULL)")
    assert rig.epoch(rig.opened[0])


def test_the_slot_is_advanced_to_what_is_acknowledged_and_no_further(rig: CdcRig) -> None:
    source = rig.open()
    rig.epoch(source)
    offsets = [rig.offset]
    for number in range(3):
        rig.change(f"INSERT INTO TABLE_ VALUES ({number}, 'a', 1, NULL)")
        rig.epoch(source)
        offsets.append(rig.offset)
        assert slot_lsn(rig) == lsn_of(offsets[0]["lsn"])
    source.acknowledge(offsets[2])
    assert slot_lsn(rig) == lsn_of(offsets[2]["lsn"])
    source.acknowledge(offsets[1])  # a late one moves nothing
    assert slot_lsn(rig) == lsn_of(offsets[2]["lsn"])
    rig.offset = offsets[2]
    again = rig.plan(rig.open())
    assert again.end == offsets[3]
    rig.offset = offsets[1]
    with pytest.raises(Refused, match="what lies between can no longer be read"):
        rig.plan(rig.open())


def test_a_log_without_changes_of_the_table_is_let_go(
    rig: CdcRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "QUIET_BYTES", 100_000)
    source = rig.open()
    rig.epoch(source)
    rig.run(
        f"CREATE TABLE {rig.schema}.other AS SELECT repeat('x', 900) FROM generate_series(1, 300)"
    )
    before = lsn_of(rig.offset["lsn"])
    assert rig.epoch(source)
    assert lsn_of(rig.offset["lsn"]) > before + 100_000
    source.acknowledge(rig.offset)
    assert slot_lsn(rig) == lsn_of(rig.offset["lsn"])
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1, NULL)")
    assert rig.epoch(source)
    assert rig.state == rig.there()


def test_a_transaction_larger_than_memory(rig: CdcRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skeleton, "MEMORY_BYTES", 100_000)
    files: list[int] = []
    spill = Versions._spill
    monkeypatch.setattr(Versions, "_spill", lambda self: (files.append(1), spill(self))[-1])
    source = rig.open()
    rig.epoch(source)
    rig.change(
        "INSERT INTO TABLE_ SELECT g, 'x', 0, NULL FROM generate_series(1, 5000) g",
        "UPDATE TABLE_ SET amount = id WHERE id % 2 = 0",
        "UPDATE TABLE_ SET id = -id WHERE id % 3 = 0",
        "DELETE FROM TABLE_ WHERE id % 5 = 0",
    )
    rig.epoch(source, 1)
    assert rig.state == rig.there()
    assert len(rig.state) > 3000
    assert len(files) == 2


def test_values_of_every_type_are_those_of_the_table(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """In the snapshot and in changes alike; a long text that an update left alone, too."""
    columns = {
        "id": "INT", "b": "BOOLEAN", "i": "SMALLINT", "f": "FLOAT", "d": "DOUBLE", "x": "BINARY",
        "day": "DATE", "at": "TIMESTAMP", "local": "TIMESTAMP_NTZ", "c": "STRING", "u": "STRING",
        "j": "STRING", "a": "STRING", "n": "DECIMAL(38, 4)", "Long": "STRING",
    }  # fmt: skip
    rig = CdcRig(postgres_server, postgres_server.new_schema(), tmp_path, columns)
    rig.create(
        "id int PRIMARY KEY, b bool, i smallint, f real, d double precision, x bytea, day date, "
        "at timestamptz, local timestamp, c char(4), u uuid, j jsonb, a int[], n numeric(10, 4), "
        '"Long" text, unread point'
    )
    row = (
        "true, -7, 1.25, 0.1, '\\x00ff5c', '2024-02-29', '2024-02-29 12:30:00.123456+02', "
        "'1969-12-31 23:59:59.5', 'ab', '0b2b3a3e-9f5a-4a51-9e7e-2d4f8d1f0c11', '{\"k\": [1]}', "
        "'{1,NULL}', -1.5, (SELECT string_agg(md5(g::text), 'Ω') FROM generate_series(1, 500) g), "
        "'(1,2)'"
    )
    nulls = ", ".join(["NULL"] * 15)
    odd = "false, 0, 'NaN', '-Infinity', '', NULL, NULL, NULL, '', NULL, NULL, NULL, 0, '', NULL"
    rig.run(*(f"INSERT INTO TABLE_ VALUES {each}" for each in (f"(1, {row})", f"(2, {nulls})")))
    source = rig.open()
    rig.commit(rig.plan(source))
    rig.run(f"INSERT INTO TABLE_ VALUES (3, {row})", f"INSERT INTO TABLE_ VALUES (4, {odd})")
    rig.run("UPDATE TABLE_ SET i = 8 WHERE id = 1", "UPDATE TABLE_ SET i = -7 WHERE id = 1")
    rig.run("UPDATE TABLE_ SET id = 5 WHERE id = 1")
    while rig.epoch(source):
        pass
    first, second = rig.rows[3,], rig.rows[5,]
    long = "Ω".join(md5(str(g).encode()).hexdigest() for g in range(1, 501))  # too long for a page
    assert first[1:] == second[1:], "what the snapshot has printed is what the log prints"
    assert first == (
        3, True, -7, 1.25, 0.1, b"\x00\xff\\", date(2024, 2, 29),
        datetime(2024, 2, 29, 10, 30, 0, 123456, UTC),
        datetime.fromisoformat("1969-12-31 23:59:59.5"),
        "ab  ", "0b2b3a3e-9f5a-4a51-9e7e-2d4f8d1f0c11", '{"k": [1]}', "{1,NULL}",
        Decimal("-1.5000"), long,
    )  # fmt: skip
    assert rig.rows[2,][1:] == (None,) * 14
    assert str(rig.rows[4,][3:6]) == "(nan, -inf, b'')"
    rig.drop()


def test_changes_of_a_key_within_an_epoch_are_folded(rig: CdcRig) -> None:
    rig.run("INSERT INTO TABLE_ VALUES (1, 'a', 1, NULL), (2, 'b', 2, NULL), (3, 'c', 3, NULL)")
    source = rig.open()
    rig.epoch(source)
    rig.run("UPDATE TABLE_ SET amount = 10 WHERE id = 1")
    rig.run("UPDATE TABLE_ SET amount = 11 WHERE id = 1")
    rig.run("DELETE FROM TABLE_ WHERE id = 2", "INSERT INTO TABLE_ VALUES (2, 'b', 2, NULL)")
    rig.run("INSERT INTO TABLE_ VALUES (4, 'd', 4, NULL)", "DELETE FROM TABLE_ WHERE id = 4")
    rig.run("UPDATE TABLE_ SET id = 5 WHERE id = 3")
    rows = pq.read_table(rig.plan(source).data.path).select(["id", "amount", CHANGE])
    assert sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True)) == [
        (1, Decimal(1), "-U"), (1, Decimal(11), "+U"), (3, Decimal(3), "-D"), (5, Decimal(3), "+I"),
    ]  # fmt: skip
    assert rows.schema.field("amount").type == pa.decimal128(12, 2)


# what goes wrong, each with its name


WRONG = [
    (
        "ALTER TABLE TABLE_ REPLICA IDENTITY DEFAULT",
        Refused,
        "ALTER TABLE .* REPLICA IDENTITY FULL",
    ),
    ("DROP PUBLICATION PUB_", NotFound, "CREATE PUBLICATION"),
    ("ALTER PUBLICATION PUB_ DROP TABLE TABLE_", NotFound, "ADD TABLE"),
    (
        "ALTER PUBLICATION PUB_ SET (publish = 'insert')",
        Refused,
        "leaves out: update, delete, trunc",
    ),
    ("ALTER PUBLICATION PUB_ SET TABLE TABLE_ WHERE (id > 5)", Refused, "condition for rows"),
    ("ALTER TABLE TABLE_ DROP COLUMN amount", NotFound, "no column 'amount'"),
    ("ALTER TABLE TABLE_ ALTER amount TYPE double precision", Refused, "declare it DOUBLE"),
    ("ALTER TABLE TABLE_ ALTER amount TYPE numeric(12, 5)", Refused, r"DECIMAL\(38, 5\)"),
    ("ALTER TABLE TABLE_ DROP CONSTRAINT t_pkey", Refused, "no primary key"),
    (
        "ALTER TABLE TABLE_ DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, name)",
        Refused,
        "Write keys 'id, name'",
    ),
    (
        "ALTER TABLE TABLE_ DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id) DEFERRABLE",
        Refused,
        "DEFERRABLE",
    ),
    ("DROP TABLE TABLE_", NotFound, "there is no table 't'"),
]


@pytest.mark.parametrize(("statement", "kind", "said"), WRONG, ids=[each[0] for each in WRONG])
def test_what_will_not_do_is_named_before_and_while_it_is_read(
    rig: CdcRig, statement: str, kind: type[Exception], said: str
) -> None:
    source = rig.open()
    rig.epoch(source)
    rig.run(statement.replace("PUB_", rig.schema))
    with pytest.raises(kind, match=f"(?s){said}"):
        rig.plan(source)
    with pytest.raises(kind, match=f"(?s){said}"):
        rig.open().probe(None)  # type: ignore[arg-type]


LATER = [
    (["TRUNCATE TABLE_"], "the table was truncated"),
    (
        ["ALTER TABLE TABLE_ ALTER amount TYPE numeric(11, 1)", "CHANGE"],
        "type of the column 'amount'",
    ),
    (
        [
            "ALTER TABLE TABLE_ REPLICA IDENTITY DEFAULT",
            "DELETE FROM TABLE_",
            "ALTER TABLE TABLE_ REPLICA IDENTITY FULL",
        ],
        "without REPLICA IDENTITY FULL",
    ),
    (
        [
            "ALTER TABLE TABLE_ RENAME amount TO other",
            "CHANGE",
            "ALTER TABLE TABLE_ RENAME other TO amount",
        ],
        "column 'amount' was dropped, renamed",
    ),
]


@pytest.mark.parametrize(("statements", "said"), LATER, ids=[each[1] for each in LATER])
def test_a_log_that_cannot_be_followed_stops_there_with_a_name(
    rig: CdcRig, statements: list[str], said: str
) -> None:
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1.25, NULL)")
    source = rig.open()
    rig.epoch(source)
    rig.change("INSERT INTO TABLE_ VALUES (2, 'b', 1, NULL)")
    before = rig.there()
    for each in statements:
        rig.run(each.replace("CHANGE", "UPDATE TABLE_ SET name = 'c'"))
    assert rig.epoch(source, 1), "what came before is still read"
    assert rig.state == before
    for _ in range(2):
        with pytest.raises(Refused, match=said):
            rig.plan(rig.open())


def test_a_table_that_only_grows_wider_is_read_on(rig: CdcRig) -> None:
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1.25, NULL)")
    source = rig.open()
    rig.epoch(source)
    rig.run("ALTER TABLE TABLE_ ADD COLUMN more int DEFAULT 5")
    rig.run("UPDATE TABLE_ SET name = 'b'")
    rig.run("ALTER TABLE TABLE_ DROP COLUMN more")
    rig.run("UPDATE TABLE_ SET amount = 7")
    rig.epoch(source)
    assert rig.state == rig.there()


def test_a_partitioned_table_is_refused(postgres_server: PostgresServer, tmp_path: Path) -> None:
    rig = CdcRig(postgres_server, postgres_server.new_schema(), tmp_path)
    rig.run("CREATE TABLE TABLE_ (id bigint PRIMARY KEY, name text) PARTITION BY HASH (id)")
    with pytest.raises(Refused, match=r"is partitioned(?s:.*)each as a source"):
        rig.plan(rig.open())


def test_a_table_made_anew_is_another_one(rig: CdcRig) -> None:
    rig.epoch(rig.open())
    rig.run("DROP TABLE TABLE_")
    rig.run(f"DROP PUBLICATION {rig.schema}")
    rig.create()
    with pytest.raises(Refused, match="another one has its name"):
        rig.plan(rig.open())


def test_a_slot_that_is_gone_or_was_moved(rig: CdcRig) -> None:
    rig.epoch(rig.open())
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1, NULL)")
    sql = f"SELECT pg_logical_slot_get_binary_changes('{rig.slot}', NULL, NULL, "
    rig.server.execute(f"{sql}'proto_version', '1', 'publication_names', '{rig.schema}')")
    with pytest.raises(Refused, match="Somebody else has read from the slot"):
        rig.plan(rig.open())
    rig.server.execute(f"SELECT pg_drop_replication_slot('{rig.slot}')")
    with pytest.raises(Refused, match=f"slot '{rig.slot}' is gone"):
        rig.plan(rig.open())


def test_a_publication_that_did_not_have_the_table_for_a_while(rig: CdcRig) -> None:
    """PostgreSQL decodes by the catalogs of the time: such changes are in no log."""
    rig.epoch(rig.open())
    rig.run(f"ALTER PUBLICATION {rig.schema} DROP TABLE TABLE_")
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1, NULL)")
    rig.run(f"ALTER PUBLICATION {rig.schema} ADD TABLE TABLE_")
    with pytest.raises(Refused, match="changes that it did not have are not in the log"):
        rig.plan(rig.open())


def test_another_server_is_not_taken_for_the_one_that_was_read(rig: CdcRig) -> None:
    rig.epoch(rig.open())
    for changed, said in (
        ({"system": "1"}, "another database cluster"),
        ({"timeline": "00000009"}, "another server has taken over"),
        ({"lsn": "FFFF/0"}, "restored from a backup"),
        ({"slot": "other"}, "Write slot 'other'"),
        ({"lsn": "nonsense"}, "not one of a PostgreSQL table"),
    ):
        good, rig.offset = rig.offset, {**rig.offset, **changed}
        with pytest.raises(Refused, match=f"(?s){said}"):
            rig.plan(rig.open())
        rig.offset = good


def test_a_role_without_rights(rig: CdcRig) -> None:
    role = f"role_{rig.schema}"
    rig.run(f"CREATE ROLE {role} LOGIN", f"GRANT USAGE ON SCHEMA {rig.schema} TO {role}")
    with pytest.raises(AccessDenied, match="it needs REPLICATION"):
        rig.plan(rig.open(user=role))
    rig.run(f"ALTER ROLE {role} REPLICATION")
    with pytest.raises(AccessDenied, match="GRANT SELECT ON"):
        rig.plan(rig.open(user=role))
    rig.run(f"GRANT SELECT ON TABLE_ TO {role}")
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1, NULL)")
    assert rig.epoch(rig.open(user=role))
    rig.change("INSERT INTO TABLE_ VALUES (2, 'a', 1, NULL)")
    while rig.epoch(rig.opened[-1]):
        pass
    assert rig.state == rig.there()
    rig.run("ALTER TABLE TABLE_ ENABLE ROW LEVEL SECURITY")
    with pytest.raises(AccessDenied, match="row security"):
        rig.plan(rig.open(user=role))


def test_a_value_that_its_declared_type_cannot_hold(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    columns = {"id": "BIGINT", "day": "DATE"}
    rig = CdcRig(postgres_server, postgres_server.new_schema(), tmp_path, columns)
    rig.create("id bigint PRIMARY KEY, day date")
    rig.run("INSERT INTO TABLE_ VALUES (1, 'infinity')")
    with pytest.raises(Refused, match=r"the column 'day' has a value .*infinity"):
        rig.plan(rig.open())
    rig.drop()

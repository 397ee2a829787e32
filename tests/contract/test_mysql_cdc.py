"""Changes of a real MariaDB table, read epoch after epoch: whole, once, and in any process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from lamina.connectors.changes import source as skeleton
from lamina.connectors.mysql_cdc import binlog as binlog_module
from lamina.connectors.mysql_cdc import source as source_module
from lamina.engine.ports import CHANGE
from lamina.errors import AccessDenied, LaminaError, NotFound, Refused, StoreUnavailable
from tests.contract.mysql_rig import MySqlRig, all_epochs, random_change
from tests.servers.mariadb import MariaServer, mariadb, mariadb_missing

pytestmark = pytest.mark.server


@pytest.fixture
def rig(mariadb_server: MariaServer, tmp_path: Path) -> Iterator[MySqlRig]:
    made = MySqlRig(mariadb_server, mariadb_server.new_database(), tmp_path)
    made.create()
    yield made
    made.drop()


@pytest.mark.parametrize("seed", range(int(os.environ.get("LAMINA_KILLS", "1"))))
def test_every_epoch_is_a_committed_state_whatever_is_killed(rig: MySqlRig, seed: int) -> None:
    """Processes end before and after a COMMIT, the database crashes, epochs are of any size."""
    random = Random(seed)
    for _ in range(5):
        random_change(rig, random)
    source, epochs = rig.open(), 0
    for _ in range(40):
        match random.choice(("change", "change", "epoch", "epoch", "kill", "unplanned")):
            case "change":
                random_change(rig, random)
            case "epoch" if rig.epoch(source, random.choice((1, 10, None))):
                epochs += 1
                assert rig.state in rig.states
            case "kill":
                source = rig.open()
            case "unplanned":
                rig.plan(source, random.choice((1, 10, None)))  # and never committed
                source = rig.open()
            case _:
                pass
    rig.server.kill()
    rig.server.start()
    random_change(rig, random)
    for state in all_epochs(rig, rig.open(), 1):
        assert state in rig.states
    assert rig.state == rig.there()
    assert epochs > 3


def test_a_snapshot_among_writers_misses_nothing_and_has_nothing_twice(rig: MySqlRig) -> None:
    values = ", ".join(f"({n}, 'x', 0, NULL)" for n in range(1, 401))
    rig.run(f"INSERT INTO TABLE_ VALUES {values}")
    stop = threading.Event()

    def write(part: int) -> None:
        random = Random(part)
        connection = rig.server.connect(autocommit=False)
        with connection.cursor() as cursor:
            while not stop.is_set():
                for _ in range(random.randrange(1, 4)):
                    key = random.randrange(100) * 4 + part + 1
                    cursor.execute(f"UPDATE {rig.table} SET amount = amount + 1 WHERE id = {key}")
                    cursor.execute(f"REPLACE INTO {rig.table} VALUES ({key + 1000}, 'y', 1, NULL)")
                connection.commit()
        connection.close()

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
    for _ in all_epochs(rig, source):
        pass
    assert rig.state == rig.there()


def test_the_same_changes_are_planned_by_another_process(rig: MySqlRig) -> None:
    rig.epoch(rig.open())
    for number in range(6):
        rig.change(f"INSERT INTO TABLE_ VALUES ({number}, 'a', {number}, NULL)")
    first = rig.plan(rig.open(), 4)
    assert rig.plan(rig.opened[-1], 4) is first
    rows = pq.read_table(first.data.path)
    other = rig.plan(rig.open(), 4)
    assert (other.start, other.end, other.data) == (first.start, first.end, first.data)
    assert pq.read_table(other.data.path) == rows


def test_an_offset_from_before_is_read_from_there(rig: MySqlRig) -> None:
    """As after a rewind, in a process that has read on."""
    source = rig.open()
    rig.epoch(source)
    offset, rows = rig.offset, dict(rig.rows)
    for number in range(3):
        rig.change(f"INSERT INTO TABLE_ VALUES ({number}, 'a', {number}, NULL)")
        rig.epoch(source)
    rig.offset, rig.rows = offset, rows
    for state in all_epochs(rig, source, 1):
        assert state in rig.states
    assert rig.state == rig.there()


def test_a_lost_connection_does_not_make_the_log_begin_again(rig: MySqlRig) -> None:
    """The server ends the connection to the log while a transaction is read."""
    source = rig.open()
    rig.epoch(source)
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1, NULL)")
    rig.epoch(source)
    dumps = rig.server.execute(
        "SELECT id FROM information_schema.processlist WHERE command = 'Binlog Dump'"
    )
    assert dumps
    for (number,) in dumps:
        rig.server.execute(f"KILL {number}")
    rig.change("UPDATE TABLE_ SET amount = 2")
    assert rig.epoch(source)
    assert rig.state == rig.there()


def test_transactions_of_others_are_passed_over_and_not_read_again(
    rig: MySqlRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = rig.open()
    rig.epoch(source)
    rig.run(f"CREATE TABLE {rig.schema}.other (a int PRIMARY KEY)")
    for number in range(5):
        rig.run(f"INSERT INTO {rig.schema}.other VALUES ({number})")
    assert not rig.epoch(source), "nothing of this table"
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1, NULL)")
    assert rig.epoch(source)
    assert rig.state == rig.there()
    monkeypatch.setattr(source_module, "QUIET_TRANSACTIONS", 3)
    before = rig.offset
    for number in range(5, 9):
        rig.run(f"INSERT INTO {rig.schema}.other VALUES ({number})")
    assert rig.epoch(source), "an epoch without rows, so that the log can go"
    assert rig.offset != before
    assert rig.state == rig.there()


def test_a_transaction_larger_than_memory(rig: MySqlRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skeleton, "MEMORY_BYTES", 20_000)
    monkeypatch.setattr(binlog_module, "BATCH_ROWS", 100)
    source = rig.open()
    rig.epoch(source)
    values = ", ".join(f"({n}, 'x', 0, NULL)" for n in range(1, 2001))
    rig.change(
        f"INSERT INTO TABLE_ VALUES {values}",
        "UPDATE TABLE_ SET amount = id WHERE id % 2 = 0",
        "UPDATE TABLE_ SET id = -id WHERE id % 3 = 0",
        "DELETE FROM TABLE_ WHERE id % 5 = 0",
    )
    rig.epoch(source, 1)
    assert rig.state == rig.there()
    assert len(rig.state) == 1600


def test_values_of_every_type_are_those_of_the_table(
    mariadb_server: MariaServer, tmp_path: Path
) -> None:
    """In the snapshot and in the log alike."""
    columns = {
        "id": "INT", "T": "TINYINT", "u": "DECIMAL(20, 0)", "i": "BIGINT", "f": "FLOAT",
        "d": "DOUBLE", "n": "DECIMAL(38, 4)", "c": "STRING", "l": "STRING", "e": "STRING",
        "b": "BINARY", "v": "BINARY", "x": "BINARY", "day": "DATE", "at": "TIMESTAMP",
        "local": "TIMESTAMP_NTZ", "j": "STRING",
    }  # fmt: skip
    rig = MySqlRig(mariadb_server, mariadb_server.new_database(), tmp_path, columns)
    rig.create(
        "id int PRIMARY KEY, t tinyint, u bigint unsigned, i int unsigned, f float, d double, "
        "n decimal(30, 4), c char(9), l varchar(9) CHARACTER SET latin1, e enum('x', 'ü'), "
        "b binary(4), v varbinary(9), x blob, day date, at timestamp(6) NULL, local datetime(6), "
        "j json, unread time, more set('a', 'b'), y year, w bit(9)"
    )
    row = (
        "-7, 18446744073709551615, 4294967295, 1.1, 0.1, -12345678901234567890.5, 'ab  ', 'é€', "
        "'ü', x'01000000', x'ff00', '', '2024-02-29', '2024-02-29 12:30:00.123456', "
        "'1969-12-31 23:59:59.5', '{\"k\": [1]}', '12:00:00', 'a,b', 2024, b'1'"
    )
    nulls = ", ".join(["NULL"] * 20)
    rig.run(f"INSERT INTO TABLE_ VALUES (1, {row})", f"INSERT INTO TABLE_ VALUES (2, {nulls})")
    source = rig.open()
    rig.epoch(source)
    rig.run(f"INSERT INTO TABLE_ VALUES (3, {row})", f"INSERT INTO TABLE_ VALUES (4, {nulls})")
    rig.run("UPDATE TABLE_ SET t = 8 WHERE id = 1", "UPDATE TABLE_ SET t = -7 WHERE id = 1")
    rig.run("UPDATE TABLE_ SET id = 5 WHERE id = 1", "DELETE FROM TABLE_ WHERE id = 2")
    rig.epoch(source)
    first, second = rig.rows[3,], rig.rows[5,]
    assert first[1:] == second[1:], "what the snapshot has read is what the log has"
    assert first == (
        3, -7, Decimal(18446744073709551615), 4294967295, 1.100000023841858, 0.1,
        Decimal("-12345678901234567890.5000"), "ab", "é€", "ü", b"\x01\0\0\0", b"\xff\0", b"",
        date(2024, 2, 29), datetime(2024, 2, 29, 12, 30, 0, 123456, UTC),
        datetime.fromisoformat("1969-12-31 23:59:59.5"), '{"k": [1]}',
    )  # fmt: skip
    assert rig.rows[4,][1:] == (None,) * 16
    rig.drop()


def test_changes_of_a_key_within_an_epoch_are_folded(rig: MySqlRig) -> None:
    rig.run("INSERT INTO TABLE_ VALUES (1, 'a', 1, NULL), (2, 'b', 2, NULL), (3, 'c', 3, NULL)")
    source = rig.open()
    rig.epoch(source)
    rig.run("UPDATE TABLE_ SET amount = 10 WHERE id = 1")
    rig.run("UPDATE TABLE_ SET amount = 11 WHERE id = 1")
    rig.run("DELETE FROM TABLE_ WHERE id = 2", "INSERT INTO TABLE_ VALUES (2, 'b', 2, NULL)")
    rig.run("UPDATE TABLE_ SET id = 5 WHERE id = 3")
    rows = pq.read_table(rig.plan(source).data.path).select(["id", "amount", CHANGE])
    assert sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True)) == [
        (1, Decimal(1), "-U"), (1, Decimal(11), "+U"), (3, Decimal(3), "-D"), (5, Decimal(3), "+I"),
    ]  # fmt: skip


# what goes wrong, each with its name

WRONG = [
    ("ALTER TABLE TABLE_ DROP COLUMN amount", NotFound, "'amount' is not there"),
    ("ALTER TABLE TABLE_ MODIFY amount double", Refused, "declare it DOUBLE"),
    ("ALTER TABLE TABLE_ MODIFY amount decimal(13, 3)", Refused, r"declare it DECIMAL\(13, 3\)"),
    ("ALTER TABLE TABLE_ MODIFY amount time", Refused, "it cannot be read: leave it out"),
    ("ALTER TABLE TABLE_ MODIFY amount decimal(11, 2)", Refused, r"was decimal\(12,2\), and is"),
    ("ALTER TABLE TABLE_ MODIFY name varchar(9) CHARACTER SET sjis", Refused, "utf8mb4"),
    ("ALTER TABLE TABLE_ DROP PRIMARY KEY", Refused, "no primary key"),
    (
        "ALTER TABLE TABLE_ DROP PRIMARY KEY, ADD PRIMARY KEY (id, amount)",
        Refused,
        "Write keys 'id",
    ),
    ("ALTER TABLE TABLE_ ENGINE = MyISAM", Refused, "of the engine MyISAM"),
    ("ALTER TABLE TABLE_ ADD u uuid", Refused, "'u' is uuid, and the log cannot be read past"),
    (
        "ALTER TABLE TABLE_ ADD p bigint REFERENCES parents (id) ON DELETE CASCADE",
        Refused,
        "without a word in the log",
    ),
    ("DROP TABLE TABLE_", NotFound, "there is no table 't'"),
    ("RENAME TABLE TABLE_ TO T", NotFound, "upper and lower case count"),
]


@pytest.mark.parametrize(("statement", "kind", "said"), WRONG, ids=[each[0] for each in WRONG])
def test_what_will_not_do_is_named_before_it_is_read(
    rig: MySqlRig, statement: str, kind: type[LaminaError], said: str
) -> None:
    rig.run(f"CREATE TABLE {rig.schema}.parents (id bigint PRIMARY KEY)")
    source = rig.open()
    rig.epoch(source)
    rig.run(statement)
    with pytest.raises(kind, match=f"(?s){said}"):
        rig.plan(source)


LATER = [
    (["TRUNCATE TABLE_"], "the table was truncated"),
    (["TRUNCATE TABLE t"], "the table was truncated"),
    (
        ["ALTER TABLE TABLE_ DROP amount", "ALTER TABLE t ADD amount decimal(12, 2) DEFAULT 5"],
        "the table was changed: ALTER TABLE .* DROP amount",
    ),
    (
        ["DROP TABLE `t`", "CREATE TABLE t (id bigint PRIMARY KEY, name varchar(100), "
         "amount decimal(12, 2), big longtext)"],
        "the table was changed: DROP TABLE",
    ),
    (
        ["SET SESSION binlog_format = 'STATEMENT'", "UPDATE TABLE_ SET amount = 9"],
        "rows were changed by a statement",
    ),
    (
        ["SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE TABLE_ SET amount = 9"],
        "binlog_row_image was not FULL",
    ),
    (
        ["COMMIT", "XA START 'x'", "UPDATE TABLE_ SET amount = 9", "XA END 'x'", "XA PREPARE 'x'",
         "XA ROLLBACK 'x'"],
        "rows were changed by XA",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("statements", "said"), LATER, ids=[each[1] for each in LATER])
def test_a_log_that_cannot_be_followed_stops_there_with_a_name(
    rig: MySqlRig, statements: list[str], said: str
) -> None:
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1.25, NULL)")
    source = rig.open()
    rig.epoch(source)
    rig.change("INSERT INTO TABLE_ VALUES (2, 'b', 1, NULL)")
    before = rig.there()
    written = [each.replace("TABLE_", rig.table) for each in statements]
    rig.server.execute(*written, database=rig.schema, autocommit=True)
    assert rig.epoch(source, 1), "what came before is still read"
    assert rig.state == before
    for _ in range(2):
        with pytest.raises(Refused, match=said):
            rig.plan(rig.open())


def test_a_table_that_only_grows_wider_is_read_on(rig: MySqlRig) -> None:
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1.25, NULL)")
    source = rig.open()
    rig.epoch(source)
    rig.run("ALTER TABLE TABLE_ ADD COLUMN more int DEFAULT 5 FIRST, ADD INDEX (name)")
    rig.run("UPDATE TABLE_ SET name = 'b'", f"CREATE TABLE {rig.schema}.copy LIKE TABLE_")
    rig.run(f"TRUNCATE {rig.schema}.copy", f"DROP TABLE {rig.schema}.copy")
    assert rig.epoch(source)
    assert rig.state == rig.there()


def test_values_that_no_type_holds_are_named(mariadb_server: MariaServer, tmp_path: Path) -> None:
    columns = {"id": "BIGINT", "day": "DATE", "at": "TIMESTAMP"}
    rig = MySqlRig(mariadb_server, mariadb_server.new_database(), tmp_path, columns)
    rig.create("id bigint PRIMARY KEY, day date, at timestamp NULL")
    zero = "0000-00-00"
    rig.epoch(rig.open())
    start = rig.offset
    for column, value in (("day", f"'{zero}'"), ("at", f"'{zero} 00:00:00'")):
        row = f"INSERT INTO TABLE_ (id, {column}) VALUES (1, {value})"
        rig.run("SET SESSION sql_mode = ''", row)
        with pytest.raises(Refused, match=f"'{column}' has a value"):
            rig.plan(rig.open())
        rig.offset = {}
        with pytest.raises(Refused, match=f"'{column}' has a value"):
            rig.plan(rig.open())
        rig.run("DELETE FROM TABLE_")
        rig.epoch(rig.open())
    assert rig.offset != start
    rig.drop()


def test_rights_and_logins(rig: MySqlRig) -> None:
    rig.server.execute(f"CREATE OR REPLACE USER careful_{rig.schema} IDENTIFIED BY 'secret'")
    user = {"user": f"careful_{rig.schema}", "password": "secret"}
    with pytest.raises(AccessDenied, match="failed: Access denied"):
        rig.open(**{**user, "password": "wrong"}).probe(None)  # type: ignore[arg-type]
    with pytest.raises(AccessDenied, match="it needs REPLICATION SLAVE"):
        rig.open(**user).probe(None)  # type: ignore[arg-type]
    rig.server.execute(f"GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {user['user']}")
    with pytest.raises(NotFound, match="or no right to see it"):
        rig.open(**user).probe(None)  # type: ignore[arg-type]
    rig.server.execute(f"GRANT SELECT ON {rig.table} TO {user['user']}")
    source = rig.open(**user)
    rig.epoch(source)
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1.25, NULL)")
    assert rig.epoch(source)
    with pytest.raises(StoreUnavailable, match="Can't connect"):
        rig.open(port="1").probe(None)  # type: ignore[arg-type]


def test_settings_of_the_server_that_will_not_do(rig: MySqlRig) -> None:
    rig.epoch(rig.open())
    for name, value, good in (
        ("binlog_format", "'MIXED'", "'ROW'"),
        ("binlog_row_image", "'MINIMAL'", "'FULL'"),
        ("binlog_row_metadata", "'NO_LOG'", "'FULL'"),
        ("log_bin_compress", "ON", "OFF"),
    ):
        rig.server.execute(f"SET GLOBAL {name} = {value}")
        try:
            with pytest.raises(Refused, match=f"(?s){name} of the server is .*Set {name} ="):
                rig.plan(rig.open())
        finally:
            rig.server.execute(f"SET GLOBAL {name} = {good}")


def purge(server: MariaServer, last: str) -> None:
    """Delete the log before the file *last*; the server keeps what a crash now would need."""
    deadline = time.monotonic() + 30
    while True:
        server.execute("FLUSH BINARY LOGS", f"PURGE BINARY LOGS TO '{last}'")
        if server.execute("SHOW BINARY LOGS")[0][0] == last:
            return
        assert time.monotonic() < deadline, "the log is not deleted"
        time.sleep(0.1)


def test_a_log_that_is_gone_and_another_server_are_named(tmp_path: Path) -> None:
    """On servers of their own: the log of all tables is deleted."""
    if reason := mariadb_missing():
        pytest.skip(reason)
    columns = {"id": "BIGINT"}
    with mariadb() as server:
        rig = MySqlRig(server, server.new_database(), tmp_path, columns)
        rig.create("id bigint PRIMARY KEY")
        rig.run("INSERT INTO TABLE_ VALUES (0)")
        rig.epoch(rig.open())
        known = dict(rig.offset)
        rig.change("INSERT INTO TABLE_ VALUES (1)")
        server.execute("FLUSH BINARY LOGS")
        rig.change("INSERT INTO TABLE_ VALUES (2)")
        ((last, *_),) = server.execute("SHOW MASTER STATUS")
        purge(server, last)
        with pytest.raises(Refused, match="no longer has the log from where it was read"):
            rig.plan(rig.open())
        rig.offset = {**known, "server": "another"}
        with pytest.raises(Refused, match="another server than the one that was read"):
            rig.plan(rig.open())
        rig.offset = {**known, "gtid": "0-1-999999"}
        with pytest.raises(Refused, match="was it reset, or restored from a backup"):
            rig.plan(rig.open())
        rig.drop()


def test_two_readers_with_one_server_id_are_told_apart(rig: MySqlRig) -> None:
    """The server would end the connection of the first one, then that of the second, in turns."""
    options = {"server_id": "77", "connect_timeout": "1 second"}
    first = rig.open(**options)
    rig.epoch(first)
    rig.change("INSERT INTO TABLE_ VALUES (1, 'a', 1, NULL)")
    rig.epoch(first)
    second = rig.open_another(**options)
    with pytest.raises(StoreUnavailable, match="reads the log with the server_id 77") as refused:
        rig.plan(second)
    assert "KILL " in refused.value.advice
    rig.change("INSERT INTO TABLE_ VALUES (2, 'a', 1, NULL)")
    assert rig.epoch(first)
    assert rig.state == rig.there()
    rig.change("INSERT INTO TABLE_ VALUES (3, 'a', 1, NULL)")
    assert rig.epoch(rig.open_another(**options | {"server_id": "78"})), "another one may"
    first.close()
    rig.change("INSERT INTO TABLE_ VALUES (4, 'a', 1, NULL)")
    assert rig.epoch(second), "as soon as the first one is gone"
    assert rig.state == rig.there()

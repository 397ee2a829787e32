"""A PostgreSQL sink beyond the contract: keys, deletes, tables that do not fit, lost answers."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from decimal import Decimal
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from lamina.connectors.postgres.sink import Place, PostgresSink
from lamina.engine.ports import CHANGE, Change, Publication
from lamina.errors import (
    AccessDenied,
    Fenced,
    LaminaError,
    NotFound,
    Refused,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from lamina.protocol.sinks import SinkPosition
from lamina.workspace.model import Staged
from tests.contract.postgres_rig import Rig, table
from tests.contract.sinks import PIPELINE
from tests.servers import PostgresServer
from tests.servers.postgres import PASSWORD, PASSWORD_USER, standby, tls_missing, tls_postgres
from tests.servers.tcp_proxy import TcpProxy, tcp_proxy

pytestmark = pytest.mark.server

KV = pa.schema([pa.field("k", pa.string()), pa.field("v", pa.int64())])
V = pa.schema([pa.field("v", pa.int64())])
COMMITTED = b"COMMIT\0"  # how the server says that it has
TWO_KEYS = pa.schema([("a", pa.int32()), ("b", pa.string()), ("v", pa.float64())])


@pytest.fixture
def rig(postgres_server: PostgresServer, tmp_path: Path) -> Rig:
    return Rig(postgres_server, postgres_server.new_schema(), tmp_path / "home")


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[TcpProxy]:
    with tcp_proxy(postgres_server.port) as between:
        yield between


def kv(rows: dict[str | None, int]) -> pa.Table:
    return table({"k": list(rows), "v": list(rows.values())}, KV)


def v(*values: int | None) -> pa.Table:
    return table({"v": list(values)}, V)


# by key


def test_a_row_replaces_the_one_with_its_key_and_the_last_of_an_epoch_counts(rig: Rig) -> None:
    sink = rig.sink(KV, keys=("k",))
    sink.fence(1, PIPELINE)
    sink.publish(rig.publication(1, kv({"a": 1, None: 2}), kv({"a": 3, "b": 4})))
    assert rig.rows() == [("a", 3), ("b", 4), (None, 2)]
    sink.publish(rig.publication(2, kv({None: 5, "b": 6, "": 7})))
    assert rig.rows() == [("", 7), ("a", 3), ("b", 6), (None, 5)]


def test_an_older_version_of_a_row_in_a_later_file_replaced_the_newer_one(rig: Rig) -> None:
    sink = rig.sink(KV, keys=("k",), change=Change.APPEND, order_by="v")
    sink.fence(1, PIPELINE)
    sink.publish(rig.publication(1, kv({"a": 3, "b": 1}), kv({"a": 1, "b": 4})))
    assert rig.rows() == [("a", 3), ("b", 4)]
    sink.publish(rig.publication(2, kv({"a": 2})))
    assert rig.rows() == [("a", 2), ("b", 4)], "a later epoch counts"


def test_both_zeros_were_two_keys_that_postgresql_refused(rig: Rig) -> None:
    zeros = pa.schema([("k", pa.float64()), ("v", pa.int64())])
    sink = rig.sink(zeros, keys=("k",), change=Change.CHANGES)
    sink.fence(1, PIPELINE)
    both = {"k": [0.0, -0.0], "v": [1, 2]}
    sink.publish(rig.publication(1, table({**both, CHANGE: ["-D", "+I"]}, zeros)))
    assert rig.rows() == [(0.0, 2)]
    sink.publish(rig.publication(2, table({**both, CHANGE: ["-U", "-D"]}, zeros)))
    assert rig.rows() == []


def test_rows_that_are_keys_and_nothing_else_are_there_once(rig: Rig) -> None:
    sink = rig.sink(V, keys=("v",))
    sink.fence(1, PIPELINE)
    sink.publish(rig.publication(1, v(1, 2, 2)))
    sink.publish(rig.publication(2, v(2, 3)))
    assert rig.rows() == [(1,), (2,), (3,)]


def test_a_stream_of_changes_deletes_rows_by_key_nulls_too(rig: Rig) -> None:
    sink = rig.sink(TWO_KEYS, keys=("a", "b"), change=Change.CHANGES)
    sink.fence(1, PIPELINE)
    first = {"a": [1, 1, 2, None], "b": ["x", None, "x", "x"], "v": [1.0, 2.0, 3.0, 4.0]}
    sink.publish(rig.publication(1, table({**first, CHANGE: ["+I"] * 4}, TWO_KEYS)))
    second = {
        "a": [1, 1, 2, 2, None, 9],
        "b": [None, "x", "x", "x", "x", "y"],
        "v": [2.0, 1.0, 30.0, 3.0, 4.0, 9.0],
        CHANGE: ["-D", "-U", "+U", "-U", "-D", "-D"],
    }
    sink.publish(rig.publication(2, table(second, TWO_KEYS)))
    assert rig.rows() == [(2, "x", 30.0)]
    again = {"a": [2, 2], "b": ["x", "x"], "v": [30.0, 31.0], CHANGE: ["-D", "+I"]}
    sink.publish(rig.publication(3, table(again, TWO_KEYS)))
    assert rig.rows() == [(2, "x", 31.0)]


def test_keys_that_the_table_takes_for_one_are_refused_and_not_guessed(rig: Rig) -> None:
    rig.execute("CREATE TABLE {s}.t (k uuid PRIMARY KEY, v bigint)")
    low, high = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"
    sink = rig.sink(KV, keys=("k",), change=Change.CHANGES)
    sink.fence(1, PIPELINE)
    for changes in (["+I", "+I"], ["+I", "-D"]):
        both = table({"k": [low, high], "v": [1, 2], CHANGE: changes}, KV)
        with pytest.raises(Refused, match="differ in the stream are equal in the table"):
            sink.publish(rig.publication(1, both))
    assert rig.rows() == []


def test_a_null_key_is_refused_where_the_index_would_let_it_in_again_and_again(rig: Rig) -> None:
    rig.execute("CREATE TABLE {s}.t (k text UNIQUE, v bigint)")
    sink = rig.sink(KV, keys=("k",))
    sink.fence(1, PIPELINE)
    sink.publish(rig.publication(1, kv({"a": 1})))
    with pytest.raises(Refused, match="NULLS NOT DISTINCT"):
        sink.publish(rig.publication(2, kv({None: 1})))
    rig.execute("CREATE UNIQUE INDEX ON {s}.t (k) NULLS NOT DISTINCT")
    sink.publish(rig.publication(2, kv({None: 1})))
    sink.publish(rig.publication(3, kv({None: 2})))
    assert rig.rows() == [("a", 1), (None, 2)]


# tables that are made, and tables that are there


def test_a_table_is_made_with_the_types_of_the_stream_and_its_keys(rig: Rig) -> None:
    never_null = pa.schema([pa.field('Kéy "1"', pa.int64(), nullable=False), ("v", pa.string())])
    rig.sink(never_null, keys=('Kéy "1"',), table="a.b").fence(1, PIPELINE)
    rig.sink(KV, keys=("k",), table="nulls").fence(1, PIPELINE)
    assert rig.tables() == {"a.b", "nulls", "lamina_sinks"}
    found = rig.execute(
        "SELECT c.relname, pg_get_constraintdef(p.oid) FROM pg_constraint p JOIN pg_class c "
        "ON c.oid = conrelid WHERE c.relnamespace = '{s}'::regnamespace AND contype IN ('p', 'u')"
    )
    assert dict(found) == {
        "a.b": 'PRIMARY KEY ("Kéy ""1""")',
        "nulls": "UNIQUE NULLS NOT DISTINCT (k)",
        "lamina_sinks": "PRIMARY KEY (table_name)",
    }


def test_nothing_is_made_before_the_claim(rig: Rig) -> None:
    sink = rig.sink(V)
    assert sink.position() == SinkPosition(type(PIPELINE)(), 0, None)
    assert rig.tables() == set()
    with pytest.raises(NotFound, match="does not exist"):
        rig.sink(V, create=False).position()


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("k text PRIMARY KEY", "the column 'v' is missing"),
        ('k text PRIMARY KEY, "V" bigint, "vV" bigint, "Vv" bigint', ""),
        ("k text PRIMARY KEY, v text", "'v' of type text does not take bigint exactly"),
        ("k text PRIMARY KEY, v double precision", "'v' of type double precision does not take"),
        ("k text PRIMARY KEY, v bigint[]", "'v' of type bigint[] does not take bigint"),
        ("k bytea PRIMARY KEY, v bigint", "'k' of type bytea does not take text"),
        ("k text PRIMARY KEY, v bigint GENERATED ALWAYS AS (1) STORED", "'v' is generated"),
        ("k text PRIMARY KEY, v bigint GENERATED ALWAYS AS IDENTITY", "'v' is generated"),
        ("k text PRIMARY KEY, v bigint, w int NOT NULL", "'w' is NOT NULL without a default"),
        ("k text PRIMARY KEY, v bigint, w int NOT NULL DEFAULT 1", ""),
        ("k text PRIMARY KEY, v numeric(5, 0)", ""),
        ("k text, v bigint", 'there is no unique index on ("k")'),
        ("k text, v bigint, UNIQUE (k, v)", 'there is no unique index on ("k")'),
        ("k text, v bigint, UNIQUE (k) DEFERRABLE", 'there is no unique index on ("k")'),
        ("k varchar(9), v smallint, UNIQUE (k) INCLUDE (v)", ""),
        ("k text, v bytea", "'v' of type bytea does not take bigint exactly; there is no unique"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_everything_that_does_not(
    columns: str, problem: str, rig: Rig
) -> None:
    rig.execute(f"CREATE TABLE {{s}}.t ({columns})")
    sink = rig.sink(KV, keys=("k",))
    if problem:
        with pytest.raises(Refused) as raised:
            sink.position()
        assert problem in raised.value.message
        assert rig.tables() == {"t"}, "nothing is claimed"
    else:
        sink.fence(1, PIPELINE)
        sink.publish(rig.publication(1, kv({"a": 1})))
        assert rig.execute("SELECT k FROM {s}.t") == [("a",)]


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        ("CREATE VIEW {s}.t AS SELECT 1::bigint AS v", "it is a view"),
        ("CREATE MATERIALIZED VIEW {s}.t AS SELECT 1::bigint AS v", "it is a materialized view"),
        ("CREATE SEQUENCE {s}.t", "it is a sequence"),
        ("CREATE UNLOGGED TABLE {s}.t (v bigint)", "PostgreSQL empties it after a crash"),
    ],
)
def test_what_would_not_keep_its_rows_with_the_mark_is_refused(
    made: str, problem: str, rig: Rig
) -> None:
    rig.execute(made)
    with pytest.raises(Refused, match=problem):
        rig.sink(V).position()
    assert "lamina_sinks" not in rig.tables()


def test_columns_are_found_whatever_their_case_unless_several_could_be_meant(rig: Rig) -> None:
    rig.execute("CREATE TABLE {s}.t (userid text PRIMARY KEY)")
    rig.execute('CREATE TABLE {s}.two ("USERID" text, userid text)')
    user = pa.schema([("userId", pa.string())])
    sink = rig.sink(user, keys=("userId",))
    sink.fence(1, PIPELINE)
    sink.publish(rig.publication(1, table({"userId": ["a", "b"]}, user)))
    assert rig.rows() == [("a",), ("b",)]
    with pytest.raises(Refused, match="several columns could be 'userId'"):
        rig.sink(user, table="two").position()


def test_a_partitioned_table_takes_rows(rig: Rig) -> None:
    rig.execute("CREATE TABLE {s}.t (k text PRIMARY KEY, v bigint) PARTITION BY LIST (k)")
    rig.execute("CREATE TABLE {s}.t_a PARTITION OF {s}.t FOR VALUES IN ('a')")
    sink = rig.sink(KV, keys=("k",))
    sink.fence(1, PIPELINE)
    sink.publish(rig.publication(1, kv({"a": 1})))
    with pytest.raises(Refused, match="no partition of relation"):
        sink.publish(rig.publication(2, kv({"b": 1})))
    rig.execute("CREATE TABLE {s}.t_rest PARTITION OF {s}.t DEFAULT")
    sink.publish(rig.publication(2, kv({"b": 1})))
    assert rig.rows() == [("a", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("partition", "problem"),
    [
        ("CREATE UNLOGGED TABLE {s}.p PARTITION OF {s}.t DEFAULT", "'p' is unlogged"),
        (
            "CREATE TABLE {s}.p PARTITION OF {s}.t DEFAULT PARTITION BY LIST (v);"
            "CREATE UNLOGGED TABLE {s}.deep PARTITION OF {s}.p DEFAULT",
            "'deep' is unlogged",
        ),
        (
            "CREATE FOREIGN DATA WRAPPER {s}; CREATE SERVER {s} FOREIGN DATA WRAPPER {s};"
            "CREATE FOREIGN TABLE {s}.p PARTITION OF {s}.t DEFAULT SERVER {s}",
            "'p' is a foreign table",
        ),
    ],
)
def test_a_partition_that_lost_its_rows_in_a_crash_while_the_mark_said_they_were_there(
    partition: str, problem: str, rig: Rig
) -> None:
    rig.execute("CREATE TABLE {s}.t (v bigint) PARTITION BY LIST (v)")
    rig.execute("CREATE TABLE {s}.good PARTITION OF {s}.t FOR VALUES IN (1)")
    rig.execute(partition)
    with pytest.raises(Refused, match=problem):
        rig.sink(V).position()
    assert "lamina_sinks" not in rig.tables()


def test_an_unlogged_partition_that_is_attached_while_an_epoch_is_written(rig: Rig) -> None:
    rig.execute("CREATE TABLE {s}.t (v bigint) PARTITION BY LIST (v)")

    def attach(call: str) -> None:
        if call == "make room for the rows":
            rig.execute("CREATE UNLOGGED TABLE {s}.p (v bigint)")
            rig.execute("ALTER TABLE {s}.t ATTACH PARTITION {s}.p FOR VALUES IN (1)")

    sink = rig.sink(V, hook=attach)
    sink.fence(1, PIPELINE)
    with pytest.raises(Refused, match="'p' is unlogged"):
        sink.publish(rig.publication(1, v(1)))
    assert rig.rows() == []
    assert sink.position().point is None


def test_rows_of_a_table_that_inherits_from_the_sinks_were_deleted(rig: Rig) -> None:
    rig.execute("CREATE TABLE {s}.t (k text, v bigint, UNIQUE NULLS NOT DISTINCT (k))")
    rig.execute("CREATE TABLE {s}.heir () INHERITS ({s}.t)")
    rig.execute("INSERT INTO {s}.heir VALUES ('a', 9), (NULL, 9)")
    sink = rig.sink(KV, keys=("k",), change=Change.CHANGES)
    sink.fence(1, PIPELINE)
    for epoch, change in ((1, "+I"), (2, "-D")):
        rows = table({"k": ["a"], "v": [1], CHANGE: [change]}, KV)
        sink.publish(rig.publication(epoch, rows))
    gone = table({"k": [None], "v": [1], CHANGE: ["-D"]}, KV)
    sink.publish(rig.publication(3, gone))
    assert rig.execute("SELECT k, v FROM ONLY {s}.t") == []
    assert rig.rows("heir") == [("a", 9), (None, 9)]


def test_rows_of_partitions_are_deleted(rig: Rig) -> None:
    rig.execute("CREATE TABLE {s}.t (k text PRIMARY KEY, v bigint) PARTITION BY LIST (k)")
    rig.execute("CREATE TABLE {s}.rest PARTITION OF {s}.t DEFAULT")
    sink = rig.sink(KV, keys=("k",), change=Change.CHANGES)
    sink.fence(1, PIPELINE)
    for epoch, change in ((1, "+I"), (2, "-D")):
        rows = table({"k": ["a"], "v": [1], CHANGE: [change]}, KV)
        sink.publish(rig.publication(epoch, rows))
    assert rig.rows() == []


@pytest.mark.parametrize("event", ["INSERT", "UPDATE"])
def test_an_upsert_into_a_table_with_a_rule_was_tried_for_ever(event: str, rig: Rig) -> None:
    rig.execute("CREATE TABLE {s}.t (k text PRIMARY KEY, v bigint)")
    early = rig.sink(KV, keys=("k",))
    early.fence(1, PIPELINE)
    rig.execute(f"CREATE RULE watch AS ON {event} TO {{s}}.t DO ALSO NOTIFY seen")
    late = rig.sink(KV, keys=("k",))
    with pytest.raises(Refused, match='rules \\("watch"\\)'):
        late.position()
    with pytest.raises(Refused, match="rules"):
        early.publish(rig.publication(1, kv({"a": 1})))
    rig.execute("DROP RULE watch ON {s}.t")
    rig.execute("CREATE RULE gone AS ON DELETE TO {s}.t DO ALSO NOTIFY seen")
    early.publish(rig.publication(1, kv({"a": 1})))
    assert rig.rows() == [("a", 1)]


def test_appended_rows_go_through_rules(rig: Rig) -> None:
    rig.execute("CREATE TABLE {s}.t (v bigint)")
    rig.execute("CREATE RULE watch AS ON INSERT TO {s}.t DO ALSO NOTIFY seen")
    sink = rig.sink(V)
    sink.fence(1, PIPELINE)
    sink.publish(rig.publication(1, v(1)))
    assert rig.rows() == [(1,)]


# the table changes, or a value does not fit: nothing is lost, and it goes on when it is mended


@pytest.mark.parametrize(
    ("harm", "kind", "said", "mend"),
    [
        ("ALTER TABLE {s}.t RENAME TO x", NotFound, "", "ALTER TABLE {s}.x RENAME TO t"),
        (
            "ALTER TABLE {s}.t RENAME v TO w",
            Refused,
            "'v' is missing",
            "ALTER TABLE {s}.t RENAME w TO v",
        ),
        (
            "ALTER TABLE {s}.t ALTER v TYPE double precision",
            Refused,
            "does not take bigint exactly",
            "ALTER TABLE {s}.t ALTER v TYPE numeric",
        ),
        (
            "ALTER TABLE {s}.t ALTER v TYPE smallint",
            Refused,
            "22003",
            "ALTER TABLE {s}.t ALTER v TYPE int",
        ),
        ("CREATE UNIQUE INDEX i ON {s}.t (v)", Refused, "23505", "DROP INDEX {s}.i"),
        (
            "ALTER TABLE {s}.t ADD CHECK (v < 9)",
            Refused,
            "23514",
            "ALTER TABLE {s}.t DROP CONSTRAINT t_v_check",
        ),
        (
            "DELETE FROM {s}.t; ALTER TABLE {s}.t ALTER v SET NOT NULL",
            Refused,
            "23502",
            "ALTER TABLE {s}.t ALTER v DROP NOT NULL",
        ),
        (
            "DELETE FROM {s}.t; ALTER TABLE {s}.t ADD w int NOT NULL",
            Refused,
            "'w' is NOT NULL",
            "ALTER TABLE {s}.t DROP w",
        ),
        ("ALTER TABLE {s}.t SET UNLOGGED", Refused, "unlogged", "ALTER TABLE {s}.t SET LOGGED"),
        (
            "ALTER TABLE {s}.lamina_sinks RENAME TO x",
            NotFound,
            "lamina_sinks",
            "ALTER TABLE {s}.x RENAME TO lamina_sinks",
        ),
    ],
)
def test_a_table_that_was_changed_is_named_and_the_epoch_comes_when_it_is_mended(
    harm: str, kind: type[LaminaError], said: str, mend: str, *, rig: Rig
) -> None:
    sink = rig.sink(V)
    sink.fence(1, PIPELINE)
    sink.publish(rig.publication(1, v(1)))
    for statement in harm.split(";"):
        rig.execute(statement)
    epoch = rig.publication(2, v(1, 40_000, None))
    for _ in range(2):
        with pytest.raises(kind) as raised:
            sink.publish(epoch)
        assert said in raised.value.message
        assert raised.value.advice
    rig.execute(mend)
    sink.publish(epoch)
    sink.publish(epoch)
    assert [row for (row,) in rig.rows() if row != 1] == [40_000, None]
    assert sink.position().point == epoch.point


def test_a_table_that_was_dropped_is_not_made_again_by_itself(rig: Rig) -> None:
    sink = rig.sink(V)
    sink.fence(1, PIPELINE)
    sink.publish(rig.publication(1, v(1)))
    rig.execute("DROP TABLE {s}.t")
    with pytest.raises(NotFound):
        sink.publish(rig.publication(2, v(2)))
    with pytest.raises(NotFound, match="epochs were in it"):
        rig.sink(V).position()
    with pytest.raises(NotFound):
        rig.sink(V).fence(2, PIPELINE)
    rig.execute("CREATE TABLE {s}.t (v bigint)")
    again = rig.sink(V)
    assert again.fence(2, PIPELINE).point == rig.publication(1).point
    again.publish(rig.publication(2, v(2), generation=2))
    assert rig.rows() == [(2,)]


def test_a_mark_that_was_deleted_stops_the_sink(rig: Rig) -> None:
    sink = rig.sink(V)
    sink.fence(1, PIPELINE)
    rig.execute("DELETE FROM {s}.lamina_sinks")
    with pytest.raises(NotFound, match="the mark of the table is gone"):
        sink.publish(rig.publication(1, v(1)))
    assert rig.rows() == []


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("53100", StoreFull),
        ("53200", StoreUnavailable),
        ("40001", StoreUnavailable),
        ("40P01", StoreUnavailable),
        ("57014", StoreUnavailable),
        ("58030", StoreUnavailable),
        ("42501", AccessDenied),
        ("P0001", Refused),
        ("0A000", Refused),
        ("55000", Refused),
        ("55P03", StoreUnavailable),
        ("XX001", Refused),
        ("XX000", StoreError),
    ],
)
def test_what_the_server_says_in_mid_insert_is_one_of_our_errors(
    state: str, kind: type[LaminaError], rig: Rig
) -> None:
    sink = rig.sink(V)
    sink.fence(1, PIPELINE)
    rig.execute(
        "CREATE FUNCTION {s}.fail() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$BEGIN RAISE EXCEPTION 'told to' USING ERRCODE = '{state}'; END$$"
    )
    rig.execute("CREATE TRIGGER fail AFTER INSERT ON {s}.t EXECUTE FUNCTION {s}.fail()")
    with pytest.raises(LaminaError, match="told to") as raised:
        sink.publish(rig.publication(1, v(1)))
    assert type(raised.value) is kind
    assert raised.value.advice
    assert rig.rows() == []
    rig.execute("DROP TRIGGER fail ON {s}.t")
    sink.publish(rig.publication(1, v(1)))
    assert rig.rows() == [(1,)]


def test_a_constraint_that_is_checked_at_commit_stops_the_epoch(rig: Rig) -> None:
    rig.execute("CREATE TABLE {s}.t (v bigint UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    sink = rig.sink(V)
    sink.fence(1, PIPELINE)
    with pytest.raises(Refused, match="23505"):
        sink.publish(rig.publication(1, v(1, 1)))
    assert sink.position().point is None
    assert rig.rows() == []


def test_an_epoch_with_the_columns_of_an_older_stream_is_written_by_its_own(rig: Rig) -> None:
    """It was decided before the SELECT was changed, and is published by the next start."""
    rig.execute("CREATE TABLE {s}.t (v bigint, w bigint)")
    sink = rig.sink(pa.schema([("v", pa.int64()), ("w", pa.int64())]))
    sink.fence(1, PIPELINE)
    sink.publish(rig.publication(1, v(1)))
    assert rig.rows() == [(1, None)]
    keyed = rig.sink(KV, keys=("k",), table="keyed", name="keyed")
    keyed.fence(1, PIPELINE)
    with pytest.raises(Refused, match="the rows have no key 'k'"):
        keyed.publish(rig.publication(1, v(1)))


# whose it is


def test_two_sinks_do_not_share_a_table(rig: Rig) -> None:
    rig.sink(V, name="one").fence(1, PIPELINE)
    other = rig.sink(V, name="two")
    for attempt in (other.position, lambda: other.fence(2, PIPELINE)):
        with pytest.raises(Refused, match="belongs to the sink 'one'"):
            attempt()
    assert rig.sink(V, name="ONE").fence(2, PIPELINE).generation == 2


def test_the_mark_can_be_read_by_anybody(rig: Rig) -> None:
    sink = rig.sink(V)
    sink.fence(3, PIPELINE)
    sink.publish(rig.publication(7, v(1, 2), generation=3))
    found = rig.execute(
        "SELECT table_name, sink, pipeline_id, pipeline, generation, epoch, digest, rows "
        "FROM {s}.lamina_sinks"
    )
    assert found == [("t", "out", PIPELINE.id, PIPELINE.name, 3, 7, f"{7:064x}", 2)]


def test_many_first_claims_of_one_schema_at_once(rig: Rig) -> None:
    """The table of marks is made once; two at once met in the catalog of the database."""
    failed: list[LaminaError] = []

    def claim(number: int) -> None:
        sink = rig.sink(V, table=f"t{number}", name=f"s{number}")
        try:
            sink.fence(1, PIPELINE)
        except LaminaError as error:
            failed.append(error)
        finally:
            sink.close()

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert rig.tables() == {"lamina_sinks", *(f"t{number}" for number in range(6))}


def test_a_claim_waits_for_an_epoch_that_is_being_written(rig: Rig) -> None:
    new = rig.sink(V, lock_timeout_ms=50)

    def claim(call: str) -> None:
        if call == "insert the rows":
            with pytest.raises(StoreUnavailable):
                new.fence(2, PIPELINE)

    old = rig.sink(V, hook=claim)
    old.fence(1, PIPELINE)
    old.publish(rig.publication(1, v(1)))
    assert new.fence(2, PIPELINE).point == rig.publication(1).point
    with pytest.raises(Fenced):
        old.publish(rig.publication(2, v(2)))
    assert rig.rows() == [(1,)]


def test_nobody_alters_the_table_while_an_epoch_is_written(rig: Rig) -> None:
    """numeric(3,0) took 1.5 as 2, which nobody had said."""
    halves = pa.schema([("v", pa.decimal128(3, 1))])
    tried: list[str] = []

    def alter(call: str) -> None:
        if call == "make room for the rows":
            with rig.server.connect(options="-c lock_timeout=50ms") as other:
                try:
                    other.execute(f"ALTER TABLE {rig.schema}.t ALTER v TYPE numeric(3,0)")
                except psycopg.errors.LockNotAvailable:
                    tried.append(call)

    sink = rig.sink(halves, hook=alter)
    sink.fence(1, PIPELINE)
    sink.publish(rig.publication(1, table({"v": [Decimal("1.5")]}, halves)))
    assert tried
    assert rig.rows() == [(Decimal("1.5"),)]


# connections


def test_the_answer_to_a_commit_is_lost_and_the_mark_says_that_it_happened(
    rig: Rig, proxy: TcpProxy
) -> None:
    def lose(call: str) -> None:
        if call == "commit" and is_lossy:
            proxy.lose_answer(COMMITTED)

    is_lossy = False
    sink = rig.sink(V, hook=lose, port=proxy.port)
    sink.fence(1, PIPELINE)
    is_lossy = True
    sink.publish(rig.publication(1, v(1)))
    assert sink.fence(2, PIPELINE).generation == 2
    is_lossy = False
    sink.publish(rig.publication(2, v(2), generation=2))
    assert rig.rows() == [(1,), (2,)]


def test_a_commit_that_did_not_arrive_is_tried_again(rig: Rig, proxy: TcpProxy) -> None:
    def lose(call: str) -> None:
        if call == "commit" and rig.home.exists():
            proxy.cut()

    sink = rig.sink(V, hook=lose, port=proxy.port)
    sink.fence(1, PIPELINE)
    with pytest.raises(StoreUnavailable):
        sink.publish(rig.publication(1, v(1)))
    assert rig.rows() == []
    assert sink.position().point is None
    again = rig.sink(V)
    again.publish(rig.publication(1, v(1)))
    assert rig.rows() == [(1,)]


def test_nobody_answers_after_a_commit_and_the_next_try_finds_it_done(
    rig: Rig, proxy: TcpProxy
) -> None:
    def lose(call: str) -> None:
        if call == "commit" and rig.home.exists():
            proxy.lose_answer(COMMITTED)
            proxy.is_closed = True

    sink = rig.sink(V, hook=lose, port=proxy.port)
    sink.fence(1, PIPELINE)
    with pytest.raises(StoreUnavailable):
        sink.publish(rig.publication(1, v(1)))
    proxy.is_closed = False
    assert sink.position().point == rig.publication(1).point
    sink.publish(rig.publication(1, v(1)))
    assert rig.rows() == [(1,)]


def test_a_connection_that_is_lost_in_mid_copy_leaves_nothing(rig: Rig, proxy: TcpProxy) -> None:
    class CutAtSecond:
        """The second file is opened while the rows of the first are on their way."""

        def __init__(self, publication: Publication) -> None:
            self._staged, self._first = publication.staged, publication.files[0]
            self.where, self.local_path = self._staged.where, self._staged.local_path

        def open(self, file: Staged) -> BufferedIOBase:
            if file != self._first:
                proxy.cut()
            return self._staged.open(file)

    sink = rig.sink(V, port=proxy.port)
    sink.fence(1, PIPELINE)
    epoch = rig.publication(1, v(*range(100_000)), v(*range(100_000, 200_000)))
    with pytest.raises(StoreUnavailable):
        sink.publish(replace(epoch, staged=CutAtSecond(epoch)))
    assert rig.rows() == []
    sink.publish(epoch)
    assert rig.execute("SELECT count(*), sum(v) FROM {s}.t") == [(200_000, 199_999 * 100_000)]


def test_a_server_that_was_started_again_between_epochs_is_not_noticed(rig: Rig) -> None:
    sink = rig.sink(V)
    sink.fence(1, PIPELINE)
    sink.publish(rig.publication(1, v(1)))
    with rig.server.down():
        pass
    sink.publish(rig.publication(2, v(2)))
    with rig.server.down():
        pass
    assert sink.position().point == rig.publication(2).point
    assert rig.rows() == [(1,), (2,)]


def test_a_lock_of_somebody_else_is_waited_for_and_then_said(rig: Rig) -> None:
    sink = rig.sink(V, lock_timeout_ms=100)
    sink.fence(1, PIPELINE)
    for locked in ("t", "lamina_sinks"):
        with rig.server.connect(autocommit=False) as other:
            other.execute(f"LOCK TABLE {rig.schema}.{locked}")
            with pytest.raises(StoreUnavailable, match="pg_stat_activity"):
                sink.publish(rig.publication(1, v(1)))
    sink.publish(rig.publication(1, v(1)))
    assert rig.rows() == [(1,)]


def test_a_role_of_other_habits_writes_the_same(rig: Rig) -> None:
    """Its commits would not survive a crash, and its transactions could not write."""
    habits = {
        "synchronous_commit": "off",
        "default_transaction_isolation": "serializable",
        "default_transaction_read_only": "on",
        "timezone": "Asia/Tokyo",
    }
    role = f"habits_{rig.schema}"
    rig.execute(f"CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA {{s}} TO {role}")
    for name, value in habits.items():
        rig.execute(f"ALTER ROLE {role} SET {name} = '{value}'")
    sink = rig.sink(V, user=role)
    sink.fence(1, PIPELINE)
    sink.publish(rig.publication(1, v(1)))
    assert rig.rows() == [(1,)]
    shown = sink._session.query("look", "SELECT current_setting('synchronous_commit') AS on")
    assert shown == [{"on": "on"}]


def test_text_is_the_same_in_a_database_of_another_encoding(rig: Rig) -> None:
    rig.execute("DROP DATABASE IF EXISTS latin")
    rig.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    words = pa.schema([("word", pa.string())])
    place = replace(rig, schema="public")
    sink = place.sink(words, database="latin")
    sink.fence(1, PIPELINE)
    sink.publish(rig.publication(1, table({"word": ["déjà"]}, words)))
    with pytest.raises(Refused, match="22P05"):
        sink.publish(rig.publication(2, table({"word": ["Ω"]}, words)))
    sink.close()
    assert rig.server.execute("SELECT word FROM t", dbname="latin") == [("déjà",)]


# logging in


def test_a_password_is_asked_for_and_never_said(rig: Rig) -> None:
    rig.execute(f"GRANT ALL ON SCHEMA {{s}} TO {PASSWORD_USER}")
    right = rig.sink(V, user=PASSWORD_USER, password=PASSWORD)
    right.fence(1, PIPELINE)
    right.close()
    for password in ("", "wrong one"):
        with pytest.raises(AccessDenied) as raised:
            rig.sink(V, user=PASSWORD_USER, password=password).position()
        assert "wrong one" not in str(raised.value)
    assert PASSWORD not in repr(rig.sink(V, password=PASSWORD).__dict__)


@pytest.mark.parametrize(
    ("option", "kind", "said"),
    [
        ({"host": "no-such-host.invalid"}, StoreUnavailable, "no-such-host.invalid"),
        ({"port": 1}, StoreUnavailable, "port 1"),
        ({"database": "no such 'one'"}, NotFound, "no such 'one'"),
        ({"user": "nobody there"}, AccessDenied, "nobody there"),
        ({"ssl": {"sslmode": "require"}}, AccessDenied, "SSL"),
        ({"ssl": {"sslmode": "verify-full", "sslrootcert": "/no/such"}}, AccessDenied, "SSL"),
    ],
)
def test_a_server_that_is_not_there_or_lets_nobody_in(
    option: dict[str, object], kind: type[LaminaError], said: str, rig: Rig
) -> None:
    for _ in range(2):
        with pytest.raises(LaminaError, match=said) as raised:
            rig.sink(V, **option).position()
        assert type(raised.value) is kind
        assert raised.value.advice


def test_a_server_that_takes_a_call_and_says_nothing_is_given_up_in_time(rig: Rig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sink = rig.sink(V, port=silent.getsockname()[1], connect_timeout_s=2)
        with pytest.raises(StoreUnavailable, match="timeout expired"):
            sink.position()


SHORT: dict[str, Any] = {
    "answer_timeout_ms": 200,
    "lock_timeout_ms": 200,
    "write_timeout_ms": 200,
    "grace_s": 0.3,
}


def backends(rig: Rig) -> list[tuple[int]]:
    """Of sinks that have the name of the schema."""
    name = f"application_name = 'lamina {rig.schema}'"
    return rig.execute(f"SELECT pid FROM pg_stat_activity WHERE {name}")


@contextmanager
def stopped(rig: Rig) -> Iterator[None]:
    """The server process of every connection of a sink says nothing any more."""
    found = backends(rig)
    for (pid,) in found:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for (pid,) in found:
            os.kill(pid, signal.SIGCONT)


def test_a_backend_that_says_nothing_hung_the_sink_and_all_others_with_it(rig: Rig) -> None:
    sink = rig.sink(V, name=rig.schema, **SHORT)
    claimed = sink.fence(1, PIPELINE)
    with ThreadPoolExecutor(1) as pool:
        with stopped(rig):
            assert pool.submit(sink.position).result(timeout=30) == claimed, "on a new connection"
        with stopped(rig):
            pool.submit(sink.publish, rig.publication(1, v(1))).result(timeout=30)
    sink.publish(rig.publication(2, v(2)))
    assert rig.rows() == [(1,), (2,)]


@pytest.mark.parametrize("at", ["look at the table", "copy the rows", "insert the rows", "commit"])
def test_a_backend_that_stops_in_mid_epoch_is_given_up_and_writes_once(at: str, rig: Rig) -> None:
    with ExitStack() as silence:

        def stop(call: str) -> None:
            if call == at and rig.home.exists() and not tried:
                tried.append(call)
                silence.enter_context(stopped(rig))

        tried: list[str] = []
        sink = rig.sink(V, name=rig.schema, hook=stop, **SHORT)
        sink.fence(1, PIPELINE)
        epoch = rig.publication(1, v(*range(30_000)), v(*range(30_000)))
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                sink.publish(epoch)
        assert tried == [at]
        assert sink.position().point is None
        assert rig.rows() == []
    patient = rig.sink(V, name=rig.schema)
    patient.publish(epoch)
    patient.publish(epoch)
    assert rig.execute("SELECT count(*), sum(v) FROM {s}.t") == [(60_000, 29_999 * 30_000)]
    patient.close()
    sink.close()
    deadline = time.monotonic() + 20
    while backends(rig):
        assert time.monotonic() < deadline, "a connection that was given up is closed in the end"
        time.sleep(0.05)


@pytest.mark.parametrize("part", [b"typreceive", b"set_config"])
def test_a_server_that_falls_silent_after_the_login_is_given_up(
    part: bytes, rig: Rig, proxy: TcpProxy
) -> None:
    proxy.mute(part)
    sink = rig.sink(V, port=proxy.port, connect_timeout_s=2, **SHORT)
    with pytest.raises(StoreUnavailable, match=r"said nothing .* connect"):
        sink.position()
    proxy.muted_from = None
    assert sink.position().point is None


def test_a_statement_that_takes_too_long_is_ended_by_the_server(rig: Rig) -> None:
    rig.execute("CREATE TABLE {s}.t (v bigint)")
    rig.execute(
        "CREATE FUNCTION {s}.slow() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN PERFORM pg_sleep(2); RETURN NEW; END$$"
    )
    rig.execute("CREATE TRIGGER slow AFTER INSERT ON {s}.t EXECUTE FUNCTION {s}.slow()")
    short = rig.sink(V, **{**SHORT, "grace_s": 30.0})
    short.fence(1, PIPELINE)
    with pytest.raises(StoreUnavailable, match="write_timeout"):
        short.publish(rig.publication(1, v(1)))
    slow = rig.sink(V, **{**SHORT, "write_timeout_ms": 60_000})
    slow.publish(rig.publication(1, v(1)))
    assert rig.rows() == [(1,)]


def test_rows_that_come_slowly_are_not_the_servers_fault(rig: Rig) -> None:
    class Slow:
        def __init__(self, publication: Publication) -> None:
            self._staged = publication.staged
            self.where, self.local_path = self._staged.where, self._staged.local_path

        def open(self, file: Staged) -> BufferedIOBase:
            time.sleep(0.8)
            return self._staged.open(file)

    sink = rig.sink(V, **{**SHORT, "write_timeout_ms": 60_000})
    sink.fence(1, PIPELINE)
    epoch = rig.publication(1, v(1), v(2), v(3))
    sink.publish(replace(epoch, staged=Slow(epoch)))
    assert rig.rows() == [(1,), (2,), (3,)]


def test_a_sink_without_a_stream_says_where_it_stands_and_makes_nothing(rig: Rig) -> None:
    asked = PostgresSink("out", rig.login, Place(rig.schema, "t"))
    assert asked.position().point is None
    assert rig.tables() == set()
    sink = rig.sink(V)
    sink.fence(1, PIPELINE)
    sink.publish(rig.publication(1, v(1)))
    assert asked.position() == sink.position()
    asked.close()
    asked.close()


def test_a_schema_that_is_missing_is_named(rig: Rig) -> None:
    with pytest.raises(NotFound, match="no schema 'not there'"):
        replace(rig, schema="not there").sink(V).position()


def test_rights_that_are_missing_are_named_before_anything_is_claimed(rig: Rig) -> None:
    role = f"guest_{rig.schema}"
    rig.execute(f"CREATE ROLE {role} LOGIN")
    sink = rig.sink(KV, keys=("k",), change=Change.CHANGES, user=role)
    with pytest.raises(AccessDenied):
        sink.position()
    rig.execute(f"GRANT USAGE ON SCHEMA {{s}} TO {role}")
    with pytest.raises(AccessDenied, match="may not create tables"):
        sink.position()
    rig.execute("CREATE TABLE {s}.t (k text PRIMARY KEY, v bigint)")
    with pytest.raises(AccessDenied, match="INSERT, SELECT, UPDATE, DELETE"):
        sink.position()
    rig.execute(f"GRANT ALL ON {{s}}.t TO {role}")
    sink.position()
    with pytest.raises(AccessDenied, match="create the table lamina_sinks"):
        sink.fence(1, PIPELINE)
    rig.execute(f"GRANT CREATE ON SCHEMA {{s}} TO {role}")
    sink.fence(1, PIPELINE)
    rig.execute(f"REVOKE INSERT ON {{s}}.t FROM {role}")
    with pytest.raises(AccessDenied, match="INSERT"):
        sink.publish(rig.publication(1, kv({"a": 1})))
    rig.execute(f"GRANT INSERT ON {{s}}.t TO {role}")
    sink.publish(rig.publication(1, kv({"a": 1})))
    assert rig.rows() == [("a", 1)]


def test_a_standby_is_told_apart_from_its_primary(rig: Rig) -> None:
    rig.sink(V).fence(1, PIPELINE)
    with standby(rig.server) as copy:
        with pytest.raises(StoreReadOnly, match="standby"):
            rig.sink(V, port=copy.port).position()
        both = {"host": "127.0.0.1,127.0.0.1"}
        assert rig.sink(V, **both).position().generation == 1


def test_a_certificate_is_checked_as_sslmode_says(rig: Rig) -> None:
    if reason := tls_missing():
        pytest.skip(reason)
    with tls_postgres() as server:
        tls = replace(rig, server=server, schema=server.new_schema())
        root = str(server.folder / "root")
        good = [
            ("localhost", {"sslmode": "verify-full", "sslrootcert": root}),
            ("127.0.0.1", {"sslmode": "verify-ca", "sslrootcert": root}),
            ("127.0.0.1", {"sslmode": "require"}),
        ]
        for host, ssl in good:
            sink = tls.sink(V, host=host, ssl=ssl)
            sink.position()
            used = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            assert sink._session.query("look", used) == [{"ssl": True}]
            sink.close()
        bad = [
            ("127.0.0.1", {"sslmode": "verify-full", "sslrootcert": root}),
            ("localhost", {"sslmode": "verify-full", "sslrootcert": str(rig.home / "none")}),
            ("localhost", {"sslmode": "verify-ca", "sslrootcert": str(server.data / "PG_VERSION")}),
        ]
        for host, ssl in bad:
            with pytest.raises(AccessDenied, match="Check sslmode, sslrootcert"):
                tls.sink(V, host=host, ssl=ssl).position()

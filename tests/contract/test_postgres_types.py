"""Every value that a stream can have is in the table as it was, by the word of another client."""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import struct
from collections.abc import Iterator
from decimal import Context, Decimal
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamina.connectors.postgres.sink import PostgresSink
from lamina.errors import Refused
from tests.contract.postgres_rig import Rig, table
from tests.contract.sinks import PIPELINE
from tests.servers import PostgresServer
from tests.support.examples import examples

pytestmark = pytest.mark.server

UTC = dt.UTC
TYPES: dict[str, pa.DataType] = {
    "flag": pa.bool_(),
    "tiny": pa.int8(),
    "small": pa.int16(),
    "whole": pa.int32(),
    "long": pa.int64(),
    "single": pa.float32(),
    "double": pa.float64(),
    "money": pa.decimal128(38, 18),
    "huge": pa.decimal128(38, 0),
    "cents": pa.decimal128(7, 2),
    "text": pa.string(),
    "bytes": pa.binary(),
    "day": pa.date32(),
    "instant": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "length": pa.duration("us"),
    "clock": pa.time64("ns"),
    "longs": pa.list_(pa.int64()),
    "texts": pa.list_(pa.string()),
    "doubles": pa.list_(pa.float64()),
    "instants": pa.list_(pa.timestamp("us", "UTC")),
    "sums": pa.list_(pa.decimal128(10, 2)),
    "flags": pa.list_(pa.bool_()),
    "tinies": pa.list_(pa.int8()),
    "blobs": pa.list_(pa.binary()),
    "days": pa.list_(pa.date32()),
    "locals": pa.list_(pa.timestamp("us")),
    "lengths": pa.list_(pa.duration("us")),
}
SCHEMA = pa.schema(list(TYPES.items()))

DAYS = st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))
MOMENTS = st.datetimes()
INSTANTS = MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC))
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
LENGTHS = st.timedeltas(dt.timedelta(days=-100_000), dt.timedelta(days=100_000))
SINGLES = st.floats(width=32)
EXACT = Context(prec=60)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda number: Decimal(number).scaleb(-scale, EXACT))


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def many(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values, max_size=4)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "tiny": whole(8),
    "small": whole(16),
    "whole": whole(32),
    "long": whole(64),
    "single": SINGLES,
    "double": st.floats(),
    "money": decimals(38, 18),
    "huge": decimals(38, 0),
    "cents": decimals(7, 2),
    "text": TEXT,
    "bytes": st.binary(max_size=20),
    "day": DAYS,
    "instant": INSTANTS,
    "local": MOMENTS,
    "length": LENGTHS,
    "clock": st.times(),
    "longs": many(whole(64)),
    "texts": many(TEXT),
    "doubles": many(st.floats()),
    "instants": many(INSTANTS),
    "sums": many(decimals(10, 2)),
    "flags": many(st.booleans()),
    "tinies": many(whole(8)),
    "blobs": many(st.binary(max_size=20)),
    "days": many(DAYS),
    "locals": many(MOMENTS),
    "lengths": many(LENGTHS),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}),
    min_size=1,
    max_size=20,
)


def same(value: object) -> object:
    """Two values are the same if these are: NaN is NaN, and -0.0 is not 0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return [same(each) for each in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def rig(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Rig:
    home = tmp_path_factory.mktemp("types") / "home"
    return Rig(postgres_server, postgres_server.new_schema(), home)


@pytest.fixture(scope="module")
def epochs() -> Iterator[int]:
    return count(1)


@pytest.fixture(scope="module")
def sink(rig: Rig) -> Iterator[PostgresSink]:
    opened = rig.sink(SCHEMA, table="all types")
    opened.fence(1, PIPELINE)
    yield opened
    opened.close()


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(rows=ROWS)
def test_every_value_comes_back_as_it_was(
    rig: Rig, sink: PostgresSink, epochs: Iterator[int], rows: list[Any]
) -> None:
    rig.execute('TRUNCATE {s}."all types"')
    sent = pa.Table.from_pylist(rows, SCHEMA)
    sink.publish(rig.publication(next(epochs), sent))
    names = ", ".join(f'"{name}"' for name in TYPES)
    found = rig.execute(f'SELECT {names} FROM {{s}}."all types"')
    for name, got in zip(TYPES, zip(*found, strict=True), strict=True):
        # psycopg reads the shortest text of a single, as a double
        alike = _single if name == "single" else same
        assert [alike(each) for each in got] == [alike(row[name]) for row in rows], name


def _single(value: float | None) -> object:
    return value if value is None else same(struct.unpack("<f", struct.pack("<f", value))[0])


def test_the_columns_of_a_new_table_have_these_types(rig: Rig) -> None:
    rig.sink(SCHEMA, table="made").fence(1, PIPELINE)
    found = rig.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = '{s}.made'::regclass AND attnum > 0"
    )
    assert dict(found) == {
        "flag": "boolean",
        "tiny": "smallint",
        "small": "smallint",
        "whole": "integer",
        "long": "bigint",
        "single": "real",
        "double": "double precision",
        "money": "numeric(38,18)",
        "huge": "numeric(38,0)",
        "cents": "numeric(7,2)",
        "text": "text",
        "bytes": "bytea",
        "day": "date",
        "instant": "timestamp with time zone",
        "local": "timestamp without time zone",
        "length": "interval",
        "clock": "time without time zone",
        "longs": "bigint[]",
        "texts": "text[]",
        "doubles": "double precision[]",
        "instants": "timestamp with time zone[]",
        "sums": "numeric(10,2)[]",
        "flags": "boolean[]",
        "tinies": "smallint[]",
        "blobs": "bytea[]",
        "days": "date[]",
        "locals": "timestamp without time zone[]",
        "lengths": "interval[]",
    }


MIN_DAY, MAX_DAY = -2_440_588, 2_145_042_905
MIN_US = -210_866_803_200_000_000
DAY, STAMP = pa.date32(), pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("kind", "number", "shown"),
    [
        (DAY, MIN_DAY, "4714-11-24 BC"),
        (DAY, MAX_DAY, "5874897-12-31"),
        (DAY, MIN_DAY - 1, None),
        (DAY, MAX_DAY + 1, None),
        (DAY, -2_147_472_691, None),  # PostgreSQL would read -infinity
        (DAY, -(2**31) + 10_956, None),  # and infinity
        (STAMP, MIN_US, "4714-11-24 00:00:00+00 BC"),
        (STAMP, MIN_US - 1, None),
        (STAMP, -(2**63), None),
        (STAMP, -(2**63) + 946_684_800_000_000, None),  # -infinity
        (STAMP, 2**63 - 1, "294247-01-10 04:00:54.775807+00"),
        (pa.timestamp("us"), MIN_US, "4714-11-24 00:00:00 BC"),
        (pa.list_(STAMP), MIN_US - 1, None),
        (pa.list_(DAY), MIN_DAY, '{"4714-11-24 BC"}'),
    ],
)
def test_the_ends_of_time_are_exact_or_refused(
    kind: pa.DataType, number: int, shown: str | None, rig: Rig
) -> None:
    name = hashlib.sha256(f"{kind} {number}".encode()).hexdigest()[:20]
    schema = pa.schema([("at", kind)])
    sink = rig.sink(schema, table=name)
    sink.fence(1, PIPELINE)
    raw = pa.int32() if "date" in str(kind) else pa.int64()
    is_list = pa.types.is_list(kind)
    value = pa.array([number], raw).view(kind.value_type if is_list else kind)
    column = pa.ListArray.from_arrays([0, 1], value) if is_list else value
    epoch = rig.publication(1, pa.Table.from_arrays([column], schema=schema))
    if shown is None:
        with pytest.raises(Refused, match=r"'at' has a .* that PostgreSQL cannot hold"):
            sink.publish(epoch)
        assert sink.position().point is None
    else:
        sink.publish(epoch)
        with rig.server.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            found = connection.execute(f'SELECT at::text FROM {rig.schema}."{name}"').fetchall()
        assert found == [(shown,)]


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (pa.string(), "a\0b", "cannot hold the character NUL"),
        (pa.list_(pa.string()), ["a\0b"], "cannot hold the character NUL"),
        (pa.time64("ns"), 1, "finer than microseconds"),
    ],
)
def test_a_value_that_postgresql_cannot_hold_is_refused_by_name(
    kind: pa.DataType, value: object, said: str, rig: Rig
) -> None:
    schema = pa.schema([("odd one", kind)])
    name = f"odd {kind}"
    sink = rig.sink(schema, table=name)
    sink.fence(1, PIPELINE)
    with pytest.raises(Refused, match=said) as raised:
        sink.publish(rig.publication(1, table({"odd one": pa.array([value], kind)}, schema)))
    assert "odd one" in raised.value.message
    assert "--sink-from-now" in raised.value.advice, "no change of the table lets it in"
    assert rig.rows(name) == []


WIDER = {
    "whole": ("bigint", pa.int32(), -(2**31)),
    "small": ("double precision", pa.int16(), -(2**15)),
    "narrow": ("smallint", pa.int64(), 32_767),
    "count": ("numeric(30, 2)", pa.int64(), -(2**63)),
    "sum": ("numeric(40, 20)", pa.decimal128(38, 18), Decimal("-1.000000000000000001")),
    "plain": ("numeric", pa.decimal128(38, 18), Decimal("0.5")),
    "units": ("bigint", pa.decimal128(20, 0), Decimal(2**63 - 1)),
    "single": ("double precision", pa.float32(), 0.5),
    "day": ("timestamp", pa.date32(), dt.date(1, 1, 1)),
    "name": ("varchar(4)", pa.string(), "näme"),
    "id": ("uuid", pa.string(), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "doc": ("jsonb", pa.string(), '{"a": [1, null]}'),
    "mood": ('{s}."a mood"', pa.string(), "good"),
    "host": ("inet", pa.string(), "10.0.0.1"),
    "few": ("{s}.few", pa.int64(), 3),
    "words": ("varchar(3)[]", pa.list_(pa.string()), ["a", "abc"]),
}


def test_a_table_of_wider_or_stricter_types_takes_the_values_and_checks_them(rig: Rig) -> None:
    rig.execute("CREATE TYPE {s}.\"a mood\" AS ENUM ('good', 'bad')")
    rig.execute("CREATE DOMAIN {s}.few AS int CHECK (VALUE < 9)")
    columns = ", ".join(f'"{name}" {made}' for name, (made, _, _) in WIDER.items())
    rig.execute(f"CREATE TABLE {{s}}.wider ({columns})")
    schema = pa.schema([(name, kind) for name, (_, kind, _) in WIDER.items()])
    sink = rig.sink(schema, table="wider")
    sink.fence(1, PIPELINE)
    good = {name: value for name, (_, _, value) in WIDER.items()}
    sink.publish(rig.publication(1, pa.Table.from_pylist([good], schema)))
    (found,) = rig.execute("SELECT * FROM {s}.wider")
    shown = dict(zip(WIDER, (str(each) for each in found), strict=True))
    wanted = {name: str(value) for name, value in good.items()}
    wanted |= {"day": "0001-01-01 00:00:00", "doc": "{'a': [1, None]}", "host": "10.0.0.1"}
    wanted |= {"count": "-9223372036854775808.00", "sum": "-1.00000000000000000100"}
    wanted |= {"small": "-32768.0"}
    assert shown == wanted
    bad = {
        "narrow": 32_768,
        "units": Decimal(2**63),
        "name": "names",
        "id": "none",
        "doc": "{",
        "mood": "odd",
        "host": "x",
        "few": 9,
        "words": ["abcd"],
    }
    for name, value in bad.items():
        with pytest.raises(Refused) as raised:
            sink.publish(rig.publication(2, pa.Table.from_pylist([{**good, name: value}], schema)))
        assert "PostgreSQL refused to insert the rows" in raised.value.message
    assert len(rig.rows("wider")) == 1


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ("numeric(38, 17)", pa.decimal128(38, 18)),
        ("numeric(5, -2)", pa.int64()),
        ("real", pa.float64()),
        ("double precision", pa.int64()),
        ("numeric", pa.float64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamptz", pa.timestamp("us")),
        ("timestamptz(3)", pa.timestamp("us", "UTC")),
        ("interval minute", pa.duration("us")),
        ("time(0)", pa.time64("us")),
        ("bytea", pa.string()),
        ("name", pa.string()),
        ("integer", pa.string()),
        ("text", pa.list_(pa.string())),
        ("numeric(9, 1)[]", pa.list_(pa.decimal128(9, 2))),
        ("date", pa.timestamp("us")),
    ],
)
def test_a_column_that_would_round_cut_or_guess_is_refused(
    made: str, kind: pa.DataType, rig: Rig
) -> None:
    name = hashlib.sha256(f"{made} {kind}".encode()).hexdigest()[:20]
    rig.execute(f'CREATE TABLE {{s}}."{name}" (x {made})')
    with pytest.raises(Refused, match=r"does not take .* exactly"):
        rig.sink(pa.schema([("x", kind)]), table=name).position()


def test_a_hundred_thousand_rows_by_key_twice(rig: Rig) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    sink = rig.sink(schema, table="many", keys=("k",))
    sink.fence(1, PIPELINE)

    def rows(first: int, last: int, word: str) -> pa.Table:
        keys = pa.array(range(first, last))
        return pa.table({"k": keys, "v": pa.array([f"{word} {k}" for k in range(first, last)])})

    sink.publish(rig.publication(1, rows(0, 60_000, "old"), rows(60_000, 100_000, "old")))
    sink.publish(rig.publication(2, rows(50_000, 150_000, "new")))
    found = rig.execute(
        "SELECT split_part(v, ' ', 1), count(*), sum(k), sum(split_part(v, ' ', 2)::bigint) "
        "FROM {s}.many GROUP BY 1 ORDER BY 1"
    )
    old, new = sum(range(50_000)), sum(range(50_000, 150_000))
    assert found == [("new", 100_000, new, new), ("old", 50_000, old, old)]


def test_a_message_of_ten_megabytes(rig: Rig) -> None:
    schema = pa.schema([("text", pa.string()), ("bytes", pa.binary())])
    sink = rig.sink(schema, table="large")
    sink.fence(1, PIPELINE)
    text, data = "é" * 5_000_000, bytes(range(256)) * 40_000
    sink.publish(rig.publication(1, table({"text": [text], "bytes": [data]}, schema)))
    assert rig.rows("large") == [(text, data)]

"""Changes of PostgreSQL without a server: messages, values, folding, and what a pipeline says."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.connectors.changes.folding import IS_NEW, SEQUENCE, fold
from lamina.connectors.changes.journal import JournalWriter, Versions
from lamina.connectors.kinds import SourceContext
from lamina.connectors.opening import changing_sources, check_source
from lamina.connectors.postgres_cdc.decoding import Decoder
from lamina.connectors.postgres_cdc.kind import slot_of
from lamina.connectors.postgres_cdc.lsn import SeenTransactions, lsn_of, lsn_text
from lamina.connectors.postgres_cdc.table import ReadTable, _server_problems
from lamina.connectors.postgres_cdc.values import ReadColumn
from lamina.engine.ports import CHANGE, NEW
from lamina.errors import BadPipeline, Corrupt, Refused
from lamina.pipeline.checks import check_pipeline
from lamina.pipeline.model import Column, DeclaredSource, Option, Watermark
from lamina.pipeline.statements import parse_pipeline

OID = 77
TABLE = ReadTable(
    "s", "public", "t", OID, "here", {"k": "k", "v": "v"}, {"k": (20, -1), "v": (25, -1)}
)
COLUMNS = [ReadColumn("k", pa.int64()), ReadColumn("v", pa.string())]
UNCHANGED = object()
Row = tuple[Any, Any]


def begin(commit: int, xid: int = 1) -> bytes:
    return b"B" + struct.pack(">qqI", commit, 0, xid)


def commit(at: int) -> bytes:
    return b"C\0" + struct.pack(">qqq", at, at + 1, 0)


def relation(oid: int = OID, names: Iterable[str] = ("k", "v"), identity: bytes = b"f") -> bytes:
    names = list(names)
    columns = b"".join(
        b"\1" + n.encode() + b"\0" + struct.pack(">Ii", 20 if n == "k" else 25, -1) for n in names
    )
    head = b"R" + struct.pack(">I", oid) + b"public\0t\0" + identity
    return head + struct.pack(">H", len(names)) + columns


def values(row: Iterable[Any]) -> bytes:
    row = list(row)
    parts = [struct.pack(">H", len(row))]
    for each in row:
        text = str(each).encode()
        known = {None: b"n", UNCHANGED: b"u"}
        plain = each is None or each is UNCHANGED
        parts.append(known[each] if plain else b"t" + struct.pack(">I", len(text)) + text)
    return b"".join(parts)


def row(kind: str, old: Iterable[Any] | None, new: Iterable[Any] | None, oid: int = OID) -> bytes:
    before = b"" if old is None else b"O" + values(old)
    after = b"" if new is None else b"N" + values(new)
    return kind.encode() + struct.pack(">I", oid) + before + after


def batches(messages: list[bytes], random: Random) -> list[pa.RecordBatch]:
    """Cut anywhere, and with something before the first message of a buffer."""
    cuts = sorted({0, len(messages), *(random.randrange(len(messages) + 1) for _ in range(3))})
    whole = pa.array([b"junk", *messages], pa.binary())
    pairs = pairwise(cuts)
    return [pa.record_batch([whole.slice(a + 1, b - a)], ["data"]) for a, b in pairs]


def decoded(messages: list[bytes], decoder: Decoder, random: Random | None = None) -> list[Any]:
    found = []
    for batch in batches(messages, random or Random(0)):
        for table in decoder.versions(batch):
            found += [tuple(each.values()) for each in table.to_pylist()]
    return sorted(found, key=lambda each: int(each[2]))


@pytest.mark.parametrize("seed", range(30))
def test_messages_become_versions_however_they_are_cut(seed: int) -> None:
    """Against a loop over them, row by row."""
    random = Random(seed)
    messages: list[bytes] = []
    wanted: list[tuple[Any, Any, bool]] = []
    for number in range(random.randrange(1, 8)):
        counts = number >= 2
        messages.append(begin(100 * number, xid=number))
        for _ in range(random.randrange(4)):
            other = random.random() < 0.2
            messages.append(relation(OID + other))
            old, new = (
                (random.randrange(9), random.choice((None, "", "Ω" * random.randrange(9))))
                for _ in "ab"
            )
            kind = random.choice("IUD")
            shown = (new[0], UNCHANGED) if kind == "U" and random.random() < 0.5 else new
            messages.append(
                row(kind, None if kind == "I" else old, None if kind == "D" else shown, OID + other)
            )
            if other or not counts:
                continue
            wanted += [] if kind == "I" else [(*old, False)]
            filled = (new[0], old[1]) if shown[1] is UNCHANGED else new
            wanted += [] if kind == "D" else [(*filled, True)]
        messages.append(commit(100 * number))
    decoder = Decoder(replace(TABLE, name="mine"), COLUMNS, start=200)
    found = decoded(messages, decoder, random)
    assert [(k, v, new) for k, v, _, new in found] == wanted
    assert decoder.end == 100 * number + 1


def test_transactions_that_a_snapshot_has_seen_are_passed_over() -> None:
    near = (3 << 32) - 2  # numbers of transactions begin again at 2^32
    seen = SeenTransactions(f"{near}:{near + 5}:{near + 1},{near + 3}", 900)
    xids = np.array([(near + step) % (1 << 32) for step in range(-2, 7)], np.int64)
    assert seen.visible(xids).tolist() == [True] * 3 + [False, True, False, True, False, False]
    messages = []
    for number, xid in enumerate(xids.tolist()):
        messages += [
            begin(10 * number, xid),
            relation(),
            row("I", None, (number, "a")),
            commit(10 * number),
        ]
    found = decoded(messages, Decoder(TABLE, COLUMNS, 0, seen))
    assert [each[0] for each in found] == [3, 5, 7, 8]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([relation(identity=b"d"), row("I", None, (1, "a"))], "without REPLICA IDENTITY FULL"),
        ([relation(oid=78)], "another one has its name"),
        ([relation(names=["k"]), row("I", None, (1,))], "'v' was dropped"),
        ([relation(), b"T" + struct.pack(">IBII", 2, 0, 5, OID)], r"truncated.*transaction at 0/A"),
        ([relation(), b"D" + struct.pack(">I", OID) + b"K" + values((1, None))], "old values"),
        ([relation(), row("I", None, ("x", "a"))], "'k' has a value that int64 cannot hold"),
    ],
)
def test_what_cannot_be_followed_is_named(messages: list[bytes], said: str) -> None:
    with pytest.raises(Refused, match=f"(?s){said}"):
        decoded([begin(10), *messages, commit(10)], Decoder(TABLE, COLUMNS, 0))


def test_a_message_that_makes_no_sense() -> None:
    for wrong in (row("I", None, (1, "a", "b")), row("I", None, (1, "a"))[:-6] + b"x00000"):
        with pytest.raises(Corrupt):
            decoded([begin(10), relation(), wrong], Decoder(TABLE, COLUMNS, 0))


@pytest.mark.parametrize("memory_bytes", [1 << 30, 1, 2000])
def test_folding_leaves_what_was_before_and_what_is_after(
    tmp_path: Path, memory_bytes: int
) -> None:

    for seed in range(10):
        random = Random(seed)
        before: dict[int, float | None] = {
            k: random.choice((None, 1.5, float("nan"))) for k in range(5)
        }
        now, entries = dict(before), []
        for _ in range(random.randrange(1, 60)):
            key = random.randrange(8)
            value = random.choice((None, 1.5, 2.5, float("nan")))
            if key in now:
                entries.append((key, now.pop(key), False))
            if random.random() < 0.7:
                now[key] = value
                entries.append((key, value, True))
        columns = [
            pa.array([e[i] for e in entries], t)
            for i, t in ((0, pa.int64()), (1, pa.float64()), (2, pa.bool_()))
        ]
        numbers = pa.array(range(len(entries)), pa.int64())
        table = pa.table([*columns[:2], numbers, columns[2]], ["k", "v", SEQUENCE, IS_NEW])
        path = tmp_path / f"{seed}.parquet"
        versions = Versions(tmp_path / "large", ["k"], memory_bytes)
        for start in range(0, len(entries), 7):
            versions.add(table.slice(start, 7))
        journal = JournalWriter(path, pa.schema([("k", pa.int64()), ("v", pa.float64())]))
        versions.fold_into(journal)
        journal.close()
        assert not (tmp_path / "large").exists()
        kept: dict[int, Any] = dict(before)
        changes = pq.read_table(path).to_pylist()
        assert len({(each["k"], each[CHANGE] in NEW) for each in changes}) == len(changes)
        for each in sorted(changes, key=lambda change: change[CHANGE] in NEW):
            if each[CHANGE] in NEW:
                assert (each[CHANGE] == "+U") == (each["k"] in before)
                kept[each["k"]] = each["v"]
            else:
                assert str(kept.pop(each["k"])) == str(each["v"])
                assert (each[CHANGE] == "-U") == (each["k"] in now)
        assert {k: str(v) for k, v in kept.items()} == {k: str(v) for k, v in now.items()}
        same = [k for k in before if k in now and str(before[k]) == str(now[k])]
        assert not {each["k"] for each in changes} & set(same), "nothing comes out of it"


def test_fold_of_nothing() -> None:
    schema = pa.schema([("k", pa.int64()), (SEQUENCE, pa.int64()), (IS_NEW, pa.bool_())])
    assert fold(schema.empty_table(), ["k"]).num_rows == 0


def test_positions_are_printed_as_postgresql_prints_them() -> None:
    for text in ("0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"):
        assert lsn_text(lsn_of(text)) == text


def test_a_server_that_keeps_no_rows_in_its_log() -> None:
    row = {
        "version": 150000,
        "standby": False,
        "wal_level": "replica",
        "may_replicate": True,
        "role": "r",
    }
    wanted: Any = None
    assert "wal_level = 'logical'" in next(_server_problems(row, wanted, "here")).advice
    assert "standby" in next(_server_problems({**row, "standby": True}, wanted, "here")).message
    assert (
        "older than PostgreSQL 14"
        in next(_server_problems({**row, "version": 130009}, wanted, "")).message
    )


# what a pipeline says

LOGIN = {"database": "d", "user": "u", "table": "t", "publication": "p", "keys": "k"}


def declared(columns: str = "k BIGINT, v STRING", **options: str) -> DeclaredSource:
    listed = tuple(Column(*each.strip().split(" ", 1)) for each in columns.split(", "))
    written = {name: Option.plain(value) for name, value in {**LOGIN, **options}.items()}
    return DeclaredSource("s", listed, "postgres_cdc", written)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (declared(keys=""), "has no keys"),
        (declared(publication=""), "has no publication"),
        (declared(keys="x"), "'x', which is not one of its columns"),
        (declared("k DOUBLE"), "floating-point"),
        (declared("k BIGINT, v ARRAY<INT>"), "Declare it STRING"),
        (declared(slot="My-Slot"), "lower-case"),
        (declared(table="a.b"), "schema 'a', table 'b'"),
        (declared(mode="append"), "which is not known"),
        (
            replace(declared("k BIGINT, v TIMESTAMP"), watermark=Watermark("v", 0)),
            "has a WATERMARK",
        ),
    ],
)
def test_what_a_source_may_say_is_checked_without_a_server(
    source: DeclaredSource, said: str
) -> None:
    with pytest.raises(BadPipeline, match=said):
        check_source(source, Path())


def test_a_slot_is_named_after_pipeline_and_source() -> None:
    def named(pipeline: str, **options: str) -> str:
        context = check_source(declared(**options), Path())
        return slot_of(SourceContext(context.source, context.given, pipeline))

    assert named("shop") == "lamina_shop_s"
    assert named("shop", slot="mine") == "mine"
    names = {
        named("Shop"),
        named("shop"),
        named("sho-p"),
        named("sho_p"),
        named("x" * 90),
        named("x" * 91),
    }
    assert len(names) == 6
    assert all(len(each) <= 63 for each in names)


def test_the_text_alone_says_what_reads_changes() -> None:
    """Aggregates over the source, or over streams that pass its rows on, must take rows back."""
    options = ", ".join(f"{name} '{value}'" for name, value in LOGIN.items())
    head = f"CREATE SOURCE s (k BIGINT, v STRING) USING postgres_cdc OPTIONS ({options});"
    head += "CREATE STREAM passed AS SELECT k, v FROM s WHERE k > 1;"
    for read in ("s", "passed"):
        select = f"SELECT v, count(*) AS n FROM {read} GROUP BY v"
        text = f"CREATE STREAM groups AS {select} EMIT ON UPDATE;"
        text += "CREATE SINK o FROM groups USING console; CREATE SINK p FROM passed USING console;"
        pipeline = parse_pipeline(head + text, {}, file="p.sql")
        changing = changing_sources(pipeline)
        assert changing == {"s": ("k",)}
        with pytest.raises(BadPipeline, match="EMIT ON UPDATE over the changes of 's'"):
            check_pipeline(pipeline, file="p.sql", changing=changing)
        good = parse_pipeline(head + text.replace("ON UPDATE", "CHANGES"), {}, file="p.sql")
        check_pipeline(good, file="p.sql", changing=changing)

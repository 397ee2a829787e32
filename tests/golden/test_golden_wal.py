"""The bytes of the write-ahead log: what was written is read for ever (FORMAT.md section 7)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.disk import LocalDisk
from lamina.format import canonical
from lamina.format.commit import (
    AdoptRecord,
    CheckpointRecord,
    CommitRecord,
    MovedRecord,
    Point,
    SinkAhead,
    StagedFile,
    TakeoverRecord,
    WalRange,
    decode_adopt,
    decode_checkpoint,
    decode_commit,
    decode_moved,
    decode_takeover,
    encode_adopt,
    encode_checkpoint,
    encode_commit,
    encode_moved,
    encode_takeover,
    join_adopt,
)
from lamina.format.home_file import HomeFile, decode_home, encode_home
from lamina.format.manifest_model import ConnectorCheckpoint
from lamina.format.pipeline_record import Owner, PipelineRecord
from lamina.format.wal import (
    DRIVER_CORE,
    HEADER_SIZE,
    Kind,
    SegmentHeader,
    binding_of,
    encode_record,
    encode_segment_header,
)
from lamina.ids import CheckpointId
from lamina.wal import Clean, SegmentReader, read_home

HERE = Path(__file__).parent / "wal"
FORMAT = Path(__file__).parents[2] / "docs" / "FORMAT.md"
IDENTITY = bytes.fromhex("000102030405060708090a0b0c0d0e0f")
RUN = (HERE / "run.arrow").read_bytes()  # Arrow's bytes may change with its version: stored
UNKNOWN = 200

OLD = CommitRecord(epoch=6, generation=2)
COMMIT = CommitRecord(
    epoch=7,
    generation=3,
    parent=OLD.point,
    follows=OLD.point,
    partitions=4,
    source_offsets={"trades": ConnectorCheckpoint({"trades-0": "1234"}, 7, {"topic": "trades"})},
    table_offsets={"symbols": ConnectorCheckpoint({"version": "8"}, 6, {})},
    watermark=1_762_499_990_000_000,
    source_watermarks={"trades": -1},
    ranges=(
        WalRange(
            "by symbol",
            2,
            "core-2/00000000000000000003-00000000000000000007-run-5.wal",
            64,
            512,
            0xDEADBEEF,
            3,
        ),
    ),
    staged=(StagedFile("out", "output/out/7/part-0.parquet", 900, "5" * 64, 2),),
)
ADOPT = AdoptRecord(OLD.point, (OLD,))
FIRST_PART = AdoptRecord(COMMIT.point, (OLD,), more=True)
LAST_PART = AdoptRecord(COMMIT.point, (COMMIT,))
GIVEN_UP = AdoptRecord(
    OLD.point,
    (),
    {"out": SinkAhead(COMMIT.point, OLD.point), "\u00fcber": SinkAhead(OLD.point, None)},
)
TAKEOVER = TakeoverRecord(3, IDENTITY.hex())
CHECKPOINT = CheckpointRecord(
    CheckpointId.parse("019a5e10-8c00-7abc-8def-0123456789ab"), 7, "c" * 64
)

Item = tuple[int, bytes, int, int]  # kind, payload, epoch, count of entries
EVERY_KIND: list[Item] = [
    (Kind.TAKEOVER, encode_takeover(TAKEOVER), 0, 0),
    (Kind.ADOPT, encode_adopt(ADOPT), 6, 0),
    (Kind.RUN, RUN, 7, 3),
    (Kind.BARRIER, b"", 7, 0),
    (UNKNOWN, b"of a later Lamina", 7, 0),
    (Kind.COMMIT, encode_commit(COMMIT), 7, 0),
    (Kind.CHECKPOINT, encode_checkpoint(CHECKPOINT), 7, 0),
]
BLANK: list[Item] = [(Kind.RUN, b"\x01" + bytes(2047), 1, 1), (Kind.BARRIER, b"", 1, 0)]
EXAMPLE: list[Item] = [(Kind.BARRIER, b"", 7, 0), (Kind.TAKEOVER, encode_takeover(TAKEOVER), 7, 0)]


def segment(header: SegmentHeader, items: list[Item]) -> bytes:
    """Each record says that everything before it was synced."""
    data = head = encode_segment_header(header)
    sequence = header.first_sequence
    for kind, payload, epoch, count in items:
        record, padding = encode_record(
            [payload],
            kind=kind,  # type: ignore[arg-type]
            epoch=epoch,
            first_sequence=sequence,
            count=count,
            offset=len(data),
            durable=len(data),
            binding=binding_of(head),
            optional=kind == UNKNOWN,
        )
        data += record + payload + padding
        sequence += count
    return data


IN_PARTS: list[Item] = [
    (Kind.TAKEOVER, encode_takeover(TAKEOVER), 0, 0),
    (Kind.ADOPT, encode_adopt(FIRST_PART), 7, 0),
    (Kind.ADOPT, encode_adopt(LAST_PART), 7, 0),
]
SINKS_AHEAD: list[Item] = [
    (Kind.TAKEOVER, encode_takeover(TAKEOVER), 0, 0),
    (Kind.ADOPT, encode_adopt(GIVEN_UP), 6, 0),
]
REWOUND = CommitRecord(
    epoch=9,
    generation=3,
    parent=OLD.point,
    follows=COMMIT.point,
    sinks=("orders", "out"),
    takes_back={"out": OLD.point},
)
FOR_SINKS: list[Item] = [
    (Kind.TAKEOVER, encode_takeover(TAKEOVER), 0, 0),
    (Kind.ADOPT, encode_adopt(ADOPT), 6, 0),
    (Kind.COMMIT, encode_commit(replace(COMMIT, sinks=("out", "\u00fcber"))), 7, 0),
]

OF_PIPELINE = TakeoverRecord(
    3,
    IDENTITY.hex(),
    PipelineRecord(
        Owner("00112233445566778899aabbccddee00", "orders"),
        "e" * 64,
        {"trades": "1" * 64},
        {"vwap": "2" * 64},
        {"\u00fcber": ""},
    ),
)

MOVED = MovedRecord("s3://bucket/trades", "0f" * 16)
AWAY: list[Item] = [
    (Kind.TAKEOVER, encode_takeover(TAKEOVER), 0, 0),
    (Kind.MOVED, encode_moved(MOVED), 0, 0),
]
DRIVER = SegmentHeader(IDENTITY, 3, DRIVER_CORE, 4, 100)
CORE = SegmentHeader(IDENTITY, 3, 2, 4, 5)
SEGMENTS = {
    "every-kind.wal": (DRIVER, EVERY_KIND),
    "blank-sectors.wal": (CORE, BLANK),
    "example.wal": (CORE, EXAMPLE),
    "empty.wal": (CORE, []),
    "adopt-in-parts.wal": (DRIVER, IN_PARTS),
    "sinks-ahead.wal": (DRIVER, SINKS_AHEAD),
    "commit-for-sinks.wal": (DRIVER, FOR_SINKS),
    "commit-of-rewind.wal": (DRIVER, [(Kind.COMMIT, encode_commit(REWOUND), 9, 0)]),
    "moved.wal": (DRIVER, AWAY),
    "takeover-pipeline.wal": (DRIVER, [(Kind.TAKEOVER, encode_takeover(OF_PIPELINE), 0, 0)]),
}


@pytest.mark.parametrize("name", sorted(SEGMENTS))
def test_the_same_values_give_the_pinned_bytes(name: str) -> None:
    assert segment(*SEGMENTS[name]) == (HERE / name).read_bytes()


@pytest.mark.parametrize("name", sorted(SEGMENTS))
def test_a_pinned_segment_is_read_as_it_was_written(name: str) -> None:
    header, items = SEGMENTS[name]
    reader = SegmentReader(LocalDisk(HERE), name)
    assert reader.header == header
    found = [
        (int(r.kind), bytes(r.payload), r.epoch, r.header.count)
        for r in reader.records()
        if r.payload is not None
    ]
    assert found == [item for item in items if item[0] != UNKNOWN]
    assert reader.end == Clean((HERE / name).stat().st_size)


def test_the_pinned_payloads_are_read_as_the_values_they_were() -> None:
    reader = SegmentReader(LocalDisk(HERE), "every-kind.wal")
    by_kind = {record.kind: record for record in reader.records()}
    assert by_kind.keys() == set(Kind) - {Kind.OUTPUT, Kind.MOVED}, "those are in other files"
    data = {kind: bytes(r.payload) for kind, r in by_kind.items() if r.payload is not None}
    assert decode_takeover(data[Kind.TAKEOVER], "") == TAKEOVER
    assert decode_adopt(data[Kind.ADOPT], "") == ADOPT
    assert decode_commit(data[Kind.COMMIT], "") == COMMIT
    assert decode_checkpoint(data[Kind.CHECKPOINT], "") == CHECKPOINT
    assert data[Kind.BARRIER] == b""
    batch = by_kind[Kind.RUN].batch()
    assert batch.schema == pa.schema(
        [pa.field("key", pa.binary(), nullable=False), ("value", pa.binary())]
    )
    assert batch.to_pydict() == {"key": [b"a", b"b", b""], "value": [b"1", None, b""]}


def test_the_pinned_takeover_says_which_pipeline_it_is() -> None:
    [record] = SegmentReader(LocalDisk(HERE), "takeover-pipeline.wal").records()
    assert record.payload is not None
    assert decode_takeover(bytes(record.payload), "") == OF_PIPELINE


def test_the_pinned_home_that_has_moved_says_where_it_is() -> None:
    *_, record = SegmentReader(LocalDisk(HERE), "moved.wal").records()
    assert decode_moved(bytes(record.payload or b""), "") == MOVED


def adopts_of(name: str) -> list[AdoptRecord]:
    reader = SegmentReader(LocalDisk(HERE), name)
    payloads = [r.payload for r in reader.records() if r.kind is Kind.ADOPT]
    return [decode_adopt(bytes(p), "") for p in payloads if p is not None]


def test_the_pinned_adopts_are_read_as_the_values_they_were() -> None:
    assert adopts_of("sinks-ahead.wal") == [GIVEN_UP]
    parts = adopts_of("adopt-in-parts.wal")
    assert parts == [FIRST_PART, LAST_PART]
    assert join_adopt(parts) == AdoptRecord(COMMIT.point, (OLD, COMMIT))
    assert join_adopt(parts[:1]) is None


def test_the_digest_of_a_pinned_commit_is_the_one_its_children_name() -> None:
    assert COMMIT.digest == canonical.sha256_hex(encode_commit(COMMIT))
    assert COMMIT.digest == "e1d429e10eb26ee9cc6b05e79bc7ddde8c445f515c89f276fc99a1e8e0f8a275"
    assert Point(6, OLD.digest) == COMMIT.parent


def test_a_commit_says_whom_it_is_for() -> None:
    records = SegmentReader(LocalDisk(HERE), "commit-for-sinks.wal").records()
    [data] = [bytes(r.payload) for r in records if r.payload and r.kind is Kind.COMMIT]
    assert decode_commit(data, "").sinks == ("out", "\u00fcber")


def test_a_commit_of_a_rewind_says_where_sinks_are_to_be_again() -> None:
    records = SegmentReader(LocalDisk(HERE), "commit-of-rewind.wal").records()
    [data] = [bytes(r.payload) for r in records if r.payload and r.kind is Kind.COMMIT]
    assert decode_commit(data, "") == REWOUND
    assert b"takes_back" not in encode_commit(replace(REWOUND, takes_back={}))


def test_the_pinned_home_is_read() -> None:
    """As version 1 wrote it: without a checksum."""
    assert read_home(LocalDisk(HERE)).identity == IDENTITY
    data = (HERE / "home.json").read_bytes()
    assert canonical.encode(canonical.decode(data, "")) == data


def test_the_pinned_home_of_version_2_is_what_is_written_today() -> None:
    data = (HERE / "home-v2.json").read_bytes()
    assert decode_home(data, "") == HomeFile(IDENTITY, 1762500000000)
    assert encode_home(HomeFile(IDENTITY, 1762500000000)) == data


def test_the_pinned_home_says_which_pipeline_lives_there() -> None:
    data = (HERE / "home-pipeline.json").read_bytes()
    home = HomeFile(IDENTITY, 1762500000000, Owner("00112233445566778899aabbccddee00", "orders"))
    assert decode_home(data, "") == home
    assert encode_home(home) == data


def test_the_pinned_home_that_is_arriving_says_from_where() -> None:
    data = (HERE / "home-arriving.json").read_bytes()
    owner = Owner("00112233445566778899aabbccddee00", "orders")
    home = HomeFile(IDENTITY, 1762500000000, owner, "0f" * 16, "/data/orders/home")
    assert decode_home(data, "") == home
    assert encode_home(home) == data


def test_every_pinned_file_is_read_by_a_test() -> None:
    names = {path.name for path in HERE.iterdir()}
    homes = {"home.json", "home-v2.json", "home-pipeline.json", "home-arriving.json"}
    assert names == {*SEGMENTS, *homes, "run.arrow"}


def hex_dump(data: bytes) -> str:
    """As `hexdump -C` prints it, without folding repeated lines."""
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        text = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        lines.append(f"{at:08x}  {left}  {right}  |{text}|")
    return "\n".join(lines)


def test_the_worked_example_in_format_md_is_the_pinned_segment() -> None:
    section = FORMAT.read_text().split("## 7 Write-ahead log")[1]
    [block] = re.findall(r"```hex\n(.*?)\n```", section, re.DOTALL)
    assert block == hex_dump((HERE / "example.wal").read_bytes())


def test_the_commit_in_format_md_is_the_pinned_one() -> None:
    section = FORMAT.read_text().split("## 7 Write-ahead log")[1]
    [block] = re.findall(r"```json\n(.*?)\n```", section, re.DOTALL)
    assert block.encode() == encode_commit(COMMIT)
    assert f"`{COMMIT.digest}`" in section


def test_records_of_the_pinned_segments_begin_at_multiples_of_64() -> None:
    for name in SEGMENTS:
        for record in SegmentReader(LocalDisk(HERE), name).records():
            assert record.offset % HEADER_SIZE == record.header.size % HEADER_SIZE == 0

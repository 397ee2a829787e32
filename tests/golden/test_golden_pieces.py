"""The bytes of a piece of the driver log of a remote home (FORMAT.md section 11)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lamina.disk import LocalDisk
from lamina.errors import Unsupported, WalDamaged
from lamina.format.commit import (
    AdoptRecord,
    CommitRecord,
    StagedFile,
    WalRange,
    decode_commit,
    encode_adopt,
    encode_commit,
    encode_takeover,
)
from lamina.format.home_names import (
    DriverSegment,
    output_path,
    parse_output_path,
)
from lamina.format.piece import Piece, decode_piece, encode_piece
from lamina.format.wal import HEADER_SIZE, Kind, encode_segment_header
from lamina.wal.reader import Clean, SegmentReader
from tests.golden.test_golden_wal import DRIVER, IDENTITY, RUN, TAKEOVER, Item, segment

HERE = Path(__file__).parent / "pieces"
PARQUET = b"PAR1 stands for a file of output PAR1"
SEGMENT = DriverSegment(3, 0)
COMMIT = CommitRecord(
    epoch=1,
    generation=3,
    partitions=4,
    ranges=(
        WalRange("by symbol", 2, "driver/" + "0" * 19 + "3-" + "0" * 20 + ".wal", 256, 0, 0, 3),
    ),
    staged=(StagedFile("out", "driver/x.wal:64", len(PARQUET), "5" * 64, 2),),
)
ITEMS: list[Item] = [
    (Kind.TAKEOVER, encode_takeover(TAKEOVER), 0, 0),
    (Kind.ADOPT, encode_adopt(AdoptRecord(None, ())), 0, 0),
    (Kind.RUN, RUN, 1, 3),
    (Kind.OUTPUT, PARQUET, 1, 0),
    (Kind.COMMIT, encode_commit(COMMIT), 1, 0),
]
PIECE = Piece(
    sequence=12,
    home=IDENTITY,
    segment=SEGMENT,
    offset=0,
    segment_header=encode_segment_header(DRIVER),
    data=segment(DRIVER, ITEMS),
    writer=bytes(range(16, 32)),
    adopts=True,
)


def test_the_same_values_give_the_pinned_bytes() -> None:
    assert encode_piece(PIECE) == (HERE / "piece.wal").read_bytes()


def test_a_pinned_piece_is_read_as_it_was_written() -> None:
    assert decode_piece((HERE / "piece.wal").read_bytes(), "") == PIECE


def test_its_data_is_a_segment(tmp_path: Path) -> None:
    (tmp_path / "s.wal").write_bytes(decode_piece((HERE / "piece.wal").read_bytes(), "").data)
    reader = SegmentReader(LocalDisk(tmp_path), "s.wal")
    records = list(reader.records())
    assert reader.end == Clean(reader.size)
    assert [(r.kind, bytes(r.payload or b"")) for r in records] == [
        (Kind(kind), payload) for kind, payload, _, _ in ITEMS
    ]
    assert decode_commit(bytes(records[-1].payload or b""), "") == COMMIT


def test_every_flipped_byte_is_damage() -> None:
    data = (HERE / "piece.wal").read_bytes()
    for at in range(0, len(data), 1 if len(data) < 4096 else 7):
        flipped = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        with pytest.raises((WalDamaged, Unsupported)):
            decode_piece(flipped, "epochs/x")
    for end in (0, HEADER_SIZE, 159, len(data) - 1):
        with pytest.raises(WalDamaged):
            decode_piece(data[:end], "epochs/x")


def test_a_claim_is_the_first_piece_of_a_process() -> None:
    assert PIECE.is_claim
    assert not replace(PIECE, offset=64).is_claim
    assert not replace(PIECE, segment=DriverSegment(3, 1)).is_claim


def test_output_in_the_log_has_a_name_that_says_where() -> None:
    path = f"driver/{3:020d}-{0:020d}.wal"
    assert parse_output_path(output_path(path, 640)) == (path, 640)
    for other in (path, "staged/1/of-a.parquet", f"{path}:x", "driver/x.wal:64"):
        assert parse_output_path(other) is None

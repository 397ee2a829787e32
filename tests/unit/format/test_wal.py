"""Headers and records of the WAL: what is bound to what, and what a reader refuses."""

from __future__ import annotations

import struct
from dataclasses import replace

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import Unsupported, WalDamaged
from lamina.format.commit import (
    AdoptRecord,
    CheckpointRecord,
    CommitRecord,
    Point,
    StagedFile,
    TakeoverRecord,
    WalRange,
    decode_adopt,
    decode_checkpoint,
    decode_commit,
    decode_takeover,
    encode_adopt,
    encode_checkpoint,
    encode_commit,
    encode_takeover,
)
from lamina.format.home_names import (
    CoreSegment,
    DriverSegment,
    cut_path,
    parse_core_folder,
    parse_segment,
    segment_path,
)
from lamina.format.manifest_model import ConnectorCheckpoint
from lamina.format.wal import (
    DRIVER_CORE,
    HEADER_SIZE,
    PAYLOAD_BYTES_MAX,
    Kind,
    SegmentHeader,
    binding_of,
    blank_sectors,
    decode_record_header,
    decode_segment_header,
    encode_record,
    encode_segment_header,
    padded,
    payload_matches,
)
from tests.support.checkpoints import cid
from tests.support.wal_logs import HOME, OTHER_HOME

HEADER = SegmentHeader(HOME, 7, 3, 8, 1234)
ENCODED = encode_segment_header(HEADER)
BINDING = binding_of(ENCODED)


def record(
    payload: bytes, *, offset: int = 64, binding: int = BINDING, kind: Kind = Kind.RUN
) -> tuple[bytes, bytes]:
    return encode_record(
        [payload],
        kind=kind,
        epoch=9,
        first_sequence=77,
        count=5,
        offset=offset,
        durable=64,
        binding=binding,
    )


def matches(head: bytes, payload: bytes, padding: bytes, offset: int = 64) -> bool:
    return payload_matches(head, pa.py_buffer(payload), padding, offset=offset, binding=BINDING)


# segment header


def test_a_segment_header_is_read_as_it_was_written() -> None:
    assert len(ENCODED) == HEADER_SIZE
    assert decode_segment_header(ENCODED, "f") == HEADER
    driver = replace(HEADER, core=DRIVER_CORE)
    assert decode_segment_header(encode_segment_header(driver), "f") == driver


@pytest.mark.parametrize("size", range(64))
def test_a_segment_header_that_is_not_all_there_is_not_yet_one(size: int) -> None:
    assert decode_segment_header(ENCODED[:size], "f") is None


def test_a_blank_segment_header_is_not_yet_one() -> None:
    assert decode_segment_header(bytes(64), "f") is None


def test_every_flipped_bit_of_a_segment_header_is_damage() -> None:
    for bit in range(HEADER_SIZE * 8):
        damaged = bytearray(ENCODED)
        damaged[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(WalDamaged, match=r"checksum|not a WAL segment"):
            decode_segment_header(bytes(damaged), "f")


def test_a_newer_version_is_unsupported_but_a_damaged_version_is_damage() -> None:
    newer = ENCODED[:8] + struct.pack("<I", 2) + ENCODED[12:60]
    whole = newer + struct.pack("<I", google_crc32c.value(newer))
    with pytest.raises(Unsupported, match="WAL format 2"):
        decode_segment_header(whole, "f")
    with pytest.raises(WalDamaged):
        decode_segment_header(newer + ENCODED[60:], "f")


def test_two_headers_that_differ_in_anything_bind_their_records_differently() -> None:
    others = [
        replace(HEADER, home=OTHER_HOME),
        replace(HEADER, generation=8),
        replace(HEADER, core=4),
        replace(HEADER, partitions=16),
        replace(HEADER, first_sequence=0),
    ]
    bindings = {binding_of(encode_segment_header(header)) for header in (HEADER, *others)}
    assert len(bindings) == 1 + len(others)


# records


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 447, 448, 449, 1000, 5000])
def test_a_record_is_read_as_it_was_written(size: int) -> None:
    payload = bytes((i * 7 + 1) % 256 for i in range(size))
    head, padding = record(payload)
    found = decode_record_header(head, offset=64, binding=BINDING)
    assert found is not None
    assert (found.kind, found.epoch, found.first_sequence) == (Kind.RUN, 9, 77)
    assert (found.count, found.payload_size, found.durable) == (5, size, 64)
    assert found.size == len(head) + len(payload) + len(padding)
    assert found.size % 64 == 0
    assert not any(padding)
    assert matches(head, payload, padding)


def test_every_flipped_bit_of_a_record_header_is_noticed_by_the_header_alone() -> None:
    head, _ = record(b"payload")
    for bit in range(HEADER_SIZE * 8):
        damaged = bytearray(head)
        damaged[bit // 8] ^= 1 << (bit % 8)
        assert decode_record_header(bytes(damaged), offset=64, binding=BINDING) is None, bit


def test_every_flipped_bit_of_payload_and_padding_is_noticed() -> None:
    payload = b"some payload of an odd size"
    head, padding = record(payload)
    for bit in range(len(payload + padding) * 8):
        damaged = bytearray(payload + padding)
        damaged[bit // 8] ^= 1 << (bit % 8)
        assert not matches(head, bytes(damaged[: len(payload)]), bytes(damaged[len(payload) :]))


def test_a_record_belongs_to_its_offset_and_its_segment() -> None:
    head, padding = record(b"payload")
    assert decode_record_header(head, offset=128, binding=BINDING) is None
    other = binding_of(encode_segment_header(replace(HEADER, generation=8)))
    assert decode_record_header(head, offset=64, binding=other) is None
    assert not matches(head, b"payload", padding, offset=128)


def test_a_payload_belongs_to_its_header() -> None:
    """Two records of one segment and one size: neither payload passes under the other's header."""
    first, padding = record(b"payload")
    second, _ = record(b"PAYLOAD")
    assert matches(first, b"payload", padding)
    assert not matches(second, b"payload", padding)


def test_sixty_four_zeros_are_no_record() -> None:
    assert decode_record_header(bytes(64), offset=64, binding=BINDING) is None


def test_the_size_limit_is_the_same_for_writers_and_readers() -> None:
    """A header that says more than the limit is no record, even if its checksum is right."""
    head = bytearray(record(b"x")[0])
    head[28:32] = struct.pack("<I", PAYLOAD_BYTES_MAX + 1)
    bound = google_crc32c.extend(BINDING, struct.pack("<Q", 64))
    head[60:64] = struct.pack("<I", google_crc32c.extend(bound, bytes(head[:60])))
    assert decode_record_header(bytes(head), offset=64, binding=BINDING) is None
    head[28:32] = struct.pack("<I", PAYLOAD_BYTES_MAX)
    head[60:64] = struct.pack("<I", google_crc32c.extend(bound, bytes(head[:60])))
    found = decode_record_header(bytes(head), offset=64, binding=BINDING)
    assert found is not None
    assert found.payload_size == PAYLOAD_BYTES_MAX


def test_padding_goes_to_the_next_multiple_of_64() -> None:
    assert [padded(size) for size in (0, 1, 64, 65, 128)] == [0, 64, 64, 128, 128]


# blank sectors


def counted_by_hand(payload: bytes, offset: int) -> int:
    data = bytes(offset) + b"H" * 64 + payload + bytes(padded(len(payload)) - len(payload))
    sectors = [data[i : i + 512] for i in range(0, len(data), 512)]
    first = offset // 512 + 1  # the header's own sector is never one
    return sum(1 for sector in sectors[first:] if not any(sector))


@given(
    st.lists(st.sampled_from([b"\0" * 512, b"\0" * 64, b"\0" * 511 + b"x", b"ab", b"\0"])),
    st.integers(0, 40),
)
def test_blank_sectors_are_those_that_are_all_zero(parts: list[bytes], place: int) -> None:
    payload, offset = b"".join(parts), 64 * place
    assert blank_sectors([payload], offset) == counted_by_hand(payload, offset)
    assert blank_sectors([pa.py_buffer(payload)], offset) == counted_by_hand(payload, offset)


@given(
    st.lists(st.sampled_from([b"\0" * 512, b"\0" * 700, b"", b"\0" * 511 + b"x", b"ab", b"\0"])),
    st.integers(0, 9),
)
def test_blank_sectors_do_not_depend_on_how_a_payload_is_cut(parts: list[bytes], at: int) -> None:
    whole = b"".join(parts)
    assert blank_sectors(parts, 64 * at) == counted_by_hand(whole, 64 * at)


# JSON kinds

COMMIT = CommitRecord(
    epoch=12,
    generation=3,
    parent=Point(11, "a" * 64),
    follows=Point(10, "b" * 64),
    partitions=4,
    source_offsets={"trades": ConnectorCheckpoint({"0": "LSN 0/1A"}, 12, {"topic": "t"})},
    table_offsets={"symbols": ConnectorCheckpoint({"version": "7"}, 11, {})},
    watermark=-5,
    source_watermarks={"trades": -(1 << 60)},
    ranges=(WalRange("by symbol", 2, "core-2/x.wal", 64, 128, 0xFFFF_FFFF, 3),),
    staged=(StagedFile("out", "staged/1.parquet", 10, "c" * 64, 2),),
)


def test_a_commit_keeps_the_offset_model_of_the_manifest_and_negative_times() -> None:
    assert decode_commit(encode_commit(COMMIT), "f") == COMMIT
    bare = CommitRecord(epoch=1, generation=0)
    assert decode_commit(encode_commit(bare), "f") == bare


def test_the_digest_of_a_commit_depends_on_every_field() -> None:
    changed = [
        replace(COMMIT, epoch=13),
        replace(COMMIT, generation=4),
        replace(COMMIT, parent=None),
        replace(COMMIT, follows=None),
        replace(COMMIT, partitions=8),
        replace(COMMIT, source_offsets={}),
        replace(COMMIT, table_offsets={}),
        replace(COMMIT, watermark=None),
        replace(COMMIT, source_watermarks={}),
        replace(COMMIT, ranges=()),
        replace(COMMIT, staged=()),
    ]
    assert len({commit.digest for commit in (COMMIT, *changed)}) == 1 + len(changed)


def test_the_other_kinds_are_read_as_they_were_written() -> None:
    adopt = AdoptRecord(COMMIT.point, (COMMIT,))
    assert decode_adopt(encode_adopt(adopt), "f") == adopt
    assert decode_adopt(encode_adopt(AdoptRecord(None, ())), "f") == AdoptRecord(None, ())
    takeover = TakeoverRecord(4, HOME.hex())
    assert decode_takeover(encode_takeover(takeover), "f") == takeover
    checkpoint = CheckpointRecord(cid(1), 12, "d" * 64)
    assert decode_checkpoint(encode_checkpoint(checkpoint), "f") == checkpoint


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b"\xff", b'{"epoch":0}', b'{"epoch":"1"}', b"null"]
)
def test_a_payload_that_is_no_commit_is_damage_and_says_where(data: bytes) -> None:
    for decode in (decode_commit, decode_checkpoint, decode_takeover):
        with pytest.raises(WalDamaged) as caught:
            decode(data, "f, byte 64")
        assert caught.value.where == "f, byte 64"


def test_a_commit_whose_digest_we_could_not_repeat_is_not_read_as_less() -> None:
    """A field of a later Lamina: dropped, the epoch would have another digest than it had."""
    more = encode_commit(COMMIT)[:-1] + b',"zone":"UTC"}'
    with pytest.raises(Unsupported, match="does not know") as caught:
        decode_commit(more, "f, byte 64")
    assert caught.value.where == "f, byte 64"
    with pytest.raises(Unsupported):
        decode_adopt(b'{"commits":[' + more + b'],"head":null}', "f")


# names


@pytest.mark.parametrize(
    "segment",
    [DriverSegment(1), DriverSegment(2**63, 7), CoreSegment(0, 1, 2, "library"),
     CoreSegment(255, 9, 10, "run 5/attempt 1"), CoreSegment(3, 0, 0, "..")],
)  # fmt: skip
def test_a_segment_name_is_parsed_as_it_was_built(segment: DriverSegment | CoreSegment) -> None:
    assert parse_segment(segment_path(segment)) == segment


def test_what_does_not_parse_is_no_segment() -> None:
    good = segment_path(CoreSegment(0, 1, 2, "t"))
    for name in (
        cut_path(good, 64), "core-0/lock", good.replace("core-0", "core-00"), good + "+",
        good.replace("core-0", "driver"), good.upper(), f"x/{good}", "driver/1-2.wal",
    ):  # fmt: skip
        assert parse_segment(name) is None, name
    assert parse_core_folder("core-007") is None
    assert parse_core_folder("core-7") == 7

"""Run files: what is written is read, and what is damaged is said to be."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest

from lamina.errors import NotFound, RunDamaged, StoreError, Unsupported, UsageError
from lamina.format.canonical import Json, encode, sha256_hex
from lamina.format.run_footer import MAGIC, TAIL_SIZE, Block, Footer
from lamina.state import run_file
from lamina.state.partition import StatePartition
from lamina.state.run import Run, slots_of_batch
from lamina.state.run_file import (
    Epochs,
    check_run,
    footer_of,
    open_run,
    read_run,
    write_run,
)
from lamina.state.schema import StateSchema
from lamina.state.vnodes import SlotRange
from tests.support.states import EPOCH, KV, TIMED, as_dict, kv, made, run_bytes, scanned

MIB = 1024 * 1024
ROWS = {key: key * 10 for key in range(12)}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_file, "BLOCK_ROWS", 4)


def file_of(batch: pa.RecordBatch, schema: StateSchema = KV) -> bytes:
    return run_bytes([batch], schema, epochs=EPOCH)


def read(data: bytes) -> Run:
    return read_run(pa.py_buffer(data), "a.run")


def read_all(data: bytes) -> dict[int, int]:
    run = read(data)
    check_run(run)
    return as_dict(StatePartition(KV, [run]))


def with_footer(data: bytes, document: dict[str, Json]) -> bytes:
    """The same blocks with a footer that proves itself, whatever it says."""
    footer = footer_of(pa.py_buffer(data), "a.run")
    body = data[: -len(footer.encode())]
    content = {**footer._content(), **document}
    forged = encode({**content, "digest": sha256_hex(encode(content))})
    tail = len(forged).to_bytes(8, "little") + google_crc32c.value(forged).to_bytes(4, "little")
    return body + forged + tail + bytes(4) + MAGIC


# damage


@pytest.mark.usefixtures("small_blocks")
def test_no_flipped_byte_goes_unseen() -> None:
    data = file_of(kv(ROWS))
    assert read_all(data) == ROWS
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x01
        with pytest.raises((RunDamaged, Unsupported)) as caught:
            read_all(bytes(damaged))
        version_digits = place >= len(data) - 2
        assert isinstance(caught.value, Unsupported) == version_digits, place


@pytest.mark.parametrize("batch", [kv(ROWS), kv({})], ids=["rows", "empty"])
def test_a_file_cut_anywhere_is_damaged(batch: pa.RecordBatch) -> None:
    data = file_of(batch)
    for size in range(len(data)):
        with pytest.raises(RunDamaged):
            read_all(data[:size])


def test_bytes_between_the_blocks_and_the_footer_are_damage() -> None:
    for batch in (kv(ROWS), kv({})):
        data = file_of(batch)
        size = len(footer_of(pa.py_buffer(data), "a.run").encode())
        with pytest.raises(RunDamaged, match="end of the stream"):
            read(data[:-size] + bytes(8) + data[-size:])
        with pytest.raises(RunDamaged, match="end of the stream"):
            read(data[: -size - 8] + data[-size:])


def test_a_file_that_is_no_run_is_damaged_or_missing(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        open_run(tmp_path / "missing")
    (tmp_path / "empty").touch()
    with pytest.raises(RunDamaged, match="empty"):
        open_run(tmp_path / "empty")
    with pytest.raises(RunDamaged):
        read_run(pa.py_buffer(b""), "nothing")
    (tmp_path / "short").write_bytes(b"x" * (TAIL_SIZE - 1))
    with pytest.raises(RunDamaged, match="at least 24"):
        open_run(tmp_path / "short")
    with pytest.raises(StoreError):
        open_run(tmp_path)


@pytest.mark.usefixtures("small_blocks")
def test_a_damaged_block_is_seen_when_it_is_touched_and_not_before() -> None:
    data = bytearray(file_of(kv(ROWS)))
    run = read(bytes(data))
    last = run.blocks[-1]
    data[last.end - 1] ^= 0xFF
    run = read(bytes(data))
    assert len(scanned(run.slices(KV, SlotRange(0, last.first_slot - 1)))) == 8
    with pytest.raises(RunDamaged, match=f"block 2 \\(bytes {last.offset} to {last.end}\\)"):
        scanned(run.slices(KV))


@pytest.mark.usefixtures("small_blocks")
def test_a_block_is_proven_once(monkeypatch: pytest.MonkeyPatch) -> None:
    proven: list[int] = []

    class Counted:
        @staticmethod
        def value(data: pa.Buffer) -> int:
            proven.append(len(data))
            return int(google_crc32c.value(data))

    data = file_of(kv(ROWS))
    run = read(data)
    monkeypatch.setattr(run_file, "google_crc32c", Counted)
    for _ in range(3):
        scanned(run.slices(KV))
    assert proven == [block.size for block in run.blocks]


@pytest.mark.usefixtures("small_blocks")
def test_blocks_of_another_run_under_this_footer_are_seen() -> None:
    mine, other = file_of(kv(ROWS)), file_of(kv({key: key * 11 for key in ROWS}))
    footer = footer_of(pa.py_buffer(mine), "a.run").encode()
    others = footer_of(pa.py_buffer(other), "a.run").encode()
    with pytest.raises(RunDamaged, match=r"block 0 .* checksum"):
        read_all(other[: -len(others)] + footer)


FORGED: dict[str, dict[str, Json]] = {
    "rows": {"rows": 13},
    "vnode_rows": {"vnodes": [[0, 1]]},
    "vnode_text": {"vnodes": [["a", 12]]},
    "vnode_count": {"vnodes": [[0, "12"]]},
    "vnode_number": {"vnodes": [[256, 12]]},
    "no_list": {"blocks": 5},
    "short_block": {"blocks": [[1, 2]]},
    "negative": {"blocks": [[-1, 2, 3, 12, 5, 6, None, None]]},
    "truth": {"blocks": [[True, 2, 3, 12, 5, 6, None, None]]},
    "text_time": {"blocks": [[0, 2, 3, 12, 5, 6, "x", None]]},
    "no_block": {"blocks": []},
    "schema": {"schema_size": 8},
}


@pytest.mark.parametrize("what", FORGED)
def test_a_footer_that_contradicts_itself_is_damage(what: str) -> None:
    with pytest.raises(RunDamaged):
        read(with_footer(file_of(kv(ROWS)), FORGED[what]))


def test_a_footer_of_a_newer_version_is_not_damage() -> None:
    with pytest.raises(Unsupported, match="version 2"):
        read(with_footer(file_of(kv(ROWS)), {"version": 2}))


@pytest.mark.usefixtures("small_blocks")
def test_blocks_that_do_not_follow_each_other_are_damage() -> None:
    data = file_of(kv(ROWS))
    blocks = footer_of(pa.py_buffer(data), "a.run").blocks
    swapped = [blocks[1], blocks[0], blocks[2]]
    overlapping = [replace(blocks[0], last_slot=blocks[1].last_slot), *blocks[1:]]
    for wrong in (swapped, overlapping):
        with pytest.raises(RunDamaged, match="follow each other"):
            read(with_footer(data, {"blocks": [block.to_json() for block in wrong]}))


@pytest.mark.usefixtures("small_blocks")
def test_a_footer_that_lies_about_slots_is_found_by_a_check() -> None:
    data = file_of(kv(ROWS))
    blocks = footer_of(pa.py_buffer(data), "a.run").blocks
    lying = [replace(blocks[0], first_slot=blocks[0].first_slot - 1), *blocks[1:]]
    run = read(with_footer(data, {"blocks": [block.to_json() for block in lying]}))
    with pytest.raises(RunDamaged, match="block 0 is not as the footer says"):
        check_run(run)


# writing


@pytest.mark.usefixtures("small_blocks")
def test_rows_out_of_order_are_not_written(tmp_path: Path) -> None:
    batch = kv(ROWS)
    path = tmp_path / "a.run"
    for wrong in ([batch.slice(6), batch.slice(0, 6)], [batch.take(pa.array([1, 0]))]):
        with pytest.raises(UsageError, match="sorted by slot"):
            write_run(path, wrong, KV, epochs=EPOCH)
        assert list(tmp_path.iterdir()) == [], "neither the run nor a part of it"


@pytest.mark.usefixtures("small_blocks")
def test_a_source_that_fails_leaves_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.run"
    write_run(path, [kv({1: 1})], KV, epochs=EPOCH)

    def failing() -> Iterator[pa.RecordBatch]:
        yield kv(ROWS)
        raise RunDamaged("an input is damaged")

    with pytest.raises(RunDamaged):
        write_run(path, failing(), KV, epochs=EPOCH)
    assert [each.name for each in path.parent.iterdir()] == ["a.run"]
    assert as_dict(StatePartition(KV, [open_run(path)])) == {1: 1}


@pytest.mark.usefixtures("small_blocks")
def test_two_writers_of_one_run_do_not_write_into_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.run"

    def batches() -> Iterator[pa.RecordBatch]:
        yield kv(ROWS).slice(0, 6)
        with ThreadPoolExecutor(1) as twin:
            twin.submit(write_run, path, [kv(ROWS)], KV, epochs=EPOCH).result()
        assert as_dict(StatePartition(KV, [open_run(path)])) == ROWS
        (unfinished,) = tmp_path.glob("*.tmp")
        assert f".{os.getpid()}." in unfinished.name, "forks have the thread numbers of the parent"
        yield kv(ROWS).slice(6)

    write_run(path, batches(), KV, epochs=EPOCH)
    assert as_dict(StatePartition(KV, [open_run(path)])) == ROWS


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.usefixtures("small_blocks")
def test_what_is_written_is_read(tmp_path: Path, compression: str | None) -> None:
    path = tmp_path / "a.run"
    footer = write_run(
        path, [kv({**ROWS, 3: None})], KV, epochs=Epochs(3, 9), compression=compression
    )
    assert (footer.rows, footer.deletes, footer.compression) == (12, 1, compression)
    run = open_run(path)
    check_run(run)
    assert (run.first_epoch, run.last_epoch, run.rows, run.floor) == (3, 9, 12, None)
    assert run.size == path.stat().st_size
    assert run.schema == KV
    assert [(row["k"], row["v"]) for row in scanned(run.slices(KV)) if row["_op"]] == [(3, None)]
    assert as_dict(StatePartition(KV, [run])) == {k: v for k, v in ROWS.items() if k != 3}
    assert footer == footer_of(pa.py_buffer(path.read_bytes()), "a.run")


@pytest.mark.usefixtures("small_blocks")
def test_any_arrow_library_reads_a_run() -> None:
    data = run_bytes([kv(ROWS)], KV, epochs=EPOCH, floor=None)
    with pa.ipc.open_stream(io.BytesIO(data)) as stream:
        table = stream.read_all()
    assert table.num_rows == 12
    assert table.column_names == ["_slot", "_op", "k", "v"]
    assert table.schema.metadata == {b"lamina.keys": b"1"}


@pytest.mark.parametrize("floor", [None, 0, -7, 2**62])
def test_an_empty_run_keeps_its_floor(floor: int | None) -> None:
    run = read(run_bytes([], TIMED, epochs=EPOCH, floor=floor))
    assert (run.rows, run.blocks, run.floor) == (0, (), floor)
    assert run.schema == TIMED
    assert StatePartition(TIMED, [run]).floor == floor


@pytest.mark.parametrize("sizes", [[1] * 12, [12], [5, 0, 7], [3, 3, 3, 3]])
@pytest.mark.usefixtures("small_blocks")
def test_blocks_do_not_depend_much_on_how_rows_arrive(sizes: list[int]) -> None:
    whole, parts, start = kv(ROWS), [], 0
    for size in sizes:
        parts.append(whole.slice(start, size))
        start += size
    run = read(run_bytes(parts, KV, epochs=EPOCH))
    assert all(2 <= block.rows <= 5 for block in run.blocks)
    check_run(run)
    assert scanned(run.slices(KV)) == whole.to_pylist()


def test_times_and_vnodes_of_blocks_are_known_without_reading_them() -> None:
    rows = [{"k": n, "v": n, "t": time} for n, time in enumerate([5, -3, 9])]
    slots = [0 << 56, 128 << 56, 128 << 56 | 1]  # the ranks of vnodes 0, 1, 1
    footer = footer_of(pa.py_buffer(file_of(made(TIMED, rows, slots=slots), TIMED)), "a.run")
    assert footer.vnodes == ((0, 1), (1, 2))
    assert [(block.time_min, block.time_max) for block in footer.blocks] == [(-3, 9)]


def test_the_digest_is_of_the_content_and_not_of_the_moment() -> None:
    first, second = file_of(kv(ROWS)), file_of(kv(ROWS))
    assert first == second
    other = footer_of(pa.py_buffer(file_of(kv({**ROWS, 3: 31}))), "a.run")
    assert footer_of(pa.py_buffer(first), "a.run").digest != other.digest


def test_a_key_of_a_mebibyte_is_a_key(tmp_path: Path) -> None:
    schema = StateSchema(pa.schema([("k", pa.string())]), pa.schema([("v", pa.int64())]))
    rows = [{"k": letter * MIB, "v": n} for n, letter in enumerate("abcdefghijklmnopqrst")]
    write_run(tmp_path / "a.run", [made(schema, rows)], schema, epochs=EPOCH)
    run = open_run(tmp_path / "a.run")
    assert len(run.blocks) > 1, "a block has at most 16 MiB"
    state = StatePartition(schema, [run])
    asked = pa.record_batch({"k": pa.array(["c" * MIB, "c" * (MIB - 1), "t" * MIB])})
    assert state.get(asked).values.column("v").to_pylist() == [2, None, 19]


def test_a_million_rows_of_one_vnode_are_a_run_like_any_other(tmp_path: Path) -> None:
    count = 1_000_000
    within = SlotRange.of_vnode(5)
    slots = np.uint64(within.first) + np.arange(count, dtype=np.uint64)
    keys = pa.array(np.arange(count))
    operations = pa.array(np.zeros(count, np.uint8))
    batch = pa.RecordBatch.from_arrays([pa.array(slots), operations, keys, keys], schema=KV.run)
    footer = write_run(tmp_path / "a.run", [batch], KV, epochs=EPOCH)
    assert footer.vnodes == ((5, count),)
    run = open_run(tmp_path / "a.run")
    assert sum(part.num_rows for part in run.slices(KV, within)) == count
    assert list(run.slices(KV, SlotRange.of_vnode(4))) == []
    last = run.slices(KV, SlotRange(int(slots[-1]), within.last))
    assert [slots_of_batch(part).tolist() for part in last] == [[int(slots[-1])]]


def test_a_footer_survives_its_own_encoding() -> None:
    block = Block(8, 16, 7, 1, 2**64 - 1, 2**64 - 1, -5, 2**63 - 1)
    footer = Footer(0, 2**53, 1, 0, 8, 1, (block,), ((255, 1),), "zstd")
    assert footer.digest == replace(footer).digest
    assert block.end == 24

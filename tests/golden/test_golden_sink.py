"""The bytes of the Parquet sink's log: what was written is read for ever.

`old-layout/` is what releases before version 2 of the log left: an entry per epoch, and fences.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lamina.connectors.parquet import ParquetSink
from lamina.errors import Corrupt, Diverged, Fenced, Unsupported
from lamina.format import canonical
from lamina.format.commit import Point
from lamina.format.pipeline_record import NOBODY, Owner
from lamina.format.sink_log import (
    SinkEntry,
    decode_entry,
    encode_barrier,
    encode_entry,
    encode_marker,
)
from lamina.format.sink_position import decode_position, encode_position
from lamina.format.source_note import decode_made, encode_made
from lamina.format.taken_back import TakenBack
from tests.contract.sinks import PIPELINE, LocalParquetWorld, Output

HERE = Path(__file__).parent / "sink"
POINT = Point(12, "e5a5df08ba0ec41f60385b514435deac2bdb6f5887ea32f9432e957775a5b607")
PREPARED = f".epoch-{12:020d}-{3:020d}-0123456789ab"
ENTRIES = {
    "fence-first.json": SinkEntry(NOBODY, 1, None),
    "publication.json": SinkEntry(Owner(name="trades"), 3, POINT, PREPARED),
    "fence-of-pipeline.json": SinkEntry(
        Owner("00112233445566778899aabbccddee00", "trades"), 1, None
    ),
    "without-rows.json": SinkEntry(Owner(name="trades"), 3, POINT),
    "taken-back.json": SinkEntry(
        Owner("00112233445566778899aabbccddee00", "trades"),
        3,
        POINT,
        taken_back=(TakenBack(9, 5), TakenBack(12, 10)),
    ),
}


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_entries_are_written_and_read_as_these_bytes(name: str) -> None:
    data = (HERE / name).read_bytes()
    assert encode_entry(ENTRIES[name]) == data
    assert decode_entry(data, name) == ENTRIES[name]


AT = SinkEntry(Owner("00112233445566778899aabbccddee00", "trades"), 3, POINT)


def test_the_position_of_a_sink_without_a_memory_is_these_bytes() -> None:
    """Version 1, which had no checksum and at first no id, is read."""
    assert encode_position(AT) == (HERE / "position.json").read_bytes()
    assert decode_position((HERE / "position.json").read_bytes(), "here") == AT
    old = decode_position((HERE / "position-v1.json").read_bytes(), "here")
    assert old == SinkEntry(Owner(name="trades"), 3, POINT)


def test_every_flipped_byte_of_a_position_is_found() -> None:
    data = (HERE / "position.json").read_bytes()
    for at in range(len(data)):
        for flip in (0x01, 0x03, 0x20, 0xFF):
            broken = data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
            with pytest.raises((Corrupt, Unsupported)):
                decode_position(broken, "here")


def test_the_marker_and_the_barrier_are_these_bytes() -> None:
    assert encode_marker("trades", POINT, 20) == (HERE / "marker.json").read_bytes()
    assert encode_barrier() == (HERE / "barrier.json").read_bytes()


def test_the_examples_of_the_format_page_are_these_bytes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "FORMAT.md").read_text()
    for name in ("publication.json", "fence-first.json"):
        assert f"\n{(HERE / name).read_text()}\n" in page


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    data = (HERE / "publication.json").read_bytes()
    for at in range(len(data)):
        for bit in range(8):
            flipped = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            with pytest.raises((Corrupt, Unsupported)):
                decode_entry(flipped, "here")


def test_a_log_of_a_newer_version_is_refused() -> None:
    value = canonical.decode((HERE / "publication.json").read_bytes(), "here")
    assert isinstance(value, dict)
    with pytest.raises(Unsupported, match="version 4"):
        decode_entry(canonical.encode({**value, "version": 4}), "here")


# the layout before


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Epochs 1 to 3, of which 2 had no rows; claimed by generations 1 and 2."""
    shutil.copytree(HERE / "old-layout", tmp_path / "out")
    return tmp_path / "out"


def test_the_old_layout_is_read_without_changing_it(old: Path) -> None:
    before = sorted(old.rglob("*"))
    position = ParquetSink("out", old).position()
    assert (position.pipeline, position.generation) == (Owner(name="p"), 2)
    assert position.point == Point(3, f"{3:064x}")
    assert sorted(old.rglob("*")) == before


def test_the_old_layout_is_gone_on_with_and_its_log_becomes_small(
    old: Path, tmp_path: Path
) -> None:
    output, sink = Output(tmp_path / "home"), ParquetSink("out", old)
    with pytest.raises(Fenced):
        sink.fence(1, PIPELINE)
    assert sink.fence(3, PIPELINE).point == Point(3, f"{3:064x}")
    with pytest.raises(Diverged):
        sink.publish(output.publication(3, [[9]], generation=3, digest="ab" * 32))
    sink.publish(output.publication(4, [[5]], generation=3))
    assert LocalParquetWorld(old).shown() == {1: [1, 2], 3: [3], 4: [5]}
    assert ParquetSink("out", old).position() == sink.position()
    own = sorted(str(path.relative_to(old)) for path in (old / "_lamina").rglob("*.json"))
    assert own == [
        "_lamina/99999999999999999999.json",
        "_lamina/fences/00000000000000000003.json",
        "_lamina/log/00000000000000000001.json",
        "_lamina/log/00000000000000000002.json",
    ]


def test_an_epoch_that_an_older_release_showed_before_its_entry_is_not_shown_twice(
    old: Path, tmp_path: Path
) -> None:
    (old / "_lamina" / f"{3:020d}.json").unlink()
    output, sink = Output(tmp_path / "home"), ParquetSink("out", old)
    assert sink.fence(3, PIPELINE).point == Point(2, f"{2:064x}")
    with pytest.raises(Diverged, match="another history"):
        sink.publish(output.publication(3, [[9]], generation=3, digest="ab" * 32))
    sink.publish(output.publication(3, [[3]], generation=3))
    assert LocalParquetWorld(old).shown() == {1: [1, 2], 3: [3]}
    assert sink.position().point == Point(3, f"{3:064x}")


def test_an_older_release_that_runs_sees_the_fence_and_one_that_starts_cannot_read(
    old: Path,
) -> None:
    """What it looks at: the numbers in fences/, and the entry with the highest number."""
    ParquetSink("out", old).fence(3, PIPELINE)
    assert max(int(path.stem) for path in (old / "_lamina" / "fences").iterdir()) == 3
    newest = max((old / "_lamina").glob("[0-9]*.json"))
    assert not {"pipeline", "epoch", "commit_digest"} & set(
        canonical.decode(newest.read_bytes(), "here")  # type: ignore[arg-type]
    )


def test_fences_of_the_first_layout_count(tmp_path: Path) -> None:
    (tmp_path / "_lamina").mkdir()
    (tmp_path / "_lamina" / f"fence-{5:020d}.json").write_bytes(b"{}")
    sink = ParquetSink("out", tmp_path)
    assert sink.position().generation == 5
    with pytest.raises(Fenced):
        sink.fence(4, PIPELINE)
    assert sink.fence(6, PIPELINE).generation == 6
    assert not list((tmp_path / "_lamina").glob("fence-*"))


def test_the_note_of_a_source_is_these_bytes_and_every_flipped_one_is_found() -> None:
    data = (HERE / "source-note.json").read_bytes()
    assert encode_made("lamina_shop_s", "7709500606625006486") == data
    assert decode_made(data, "here") == ("lamina_shop_s", "7709500606625006486")
    for at in range(len(data)):
        broken = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises((Corrupt, Unsupported)):
            decode_made(broken, "here")

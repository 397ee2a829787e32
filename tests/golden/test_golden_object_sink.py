"""The bytes of the log of a Parquet sink in an object store: what was written is read for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import Corrupt, Unsupported
from lamina.format import canonical
from lamina.format.commit import Point
from lamina.format.object_log import (
    ObjectEntry,
    ObjectFile,
    data_key,
    decode_entry,
    decode_fold,
    encode_entry,
    encode_fold,
    parse_data_key,
)
from lamina.format.pipeline_record import Owner
from lamina.format.taken_back import TakenBack

HERE = Path(__file__).parent / "sink"
POINT = Point(12, "e5a5df08ba0ec41f60385b514435deac2bdb6f5887ea32f9432e957775a5b607")
SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
OWNER = Owner("00112233445566778899aabbccddee00", "trades")
FILE = ObjectFile(data_key(12, 3, SHA256, 0), 1234, SHA256, 20)
ENTRIES = {
    "objects-fence.json": ObjectEntry(OWNER, 3, None),
    "objects-publication.json": ObjectEntry(OWNER, 3, POINT, (FILE,)),
    "objects-taken-back.json": ObjectEntry(OWNER, 3, POINT, (), (TakenBack(12, 10),)),
}
FOLD = "objects-fold.json"


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_entries_are_written_and_read_as_these_bytes(name: str) -> None:
    data = (HERE / name).read_bytes()
    assert encode_entry(ENTRIES[name]) == data
    assert decode_entry(data, name) == ENTRIES[name]


def test_a_fold_is_these_bytes() -> None:
    data = (HERE / FOLD).read_bytes()
    assert encode_fold(1, 100, (FILE,)) == data
    assert decode_fold(data, FOLD) == (FILE,)


def test_the_examples_of_the_format_page_are_these_bytes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "FORMAT.md").read_text()
    for name in ("objects-publication.json", FOLD):
        assert f"\n{(HERE / name).read_text()}\n" in page


@pytest.mark.parametrize(
    ("name", "decode"), [("objects-publication.json", decode_entry), (FOLD, decode_fold)]
)
def test_a_flipped_bit_anywhere_is_noticed(name: str, decode: Callable[..., Any]) -> None:
    data = (HERE / name).read_bytes()
    for at in range(len(data)):
        for bit in range(8):
            flipped = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            with pytest.raises((Corrupt, Unsupported)):
                decode(flipped, "here")


def test_a_log_of_a_newer_version_is_refused() -> None:
    value = canonical.decode((HERE / "objects-publication.json").read_bytes(), "here")
    assert isinstance(value, dict)
    with pytest.raises(Unsupported, match="version 3"):
        decode_entry(canonical.encode({**value, "version": 3}), "here")


def test_names_of_files_say_epoch_and_generation_and_other_names_say_nothing() -> None:
    assert parse_data_key(FILE.path) == (12, 3)
    for other in ("data/12/3-ab-00000.parquet", "data/readme.txt", f"x/{FILE.path}"):
        assert parse_data_key(other) is None

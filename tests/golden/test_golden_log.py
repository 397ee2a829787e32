"""The bytes of the commit log, begin.json and the hint: what was written is read for ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lamina.errors import Unsupported
from lamina.format import canonical
from lamina.format.log import (
    STATE_EVERY,
    Begin,
    Checkpoint,
    Committed,
    Entry,
    Forget,
    Hint,
    LogState,
    Pin,
    Rewind,
    Takeover,
    Unpin,
    decode_begin,
    decode_entry,
    decode_hint,
    encode_begin,
    encode_entry,
    encode_hint,
)
from lamina.format.origin import Origin, decode_origin, encode_origin
from lamina.format.pipeline_record import Owner, PipelineRecord
from lamina.ids import CheckpointId

HERE = Path(__file__).parent / "log"
ONE = CheckpointId.parse("019a5e00-8c00-7abc-8def-0123456789ab")
TWO = CheckpointId.parse("019a5e10-8c00-7abc-8def-0123456789ab")
WRITER = "00112233445566778899aabbccddeeff"
PREVIOUS = "5" * 64


def checkpoint(id: CheckpointId, epoch: int, parent: CheckpointId | None, after: int) -> Checkpoint:
    return Checkpoint(
        id=id,
        epoch=epoch,
        parent=parent,
        after=after,
        begin_sha256="b" * 64,
        manifest_sha256="c" * 64,
        manifest_size=1234,
        total_size=5_000_000_000,
        commit_digest=None if parent is None else "d" * 64,
    )


STATE = LogState(
    generation=3,
    home="4f9c",
    home_since=2,
    lineage_seq=31,
    lineage_kind="CHECKPOINT",
    base=TWO,
    epoch_max=12,
    checkpoints=(
        Committed(2, 1, checkpoint(ONE, 7, None, 1)),
        Committed(31, 3, checkpoint(TWO, 12, ONE, 2)),
    ),
    pins=(("before the müve", ONE), ("monday", TWO)),
)

RECORD = PipelineRecord(
    Owner("00112233445566778899aabbccddee00", "orders"),
    "e" * 64,
    {"trades": "1" * 64},
    {"vwap": "2" * 64, "übersicht": ""},
    {"out": "3" * 64},
)

ENTRIES = {
    "takeover": Entry(1, None, 1, WRITER, 1_760_000_000_000, Takeover(1, "4f9c")),
    "checkpoint-first": Entry(
        2, PREVIOUS, 1, WRITER, 1_760_000_000_001, checkpoint(ONE, 7, None, 1)
    ),
    "checkpoint": Entry(3, PREVIOUS, 1, WRITER, 1_760_000_000_002, checkpoint(TWO, 9, ONE, 2)),
    "rewind": Entry(4, PREVIOUS, 1, WRITER, 1_760_000_000_003, Rewind(10, ONE, 7)),
    "pin": Entry(5, PREVIOUS, 1, WRITER, 1_760_000_000_004, Pin("before the müve", ONE)),
    "unpin": Entry(6, PREVIOUS, 1, WRITER, 1_760_000_000_005, Unpin("before the müve")),
    "forget": Entry(7, PREVIOUS, 1, WRITER, 1_760_000_000_006, Forget((ONE, TWO))),
    "with-state": Entry(
        STATE_EVERY, PREVIOUS, 3, WRITER, 1_760_000_000_007, Pin("monday", TWO), STATE
    ),
    "takeover-pipeline": Entry(
        8, PREVIOUS, 2, WRITER, 1_760_000_000_010, Takeover(2, "4f9c", RECORD)
    ),
    "takeover-tip": Entry(
        9, PREVIOUS, 3, WRITER, 1_760_000_000_011, Takeover(3, "4f9c", RECORD, str(ONE))
    ),
    "takeover-no-tip": Entry(
        10, PREVIOUS, 4, WRITER, 1_760_000_000_012, Takeover(4, "4f9c", tip="")
    ),
    "with-state-pipeline": Entry(
        2 * STATE_EVERY,
        PREVIOUS,
        3,
        WRITER,
        1_760_000_000_013,
        Unpin("monday"),
        replace(STATE, pipeline=RECORD, tip=str(TWO)),
    ),
}
BEGINS = {
    "begin": Begin(TWO, 3, ONE, 2, WRITER, 1_760_000_000_008),
    "begin-full": Begin(ONE, 1, None, 1, WRITER, 1_760_000_000_009),
}
HINTS = {"_latest": Hint(32, PREVIOUS, TWO), "_latest-empty": Hint(1, PREVIOUS, None)}
FILES = {
    **{f"{name}.json": encode_entry(entry) for name, entry in ENTRIES.items()},
    **{f"{name}.json": encode_begin(begin) for name, begin in BEGINS.items()},
    **{f"{name}.json": encode_hint(hint) for name, hint in HINTS.items()},
}


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_same_value_gives_the_pinned_bytes(name: str) -> None:
    assert FILES[name] == (HERE / name).read_bytes()


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_a_pinned_entry_is_read_as_the_value_it_was(name: str) -> None:
    assert decode_entry((HERE / f"{name}.json").read_bytes(), name) == ENTRIES[name]


@pytest.mark.parametrize("name", sorted(BEGINS))
def test_a_pinned_begin_is_read_as_the_value_it_was(name: str) -> None:
    assert decode_begin((HERE / f"{name}.json").read_bytes(), name) == BEGINS[name]


@pytest.mark.parametrize("name", sorted(HINTS))
def test_a_pinned_hint_is_read_as_the_value_it_was(name: str) -> None:
    assert decode_hint((HERE / f"{name}.json").read_bytes(), name) == HINTS[name]


def test_every_pinned_file_is_read_and_every_kind_of_entry_is_pinned() -> None:
    assert {path.name for path in HERE.glob("*.json")} == FILES.keys()
    kinds = {type(entry.body) for entry in ENTRIES.values()}
    assert kinds == {Takeover, Checkpoint, Rewind, Pin, Unpin, Forget}


def test_the_origin_of_a_fork_is_these_bytes() -> None:
    first, last = (CheckpointId.from_parts(1_700_000_000_000, number) for number in (5, 7))
    origin = Origin("../trades/store", "", last, "fork-0123456789ab", (first, last))
    data = (HERE.parent / "forks" / "origin.json").read_bytes()
    assert encode_origin(origin) == data
    assert decode_origin(data, "here") == origin
    newer = canonical.encode_checked({**canonical.decode_checked(data, "here"), "version": 2})
    with pytest.raises(Unsupported, match="version 2"):
        decode_origin(newer, "here")

"""Entries, begin.json and the hint: what cannot be understood is refused, never misread."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import LaminaError, LogDamaged, Unsupported
from lamina.format import canonical
from lamina.format.log import (
    ENTRY_BYTES_MAX,
    Begin,
    Entry,
    decode_begin,
    decode_entry,
    decode_hint,
    encode_begin,
    encode_entry,
    encode_hint,
    kind_of,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "log"
ENTRIES = sorted(
    path.name for path in GOLDEN.glob("*.json") if not path.name.startswith(("_", "begin"))
)


def golden(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((GOLDEN / name).read_bytes())
    return value


def decoder(name: str) -> Callable[[bytes, str], Any]:
    if name.startswith("_"):
        return decode_hint
    return decode_begin if name.startswith("begin") else decode_entry


@pytest.mark.parametrize("name", ENTRIES)
def test_reading_and_writing_an_entry_changes_no_byte(name: str) -> None:
    data = (GOLDEN / name).read_bytes()
    assert encode_entry(decode_entry(data, name)) == data


def test_reading_and_writing_begin_and_hint_changes_no_byte() -> None:
    begin = (GOLDEN / "begin.json").read_bytes()
    assert encode_begin(decode_begin(begin, "")) == begin
    hint = (GOLDEN / "_latest.json").read_bytes()
    decoded = decode_hint(hint, "")
    assert decoded is not None
    assert encode_hint(decoded) == hint


@pytest.mark.parametrize("name", [*ENTRIES, "begin.json"])
def test_a_newer_version_is_refused_before_anything_else_is_believed(name: str) -> None:
    newer = canonical.encode({"version": 2, "kind": "MERGE", "body": "anything"})
    with pytest.raises(Unsupported, match="2"):
        decoder(name)(newer, name)
    with pytest.raises(Unsupported):
        decoder(name)(canonical.encode(golden(name) | {"version": 2}), name)


def test_an_unknown_kind_is_refused_not_skipped() -> None:
    unknown = golden("pin.json") | {"kind": "MERGE"}
    with pytest.raises(Unsupported, match="MERGE"):
        decode_entry(canonical.encode(unknown), "log/5")


def test_the_kind_of_an_entry_is_its_name_in_capitals() -> None:
    for name in ENTRIES:
        entry = decode_entry((GOLDEN / name).read_bytes(), name)
        assert kind_of(entry.body) == golden(name)["kind"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("pin.json", {"seq": 0}),
        ("pin.json", {"seq": -1}),
        ("pin.json", {"seq": "5"}),
        ("pin.json", {"seq": True}),
        ("pin.json", {"generation": -1}),
        ("pin.json", {"writer": None}),
        ("pin.json", {"version": 0}),
        ("pin.json", {"version": "1"}),
        ("pin.json", {"previous": 7}),
        ("pin.json", {"body": []}),
        ("pin.json", {"body": {"name": "x"}}),
        ("pin.json", {"body": {"name": "x", "id": "019A5E00-8C00-7ABC-8DEF-0123456789AB"}}),
        ("takeover.json", {"body": {"generation": 0, "home": "h"}}),
        ("forget.json", {"body": {"ids": ["nobody"]}}),
        ("forget.json", {"body": {"ids": [7]}}),
        ("with-state.json", {"state": 7}),
        ("with-state.json", {"state": {}}),
        ("begin.json", {"id": None}),
        ("begin.json", {"after": -1}),
    ],
    ids=str,
)
def test_a_field_of_the_wrong_form_is_damage_and_says_where(
    name: str, change: dict[str, Any]
) -> None:
    with pytest.raises(LogDamaged) as caught:
        decoder(name)(canonical.encode(golden(name) | change), "log/7.json")
    assert caught.value.where == "log/7.json"


@pytest.mark.parametrize("name", [*ENTRIES, "begin.json"])
def test_every_field_is_needed(name: str) -> None:
    value = golden(name)
    may_be_missing = {"state", "previous", "parent"}  # absent reads as null
    for field in value.keys() - may_be_missing:
        with pytest.raises(LogDamaged):
            decoder(name)(canonical.encode({k: v for k, v in value.items() if k != field}), name)


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"[]", b"7", b'"x"', b"\xff\xfe", b"{}", b'{"version":1.0}', b"\0" * 100],
    ids=repr,
)
def test_bytes_that_are_no_entry_are_damage(data: bytes) -> None:
    with pytest.raises(LogDamaged):
        decode_entry(data, "")
    with pytest.raises(LogDamaged):
        decode_begin(data, "")
    assert decode_hint(data, "") is None


def test_a_huge_object_is_refused_unread() -> None:
    with pytest.raises(LogDamaged, match="at most"):
        decode_entry(b" " * (ENTRY_BYTES_MAX + 1), "")
    with pytest.raises(LogDamaged, match="at most"):
        decode_begin(b" " * (64 * 1024 + 1), "")
    assert decode_hint(b" " * (64 * 1024 + 1), "") is None


def test_a_hint_that_cannot_be_read_is_none_whatever_the_reason() -> None:
    hint = golden("_latest.json")
    for change in ({"version": 9}, {"seq": 0}, {"sha256": None}, {"checkpoint": "x"}):
        assert decode_hint(canonical.encode(hint | change), "") is None


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("*.json")))
def test_every_truncation_and_every_flipped_bit_is_refused_or_read_as_a_value(name: str) -> None:
    data = (GOLDEN / name).read_bytes()
    for end in range(len(data)):
        _refused_or_value(name, data[:end])
    for at in range(len(data)):
        for bit in range(8):
            flipped = data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
            _refused_or_value(name, flipped)


def _refused_or_value(name: str, data: bytes) -> None:
    try:
        value = decoder(name)(data, name)
    except LaminaError:
        return
    if isinstance(value, Entry):
        encode_entry(value)  # what is read can be written again
    elif isinstance(value, Begin):
        encode_begin(value)

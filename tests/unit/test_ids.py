"""Checkpoint ids: UUIDv7, one spelling, text in the order of time."""

from __future__ import annotations

import pickle
import uuid

import pytest

from lamina.errors import UsageError
from lamina.ids import CheckpointId


def test_an_id_has_its_time_and_its_random_bits() -> None:
    id = CheckpointId.from_parts(0x0123_4567_89AB, (0xABC << 62) | 0x0DEF_0123_4567_89AB)
    assert str(id) == "01234567-89ab-7abc-8def-0123456789ab"
    assert id.milliseconds == 0x0123_4567_89AB
    assert (id.uuid.version, id.uuid.variant) == (7, uuid.RFC_4122)


def test_text_has_thirty_six_characters_and_comes_back() -> None:
    id = CheckpointId.from_parts(1_760_000_000_000, 1)
    assert len(str(id)) == 36
    assert str(id).count("-") == 4
    assert CheckpointId.parse(str(id)) == id
    assert pickle.loads(pickle.dumps(id)) == id


def test_ids_and_their_texts_sort_by_time() -> None:
    ids = [CheckpointId.from_parts(ms, (1 << 74) - 1 - ms) for ms in (0, 1, 255, 256, 2**47)]
    assert sorted({*ids}) == ids
    assert sorted(map(str, ids)) == list(map(str, ids))
    assert ids[0] < ids[1] <= ids[1] < ids[2]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "01234567-89AB-7abc-8def-0123456789ab",
        "0123456789ab7abc8def0123456789ab",
        "{01234567-89ab-7abc-8def-0123456789ab}",
        "urn:uuid:01234567-89ab-7abc-8def-0123456789ab",
        " 01234567-89ab-7abc-8def-0123456789ab",
        "01234567-89ab-4abc-8def-0123456789ab",
        "01234567-89ab-7abc-cdef-0123456789ab",
        "00000000-0000-0000-0000-000000000000",
        "01234567-89ab-7abc-8def-0123456789a" + "\u0661",
        "x" * 100_000,
    ],
)
def test_another_spelling_or_version_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        CheckpointId.parse(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("milliseconds", [-1, 1 << 48])
def test_a_time_that_does_not_fit_is_refused(milliseconds: int) -> None:
    with pytest.raises(UsageError):
        CheckpointId.from_parts(milliseconds, 0)


def test_the_largest_parts_fit() -> None:
    id = CheckpointId.from_parts((1 << 48) - 1, (1 << 74) - 1)
    assert str(id) == "ffffffff-ffff-7fff-bfff-ffffffffffff"

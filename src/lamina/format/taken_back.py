"""The rewinds that made a sink take rows back, as its log keeps them. FORMAT.md section 9."""

from __future__ import annotations

from dataclasses import dataclass

from lamina.format.canonical import Json
from lamina.format.fields import Fields

TAKEN_BACK = "taken_back"


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The rewind of number *epoch* took back every epoch after *to*."""

    epoch: int
    to: int


def encode_taken_back(rewinds: tuple[TakenBack, ...]) -> dict[str, Json]:
    """The field of an entry; none if nothing was ever taken back."""
    if not rewinds:
        return {}
    return {TAKEN_BACK: [{"epoch": each.epoch, "to": each.to} for each in rewinds]}


def decode_taken_back(fields: Fields) -> tuple[TakenBack, ...]:
    return fields.list_of(
        TAKEN_BACK, lambda each: TakenBack(each.integer("epoch"), each.integer("to"))
    )

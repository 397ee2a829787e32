"""home.json: which home this is. FORMAT.md section 7 is the specification.

Version 1 had no checksum, so a flipped digit of the id made another home of it. Version 2 has one,
and says which pipeline lives there. Version 3 is that of a home that is being moved here: whether
it has arrived is said by the log of the place that it comes from (a MOVED record).
"""

from __future__ import annotations

from dataclasses import dataclass

from lamina.errors import Corrupt, WalDamaged
from lamina.format import canonical
from lamina.format.canonical import Json
from lamina.format.fields import open_checked
from lamina.format.pipeline_record import NOBODY, Owner, decode_owner, encode_owner

HOME_VERSION = 3
_SETTLED = 2
HOME_BYTES_MAX = 64 * 1024
ADVICE = "Restore home.json from a copy of this home"


@dataclass(frozen=True, slots=True)
class HomeFile:
    """What home.json says; *created_ms* is for people."""

    identity: bytes
    created_ms: int
    pipeline: Owner = NOBODY  # nobody: no pipeline that has an id was ever started here
    arrival: str = ""  # of a home that is being moved here: which move
    arrives_from: str = ""


def encode_home(home: HomeFile) -> bytes:
    value: dict[str, Json] = {
        "version": HOME_VERSION if home.arrival else _SETTLED,
        "id": home.identity.hex(),
        "created_ms": home.created_ms,
    }
    if home.pipeline:
        value["pipeline"] = encode_owner(home.pipeline)
    if home.arrival:
        value |= {"arrival": home.arrival, "arrives_from": home.arrives_from}
    return canonical.encode_checked(value)


def decode_home(data: bytes, where: str) -> HomeFile:
    """WalDamaged unless every byte is as it was written; a file of version 1 must make sense."""
    try:
        fields = open_checked(data, where, what="a home", known=HOME_VERSION, error=WalDamaged)
        identity = fields.parsed("id", fields.text("id"), bytes.fromhex)
        created_ms = fields.integer("created_ms", 0)
        owner = fields.optional_object("pipeline")
        pipeline = NOBODY if owner is None else decode_owner(owner)
        arrival, arrives_from = fields.text("arrival", ""), fields.text("arrives_from", "")
    except Corrupt as error:
        message = f"home.json is damaged: {error.message}"
        raise WalDamaged(message, where=where, advice=ADVICE) from error
    if len(identity) != 16:
        message = "home.json is damaged: it names no identity of sixteen bytes"
        raise WalDamaged(message, where=where, advice=ADVICE)
    return HomeFile(identity, created_ms, pipeline, arrival, arrives_from)

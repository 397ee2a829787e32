"""Small states inside the manifest: base64 text with a SHA-256 of its own.

LaminarDB took damaged base64 for "no state", and an operator started empty while its sources went
on. Here text that cannot be read, or reads as something else, is an error.
"""

from __future__ import annotations

import base64
import binascii

from lamina.errors import Corrupt, DigestMismatch
from lamina.format.canonical import sha256_hex

INLINE_BYTES_MAX = 64 * 1024
"""A run of this size or less is in the manifest itself."""


def to_base64(data: bytes) -> str:
    """The standard alphabet, padded."""
    return base64.b64encode(data).decode("ascii")


def from_base64(text: str, where: str) -> bytes:
    """The bytes of *text*; Corrupt unless `to_base64` would write them exactly so."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Corrupt(f"inline state is not base64: {error}", where=where) from None
    if to_base64(data) != text:
        raise Corrupt("inline state is not canonical base64", where=where)
    return data


def checked(text: str, sha256: str | None, where: str) -> bytes:
    """The bytes of *text*, which must have this digest if one is given."""
    data = from_base64(text, where)
    if sha256 is not None and (found := sha256_hex(data)) != sha256:
        raise DigestMismatch(f"inline state has SHA-256 {found}, not {sha256}", where=where)
    return data

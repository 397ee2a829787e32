"""Canonical JSON: the same value gives the same bytes, in every process and release.

UTF-8, no white space, keys sorted by code point, integers only, no duplicate keys. FORMAT.md
section 1 is the specification.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from lamina.errors import Corrupt, UsageError

Json: TypeAlias = "str | int | bool | Sequence[Json] | Mapping[str, Json] | None"

# `default` is asked for what json does not know: after _check that is a Mapping that is no dict.
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), default=dict
)
_DEPTH_MAX = 64
CHECK = "check"
INTEGER_MAX = (1 << 64) - 1
INTEGER_MIN = -(1 << 63)


def encode(value: Json) -> bytes:
    """Return the one byte string that stands for *value*."""
    _check(value, 0)
    try:
        return _ENCODER.encode(value).encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError("text with a lone surrogate cannot be stored") from None


def decode(data: bytes, where: str) -> Json:
    """Read any JSON that could have been written here; *where* names it in errors.

    White space and key order are forgiven, because people edit files. Duplicate keys, numbers
    with a fraction and anything after the value are not: they would be read with a meaning lost.
    Whatever is returned can be encoded again.
    """
    try:
        text = data.decode("utf-8")
        value: Json = _DECODER.decode(text)
        _check_depth(value, 0)
        if "\\u" in text:  # the only way to a lone surrogate, which no UTF-8 can hold
            _ENCODER.encode(value).encode("utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt(f"not UTF-8 at byte {error.start}", where=where) from None
    except UnicodeEncodeError:
        raise Corrupt("an escape stands for half a character", where=where) from None
    except json.JSONDecodeError as error:
        raise Corrupt(f"not JSON at character {error.pos}: {error.msg}", where=where) from None
    except RecursionError:
        raise Corrupt("JSON nested too deeply", where=where) from None
    except ValueError as error:
        raise Corrupt(f"not acceptable JSON: {error}", where=where) from None
    return value


def encode_checked(value: Mapping[str, Json]) -> bytes:
    """The canonical bytes of *value* with one field more, `check`: the digest of the others."""
    assert CHECK not in value, "the field `check` is this function's own"
    return encode({**value, CHECK: digest_of(value)})


def decode_checked(data: bytes, where: str) -> dict[str, Json]:
    """What `encode_checked` was given; Corrupt unless these are, byte for byte, its bytes."""
    value = decode(data, where)
    if not isinstance(value, dict):
        raise Corrupt("not a JSON object", where=where)
    found = {name: item for name, item in value.items() if name != CHECK}
    if encode_checked(found) != data:
        raise Corrupt("the content does not match its checksum (the field `check`)", where=where)
    return found


def sha256_hex(data: bytes) -> str:
    """SHA-256 of *data*, as the lower-case hex that `sha256sum` prints."""
    return hashlib.sha256(data).hexdigest()


def digest_of(value: Json) -> str:
    """SHA-256 of the canonical bytes of *value*."""
    return sha256_hex(encode(value))


def _check(value: Json, depth: int) -> None:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, int):
        if not INTEGER_MIN <= value <= INTEGER_MAX:
            raise UsageError(f"{value} does not fit into 64 bits")
    elif depth >= _DEPTH_MAX:
        raise UsageError(f"a value nested deeper than {_DEPTH_MAX} levels cannot be stored")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise UsageError(f"a key must be text, not {key!r}")
            _check(item, depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check(item, depth + 1)
    else:
        raise UsageError(f"{type(value).__name__} has no canonical form: {value!r}")


def _check_depth(value: Json, depth: int) -> None:
    if isinstance(value, (dict, list)):
        if depth >= _DEPTH_MAX:
            raise ValueError(f"nested deeper than {_DEPTH_MAX} levels")
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(item, (dict, list)):  # asked here too: most values are scalars
                _check_depth(item, depth + 1)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object names one key twice")
    return result


def _no_fraction(text: str) -> Any:
    raise ValueError(f"the number {text[:40]} is not an integer")


def _bounded_int(text: str) -> int:
    value = int(text) if len(text) <= 20 else INTEGER_MAX + 1
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise ValueError(f"the number {text[:40]} does not fit into 64 bits")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys,
    parse_float=_no_fraction,
    parse_int=_bounded_int,
    parse_constant=_no_fraction,
)

"""Canonical JSON: one value, one byte string; what cannot be written is never read."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from lamina.errors import Corrupt, UsageError
from lamina.format import canonical
from lamina.format.canonical import decode, digest_of, encode, sha256_hex


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, b"null"),
        (True, b"true"),
        (0, b"0"),
        (-1, b"-1"),
        ((1 << 64) - 1, b"18446744073709551615"),
        (-(1 << 63), b"-9223372036854775808"),
        ("", b'""'),
        ("ü\U0001f600", b'"\xc3\xbc\xf0\x9f\x98\x80"'),
        ('"\\/\n\x00\x7f', b'"\\"\\\\/\\n\\u0000\x7f"'),
        ([], b"[]"),
        ((1, "a"), b'[1,"a"]'),
        ({"b": 1, "a": {"d": 2, "c": None}}, b'{"a":{"c":null,"d":2},"b":1}'),
        # By code point, not by UTF-16 unit: U+FF5E is below U+1F600.
        ({"\U0001f600": 1, "\uff5e": 2}, '{"\uff5e":2,"\U0001f600":1}'.encode()),
        (MappingProxyType({"b": MappingProxyType({}), "a": 1}), b'{"a":1,"b":{}}'),
    ],
)
def test_a_value_has_these_bytes(value: Any, data: bytes) -> None:
    assert encode(value) == data
    assert encode(decode(data, "x")) == data


@pytest.mark.parametrize(
    "value",
    [
        1.5,
        float("nan"),
        1 << 64,
        -(1 << 63) - 1,
        b"bytes",
        {1: "a"},
        {None: 1},
        {"a": {1, 2}},
        "\ud800",
        {"\udfff": 1},
        object(),
    ],
)
def test_what_has_no_form_is_a_mistake_of_the_caller(value: Any) -> None:
    with pytest.raises(UsageError):
        encode(value)


def test_white_space_and_key_order_are_forgiven() -> None:
    assert decode(b' {"b": 1,\n "a": [1, 2]} \n', "x") == {"a": [1, 2], "b": 1}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"{}{}",
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"b":2}}',
        b"1.0",
        b"1e3",
        b"NaN",
        b"-Infinity",
        b"18446744073709551616",
        b"-9223372036854775809",
        b"9" * 5000,
        b"\xef\xbb\xbf{}",
        b"\xff",
        b"'a'",
        b'"\n"',
        b'"\\ud800"',
        b'{"\\uDFFF":1}',
        b"[" * 100_000,
        b"[" * 65 + b"]" * 65,
        b'{"a":' * 65 + b"1" + b"}" * 65,
    ],
)
def test_what_would_be_read_with_its_meaning_lost_is_refused(data: bytes) -> None:
    with pytest.raises(Corrupt) as caught:
        decode(data, "base/file.json")
    assert caught.value.where == "base/file.json"


def test_a_pair_of_escaped_surrogates_is_one_character() -> None:
    assert decode(b'"\\ud83d\\ude00"', "x") == "\U0001f600"


def test_what_is_nested_as_deep_as_allowed_is_written_and_read() -> None:
    value: Any = 1
    for _ in range(64):
        value = [value]
    assert decode(encode(value), "x") == value
    with pytest.raises(UsageError, match="nested"):
        encode([value])
    with pytest.raises(Corrupt, match="nested"):
        decode(b"[" + encode(value) + b"]", "x")


def test_digests_are_what_sha256sum_prints() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert sha256_hex(b"") == empty
    assert digest_of({}) == sha256_hex(b"{}")
    assert canonical.INTEGER_MAX == 2**64 - 1

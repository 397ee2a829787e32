"""Rows as JSON texts, column by column: what Spark's to_json writes, without a loop over rows.

    struct, row    an object; a field that is null is left out
    list, map      an array, an object; what is null in them is null
    timestamp      "2026-01-02T03:04:05.678Z", in UTC; microseconds where there are some
    timestamp_ntz  the same without Z
    date           "2026-01-02"
    decimal        a number with all its digits
    binary         base64
    NaN, Infinity  text

A double has the digits that tell it apart, as in Spark; its exponent is written 1e+20, not 1.0E20.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lamina.connectors.kafka.times_text import times_text

_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_CONTROLS = {chr(code): _SHORT.get(chr(code), f"\\u{code:04X}") for code in range(0x20)}
_NOT_FINITE = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def json_objects(names: Sequence[str], columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """One object for each row."""
    parts: list[pa.Array | str] = ["{"]
    whole = next((n for n, column in enumerate(columns) if not column.null_count), None)
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        quote, texts = _unquoted(column)
        label = f"{json.dumps(name, ensure_ascii=False)}:{quote}"
        if number == whole:  # the one field that is always there: the others have commas
            parts += [label, texts, quote]
        elif whole is not None and number < whole:
            parts.append(_join(label, texts, f"{quote},"))
        elif column.null_count:
            parts.append(_join(f",{label}", texts, quote))
        else:
            parts += [f",{label}", texts, quote]
    if not columns:
        return pa.array(["{}"] * rows)
    objects = _join(*filter(_is_something, parts), "}", nulls_as="")
    if whole is not None:
        return objects
    return pc.replace_substring(objects, "{,", "{", max_replacements=1)


def _is_something(part: pa.Array | str) -> bool:
    return not isinstance(part, str) or bool(part)


def json_tokens(values: pa.Array) -> pa.Array:
    """The JSON text of each value; null where there is none."""
    quote, texts = _unquoted(values)
    return _join(quote, texts, quote) if quote else texts


def _unquoted(values: pa.Array) -> tuple[str, pa.Array]:
    """The texts of values, and what stands around each: whoever joins them adds it for nothing."""
    kind = values.type
    if pt.is_nested(kind):
        return "", _nested(values)
    if pt.is_boolean(kind) or pt.is_integer(kind) or pt.is_decimal(kind):
        return "", values.cast(pa.string())
    if pt.is_floating(kind):
        return "", _numbers(values)
    texts = plain_texts(values)
    is_free = pt.is_string(kind) or pt.is_large_string(kind)  # other types have no special ones
    return '"', _escaped(texts) if is_free and _has_specials(texts) else texts


def _nested(values: pa.Array) -> pa.Array:
    kind = values.type
    if pt.is_struct(kind):
        names = [field.name for field in kind]
        objects = json_objects(names, values.flatten(), len(values))
        return pc.if_else(values.is_valid(), objects, None)
    if pt.is_map(kind):
        keys = json_tokens(plain_texts(values.keys))
        entries = _join(keys, ":", _or_null(values.items))
        return _join("{", _joined(values, entries), "}")
    return _join("[", _joined(values, _or_null(values.values)), "]")


def plain_texts(values: pa.Array) -> pa.Array:
    """Values as texts without quotes: for keys and headers. Binary ones are base64."""
    kind = values.type
    if pt.is_string(kind):
        return values
    if pt.is_large_string(kind) or pt.is_date(kind) or pt.is_null(kind):
        return values.cast(pa.string())
    if pt.is_timestamp(kind):
        return times_text(values)
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        texts = (v if v is None else base64.b64encode(v).decode() for v in values.to_pylist())
        return pa.array(texts, pa.string())
    if pt.is_floating(kind):
        return pc.replace_substring(_numbers(values), '"', "")
    return json_tokens(values)


def _numbers(values: pa.Array) -> pa.Array:
    """A whole one gets .0, so that readers do not take the column for one of integers."""
    text = values.cast(pa.string())
    finite, whole = pc.is_finite(values), pc.equal(values, pc.trunc(values))
    if pc.any(whole, min_count=0).as_py():
        is_bare = pc.invert(pc.match_substring_regex(text, "[.en]"))
        text = pc.if_else(is_bare, _join(text, ".0"), text)
    if pc.all(finite, min_count=0).as_py():
        return text
    for found, written in _NOT_FINITE.items():
        text = pc.if_else(pc.equal(text, found), written, text)
    return text


def _has_specials(texts: pa.Array) -> bool:
    """Whether any byte needs an escape; UTF-8 has those bytes in no other character."""
    data = texts.buffers()[2]
    if data is None or not len(texts):
        return False
    offsets = np.frombuffer(texts.buffers()[1], np.int32)
    used = np.frombuffer(data, np.uint8)[offsets[texts.offset] : offsets[texts.offset + len(texts)]]
    return bool(((used < 0x20) | (used == 0x22) | (used == 0x5C)).any())


def _escaped(texts: pa.Array) -> pa.Array:
    texts = pc.replace_substring(texts, "\\", "\\\\")
    texts = pc.replace_substring(texts, '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, "[\\x00-\\x1f]"), min_count=0).as_py():
        for control, written in _CONTROLS.items():
            texts = pc.replace_substring(texts, control, written)
    return texts


def _or_null(values: pa.Array) -> pa.Array:
    return json_tokens(values).fill_null("null")


def _joined(lists: pa.Array, items: pa.Array) -> pa.Array:
    """The texts of each list's *items*, with commas; null where the list is."""
    offsets = pa.array(lists.offsets.to_numpy(), pa.int32())  # of a slice, they would not do
    mask = lists.is_null() if lists.null_count else None
    return pc.binary_join(pa.ListArray.from_arrays(offsets, items, mask=mask), ",")


def _join(*parts: pa.Array | str, nulls_as: str | None = None) -> pa.Array:
    if nulls_as is None:
        return pc.binary_join_element_wise(*parts, "")
    return pc.binary_join_element_wise(
        *parts, "", null_handling="replace", null_replacement=nulls_as
    )

"""What a row of keyed state takes, as far as its types say: for people who plan ahead."""

from __future__ import annotations

import pyarrow as pa

SLOT_BYTES = 9
"""Of every row: its slot, and whether it is a delete."""
TEXT_BYTES = 16
"""How long a text is, as long as nobody knows; its offset comes on top."""
OFFSET_BYTES = 4


def bytes_of_row(row: pa.Schema) -> float:
    """Of a row with these columns, keys and values, in a run."""
    return SLOT_BYTES + sum(width(field.type) for field in row)


def width(kind: pa.DataType) -> float:  # noqa: PLR0911  one for each kind
    """Bytes of one value; a list is counted with one element."""
    if pa.types.is_struct(kind):
        return sum(width(field.type) for field in kind) + _NULL
    if pa.types.is_fixed_size_list(kind):
        return float(kind.list_size) * width(kind.value_type) + _NULL
    if pa.types.is_list(kind):
        return OFFSET_BYTES + width(kind.value_type) + _NULL
    if pa.types.is_map(kind):
        return OFFSET_BYTES + width(kind.key_type) + width(kind.item_type) + _NULL
    if pa.types.is_null(kind):
        return 0
    try:
        return float(kind.bit_width) / 8 + _NULL
    except ValueError:  # a text: it has no width
        return OFFSET_BYTES + TEXT_BYTES + _NULL


_NULL = 1 / 8  # of each value, whether it is one

"""Options of what has rows by key. They are apart from what writes rows: that needs Arrow."""

from __future__ import annotations

from lamina.connectors.kinds import DeclaredOption, OptionType

MODE = DeclaredOption(
    "mode",
    "`append`: every row is added; `upsert`: a row replaces the one with the same keys. By "
    "default, what the stream does",
    choices=("append", "upsert"),
)
KEYS = DeclaredOption(
    "keys",
    "Columns that tell rows apart, for `upsert`; by default, the keys of the stream",
    OptionType.COLUMNS,
)
ORDER_BY = DeclaredOption(
    "order_by",
    "Column that says which row counts if an epoch has several with the same keys: the one with "
    "the greatest value. Needed if the stream is not grouped by `keys`",
)

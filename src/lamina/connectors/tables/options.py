"""Options that tables of every kind have, and what is wrong with them."""

from __future__ import annotations

from lamina.connectors.kinds import DeclaredOption, OptionType, TableContext
from lamina.connectors.options import bad_option
from lamina.pipeline.tokens import did_you_mean

KEYS = DeclaredOption(
    "keys",
    "Columns that no two rows share: each new version is checked, and refused if two do. Rows "
    "with a null among them are not compared",
    OptionType.COLUMNS,
)
REFRESH = DeclaredOption(
    "refresh",
    "Minimum time between two looks for a new version; by default, every epoch looks",
    OptionType.INTERVAL,
)


def check_keys(context: TableContext) -> tuple[str, ...]:
    """The columns of the option `keys`, as they were declared."""
    declared = {column.name.lower(): column.name for column in context.table.columns}
    for name in context.given.columns(KEYS.name):
        if name.lower() not in declared:
            message = f"has the key {name!r}, which is not one of its columns"
            advice = did_you_mean(name, declared.values())
            raise bad_option(context.table, message, context.given.file, advice)
    return tuple(declared[name.lower()] for name in context.given.columns(KEYS.name))

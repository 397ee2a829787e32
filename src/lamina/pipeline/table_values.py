"""Checks of queries over tables that are values (scalars.py)."""

from __future__ import annotations

from lamina.errors import BadPipeline
from lamina.pipeline.model import Values
from lamina.pipeline.tokens import bad_at


def check_values(of: Values, changed: str | None, file: str) -> None:
    """BadPipeline if rows of *changed*, which are taken back or replaced, meet a table."""
    if of.tables and changed is not None:
        raise values_over_changes(changed, of, file)


def values_over_changes(name: str, of: Values, file: str) -> BadPipeline:
    """The same for a query over a table inside an expression."""
    return bad_at(
        f"a query over the table {of.tables[0]!r} inside an expression over {name!r}, whose rows "
        "are taken back or replaced: the table may have changed since, and then another row would "
        "be taken back than came out",
        file,
        of.place,
        f"Put the query into what {name!r} reads, before the aggregate, or let {name!r} EMIT ON "
        "WINDOW CLOSE",
    )

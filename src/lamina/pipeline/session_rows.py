"""The rows of an epoch that are in no session any more, because theirs has ended: LATE ROWS TO."""

from __future__ import annotations

from collections.abc import Collection

from lamina.pipeline.compile_rows import after_table
from lamina.pipeline.expressions import Words
from lamina.pipeline.plans import FLOOR, Stateless
from lamina.pipeline.select import Select, quoted
from lamina.pipeline.windows import WINDOW, arguments

_ROWS = "_lamina_rows"


def late_sessions(
    select: Select, columns: Collection[str], window: str, groups: str, words: Words
) -> Stateless:
    """Rows of sessions that end before the floor: of those that an epoch's rows form by themselves.

    What is late is decided for such a session as a whole (decision 0030), so its rows are collected
    and shown again. Only rows from before the floor can be in one.
    """
    time = select.text(arguments(words)[0])
    listed = ", ".join(map(quoted, columns))
    early = f"FILTER (WHERE unix_micros({time}) < {FLOOR})"
    made = (
        f"{window} AS {WINDOW}, collect_list(struct({listed})) {early} AS {_ROWS}, "
        f"max({FLOOR}) AS {FLOOR}"
    )
    return Stateless(
        f"SELECT {listed} FROM (SELECT inline({_ROWS}) FROM (SELECT {made} FROM ",  # noqa: S608
        f"{after_table(select)}{groups}) WHERE unix_micros({WINDOW}.end) < {FLOOR})",
        moves_rows=True,
    )

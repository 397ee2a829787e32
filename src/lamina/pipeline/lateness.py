"""What a query says of late rows, behind its EMIT: how long windows wait, where the rest goes.

    EMIT ON WINDOW CLOSE ALLOW LATENESS INTERVAL 1 HOUR LATE ROWS TO name

LATE DATA TO is another spelling.

The late rows are a stream of their own. It reads what the query reads, and has those rows that came
when a window of theirs had closed; the query itself is asked how many there are (engine/plans.py).
"""

from __future__ import annotations

from lamina.pipeline.cursor import Cursor
from lamina.pipeline.expressions import Words
from lamina.pipeline.intervals import read_interval
from lamina.pipeline.model import Lateness, Stream
from lamina.pipeline.select import Select, read_select
from lamina.pipeline.tokens import Script

_CLAUSES = (("ALLOW", "LATENESS"), ("LATE", "ROWS"), ("LATE", "DATA"))


def split_lateness(script: Script, words: Words) -> tuple[Words, Lateness]:
    """A query without these clauses, and what they say."""
    said = [word.upper if word.depth == words[0].depth else "" for word in words]
    starts = [i for i in range(len(said)) if tuple(said[i : i + 2]) in _CLAUSES]
    emits = [i for i in range(len(said)) if said[i : i + 1] == ["EMIT"]]
    found = [i for i in starts if emits and i > emits[-1]]
    if not found:
        return words, Lateness()
    cursor = Cursor(script, words[found[0] :])
    allowed_us, rows_to = 0, ""
    while cursor.next is not None:
        at = cursor.next
        if not allowed_us and cursor.take("ALLOW", "LATENESS"):
            allowed_us = read_interval(cursor, after="ALLOW LATENESS")
            if not allowed_us:
                raise script.bad("ALLOW LATENESS of nothing", at, "Leave it out")
        elif not rows_to and (cursor.take("LATE", "ROWS") or cursor.take("LATE", "DATA")):
            cursor.expect("TO", after="LATE ROWS")
            rows_to = cursor.name("a stream").text
        else:
            cursor.end("what a stream says of late rows")
            raise script.bad(f"{at.text} is said twice", at, "Leave one out")
    return words[: found[0]], Lateness(allowed_us, rows_to)


def check_lateness(select: Select, stream: Stream, *, has_window: bool) -> None:
    """Only windows close."""
    if stream.late == Lateness():
        return
    said = "ALLOW LATENESS" if stream.late.allowed_us else "LATE ROWS"
    if not has_window:
        advice = "Write it, with its EMIT, in the brackets of the query that groups by a window"
        raise select.script.bad(f"{said} in a query without a window", 0, advice)
    if stream.late.rows_to and select.laterals.text:
        message = "LATE ROWS with LATERAL: what would be late are rows that it makes"
        raise select.script.bad(message, 0, "Put the LATERAL into a subquery")


def late_rows_of(stream: Stream, *, file: str) -> Stream:
    """The stream of rows that come too late for *stream*: it reads the same."""
    return Stream(
        stream.late.rows_to,
        "",
        place=stream.place,
        union=read_select(stream, file).reads,
        late_of=stream.name,
    )

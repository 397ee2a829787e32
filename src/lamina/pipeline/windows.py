"""Windows as Spark spells them: TUMBLE and HOP are window(), SESSION is session_window().

Spark has no CUMULATE: each row is made several, one for each window that it is in (LATERAL VIEW).
"""

from __future__ import annotations

from lamina.pipeline.expressions import Words, by_comma
from lamina.pipeline.intervals import UNITS_US, micros
from lamina.pipeline.keys import SESSIONS, Names, is_session, is_window
from lamina.pipeline.model import Emit
from lamina.pipeline.select import Select
from lamina.pipeline.tokens import Script

_ARGUMENTS = {"WINDOW": (2, 3, 4), "TUMBLE": (2,), "HOP": (3,), "CUMULATE": (3,)}
_ARGUMENTS |= dict.fromkeys(SESSIONS, (2,))
_SIZE_LAST = ("HOP", "CUMULATE")
WINDOW = "_lamina_window"
"""The column with the window of a row, where rows are made for their windows."""
_FORMS = {
    "WINDOW": "window(time, '1 minute') or window(time, '1 minute', '30 seconds')",
    "TUMBLE": "TUMBLE(time, INTERVAL 1 MINUTE)",
    "HOP": "HOP(time, slide, size), as HOP(ts, INTERVAL 30 SECONDS, INTERVAL 1 MINUTE)",
    "CUMULATE": "CUMULATE(time, step, size), as CUMULATE(ts, INTERVAL 1 HOUR, INTERVAL 1 DAY)",
    "SESSION": "SESSION(time, gap), as SESSION(ts, INTERVAL 5 MINUTES)",
    "SESSION_WINDOW": "session_window(time, gap), as session_window(ts, '5 minutes')",
}
_QUOTES = "'\""
_UNITS = (*UNITS_US, "MONTH", "YEAR")


def window_text(script: Script, words: Words) -> str:
    """A key as Spark gets it; lengths may be intervals, which Spark's window() does not take."""
    if not is_window(words):
        return script.slice(words)
    name = words[0].upper
    time, *lengths = arguments(words)
    if len(lengths) + 1 not in _ARGUMENTS[name] or not time:
        raise script.bad(f"wrong arguments for {name}", words[0], f"Write {_FORMS[name]}")
    if is_session(words):
        return f"session_window({script.slice(time)}, {_gap(script, lengths[0], words)})"
    texts = [_length(script, length, words) for length in lengths]
    if name == "CUMULATE":
        return WINDOW
    if name == "HOP":
        texts.reverse()
    return f"window({script.slice(time)}, {', '.join(texts)})"


def is_cumulative(words: Words) -> bool:
    """Whether several windows begin at one time."""
    return words[0].upper == "CUMULATE"


def cumulation(script: Script, words: Words) -> str:
    """CUMULATE(time, step, size) behind the table in FROM: a row for each window, in `WINDOW`."""
    window_text(script, words)  # it has its arguments
    size, step = map(micros, lengths_of(words))
    if not size or not step or size % step:
        raise script.bad(
            "CUMULATE of a size that is not a multiple of its step", words[0], _FORMS["CUMULATE"]
        )
    time = f"unix_micros({script.slice(arguments(words)[0])})"
    start = f"({time} - pmod({time}, {size}L))"
    ends = f"sequence(pmod({time}, {size}L) DIV {step}L + 1, {size // step}L)"
    window = (
        f"named_struct('start', timestamp_micros({start}), "
        f"'end', timestamp_micros({start} + i * {step}L))"
    )
    return f" LATERAL VIEW explode(transform({ends}, i -> {window})) {WINDOW}s AS {WINDOW}"


def slide_text(script: Script, words: Words) -> str | None:
    """The slide of a window as a literal; None if windows do not overlap."""
    _, *lengths = arguments(words)
    if words[0].upper in _SIZE_LAST:
        return _length(script, lengths[0], words)
    return _length(script, lengths[1], words) if len(lengths) > 1 else None


def window_meaning(names: Names, words: Words) -> str:
    """A window in one spelling, whichever way it is written."""
    if is_session(words):
        time, gap = (names.spelled(each) for each in arguments(words))
        return f"session_window({time}, {gap})"
    lengths = (f"'{length.lower()}'" for length in lengths_of(words))
    name = "cumulate" if is_cumulative(words) else "window"
    return f"{name}({names.spelled(arguments(words)[0])}, {', '.join(lengths)})"


def _length(script: Script, words: Words, window: Words) -> str:
    """INTERVAL 1 MINUTE, or '1 minute', as a text."""
    if words and all(word.is_string for word in words):
        return script.slice(words)
    if len(words) == 3 and words[0].upper == "INTERVAL" and words[2].is_name:
        return f"'{words[1].text.strip(_QUOTES)} {words[2].text}'"
    if len(words) == 2 and words[0].upper == "INTERVAL" and words[1].is_string:
        return script.slice(words[1:])
    raise script.bad(
        "a length of time is expected",
        (words or window[-1:])[0],
        "Write it as INTERVAL 1 MINUTE, or '1 minute'",
    )


def check_emit(script: Script, words: Words, emit: Emit | None) -> None:
    """BadPipeline if rows of a window come out in a way in which they cannot."""
    if is_session(words) and emit is Emit.ON_UPDATE:
        raise script.bad(
            "sessions with EMIT ON UPDATE: the bounds of a session change, and what came out of it "
            "before would stay",
            words[0],
            "Write EMIT CHANGES, or EMIT ON WINDOW CLOSE: then a session comes out once",
        )


def check_session(select: Select, words: Words, *, over_changes: bool) -> None:
    """Sessions grow and become one: what is kept beside them could not follow."""
    bad, at = select.script.bad, words[0]
    if select.grouping.sets:
        advice = "Write a stream for each set of keys, and UNION ALL of them if one sink takes all"
        raise bad("sessions with GROUPING SETS, ROLLUP or CUBE: each set has its own", at, advice)
    if over_changes:
        advice = "Make the sessions of the rows before their aggregate; or write window(ts, size)"
        raise bad("sessions over changes: a row that is taken back would split one", at, advice)


def _gap(script: Script, words: Words, window: Words) -> str:
    """A gap may be any expression; its intervals as texts, which Spark makes longer ones of."""
    if not words:
        raise script.bad("a gap is expected", window[-1], "Write it as INTERVAL 5 MINUTES")
    pieces, at, index = "", words[0].start, 0
    while index < len(words):
        size = _interval(words[index : index + 3])
        if size:
            text = _length(script, words[index : index + size], window)
            pieces += f"{script.text[at : words[index].start]}{text}"
            at = words[index + size - 1].end
        index += size or 1
    return f"{pieces}{script.text[at : words[-1].end]}"


def _interval(words: Words) -> int:
    """How many words an interval has that stands here; 0 if there is none."""
    if words[0].upper != "INTERVAL" or len(words) < 2:
        return 0
    if len(words) > 2 and words[2].is_name and (words[1].is_number or words[1].is_string):
        return 3 if words[2].upper.removesuffix("S") in _UNITS else 2
    return 2 if words[1].is_string else 0


def lengths_of(words: Words) -> list[str]:
    """The size, the slide and the start of a window, as far as they are written, without quotes."""
    texts = [
        " ".join(word.text for word in length if word.upper != "INTERVAL")
        for length in arguments(words)[1:]
    ]
    return texts[::-1] if words[0].upper in _SIZE_LAST else texts


def arguments(words: Words) -> list[Words]:
    """The arguments of a call that is all of *words*."""
    return by_comma(words[2:-1])

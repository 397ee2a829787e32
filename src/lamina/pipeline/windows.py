"""Windows as Spark spells them: TUMBLE and HOP are other names of window()."""

from __future__ import annotations

from lamina.pipeline.expressions import Words, by_comma
from lamina.pipeline.keys import Names, is_window
from lamina.pipeline.tokens import Script

_ARGUMENTS = {"WINDOW": (2, 3, 4), "TUMBLE": (2,), "HOP": (3,)}
_FORMS = {
    "WINDOW": "window(time, '1 minute') or window(time, '1 minute', '30 seconds')",
    "TUMBLE": "TUMBLE(time, INTERVAL 1 MINUTE)",
    "HOP": "HOP(time, slide, size), as HOP(ts, INTERVAL 30 SECONDS, INTERVAL 1 MINUTE)",
}


def window_text(script: Script, words: Words) -> str:
    """A key as Spark gets it; lengths may be intervals, which Spark's window() does not take."""
    if not is_window(words):
        return script.slice(words)
    name = words[0].upper
    time, *lengths = arguments(words)
    if len(lengths) + 1 not in _ARGUMENTS[name] or not time:
        raise script.bad(f"wrong arguments for {name}", words[0], f"Write {_FORMS[name]}")
    texts = [_length(script, length, words) for length in lengths]
    if name == "HOP":
        texts.reverse()
    return f"window({script.slice(time)}, {', '.join(texts)})"


def window_meaning(names: Names, words: Words) -> str:
    """A window in one spelling, whichever way it is written."""
    lengths = (f"'{length.lower()}'" for length in lengths_of(words))
    return f"window({names.spelled(arguments(words)[0])}, {', '.join(lengths)})"


def _length(script: Script, words: Words, window: Words) -> str:
    """INTERVAL 1 MINUTE, or '1 minute', as a text."""
    if words and all(word.is_string for word in words):
        return script.slice(words)
    if len(words) == 3 and words[0].upper == "INTERVAL" and words[2].is_name:
        return f"'{words[1].text} {words[2].text}'"
    if len(words) == 2 and words[0].upper == "INTERVAL" and words[1].is_string:
        return script.slice(words[1:])
    raise script.bad(
        "a length of time is expected, as INTERVAL 1 MINUTE", (words or window[-1:])[0]
    )


def lengths_of(words: Words) -> list[str]:
    """The size, the slide and the start of a window, as far as they are written, without quotes."""
    texts = [
        " ".join(word.text for word in length if word.upper != "INTERVAL")
        for length in arguments(words)[1:]
    ]
    return texts[::-1] if words[0].upper == "HOP" else texts


def arguments(words: Words) -> list[Words]:
    """The arguments of a call that is all of *words*."""
    return by_comma(words[2:-1])

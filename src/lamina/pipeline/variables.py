"""`${VAR}` and `${VAR:-default}`, inside quotes only: a value can never become SQL.

A default ends at the first `}`, and has no variable of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from lamina.errors import BadPipeline
from lamina.pipeline.tokens import Script, Word, read_script

_VARIABLE = re.compile(r"\$\{([^}]*)(\}?)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)

Bad: TypeAlias = "Callable[[str, str], BadPipeline]"
"""Makes an error of a message and an advice: it knows the place."""


def fill(text: str, environment: Mapping[str, str], bad: Bad) -> str:
    """A text with its variables filled in."""
    return _VARIABLE.sub(lambda found: _value(found, environment, bad), text)


def used(script: Script, words: Iterable[Word], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables in the literals of *words*, each as it is written, and their values."""
    found: dict[str, str] = {}
    for word in words:
        if word.is_string:
            for each in _VARIABLE.finditer(word.text):
                found[each[1]] = _value(each, environment, error_at(script, word))
    return found


def within(words: Iterable[Word], variables: Mapping[str, str]) -> dict[str, str]:
    """Those of *variables* that stand in the literals of *words*."""
    texts = [word.text for word in words if word.is_string]
    found = {each[1] for text in texts for each in _VARIABLE.finditer(text)}
    return {name: value for name, value in variables.items() if name in found}


def check_outside(script: Script, words: Iterable[Word]) -> None:
    """No variable stands where its value would be SQL."""
    for word in words:
        if word.upper == "$" or (word.is_quoted and "${" in word.text):
            raise script.bad(
                "a variable must be inside quotes",
                word,
                "Write '${NAME}': values are text, never SQL",
            )


def filled(text: str, values: Mapping[str, str]) -> str:
    """A piece of SQL with the variables of its literals filled in; the rest as it was written."""
    if not values:
        return text
    parts: list[str] = []
    at = 0
    for word in read_script(text, "").words:
        if word.is_string and _VARIABLE.search(word.text):
            value = _VARIABLE.sub(lambda found: values[found[1]], word.text)
            parts += [text[at : word.start], literal(value)]
            at = word.end
    return "".join([*parts, text[at:]])


def literal(value: str) -> str:
    """A text as Spark's SQL writes it. A bare ${x} would be filled once more, by Spark itself."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def error_at(script: Script, word: Word) -> Bad:
    return lambda message, advice: script.bad(message, word, advice)


def _value(found: re.Match[str], environment: Mapping[str, str], bad: Bad) -> str:
    if not found[2]:
        raise bad("${ without its }", "Write ${NAME} or ${NAME:-default}")
    parsed = _NAME.fullmatch(found[1])
    if parsed is None or "${" in found[1]:
        raise bad(f"{found[0]} is not a variable", "Write ${NAME} or ${NAME:-default}")
    name, default = parsed[1], parsed[2]
    known = environment.get(name, default)
    if known is None:
        raise bad(
            f"the environment variable {name} is not set", f"Set it, or write ${{{name}:-default}}"
        )
    if any("\ud800" <= letter <= "\udfff" for letter in known):
        raise bad(f"the value of {name} is not valid UTF-8", "Set it to text")
    return known

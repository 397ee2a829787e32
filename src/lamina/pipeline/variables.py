"""`${VAR}` and `${VAR:-default}`, inside quotes only: a value can never become SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from lamina.pipeline.tokens import Script, Word, read_script

_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def fill(script: Script, word: Word, environment: Mapping[str, str]) -> str:
    """The text of a literal with its variables filled in."""
    return _VARIABLE.sub(lambda found: _value(script, word, found, environment), word.text)


def used(script: Script, words: Iterable[Word], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables in the literals of *words*, each as it is written, and their values."""
    found: dict[str, str] = {}
    for word in words:
        if word.is_string:
            for each in _VARIABLE.finditer(word.text):
                found[each[1]] = _value(script, word, each, environment)
        elif "$" in word.text and not word.is_quoted:
            raise script.bad(
                "a variable stands outside of quotes",
                word,
                "Write '${NAME}': values are text, never SQL",
            )
    return found


def filled(text: str, values: Mapping[str, str]) -> str:
    """A piece of SQL with the variables of its literals filled in; the rest as it was written."""
    if not values:
        return text
    parts: list[str] = []
    at = 0
    for word in read_script(text, "").words:
        if word.is_string and _VARIABLE.search(word.text):
            value = _VARIABLE.sub(lambda found: values[found[1]], word.text)
            parts += [text[at : word.start], _quoted(value)]
            at = word.end
    return "".join([*parts, text[at:]])


def _value(script: Script, word: Word, found: re.Match[str], environment: Mapping[str, str]) -> str:
    parsed = _NAME.fullmatch(found[1])
    if parsed is None:
        raise script.bad(f"{found[0]} is no variable", word, "Write ${NAME} or ${NAME:-default}")
    name, default = parsed[1], parsed[2]
    known = environment.get(name, default)
    if known is None:
        raise script.bad(
            f"the environment has no {name}", word, f"Set it, or write ${{{name}:-default}}"
        )
    return known


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

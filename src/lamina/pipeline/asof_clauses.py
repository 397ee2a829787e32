"""What an ASOF join has in FROM beside its table and its ON, and the same in the words of Flink.

FROM a [LEFT] ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k     Spark's, and Snowflake's
FROM a ASOF [LEFT] JOIN b ON a.k = b.k AND a.ts >= b.ts                   DuckDB's
FROM a [LEFT] JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k              Flink's, a temporal join
FROM a [LEFT] JOIN b FOR SYSTEM_TIME AS OF PROCTIME() ON a.k = b.k        b as it is in this epoch

The words are taken out of the clause: what is left is that of any other join.
"""

from __future__ import annotations

from dataclasses import dataclass

from lamina.pipeline.expressions import Words, closing, sign
from lamina.pipeline.model import JoinKind
from lamina.pipeline.tokens import Script, Word

ASOF_KINDS = {
    ("ASOF", "JOIN"): JoinKind.INNER,
    ("INNER", "ASOF", "JOIN"): JoinKind.INNER,
    ("ASOF", "INNER", "JOIN"): JoinKind.INNER,
    ("LEFT", "ASOF", "JOIN"): JoinKind.LEFT,
    ("LEFT", "OUTER", "ASOF", "JOIN"): JoinKind.LEFT,
    ("ASOF", "LEFT", "JOIN"): JoinKind.LEFT,
    ("ASOF", "LEFT", "OUTER", "JOIN"): JoinKind.LEFT,
}
_MATCH = "MATCH_CONDITION"
_AS_OF = ("FOR", "SYSTEM_TIME", "AS", "OF")
_PROCTIME = ("PROCTIME", "(", ")")
_FOLLOWS = ("ON", "USING", "AS")
_WHICH = "Write MATCH_CONDITION (x.ts >= y.ts), with the event times of both sides"


@dataclass(frozen=True, slots=True)
class AsofWords:
    """What a join has of an ASOF join; nothing of it if it is another one."""

    match: Words = ()  # in the brackets of MATCH_CONDITION
    as_of: Words = ()  # behind FOR SYSTEM_TIME AS OF
    is_asof: bool = False


NO_ASOF = AsofWords()


def split_asof(
    script: Script, words: Words, opening: tuple[str, ...], kind: JoinKind
) -> tuple[Words, AsofWords]:
    """The words behind the *opening* of a join without those of an ASOF join, and these."""
    rest, match, at = _split_match(script, words)
    rest, as_of, when = _split_as_of(script, rest)
    is_asof = opening in ASOF_KINDS
    if match and as_of:
        raise script.bad(
            "MATCH_CONDITION beside FOR SYSTEM_TIME AS OF", at, "Leave out one of them"
        )
    if match and not is_asof:
        said = " ".join(opening)
        raise script.bad(f"MATCH_CONDITION with {said}", at, "It belongs to an ASOF JOIN")
    if as_of and kind not in (JoinKind.INNER, JoinKind.LEFT):
        message = (
            f"FOR SYSTEM_TIME AS OF in a {kind} JOIN: each row of the left side has one version"
        )
        raise script.bad(message, when, "Only JOIN and LEFT JOIN can be temporal")
    return rest, AsofWords(match, as_of, is_asof or bool(as_of))


def _split_match(script: Script, words: Words) -> tuple[Words, Words, Word | None]:
    for index, word in enumerate(words):
        if word.upper != _MATCH or word.depth != words[0].depth:
            continue
        if sign(words, index + 1) != "(":
            raise script.bad("a comparison in brackets follows MATCH_CONDITION", word, _WHICH)
        close = closing(words, index + 1)
        inside = words[index + 2 : close]
        if not inside:
            raise script.bad("MATCH_CONDITION without a comparison", word, _WHICH)
        return (*words[:index], *words[close + 1 :]), inside, word
    return words, (), None


def _split_as_of(script: Script, words: Words) -> tuple[Words, Words, Word | None]:
    for index, word in enumerate(words):
        said = tuple(sign(words, index + i) for i in range(len(_AS_OF)))
        if said != _AS_OF or word.depth != words[0].depth:
            continue
        start = end = index + len(_AS_OF)
        if calls_proctime(words[start:]):
            end = start + len(_PROCTIME)
            return (*words[:index], *words[end:]), words[start:end], word
        while _is_name(words, end) and (end == start or sign(words, end - 1) == "."):
            end += 2
        end -= 1
        if end <= start or sign(words, end) == ".":
            message = "a time of the left side follows FOR SYSTEM_TIME AS OF, or PROCTIME()"
            raise script.bad(message, word, "Write FOR SYSTEM_TIME AS OF x.ts")
        return (*words[:index], *words[end:]), words[start:end], word
    return words, (), None


def calls_proctime(words: Words) -> bool:
    """Whether it begins with PROCTIME(): the time of the epoch in which a row comes."""
    return tuple(sign(words, i) for i in range(len(_PROCTIME))) == _PROCTIME


def _is_name(words: Words, index: int) -> bool:
    return index < len(words) and words[index].is_name and words[index].upper not in _FOLLOWS

"""Window functions, f(...) OVER (...): what they are over, and whether they rank rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lamina.errors import BadPipeline
from lamina.pipeline.expressions import Words, after_filter, by_comma, calls, closing, normal, sign
from lamina.pipeline.ranks import ADVICE, FUNCTION, Ranked, is_ranking, limit_in, read_ranking
from lamina.pipeline.tokens import Script, Word

Listing = Sequence[tuple[Words, str | None]]
"""The expressions of a SELECT list, and their names."""
ON_WINDOWS = (
    "They can be over closed windows: GROUP BY window(...) in a subquery, take its start or end "
    "along, and put that into PARTITION BY"
)
_OF_RANKS = (
    "row_number() <= n can be kept: of equal rows it takes as many as n allows, so order by what "
    "tells them apart, too. "
)
_OF_NEIGHBOURS = (
    "A keyed step in Python sees the rows of a key one after the other. To have rows as "
    "groups, GROUP BY the window and all columns: equal rows become one, so take count(*) along "
    "or a column that tells them apart. "
)
_AROUND = {
    **dict.fromkeys(("RANK", "DENSE_RANK", "PERCENT_RANK", "NTILE", "CUME_DIST"), _OF_RANKS),
    **dict.fromkeys(("LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE"), _OF_NEIGHBOURS),
}
"""Ways around that come before those over closed windows."""


@dataclass(frozen=True, slots=True)
class Over:
    """One OVER (...)."""

    at: Word
    function: str  # in upper case
    partition: tuple[Words, ...]


@dataclass(frozen=True, slots=True)
class Ranks:
    """What window functions rank rows by; or why they do not."""

    ranked: Ranked | None = None
    error: BadPipeline | None = None


def read_overs(words: Words, inner: Words) -> Iterator[Over]:
    """Every OVER of a query; those of a subquery, *inner*, are not its own."""
    for index, word in enumerate(words):
        if word.upper != "OVER" or sign(words, index - 1) != ")":
            continue
        if inner and inner[0].start <= word.start < inner[-1].end:
            continue
        given: Words = ()
        if sign(words, index + 1) == "(":
            given = words[index + 2 : closing(words, index + 1)]
        yield Over(word, _function(words, index), tuple(_partition(given)))


def read_ranks(script: Script, overs: Sequence[Over], items: Listing, qualify: Words) -> Ranks:
    """Ranks that can be kept as state, or what is wrong with them; it is raised by who needs it."""
    try:
        for over in overs:
            _check_over(script, over)
        return Ranks(_ranked(script, items, qualify))
    except BadPipeline as error:
        if not overs:
            raise
        return Ranks(error=error)


def _function(words: Words, over: int) -> str:
    """What is called before OVER, in upper case."""
    found = (at for at, close in calls(words) if after_filter(words, close) == over)
    return sign(words, next(found, -1))


def _partition(given: Words) -> Iterator[Words]:
    """What follows PARTITION BY, up to ORDER BY or a frame."""
    if sign(given, 0) != "PARTITION BY":
        return
    ends = (
        i
        for i, word in enumerate(given)
        if word.depth == given[0].depth and word.upper in ("ORDER BY", "ROWS", "RANGE", "SORT BY")
    )
    yield from (each for each in by_comma(given[1 : next(ends, len(given))]) if each)


def _check_over(script: Script, over: Over) -> None:
    """Ranks that are kept are those of row_number()."""
    if over.function == FUNCTION:
        return
    called = f"{over.function.lower()}() OVER" if over.function else "OVER"
    message = f"{called} in a stream: window functions look at rows that have not come yet"
    raise script.bad(message, over.at, _AROUND.get(over.function, "") + ON_WINDOWS)


def _ranked(script: Script, items: Listing, qualify: Words) -> Ranked | None:
    """What rows are ranked by, and how many are kept if QUALIFY says so."""
    places = [index for index, (words, _) in enumerate(items) if is_ranking(words)]
    if len(places) > 1:
        at = items[places[1]][0][0]
        raise script.bad("two ranks in one SELECT", at, "Write a subquery for each")
    found = [replace(read_ranking(script, items[i][0]), item=i) for i in places]
    if not qualify:
        return found[0] if found else None
    calls = [i for i, word in enumerate(qualify) if word.upper == FUNCTION]
    if not calls and not found:
        raise script.bad("QUALIFY without row_number()", qualify[0], ADVICE)
    if calls:
        close = closing(qualify, calls[0] + 4) if sign(qualify, calls[0] + 4) == "(" else 0
        call = qualify[calls[0] : close + 1]
        if not is_ranking(call):
            raise script.bad("row_number() OVER (...) is expected", qualify[calls[0]], ADVICE)
        meant = read_ranking(script, call)
        if found and not _same(call, items[places[0]][0]):
            message = "QUALIFY by another rank than the one in the list"
            raise script.bad(message, qualify[0], "Write a subquery for one of them")
    else:
        call, meant = (), found[0]
    alias = items[found[0].item or 0][1] if found else None

    def is_rank(words: Words) -> bool:
        named = alias is not None and len(words) == 1 and words[0].text.lower() == alias.lower()
        return words == call if call else named

    limit = limit_in(qualify, is_rank)
    others = [word for word in qualify if word.upper in ("AND", "OR", "NOT", "BETWEEN")]
    is_equal = any(word.upper in ("=", "==") for word in qualify)
    if limit is None or others or (is_equal and limit != 1):
        raise script.bad("QUALIFY is row_number() <= n, or = 1", qualify[0], ADVICE)
    return replace(meant, limit=limit, item=found[0].item if found else None)


def _same(left: Words, right: Words) -> bool:
    return [normal(word) for word in left] == [normal(word) for word in right]

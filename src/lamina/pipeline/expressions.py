"""What the words of an expression are, as far as cutting and replacing them needs it.

Precedence and keywords are those of Spark's grammar. Where the words alone do not tell, the answer
is the one that lets Spark judge: it refuses what it cannot resolve.
"""

from __future__ import annotations

from collections.abc import Iterator

from lamina.pipeline.tokens import Word, is_plain

Words = tuple[Word, ...]
LOOSEST, TIGHTEST = -1, 12
_PREFIXES = {"RAW_STRING": "r", "HEX_STRING": "x"}
_UNARY = 10

_COMPARISONS = ("=", "==", "<>", "!=", "<", ">", "<=", ">=", "<=>")
_PREDICATES = ("IS", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN")
_PRECEDENCE = {
    **dict.fromkeys(("OR",), 0),
    **dict.fromkeys(("AND",), 1),
    **dict.fromkeys(("NOT", "!"), 2),
    **dict.fromkeys((*_COMPARISONS, *_PREDICATES), 3),
    **dict.fromkeys(("|",), 4),
    **dict.fromkeys(("^",), 5),
    **dict.fromkeys(("&",), 6),
    **dict.fromkeys(("<<", ">>"), 7),
    **dict.fromkeys(("+", "-", "||"), 8),
    **dict.fromkeys(("*", "/", "%", "DIV"), 9),
    "COLLATE": 10,
}
_BEFORE = ("", "(", "[", ",", "->", "=>", "CASE", "WHEN", "THEN", "ELSE", "WHERE", "FROM")
_AFTER = ("", ")", "]", ",", "AS", "WHEN", "THEN", "ELSE", "END", "FROM")
_INSIDE = frozenset(
    (
        *("AND", "OR", "NOT", "IN", "IS", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN", "ESCAPE"),
        *("CASE", "WHEN", "THEN", "ELSE", "DIV", "INTERVAL", "TO", "COLLATE", "AS", "DISTINCT"),
        *("SELECT", "FROM", "WHERE", "HAVING", "FILTER"),
    )
)
"""Keywords that an expression goes on after."""
_QUANTIFIERS = ("ANY", "SOME", "ALL")
_CONSTANTS = ("NULL", "TRUE", "FALSE")
_UNITS = frozenset(
    (
        *("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFYEAR"),
        *("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"),
    )
)
_TAKES_UNIT = (
    *("EXTRACT", "TIMESTAMPADD", "TIMESTAMPDIFF"),
    *("DATEADD", "DATE_ADD", "DATEDIFF", "DATE_DIFF"),
)


def sign(words: Words, index: int) -> str:
    """The keyword or sign at *index*; nothing before the first word and after the last."""
    return words[index].upper if 0 <= index < len(words) else ""


def calls(words: Words) -> Iterator[tuple[int, int]]:
    """Every function call among *words*: where its name stands, and where its bracket closes."""
    pairs = _brackets(words)
    for opened, close in sorted(pairs.items()):
        index = opened - 1
        if index < 0 or not words[index].is_name or sign(words, opened) != "(":
            continue
        word = words[index]
        if not word.is_quoted and word.upper in _INSIDE:
            continue  # x IN (1, 2)
        if word.upper in _QUANTIFIERS and sign(words, index - 1) in ("LIKE", "ILIKE"):
            continue  # x LIKE ANY ('a%', 'b%')
        yield index, close


def _brackets(words: Words) -> dict[int, int]:
    """Where brackets open, and where each closes."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for index, word in enumerate(words):
        if word.upper in ("(", "[", "{"):
            opened.append(index)
        elif word.upper in (")", "]", "}") and opened:
            pairs[opened.pop()] = index
    return pairs


def is_call(words: Words, index: int) -> bool:
    """Whether the bracket that opens at *index* holds the arguments of a function."""
    if index == 0 or not words[index - 1].is_name:
        return False
    return words[index - 1].is_quoted or words[index - 1].upper not in _INSIDE


def closing(words: Words, index: int) -> int:
    """Where the bracket that opens at *index* closes."""
    depth = words[index].depth
    inner = range(index + 1, len(words))
    return next(i for i in inner if words[i].depth == depth and words[i].upper in (")", "]", "}"))


def is_over(words: Words, close: int) -> bool:
    """Whether the call whose bracket closes at *close* has an OVER, maybe behind a FILTER."""
    return sign(words, after_filter(words, close)) == "OVER"


def after_filter(words: Words, close: int) -> int:
    """What follows a call that closes at *close*, and its FILTER (...)."""
    has_filter = sign(words, close + 1) == "FILTER" and sign(words, close + 2) == "("
    return (closing(words, close + 2) if has_filter else close) + 1


def by_comma(words: Words) -> list[Words]:
    """The parts of a list, which has no brackets around it."""
    parts: list[Words] = []
    start = 0
    for index, word in enumerate(words):
        if word.upper == "," and word.depth == words[0].depth:
            parts.append(words[start:index])
            start = index + 1
    return [*parts, words[start:]]


def after_dot(words: Words, index: int) -> bool:
    return sign(words, index - 1) == "."


def ends_operand(words: Words, index: int) -> bool:
    """Whether an expression may end here: then a name that follows is its alias."""
    word = words[index]
    if word.is_string or word.is_quoted or word.is_number or word.upper in (")", "]"):
        return True
    return word.is_name and (after_dot(words, index) or word.upper not in _INSIDE)


def has_implicit_alias(words: Words) -> bool:
    """Whether the last word is the name of the expression before it: `a b`, `x IS NULL y`."""
    if len(words) < 2 or not words[-1].is_name or after_dot(words, len(words) - 1):
        return False
    if words[-1].upper in (*_CONSTANTS, *_INSIDE, "END"):
        return False
    return ends_operand(words, len(words) - 2) and not _ends_interval(words)


def _ends_interval(words: Words) -> bool:
    """Whether the last word is a unit of an interval: INTERVAL 1 DAY 2 HOURS, ... YEAR TO MONTH."""
    at = len(words) - 1
    while at > 0 and words[at].upper.removesuffix("S") in _UNITS:
        at -= 1
        if words[at].upper == "TO":
            return True
        if words[at].upper == ")":
            opened = (i for i in reversed(range(at)) if words[i].depth == words[at].depth)
            at = next(opened, 0)
        at -= 1
        if sign(words, at) in ("-", "+"):
            at -= 1
        if sign(words, at) == "INTERVAL":
            return True
    return False


def bound(words: Words) -> frozenset[int]:
    """Where names of lambda parameters stand: `x -> x + 1`, `(k, v) -> k`."""
    found: set[int] = set()
    for arrow, word in enumerate(words):
        if word.upper != "->":
            continue
        first = arrow - 1
        if sign(words, first) == ")":
            inner = (i for i in reversed(range(first)) if words[i].depth == word.depth)
            first = next(inner, first)
        names = {each.text.lower() for each in words[first:arrow] if each.is_name}
        ends = (i for i in range(arrow, len(words)) if _ends_argument(words[i], word.depth))
        for index in range(first, next(ends, len(words))):
            if words[index].is_name and words[index].text.lower() in names:
                found |= set() if after_dot(words, index) else {index}
    return frozenset(found)


def _ends_argument(word: Word, depth: int) -> bool:
    return word.depth < depth or (word.depth == depth and word.upper == ",")


def is_reference(words: Words, index: int) -> bool:
    """Whether the name at *index* stands for a column: no function, field, type, unit or alias."""
    word = words[index]
    if not word.is_name or after_dot(words, index) or index in bound(words):
        return False
    if word.is_quoted:
        return sign(words, index + 1) != "(" and sign(words, index - 1) != "AS"
    if sign(words, index - 1) in ("AS", "::") or sign(words, index + 1) in ("(", "=>"):
        return False
    if word.upper in (*_INSIDE, *_CONSTANTS) or index in _ends_of_cases(words):
        return False
    if index + 1 < len(words) and words[index + 1].is_string:
        return False  # DATE '2020-01-01'
    return not _ends_interval(words[: index + 1]) and not _is_unit(words, index)


def _ends_of_cases(words: Words) -> frozenset[int]:
    """Where END closes a CASE. In `THEN end END` the first one is a column."""
    found: set[int] = set()
    opened = 0
    for index, word in enumerate(words):
        if after_dot(words, index):
            continue
        if word.upper == "CASE":
            opened += 1
        elif word.upper == "END" and opened and ends_operand(words, index - 1):
            opened -= 1
            found.add(index)
    return frozenset(found)


def _is_unit(words: Words, index: int) -> bool:
    """extract(DAY FROM x), timestampadd(DAY, 1, x)."""
    called = sign(words, index - 1) == "(" and sign(words, index - 2) in _TAKES_UNIT
    return called and words[index].upper.removesuffix("S") in _UNITS


def precedence(words: Words, index: int, neighbours: tuple[str, ...]) -> int:
    """How tightly the word next to an expression binds; *neighbours* do not bind at all."""
    if not 0 <= index < len(words):
        return LOOSEST
    word = words[index]
    if word.upper and word.upper in neighbours:
        return LOOSEST
    return _PRECEDENCE.get(word.upper, TIGHTEST - 1)


def strength(words: Words) -> int:
    """The precedence of the loosest operator of an expression, outside of brackets and CASE."""
    loosest, cases, ends = TIGHTEST, 0, _ends_of_cases(words)
    for index, word in enumerate(words):
        if word.depth != words[0].depth or after_dot(words, index):
            continue
        cases += (word.upper == "CASE") - (index in ends)
        if not cases:
            loosest = min(loosest, _PRECEDENCE.get(word.upper, TIGHTEST))
    return loosest


def stands_alone(words: Words, first: int, last: int, loosest: int) -> bool:
    """Whether words[first..last] are an operand of their own: no neighbour binds tighter."""
    left = precedence(words, first - 1, _BEFORE)
    if sign(words, first - 1) in ("-", "+", "~") and not (
        first > 1 and ends_operand(words, first - 2)
    ):
        left = _UNARY
    right = precedence(words, last + 1, _AFTER)
    return left < loosest and right <= loosest


def spelled(word: Word) -> str:
    """A word in one spelling, which still is SQL."""
    if word.is_string:
        quoted = word.text.replace("'", "''")
        return f"{_PREFIXES.get(word.literal, word.literal)}'{quoted}'"
    if word.is_quoted and not is_plain(word.text):
        return "`" + word.text.lower().replace("`", "``") + "`"
    return word.text.lower()


def space(left: Word, right: Word) -> str:
    """What stands between two words in one spelling: a space, or nothing."""
    if right.upper in (")", "]", "[", ",", ".", "::") or left.upper in ("(", "[", ".", "::"):
        return ""
    is_call = right.upper == "(" and left.is_name and left.upper not in _INSIDE
    return "" if is_call else " "


def normal(word: Word) -> str:
    """For comparing: names are the same in any case and in any quotes, literals are not."""
    if word.is_string:
        return f"{word.literal}'{word.text}"  # X'41' is not '41'
    name = word.text.lower()
    return f"`{name}" if word.is_quoted and not name.replace("_", "a").isalnum() else name

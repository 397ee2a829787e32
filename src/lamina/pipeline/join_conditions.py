"""What a condition says about a join: equal keys, bounds of time, and what is asked of one side.

Only what has the form of a key or a bound is taken apart; every text is the user's own, and Spark
evaluates it. x and y are the event times of a row of the left and of the right side:

    p.id = o.id                                   a key
    p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR  bounds: 0 <= y - x <= 1 hour
    o.state = 'paid'                              asked of one side
    p.amount < o.amount                           asked of pairs
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lamina.errors import BadPipeline
from lamina.pipeline.expressions import Words, is_reference, sign
from lamina.pipeline.intervals import delay_us, micros
from lamina.pipeline.select import quoted
from lamina.pipeline.tokens import Script, Word

LEFT, RIGHT, OTHER = 0, 1, 2
_COMPARISONS = {"=": "=", "==": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OTHERS = ("OR", "NOT", "IS", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "<>", "!=", "<=>", "!")


@dataclass(frozen=True, slots=True)
class Relation:
    """A table of FROM: what its columns have before them, and which are event times."""

    alias: str
    columns: tuple[str, ...]
    times: frozenset[str] = frozenset()  # in lower case
    clocks: frozenset[str] = frozenset()  # those that are the time of the epoch, in lower case

    def has(self, column: str) -> bool:
        return column.lower() in (each.lower() for each in self.columns)


@dataclass(frozen=True, slots=True)
class Condition:
    """Of a join; texts are of the user, or of one side each."""

    keys: tuple[tuple[str, str], ...] = ()
    low: int | None = None  # of y - x, in microseconds
    high: int | None = None
    sides: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    pairs: tuple[str, ...] = ()
    times: tuple[str, str] = ("", "")  # the event times that the bounds are of

    def bounded(self, low: int | None, high: int | None) -> tuple[int | None, int | None]:
        lows = [each for each in (self.low, low) if each is not None]
        highs = [each for each in (self.high, high) if each is not None]
        return max(lows, default=None), min(highs, default=None)


@dataclass(slots=True)
class _Part:
    low: int | None = None
    high: int | None = None
    keys: list[tuple[str, str]] = field(default_factory=list)
    is_all: bool = True  # it says no more than this


@dataclass(frozen=True, slots=True)
class Conditions:
    """Reads conditions over the relations of two sides."""

    script: Script
    sides: tuple[Sequence[Relation], Sequence[Relation]]
    times: list[str] = field(default_factory=lambda: ["", ""])
    """The event time of each side that bounds are of: the first that one is of."""
    is_of_more: bool = False
    """A WHERE may name tables that are joined later: what it says of them is not for this join."""
    is_inner: bool = False
    """The WHERE of a subquery, which is the right side: a name is one of its own table first."""

    def read(self, words: Words) -> Condition:
        """All parts of a condition that AND puts together."""
        keys, texts = list[tuple[str, str]](), (list[str](), list[str]())
        pairs = list[str]()
        found = Condition()
        for part in conjuncts(words):
            said = self._part(part)
            low, high = found.bounded(said.low, said.high)
            found = Condition(low=low, high=high)
            keys += said.keys
            if said.is_all:
                continue
            at = self._sides(part)
            text = self.script.slice(part)
            if len(at) == 1 and OTHER not in at:
                texts[at.pop()].append(text)
            else:
                pairs.append(self.qualified(part) if self.is_inner else text)
        sides = (tuple(texts[LEFT]), tuple(texts[RIGHT]))
        times = (self.times[LEFT], self.times[RIGHT])
        return Condition(tuple(keys), found.low, found.high, sides, tuple(pairs), times)

    def _part(self, words: Words) -> _Part:
        """The bounds and the key that a part says, if any."""
        said = _Part()
        for one, compared, other in _comparisons(words):
            sides = self._sides(one), self._sides(other)
            if sorted(map(sorted, sides)) != [[LEFT], [RIGHT]]:
                return _Part(is_all=False)
            is_turned = sides[0] == {RIGHT}
            left, right = (other, one) if is_turned else (one, other)
            self._add(said, left, _TURNED[compared] if is_turned else compared, right)
        said.is_all &= said.low is not None or said.high is not None or bool(said.keys)
        return said

    def _add(self, said: _Part, left: Words, compared: str, right: Words) -> None:
        times = self._time(left), self._time(right)
        if compared == "=":
            said.keys.append((self.script.slice(left), self.script.slice(right)))
        elif None in times or not self._are_chosen(times):
            said.is_all = False
        if times[0] is None or times[1] is None or not self._are_chosen(times):
            return
        self.times[:] = [times[0][0], times[1][0]]
        x, y = times[0][1], times[1][1]
        if compared in ("=", "<", "<="):
            said.low = x - y + (compared == "<")
        if compared in ("=", ">", ">="):
            said.high = x - y - (compared == ">")

    def _sides(self, words: Words) -> set[int]:
        """Which sides the columns of an expression are of."""
        found: set[int] = set()
        for index, word in enumerate(words):
            if sign(words, index - 1) == "." or not is_reference(words, index):
                continue
            side = self._side(word, is_qualifier=sign(words, index + 1) == ".")
            if side is not None:
                found.add(side)
        return found

    def _side(self, word: Word, *, is_qualifier: bool) -> int | None:
        name = word.text.lower()
        every = [(side, each) for side in (LEFT, RIGHT) for each in self.sides[side]]
        if is_qualifier:
            named = [side for side, each in every if each.alias.lower() == name]
            if named:
                return named[0]
        having = [(side, each) for side, each in every if each.has(name)]
        if self.is_inner and RIGHT in (side for side, _ in having):
            having = [(side, each) for side, each in having if side == RIGHT]
        if len(having) > 1:
            raise self.ambiguous(word, [each for _, each in having])
        if having:
            return having[0][0]
        return OTHER if self.is_of_more else None

    def qualified(self, words: Words) -> str:
        """An expression with the table before each of its columns."""
        text, at = "", words[0].start
        aliases = {each.alias.lower() for side in self.sides for each in side}
        for index, word in enumerate(words):
            if sign(words, index - 1) == "." or not is_reference(words, index):
                continue
            if sign(words, index + 1) == "." and word.text.lower() in aliases:
                continue
            side = self._side(word, is_qualifier=False)
            for each in self.sides[side] if side in (LEFT, RIGHT) else ():
                if each.has(word.text):
                    text += self.script.text[at : word.start] + quoted(each.alias) + "."
                    at = word.start
        return text + self.script.text[at : words[-1].end]

    def ambiguous(self, word: Word, having: Sequence[Relation]) -> BadPipeline:
        listed = " and ".join(f"{each.alias}.{word.text}" for each in having)
        message = f"the column {word.text!r} is ambiguous: there are {listed}"
        return self.script.bad(message, word, "Write which one it is")

    def _are_chosen(self, times: tuple[tuple[str, int] | None, tuple[str, int] | None]) -> bool:
        """Whether bounds of these times can be put together with those before."""
        pairs = zip(self.times, times, strict=True)
        return all(time is not None and chosen in ("", time[0]) for chosen, time in pairs)

    def _time(self, words: Words) -> tuple[str, int] | None:
        """An event time and an interval that is added to it; None if it is anything else."""
        words = stripped(words)
        at = next((i for i in range(len(words)) if words[i].upper in ("+", "-")), len(words))
        path, rest = stripped(words[:at]), words[at:]
        column = self.event_time(path)
        if column is None:
            return None
        if not rest:
            return column, 0
        length = _interval(stripped(rest[1:]))
        if length is None:
            return None
        return column, length if rest[0].upper == "+" else -length

    def event_time(self, path: Words) -> str | None:
        """The event time that a path is, with its table."""
        names = [word.text.lower() for word in path]
        sides = reversed(self.sides) if self.is_inner else self.sides
        for each in (each for side in sides for each in side):
            is_here = len(path) == 1 and each.has(names[0])
            if len(path) == 3 and path[1].upper == ".":
                is_here = each.alias.lower() == names[0]
            if is_here and names[-1] in each.times:
                return f"{quoted(each.alias)}.{quoted(names[-1])}"
        return None


def conjuncts(words: Words) -> Iterator[Words]:
    """The parts that AND puts together; that of BETWEEN does not."""
    words = stripped(words)
    if not words:
        return
    level, start, between = words[0].depth, 0, 0
    said = [word.upper if word.depth == level else "" for word in words]
    if "OR" in said or said.count("CASE"):
        yield words
        return
    for index, word in enumerate(said):
        between += word == "BETWEEN"
        if word != "AND":
            continue
        if between:
            between -= 1
            continue
        yield from conjuncts(words[start:index])
        start = index + 1
    if start:
        yield from conjuncts(words[start:])
    else:
        yield words


def _comparisons(words: Words) -> list[tuple[Words, str, Words]]:
    """A comparison, or the two that BETWEEN is; nothing if it is neither."""
    level = words[0].depth
    said = [word.upper if word.depth == level else "" for word in words]
    if any(each in _OTHERS for each in said):
        return []
    signs = [i for i, each in enumerate(said) if each in _COMPARISONS]
    betweens = [i for i, each in enumerate(said) if each == "BETWEEN"]
    if len(signs) == 1 and not betweens:
        at = signs[0]
        return [(words[:at], _COMPARISONS[said[at]], words[at + 1 :])]
    if len(betweens) == 1 and not signs and said.count("AND") == 1:
        first, then = betweens[0], said.index("AND")
        time, low, high = words[:first], words[first + 1 : then], words[then + 1 :]
        return [(time, ">=", low), (time, "<=", high)]
    return []


def stripped(words: Words) -> Words:
    """Without brackets around all of it."""
    while len(words) > 2 and words[0].upper == "(" and words[-1].upper == ")":
        if any(word.depth == words[0].depth for word in words[1:-1]):
            break
        words = words[1:-1]
    return words


def _interval(words: Words) -> int | None:
    """INTERVAL 1 HOUR, INTERVAL '1' HOUR or INTERVAL '1 hour 30 minutes', in microseconds."""
    if sign(words, 0) != "INTERVAL":
        return None
    if len(words) == 2 and words[1].is_string:
        return micros(words[1].text)
    return delay_us(words[1].text, words[2].text) if len(words) == 3 else None

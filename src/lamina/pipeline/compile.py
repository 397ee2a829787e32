"""SELECT -> (partial, merge, final): what Spark computes, what is kept, what people see.

partial   SELECT key AS k0, sum(x) AS p0 ... FROM input WHERE ... GROUP BY key: of one epoch's rows
merge     old p0 and new p0 become p0 (lamina.state.merge), on the owner of the key
final     SELECT k0 AS symbol, p0 / p1 AS mean ... FROM state WHERE having

All texts are cut from the user's own and put together; nothing is generated from a syntax tree. A
window key is two columns of the state, its start and its end: by the end it expires.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from lamina.errors import BadPipeline
from lamina.pipeline.aggregates import AGGREGATES
from lamina.pipeline.select import Item, Select, calls
from lamina.pipeline.tokens import Word
from lamina.state.merge import Merge

WINDOWS = ("WINDOW", "TUMBLE", "HOP")


@dataclass(frozen=True, slots=True)
class Stateless:
    """A stream that keeps nothing: its SELECT over one epoch's rows."""

    table: str
    before: str  # the text up to the table, and after it
    after: str

    def sql(self, view: str) -> str:
        return f"{self.before}{view}{self.after}"


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A stream with keyed state."""

    table: str
    keys: tuple[str, ...]  # columns of the state
    window: int | None  # which key of the GROUP BY is a window
    merges: tuple[Merge, ...]
    outputs: tuple[str, ...]
    _partial: tuple[str, str] = field(repr=False)
    _final: tuple[str, str] = field(repr=False)

    def partial(self, view: str) -> str:
        return view.join(self._partial)

    def final(self, view: str) -> str:
        return view.join(self._final)

    @property
    def time(self) -> str | None:
        """The column of the state that a window expires by: its end."""
        return None if self.window is None else f"k{self.window}_end"


@dataclass(slots=True)
class _Parts:
    """Partial aggregates as they are found; the same one twice is one column."""

    columns: list[tuple[str, str]] = field(default_factory=list)  # (SQL, merge function)

    def column(self, sql: str, merge: str) -> str:
        if (sql, merge) not in self.columns:
            self.columns.append((sql, merge))
        return f"p{self.columns.index((sql, merge))}"


def compile_select(
    select: Select,
    *,
    columns: Collection[str],
    type_of: Callable[[str], str],
    is_aggregate: Callable[[str], bool],
) -> Stateless | Aggregation:
    """The plan of a stream over an input with these *columns*.

    *type_of* gives the type of an expression over the input, *is_aggregate* whether a function is
    one: both are Spark's to say.
    """
    compiler = _Compiler(select, {name.lower() for name in columns}, type_of, is_aggregate)
    return (
        compiler.aggregation() if select.keys or compiler.has_aggregates() else compiler.stateless()
    )


class _Compiler:
    def __init__(
        self,
        select: Select,
        columns: Collection[str],
        type_of: Callable[[str], str],
        is_aggregate: Callable[[str], bool],
    ) -> None:
        self._select = select
        self._script = select.script
        self._columns = columns
        self._type_of = type_of
        self._is_aggregate = is_aggregate
        self._parts = _Parts()
        self._qualifier = (select.alias or select.table).text.lower()
        self._keys = [self._key(words) for words in select.keys]
        self._window = self._find_window()

    def has_aggregates(self) -> bool:
        """Whether anything in the SELECT list or HAVING is an aggregate."""
        texts = [*(item.words for item in self._select.items), self._select.having]
        return any(
            self._is_aggregate(words[index].text.lower())
            for words in texts
            for index, _ in calls(words)
        )

    def stateless(self) -> Stateless:
        select = self._select
        if select.having:
            raise self._bad("HAVING without GROUP BY or aggregates", select.having[0], "Use WHERE")
        text = self._script.text
        after = text[select.table.end :]
        if select.alias is None:
            after = f" AS {_quoted(select.table.text)}{after}"
        return Stateless(select.table.text, text[: select.table.start], after)

    def aggregation(self) -> Aggregation:
        select = self._select
        names = [self._name(item, index) for index, item in enumerate(select.items)]
        self._check_names(names)
        outputs = [
            f"{self._final(item.words)} AS {_quoted(name)}"
            for item, name in zip(select.items, names, strict=True)
        ]
        having = f" WHERE {self._having()}" if select.having else ""
        merges = tuple(Merge(merge, (f"p{i}",)) for i, (_, merge) in enumerate(self._parts.columns))
        return Aggregation(
            table=select.table.text,
            keys=self._state_keys(),
            window=self._window,
            merges=merges,
            outputs=tuple(names),
            _partial=self._partial_text(),
            _final=(
                f"SELECT {', '.join(outputs)} FROM (SELECT {self._state_view()} FROM ",
                f"){having}",
            ),
        )

    # keys

    def _key(self, words: tuple[Word, ...]) -> tuple[Word, ...]:
        """A GROUP BY expression; a number or a name may stand for an item of the SELECT list."""
        items = self._select.items
        if len(words) == 1:
            word = words[0]
            if word.upper == "ALL":
                raise self._bad("GROUP BY ALL: write the keys, so that they cannot change", word)
            if word.text.isdigit() and not word.is_string:
                if not 1 <= int(word.text) <= len(items):
                    raise self._bad(f"there is no column {word.text} in the SELECT list", word)
                return items[int(word.text) - 1].words
            if word.text.lower() not in self._columns:  # a column of the input goes first
                for item in items:
                    if item.alias is not None and item.alias.lower() == word.text.lower():
                        return item.words
        return words

    def _find_window(self) -> int | None:
        found = [i for i, words in enumerate(self._keys) if _is_window(words)]
        if len(found) > 1:
            raise self._bad("a stream has one window", self._select.keys[found[1]][0])
        return found[0] if found else None

    def _state_keys(self) -> tuple[str, ...]:
        names: list[str] = []
        for index in range(len(self._keys)):
            if index == self._window:
                names += [f"k{index}_start", f"k{index}_end"]
            else:
                names.append(f"k{index}")
        return tuple(names)

    # texts

    def _partial_text(self) -> tuple[str, str]:
        select = self._select
        keys = [f"{self._key_text(words)} AS k{i}" for i, words in enumerate(self._keys)]
        parts = [f"{sql} AS p{i}" for i, (sql, _) in enumerate(self._parts.columns)]
        outer = [f"p{i}" for i in range(len(parts))]
        for index in reversed(range(len(self._keys))):
            flat = [f"k{index}.start AS k{index}_start", f"k{index}.end AS k{index}_end"]
            outer = [*(flat if index == self._window else [f"k{index}"]), *outer]
        where = f" WHERE {select.text(select.where)}" if select.where else ""
        group = ", ".join(self._key_text(words) for words in self._keys)
        alias = _quoted((select.alias or select.table).text)
        return (
            f"SELECT {', '.join(outer)} FROM (SELECT {', '.join([*keys, *parts])} FROM ",
            f" AS {alias}{where}{f' GROUP BY {group}' if group else ''})",
        )

    def _key_text(self, words: tuple[Word, ...]) -> str:
        """A key as Spark gets it: TUMBLE and HOP are other names of window."""
        if not _is_window(words) or words[0].upper == "WINDOW":
            return self._select.text(words)
        time, *lengths = _arguments(words)
        texts = [self._length(length) for length in lengths]
        if words[0].upper == "HOP":
            texts.reverse()  # HOP(time, slide, size)
        return f"window({self._select.text(time)}, {', '.join(texts)})"

    def _length(self, words: tuple[Word, ...]) -> str:
        """INTERVAL 1 MINUTE, or '1 minute', as a text."""
        if len(words) == 1 and words[0].is_string:
            return self._select.text(words)
        if len(words) == 3 and words[0].upper == "INTERVAL":
            return f"'{words[1].text} {words[2].text}'"
        raise self._bad("a length of time is expected, as INTERVAL 1 MINUTE", words[0])

    def _state_view(self) -> str:
        columns = []
        for index in range(len(self._keys)):
            pair = f"named_struct('start', k{index}_start, 'end', k{index}_end) AS k{index}"
            columns.append(pair if index == self._window else f"k{index}")
        return ", ".join([*columns, *(f"p{i}" for i in range(len(self._parts.columns)))])

    def _having(self) -> str:
        """HAVING may use the names of the SELECT list."""
        aliases = {
            item.alias.lower(): item.words
            for item in self._select.items
            if item.alias is not None and item.alias.lower() not in self._columns
        }
        return self._final(self._select.having, aliases)

    def _final(
        self, words: tuple[Word, ...], aliases: dict[str, tuple[Word, ...]] | None = None
    ) -> str:
        """An expression over state columns: aggregates and keys are replaced, the rest stays."""
        ends = dict(calls(words))
        pieces: list[str] = []
        at, index = words[0].start, 0
        while index < len(words):
            new, count = self._replacement(words, index, ends, aliases or {})
            if count:
                pieces += [self._script.text[at : words[index].start], new]
                index += count
                at = words[index - 1].end
                continue
            self._check_word(words, index)
            index += 1
        return "".join([*pieces, self._script.text[at : words[-1].end]])

    def _replacement(
        self,
        words: tuple[Word, ...],
        index: int,
        ends: dict[int, int],
        aliases: dict[str, tuple[Word, ...]],
    ) -> tuple[str, int]:
        """What stands for the words from *index* on, and how many it takes the place of."""
        for number, key in enumerate(self._keys):
            if count := self._matches(words, index, key):
                return f"k{number}", count
        word = words[index]
        after_dot = index > 0 and words[index - 1].text == "."
        if index in ends:
            name = word.text.lower()
            return (
                self._aggregate(words, index, ends[index]) if self._is_aggregate(name) else ("", 0)
            )
        if self._window is not None and word.upper == "WINDOW" and not after_dot:
            return f"k{self._window}", 1
        if word.text.lower() in aliases and not after_dot and not word.is_string:
            return f"({self._final(aliases[word.text.lower()])})", 1
        return "", 0

    def _aggregate(self, words: tuple[Word, ...], index: int, close: int) -> tuple[str, int]:
        """A call as an expression over partial columns; FILTER goes with it."""
        name = words[index].text.lower()
        known = AGGREGATES.get(name)
        if known is None:
            raise self._bad(
                f"{name}() cannot be kept as state yet",
                words[index],
                f"There are {', '.join(sorted(AGGREGATES))}",
            )
        inner = words[index + 2 : close]
        self._check_arguments(inner, words[index])
        arguments = self._script.slice(inner)
        end, condition = _filter_after(words, close)
        where = f" FILTER (WHERE {self._script.slice(condition)})" if condition else ""
        final = known.final
        partials = known.partials
        if final == "{average}":
            partials, final = self._average(arguments)
        names = [
            self._parts.column(sql.format(arguments=arguments, filter=where), merge)
            for sql, merge in partials
        ]
        return f"({final.format(*names)})", end - index + 1

    def _average(self, arguments: str) -> tuple[tuple[tuple[str, str], ...], str]:
        """As Spark does it: decimals exactly, everything else as double."""
        kind = self._type_of(f"avg({arguments})")
        count = ("count({arguments}){filter}", "count")
        if kind.startswith("decimal"):
            total = ("sum({arguments}){filter}", "sum")
            return (total, count), f"CAST({{0}} / CAST({{1}} AS DECIMAL(20, 0)) AS {kind})"
        total = ("sum(CAST({arguments} AS DOUBLE)){filter}", "sum")
        return (total, count), "{0} / CAST({1} AS DOUBLE)"

    # checks

    def _check_arguments(self, inner: tuple[Word, ...], call: Word) -> None:
        if not inner:
            raise self._bad(f"{call.text}() of nothing", call)
        if inner[0].upper == "DISTINCT":
            raise self._bad(
                f"{call.text}(DISTINCT ...) would have to keep every value",
                inner[0],
                "Group by it in a stream of its own, and count there",
            )
        for index, _ in calls(inner):
            if self._is_aggregate(inner[index].text.lower()):
                raise self._bad("an aggregate inside of an aggregate", inner[index])

    def _check_word(self, words: tuple[Word, ...], index: int) -> None:
        """A column that is no key has many values in a group."""
        word = words[index]
        is_name = not word.is_string and index + 1 not in _brackets(words, index)
        after_dot = index > 0 and words[index - 1].text == "."
        if is_name and not after_dot and word.text.lower() in self._columns:
            raise self._bad(
                f"{word.text!r} is neither a key of GROUP BY nor inside of an aggregate", word
            )
        if word.text == "*" and len(words) == 1:
            raise self._bad("* in a stream with GROUP BY: name the columns", word)

    def _check_names(self, names: list[str]) -> None:
        for index, name in enumerate(names):
            if name.lower() in (other.lower() for other in names[:index]):
                item = self._select.items[index]
                raise self._bad(f"two columns are called {name!r}", item.words[0], "Use AS")

    def _name(self, item: Item, index: int) -> str:
        """The name of an output column: as given, or of the column that it is."""
        if item.alias is not None:
            return item.alias
        last = item.words[-1]
        if all(word.text == "." or _is_plain(word) for word in item.words) and not last.is_string:
            return last.text
        raise self._bad(f"column {index + 1} has no name", item.words[0], "Use AS")

    def _matches(self, words: tuple[Word, ...], index: int, key: tuple[Word, ...]) -> int:
        """How many words from *index* on are this key; 0 if they are not."""
        if index > 0 and words[index - 1].text == ".":
            return 0
        for skip in (0, 2):  # t.symbol is symbol
            start = index + skip
            if skip and not self._is_qualified(words, index):
                continue
            own = key[2:] if self._is_qualified(key, 0) else key
            if [_normal(w) for w in words[start : start + len(own)]] == [_normal(w) for w in own]:
                return skip + len(own)
        return 0

    def _is_qualified(self, words: tuple[Word, ...], index: int) -> bool:
        ahead = words[index : index + 3]
        return len(ahead) == 3 and ahead[1].text == "." and ahead[0].text.lower() == self._qualifier

    def _bad(self, message: str, at: Word, advice: str = "") -> BadPipeline:
        return self._script.bad(message, at, advice)


def _is_window(words: tuple[Word, ...]) -> bool:
    ends = dict(calls(words))
    return words[0].upper in WINDOWS and ends.get(0) == len(words) - 1


def _arguments(words: tuple[Word, ...]) -> list[tuple[Word, ...]]:
    """The arguments of a call that is all of *words*."""
    inner = words[2:-1]
    depth = words[0].depth + 1
    parts: list[tuple[Word, ...]] = []
    start = 0
    for index, word in enumerate(inner):
        if word.text == "," and word.depth == depth and not word.is_string:
            parts.append(inner[start:index])
            start = index + 1
    return [*parts, inner[start:]]


def _filter_after(words: tuple[Word, ...], close: int) -> tuple[int, tuple[Word, ...]]:
    """Where a call with its FILTER ends, and the condition."""
    follows = words[close + 1 : close + 4]
    if [word.upper or word.text for word in follows] != ["FILTER", "(", "WHERE"]:
        return close, ()
    depth = words[close].depth
    end = next(
        i for i in range(close + 3, len(words)) if words[i].text == ")" and words[i].depth == depth
    )
    return end, words[close + 4 : end]


def _brackets(words: tuple[Word, ...], index: int) -> tuple[int, ...]:
    follows = words[index + 1 : index + 2]
    return (index + 1,) if follows and follows[0].text == "(" else ()


def _is_plain(word: Word) -> bool:
    return word.is_quoted or (not word.is_string and word.text.replace("_", "a").isalnum())


def _normal(word: Word) -> str:
    """Names are the same in any case, literals are not."""
    return f"'{word.text}'" if word.is_string else word.text.lower()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

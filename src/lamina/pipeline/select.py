"""One SELECT block, taken apart by the places of its words; its text is never rewritten.

SELECT [DISTINCT [ON (keys)]] items FROM table [WHERE condition] [GROUP BY keys]
  [HAVING condition] [QUALIFY row_number() OVER (PARTITION BY keys ORDER BY x) <= n]
  [STATE TTL INTERVAL n]

The table is a source, a stream or a subquery, which is a block of its own (pipeline/blocks.py), and
so is a join of several. Everything else that a SELECT may have in SQL is refused, by name and with
the reason (pipeline/refused_words.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from lamina.errors import BadPipeline
from lamina.pipeline.cursor import Cursor
from lamina.pipeline.distinct_on import DistinctOn, read_on, split_order
from lamina.pipeline.expressions import after_dot, closing, has_implicit_alias, sign
from lamina.pipeline.grouping import Grouping, read_grouping
from lamina.pipeline.intervals import read_interval
from lamina.pipeline.joins import JoinClause, Joins, Table, read_joins
from lamina.pipeline.laterals import Laterals, read_laterals, starts_lateral
from lamina.pipeline.model import NOWHERE, START, DeclaredFunction, Place, Stream
from lamina.pipeline.overs import Over, Ranks, read_overs, read_ranks
from lamina.pipeline.ranks import Ranked
from lamina.pipeline.refused_words import refuse_others
from lamina.pipeline.tokens import Script, Word, read_script

_TABLES = (
    "FROM has names of sources, streams and tables, and subqueries, each with a name behind it or "
    "without; and TUMBLE, HOP, CUMULATE and SESSION of one of them"
)
CLAUSES = ("FROM", "WHERE", "GROUP BY", "HAVING", "QUALIFY")


@dataclass(frozen=True, slots=True)
class Item:
    """One expression of the SELECT list, and the name that was given to it."""

    words: tuple[Word, ...]
    alias: str | None


@dataclass(frozen=True, slots=True)
class Select:
    """The parts of a block, as words of *script*."""

    script: Script
    items: tuple[Item, ...]
    table: Word
    alias: Word | None
    where: tuple[Word, ...]
    keys: tuple[tuple[Word, ...], ...]
    having: tuple[Word, ...]
    reads: tuple[str, ...]  # sources, streams and blocks; several if it is a UNION ALL of them
    inner: tuple[Word, ...] = ()  # of a subquery that is the table
    distinct: Word | None = None
    ranked: Ranked | None = None
    overs: tuple[Over, ...] = ()  # of all window functions, also the one that ranks
    not_ranked: BadPipeline | None = None  # why they are not ranks that can be kept as state
    grouping: Grouping = field(default_factory=Grouping)
    laterals: Laterals = field(default_factory=Laterals)
    from_end: int = 0  # where the text of FROM ends
    is_python: bool = False  # no SELECT at all: what its columns are of is not known
    joins: tuple[JoinClause, ...] = ()  # with the tables that follow the first one
    first: Table | None = None  # the first one, if there are joins
    state_ttl_us: int | None = None
    end: int = 0  # of the text that is a SELECT to Spark
    is_whole: bool = False  # it is computed of whole windows, all rows of each at once
    on: DistinctOn | None = None  # of DISTINCT ON
    aggregates: tuple[DeclaredFunction, ...] = ()  # the user's own

    @property
    def qualifier(self) -> str:
        """What columns of the input may have before them, in lower case."""
        return (self.alias or self.table).text.lower()

    @property
    def own(self) -> frozenset[str]:
        """The names of the user's aggregates, in lower case."""
        return frozenset(each.name.lower() for each in self.aggregates)

    def text(self, words: tuple[Word, ...]) -> str:
        return self.script.slice(words)


def read_select(stream: Stream, file: str) -> Select:
    """Take the SELECT of a stream apart; BadPipeline if it is not one that a stream can be.

    It is parsed once: whoever asks again gets the same value.
    """
    if stream.place == NOWHERE:  # places are those in its own text
        file, place = f"stream {stream.name}", START
    else:
        place = stream.place
    is_made = stream.join is not None or stream.values is not None
    if stream.union or stream.python is not None or is_made:
        text = f"SELECT * FROM {quoted(stream.name)}"  # noqa: S608  a name in quotes
        every = _read(text, file, place, (stream.name, ""), ())
        reads = stream.union
        if stream.python is not None:
            reads = stream.python.inputs
        elif stream.join is not None:
            of = stream.join
            reads = (of.left,) if of.is_table else (of.left, of.right)
        elif stream.values is not None:
            reads = (stream.values.left,)
        return replace(every, reads=reads, is_python=not stream.union)
    names = (stream.name, stream.joined)
    own = stream.aggregates
    select = _read(stream.select, file, place, names, stream.scope, aggregates=own)
    return replace(select, ranked=None, not_ranked=None, is_whole=True) if stream.whole else select


def block_name(stream: str, name: str) -> str:
    """What the block is called that a name of WITH, a subquery or a part of a UNION is."""
    return f"{stream}.{name}"


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


@lru_cache(maxsize=1024)
def _read(
    text: str,
    file: str,
    origin: Place,
    names: tuple[str, str],
    scope: tuple[tuple[str, str], ...],
    *,
    aggregates: tuple[DeclaredFunction, ...] = (),
) -> Select:
    """*names* are its own, and that of the block that its FROM is, if it has joins."""
    script = read_script(text, file, origin)
    given, state_ttl_us = _state_ttl(script, script.words)
    if sign(given, 0) != "SELECT":
        raise script.bad(
            f"a stream must begin with SELECT, not with {text[:20]!r}",
            0,
            "Write SELECT ... FROM name, WITH ... SELECT, or SELECT ... UNION ALL SELECT ...",
        )
    words, order = split_order(given)
    clauses = _clauses(script, words)
    joins = read_joins(script, clauses["FROM"])
    if state_ttl_us is not None and joins is None and not names[1]:
        raise script.bad("STATE TTL without a join", words[-1], "Leave it out")
    refuse_others(script, given, words, _inside(clauses["FROM"], joins))
    tables = _tables(script, clauses["FROM"], joins, names, dict(scope))
    distinct, on, listed = _distinct(script, clauses["SELECT"], order)
    items = tuple(read_item(script, item) for item in _by_comma(script, listed, words[0]))
    overs = tuple(read_overs(words, tables.inner))
    ranks = Ranks()
    if overs or clauses["QUALIFY"]:
        listing = [(item.words, item.alias) for item in items]
        ranks = read_ranks(script, overs, listing, clauses["QUALIFY"])
    own = frozenset(each.name.lower() for each in aggregates)
    grouping = read_grouping(script, clauses["GROUP BY"], [item.words for item in items], own)
    return Select(
        script,
        items,
        tables.table,
        tables.alias,
        clauses["WHERE"],
        grouping.keys,
        clauses["HAVING"],
        tables.reads,
        tables.inner,
        distinct,
        ranks.ranked,
        overs,
        ranks.error,
        grouping,
        read_laterals(script, tables.laterals),
        clauses["FROM"][-1].end,
        joins=() if names[1] else tables.joins,
        first=None if names[1] else tables.first,
        state_ttl_us=state_ttl_us,
        end=given[-1].end,
        on=on,
        aggregates=aggregates,
    )


@dataclass(frozen=True, slots=True)
class _Tables:
    """What FROM says."""

    table: Word
    alias: Word | None
    reads: tuple[str, ...]
    inner: tuple[Word, ...] = ()
    laterals: tuple[Word, ...] = ()
    first: Table | None = None
    joins: tuple[JoinClause, ...] = ()


def _inside(words: tuple[Word, ...], joins: Joins | None) -> list[tuple[Word, ...]]:
    """The words of all subqueries of FROM."""
    if joins is None:
        return [_subquery(words)]
    return [joins[0].inner, *(each.table.inner for each in joins[1])]


def _tables(
    script: Script,
    words: tuple[Word, ...],
    found: Joins | None,
    names: tuple[str, str],
    scope: dict[str, str],
) -> _Tables:
    name, joined = names
    if found is not None:
        first, joins = found
        reads = (joined,) if joined else reads_of(first, joins, scope, name)
        whole = _whole(words, joined or first.word.text)
        return _Tables(whole, None, reads, first=first, joins=joins)
    if joined:  # its only table, joined with subqueries of WHERE
        return _Tables(_whole(words, joined), None, (joined,))
    inner = _subquery(words)
    table, alias, laterals = _table(script, words, inner, name)
    read = table.text if inner else scope.get(table.text.lower(), table.text)
    return _Tables(table, alias, (read,), inner, laterals)


def _state_ttl(script: Script, words: tuple[Word, ...]) -> tuple[tuple[Word, ...], int | None]:
    """A query without its STATE TTL, and how long that is."""
    for index in range(1, len(words) - 2):
        said = [word.upper for word in words[index : index + 3]]
        if said == ["STATE", "TTL", "INTERVAL"] and not words[index].depth:
            cursor = Cursor(script, words[index + 2 :])
            length = read_interval(cursor, after="STATE TTL")
            cursor.end("STATE TTL")
            return words[:index], length
    return words, None


def _whole(words: tuple[Word, ...], name: str) -> Word:
    """All tables of FROM as one, which is the block that joins them."""
    return replace(words[0], text=name, end=words[-1].end, is_quoted=True)


def reads_of(
    first: Table, joins: tuple[JoinClause, ...], scope: dict[str, str], name: str
) -> tuple[str, ...]:
    """What the tables of FROM are; of a subquery the block that it is."""
    tables = (first, *(each.table for each in joins))
    return tuple(each.read(scope) or block_name(name, each.alias.lower()) for each in tables)


def _distinct(
    script: Script, words: tuple[Word, ...], order: tuple[Word, ...]
) -> tuple[Word | None, DistinctOn | None, tuple[Word, ...]]:
    """DISTINCT and its keys, if they are there, and the list without them; ALL says nothing."""
    first = words[0]
    if len(words) < 2 or first.upper not in ("DISTINCT", "ALL") or words[1].upper in (",", "."):
        return None, None, words
    if first.upper == "DISTINCT" and words[1].upper == "ON":
        on, listed = read_on(script, words, order)
        return first, on, listed
    return (first if first.upper == "DISTINCT" else None), None, words[1:]


def _subquery(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words inside of the brackets that the table is; none if it is a name."""
    if sign(words, 0) != "(" or sign(words, 1) not in ("SELECT", "WITH", "("):
        return ()
    return words[1 : closing(words, 0)]


def _clauses(script: Script, words: tuple[Word, ...]) -> dict[str, tuple[Word, ...]]:
    found: dict[str, tuple[Word, ...]] = {"SELECT": (), **dict.fromkeys(CLAUSES, ())}
    current, start = "SELECT", 1
    for index, word in enumerate(words):
        if word.depth or word.upper not in CLAUSES or after_dot(words, index):
            continue
        if word.upper == "FROM" and sign(words, index - 1) == "DISTINCT":
            continue  # a IS DISTINCT FROM b
        if found[word.upper] or CLAUSES.index(word.upper) < _position(current):
            advice = f"The order is SELECT, {', '.join(CLAUSES)}, each once"
            raise script.bad(f"{word.upper} is in the wrong place", word, advice)
        found[current] = words[start:index]
        if not found[current]:
            raise script.bad(f"nothing follows {current}", word)
        current, start = word.upper, index + 1
    found[current] = words[start:]
    if not found[current]:
        raise script.bad(f"nothing follows {current}", None)
    return found


def _position(clause: str) -> int:
    return -1 if clause == "SELECT" else CLAUSES.index(clause) + 1


def _table(
    script: Script,
    words: tuple[Word, ...],
    inner: tuple[Word, ...],
    name: str,
) -> tuple[Word, Word | None, tuple[Word, ...]]:
    """What is read, the name it has here, and laterals; a subquery is the name of its block."""
    if not words:
        raise script.bad("a stream reads FROM a source or a stream", 0, _TABLES)
    close = len(inner) + 1 if inner else 0
    more = (i for i in range(close + 1, len(words)) if starts_lateral(words, i))
    end = next(more, len(words))
    table, rest = words[0], words[close + 1 : end]
    if (not table.is_name and not inner) or any(word.upper == "," for word in rest):
        raise script.bad("a source, a stream or a subquery is expected in FROM", table, _TABLES)
    named = rest[1:] if rest and rest[0].upper == "AS" else rest
    for word in named[1:] if named and named[0].is_name else named[:1]:
        raise script.bad(f"{word.text!r} is not known after FROM {table.text}", word, _TABLES)
    if rest and not named:
        raise script.bad("a name follows AS", rest[0])
    alias = named[0] if named else None
    if inner:
        called = block_name(name, alias.text.lower() if alias else "subquery")
        table = replace(table, text=called, end=words[close].end, is_quoted=True)
    return table, alias, words[end:]


def _by_comma(script: Script, words: tuple[Word, ...], first: Word) -> Iterator[tuple[Word, ...]]:
    start = 0
    for index, word in enumerate((*words, None)):
        if word is None or (word.upper == "," and word.depth == first.depth):
            if start == index:
                raise script.bad("an expression is missing", word or words[-1].end)
            yield words[start:index]
            start = index + 1


def read_item(script: Script, words: tuple[Word, ...]) -> Item:
    """An expression and its name: `x AS n`, `x n`, or none."""
    named = next((i for i, w in enumerate(words) if w.upper == "AS" and w.depth == 0), None)
    if named is None:
        has_alias = has_implicit_alias(words)
        return Item(words[:-1], words[-1].text) if has_alias else Item(words, None)
    if named == 0:
        raise script.bad("an expression is missing", words[0])
    name = words[named + 1 :]
    if sign(name, 0) == "(":
        return Item(words, None)  # explode(m) AS (k, v)
    if len(name) != 1 or not name[0].is_name:
        raise script.bad("the name of a column follows AS", name[0] if name else words[-1])
    return Item(words[:named], name[0].text)

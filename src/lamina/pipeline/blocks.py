"""A query with queries inside, as blocks: each is a stream of its own that is one SELECT.

    WITH a AS (SELECT ...) SELECT ... FROM a        the blocks  name.a  and  name
    SELECT ... FROM (SELECT ...) AS b               the blocks  name.b  and  name
    SELECT ... UNION ALL SELECT ...                 the blocks  name.1, name.2  and  name
    SELECT ... FROM a JOIN b ON ...                 the blocks  name.join  and  name
    SELECT ... FROM a WHERE EXISTS (SELECT ...)     the same

Texts are cut from the user's own, so an error still has its place in the file. A block without
state is no job of its own: Spark gets it as a part of the block that reads it (spark/streams.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from lamina.pipeline.aggregates import has_aggregate
from lamina.pipeline.emits import EmitClause, split_emit
from lamina.pipeline.expressions import Words, after_dot, calls, closing, sign
from lamina.pipeline.join_blocks import join_of, text_over_join
from lamina.pipeline.joins import has_joins
from lamina.pipeline.keys import Names, read_keys
from lamina.pipeline.lateness import split_lateness
from lamina.pipeline.model import NOWHERE, START, Emit, Lateness, Stream
from lamina.pipeline.ranks import limit_in
from lamina.pipeline.refused_words import REFUSED
from lamina.pipeline.scalar_blocks import ValueBlocks, check_values
from lamina.pipeline.scalar_groups import over_groups
from lamina.pipeline.scalars import Scalar, read_scalars, with_references
from lamina.pipeline.select import Select, block_name, read_select, reads_of
from lamina.pipeline.subqueries import joins_of, read_subqueries, without
from lamina.pipeline.table_joins import check_ttl, with_table
from lamina.pipeline.tokens import Script, read_script
from lamina.pipeline.variables import within
from lamina.pipeline.window_columns import has_windows, over_windows

_SETS = ("EXCEPT", "INTERSECT", "MINUS")
_APART = "Make some of them streams of their own, which others read by name"
_DEPTH_MAX = 50
"""Of queries in queries."""


def unfold(stream: Stream, *, file: str) -> list[Stream]:
    """A stream as blocks, each after those that it reads; the last one is the stream itself."""
    query = _Query(stream, file)
    if stream.python is not None or not query.has_others():
        return [stream]
    return _with_emits(_with_limits(list(query.blocks()), file), file)


def keeps_state(select: Select) -> bool:
    """Whether it has groups that it keeps, as far as its words tell."""
    if select.is_whole:
        return False
    return bool(select.keys or select.distinct or select.ranked) or calls_aggregate(select)


def calls_aggregate(select: Select) -> bool:
    texts = [*(item.words for item in select.items), select.having]
    return any(has_aggregate(words, select.own) for words in texts)


def calls_any(select: Select, names: Collection[str]) -> bool:
    """Whether an item or HAVING calls a function that is among *names*, in lower case."""
    texts = [*(item.words for item in select.items), select.having]
    return any(words[i].text.lower() in names for words in texts for i, _ in calls(words))


@dataclass(frozen=True, slots=True)
class _Query:
    """The text of a stream, or of a block of one, which may have queries inside."""

    stream: Stream
    file: str
    depth: int = 0

    def has_others(self) -> bool:
        """Whether it may have queries inside: what is one block is checked later, as it stands."""
        words = self._script().words
        if sign(words, 0) != "SELECT" or any(word.upper == "SELECT" for word in words[1:]):
            return True
        return has_joins(words) or has_windows(words)

    def blocks(self) -> Iterator[Stream]:
        """This query as blocks: the last one has its name."""
        script = self._script()
        scope, words = dict(self.stream.scope), script.words
        if self.depth == 0 and _depth(words) > _DEPTH_MAX:
            raise script.bad(f"more than {_DEPTH_MAX} queries inside of each other", 0, _APART)
        if sign(words, 0) == "WITH":
            for name, inner, rest in self._with(script, words):
                yield from self._inner(script, name, inner, scope)
                scope[name] = block_name(self.stream.name, name)
                words = rest
        words = _without_brackets(words)
        parts = _parts(script, words)
        if len(parts) > 1:
            yield from self._union(script, words, parts, scope)
            return
        block = self._cut(script, self.stream.name, words, scope)
        text = over_windows(self._script_of(block)) or self._over_groups(block, scope)
        if text is not None:
            yield from _Query(replace(block, select=text), self.file, self.depth).blocks()
            return
        select, whole, scalars = self._select(block, scope)
        if select.joins or scalars:
            yield from self._joined(block, select, scope, whole, scalars)
            return
        if select.inner:
            yield from self._inner(
                select.script, select.reads[0], select.inner, scope, is_named=True
            )
        yield block

    def _over_groups(self, block: Stream, scope: Mapping[str, str]) -> str | None:
        """The text of a SELECT with values beside aggregates, cut into two."""
        script = self._script_of(block)
        scalars = read_scalars(script, tables={*block.tables} - {*scope})
        if not scalars:
            return None
        block = replace(block, select=with_references(script, scalars))
        read = self._script_of(block)
        plain = replace(block, select=without(read, read_subqueries(read)), joined=block.name)
        return over_groups(script, read, read_select(plain, self.file), scalars, taken=scope)

    def _select(
        self, block: Stream, scope: Mapping[str, str]
    ) -> tuple[Select, Script, tuple[Scalar, ...]]:
        """A SELECT with its joins, also those of WHERE; all of its text; and what is a value."""
        script = self._script_of(block)
        scalars = read_scalars(script, tables={*block.tables} - {*scope})
        if scalars:
            block = replace(block, select=with_references(script, scalars))
            script = self._script_of(block)
        asked = read_subqueries(script)
        if not asked and not scalars:
            return read_select(block, self.file), script, ()
        plain = replace(block, select=without(script, asked), joined=block.name)
        select = read_select(plain, self.file)
        if scalars:
            check_values(select, scalars)
        first, joins = joins_of(script, asked, select.own)
        reads = reads_of(first, joins, dict(scope), block.name)
        return replace(select, first=first, joins=joins, reads=reads), script, scalars

    def _script(self) -> Script:
        return self._script_of(self.stream)

    def _script_of(self, stream: Stream) -> Script:
        if stream.place == NOWHERE:
            return read_script(stream.select, f"stream {stream.name}", START)
        return read_script(stream.select, self.file, stream.place)

    def _with(self, script: Script, words: Words) -> Iterator[tuple[str, Words, Words]]:
        """Each name of WITH, its words, and what follows it."""
        at, seen = 1, set[str]()
        while True:
            name = words[at] if at < len(words) else None
            if name is None or not name.is_name:
                raise script.bad("a name follows WITH", name)
            if name.upper == "RECURSIVE" and sign(words, at + 1) != "AS":
                raise script.bad(
                    "WITH RECURSIVE: a stream has no end to come to", name, "Write each level"
                )
            if sign(words, at + 1) == "(":
                raise script.bad(
                    f"{name.text!r} with a list of columns", words[at + 1], "Name them with AS"
                )
            if sign(words, at + 1) != "AS" or sign(words, at + 2) != "(":
                raise script.bad(f"AS (SELECT ...) follows WITH {name.text}", name)
            if name.text.lower() in seen:
                raise script.bad(f"{name.text!r} is in WITH twice", name, "Use another name")
            seen.add(name.text.lower())
            close = closing(words, at + 2)
            yield name.text.lower(), words[at + 3 : close], words[close + 1 :]
            if sign(words, close + 1) != ",":
                break
            at = close + 2
        if close + 1 == len(words):
            raise script.bad("a SELECT follows WITH", None)

    def _inner(
        self,
        script: Script,
        name: str,
        words: Words,
        scope: Mapping[str, str],
        *,
        is_named: bool = False,
    ) -> Iterator[Stream]:
        if not words or sign(words, 0) not in ("SELECT", "WITH", "("):
            at = words[0] if words else 0
            raise script.bad("a SELECT is expected in the brackets", at, "Write (SELECT ...)")
        words, late = split_lateness(script, words)
        words, said = split_emit(script, words)
        called = name if is_named else block_name(self.stream.name, name)
        query = replace(
            self._cut(script, called, words, scope),
            emit=said.emit,
            every_us=said.every_us,
            late=late,
        )
        yield from _Query(query, self.file, self.depth + 1).blocks()

    def _union(
        self, script: Script, words: Words, parts: list[Words], scope: Mapping[str, str]
    ) -> Iterator[Stream]:
        whole = self._cut(script, self.stream.name, words, scope)
        names = [block_name(self.stream.name, str(number + 1)) for number in range(len(parts))]
        for number, part in enumerate(parts):
            yield from self._inner(script, str(number + 1), _without_brackets(part), scope)
        yield replace(whole, union=tuple(names))

    def _joined(
        self,
        block: Stream,
        select: Select,
        scope: Mapping[str, str],
        script: Script,
        scalars: tuple[Scalar, ...],
    ) -> Iterator[Stream]:
        """A block for each join, after those of subqueries; then what is computed of them."""
        assert select.first is not None
        tables = (select.first, *(each.table for each in select.joins))
        for table, name in zip(tables, select.reads, strict=True):
            if table.inner:
                yield from self._inner(script, name, table.inner, scope, is_named=True)
        left, before = select.reads[0], select.first.words
        check_ttl(select, block.tables, has_values=any(each.streams for each in scalars))
        values = ValueBlocks(self._script_of(block), block, select, scalars)
        for number, clause in enumerate(select.joins):
            last = f" {number + 1}" if len(select.joins) > 1 else ""
            name = block_name(block.name, f"join{last}")
            before = (*before, *clause.words)
            of = join_of(select, clause, left, select.reads[number + 1], script=script)
            of = values.kept_by(with_table(of, clause, select, block.tables))
            cut = self._cut(script, name, before, scope)
            yield replace(cut, join=of, scope=(), variables=block.variables)
            left = name
        for each in values.blocks(left, scope):
            is_query = each.join is None and each.values is None
            yield from _Query(each, self.file, self.depth + 1).blocks() if is_query else (each,)
            left = left if is_query else each.name
        yield replace(block, select=text_over_join(select), joined=left)

    def _cut(self, script: Script, name: str, words: Words, scope: Mapping[str, str]) -> Stream:
        """A piece of the text as a stream."""
        stream = self.stream
        is_whole = name == stream.name
        return Stream(
            name,
            script.slice(words),
            stream.emit if is_whole else None,
            within(words, stream.variables),
            NOWHERE if stream.place == NOWHERE else script.place(words[0].start),
            block_of=stream.block_of if is_whole else stream.block_of or stream.name,
            scope=tuple(scope.items()),
            late=stream.late if is_whole else Lateness(),
            aggregates=stream.aggregates,
            tables=stream.tables,
            every_us=stream.every_us if is_whole else None,
        )


def _depth(words: Words) -> int:
    """How many queries are inside of each other, at most."""
    opened, inside, deepest = list[bool](), 0, 0
    for index, word in enumerate(words):
        if word.upper in ("(", "[", "{"):
            opened.append(sign(words, index + 1) in ("SELECT", "WITH"))
            inside += opened[-1]
            deepest = max(deepest, inside)
        elif word.upper in (")", "]", "}"):
            inside -= opened.pop()
    return deepest


def _without_brackets(words: Words) -> Words:
    while sign(words, 0) == "(" and closing(words, 0) == len(words) - 1 and len(words) > 2:
        words = words[1:-1]
    return words


def _parts(script: Script, words: Words) -> list[Words]:
    """What UNION ALL puts together."""
    found, start = list[Words](), 0
    for index, word in enumerate(words):
        if word.upper in _SETS and sign(words, index + 1) in ("SELECT", "ALL", "DISTINCT"):
            raise script.bad(
                f"{word.upper} of two streams: {REFUSED[word.upper].reason}",
                word,
                REFUSED[word.upper].advice,
            )
        if word.upper != "UNION" or word.depth != words[0].depth or after_dot(words, index):
            continue
        if sign(words, index - 1) in ("AS", "SELECT", ",") or sign(words, index + 1) in (",", ")"):
            continue  # a column
        if sign(words, index + 1) != "ALL":
            raise script.bad(
                "UNION would keep every row for ever, to leave out the same ones",
                word,
                "Write UNION ALL, or SELECT DISTINCT ... FROM (... UNION ALL ...)",
            )
        if start == index or index + 2 >= len(words):
            raise script.bad("a SELECT is missing beside UNION ALL", word)
        found.append(words[start:index])
        start = index + 2
    return [*found, words[start:]]


def _with_limits(blocks: list[Stream], file: str) -> list[Stream]:
    """How many ranked rows each block keeps: as many as those that read it let through."""
    selects = {block.name: read_select(block, file) for block in blocks}
    limits: dict[str, list[int | None]] = {}
    for select in selects.values():
        for name in select.reads:
            read = selects.get(name)
            if read is not None and read.ranked is not None and read.ranked.item is not None:
                alias = read.items[read.ranked.item].alias
                limits.setdefault(name, []).append(_limit(select, alias))
    found = {name: each for name, each in limits.items() if None not in each}
    return [
        replace(block, top=max(n for n in found[block.name] if n is not None))
        if block.name in found
        else block
        for block in blocks
    ]


def _limit(select: Select, alias: str | None) -> int | None:
    """What a WHERE says of the rank that a column of this name is."""

    def is_rank(words: Words) -> bool:
        names = Names(select.qualifier, ())
        is_one = bool(words) and len(names.elements(words)) == 1 and words[-1].is_name
        return is_one and alias is not None and words[-1].text.lower() == alias.lower()

    return limit_in(select.where, is_rank)


def _with_emits(blocks: list[Stream], file: str) -> list[Stream]:
    """An EMIT says when rows of aggregates come out: of those that stand inside, if none is here.

    A block that keeps state and says nothing has all its rows when its windows close, or, without
    one, with each change.
    """
    emits = {block.name: EmitClause(block.emit, block.every_us) for block in blocks}
    lates = {block.name: block.late for block in blocks}
    selects = {block.name: read_select(block, file) for block in blocks}
    for block in reversed(blocks):
        select, emit = selects[block.name], emits[block.name]
        if keeps_state(select) or emit.emit is None:
            continue
        inside = [name for name in select.reads if _has_groups(name, selects)]
        if block.join is not None and block.join.is_value and emit.emit is Emit.ON_WINDOW_CLOSE:
            inside = [name for name in inside if name in inside[:1] or selects[name].keys]
        for name in inside:
            emits[name] = emits[name] if emits[name].emit else emit
        emits[block.name] = EmitClause() if inside else emit
        if len(inside) == 1 and lates[inside[0]] == Lateness():
            lates[inside[0]], lates[block.name] = lates[block.name], Lateness()
    for block in blocks:
        select = selects[block.name]
        if emits[block.name].emit is None and keeps_state(select) and block.block_of:
            emits[block.name] = EmitClause(_usual(select))
    return [
        replace(
            each,
            emit=emits[each.name].emit,
            every_us=emits[each.name].every_us,
            late=lates[each.name],
        )
        for each in blocks
    ]


def _has_groups(name: str, selects: Mapping[str, Select]) -> bool:
    """Whether a block keeps state, or one that it reads."""
    select = selects.get(name)
    if select is None:
        return False
    return keeps_state(select) or any(_has_groups(each, selects) for each in select.reads)


def _usual(select: Select) -> Emit | None:
    """Of groups without a window, and of ranks, whole_windows.py says it."""
    if select.distinct is not None or select.ranked is not None:
        return None
    has_window = any(key.is_window for key in read_keys(select, ()))
    return Emit.ON_WINDOW_CLOSE if has_window else None

"""The blocks that queries inside expressions are, between FROM and the SELECT that has them.

name.value 1          a query over streams, with the columns that it is compared by
name.join of value 1  FROM LEFT JOIN it
name.values           the rows of FROM, with a column for each value that is computed: those of
                      queries over tables, and what a query is of no rows
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from lamina.pipeline.aggregates import AGGREGATES, has_aggregate
from lamina.pipeline.expressions import Words, calls, closing, is_over, sign
from lamina.pipeline.join_blocks import whole_tables
from lamina.pipeline.model import NOWHERE, JoinKind, JoinOf, Stream, Values
from lamina.pipeline.scalar_joins import ScalarJoin, join_of_scalar
from lamina.pipeline.scalars import Scalar
from lamina.pipeline.select import Select, block_name
from lamina.pipeline.tokens import Script, Word
from lamina.pipeline.variables import within


@dataclass(frozen=True, slots=True)
class ValueBlocks:
    """*script* is the whole text of a SELECT, in which *select* has references for *scalars*."""

    script: Script
    block: Stream
    select: Select
    scalars: tuple[Scalar, ...]

    def kept_by(self, of: JoinOf) -> JoinOf:
        """A join of FROM, which keeps the columns that the queries mention, too."""
        if not self.scalars:
            return of
        return replace(of, mentioned=self._mentioned())

    def blocks(self, left: str, scope: Mapping[str, str]) -> Iterator[Stream]:
        """Queries to be taken apart, joins, and at last the values; *left* is what FROM is."""
        if not self.scalars:
            return
        assert self.select.first is not None
        alias = "" if self.select.joins else self.select.first.alias
        columns, tables = list[tuple[str, str]](), list[str]()
        for scalar in {each.number: each for each in self.scalars}.values():
            if not scalar.streams:
                columns.append((scalar.alias, self.script.slice(scalar.words)))
                tables += scalar.tables
                continue
            made = join_of_scalar(self.script, scalar, self._outer(), self.select.own)
            query = self._query(scalar, made, scope)
            yield query
            name = block_name(self.block.name, f"join of value {scalar.number}")
            yield self._join(name, (left, alias), query.name, scalar, made)
            left, alias = name, ""
            if made.value:
                columns.append((scalar.alias, made.value))
        if columns:
            place = self.script.place(self.scalars[0].words[0].start)
            values = Values(left, alias, tuple(columns), tuple(tables), place)
            yield self._made("values", self.scalars[0].words, values=values)

    def _query(self, scalar: Scalar, made: ScalarJoin, scope: Mapping[str, str]) -> Stream:
        query = self._made(f"value {scalar.number}", scalar.inner, select=made.text)
        return replace(query, scope=tuple(scope.items()))

    def _join(
        self, name: str, left: tuple[str, str], right: str, scalar: Scalar, made: ScalarJoin
    ) -> Stream:
        of = JoinOf(
            JoinKind.LEFT,
            left[0],
            right,
            left[1],
            made.alias,
            on_place=self.script.place(scalar.words[0].start),
            ttl_us=self.select.state_ttl_us,
            mentioned=self._mentioned(),
            whole=self._whole(),
            values=made.keys,
            is_value=True,
        )
        text = f"{self._from()} {self.script.slice(scalar.words)}"
        made_of = self._made(name.removeprefix(f"{self.block.name}."), scalar.words, select=text)
        return replace(made_of, join=of)

    def _made(
        self, part: str, words: Words, *, select: str = "", values: Values | None = None
    ) -> Stream:
        block = self.block
        return Stream(
            block_name(block.name, part),
            select or self.script.slice(words),
            variables=block.variables if values or not select else self._variables(),
            place=NOWHERE if block.place == NOWHERE else self.script.place(words[0].start),
            block_of=block.block_of or block.name,
            aggregates=block.aggregates,
            tables=block.tables,
            values=values,
        )

    def _variables(self) -> Mapping[str, str]:
        return within(self.script.words, self.block.variables)

    def _from(self) -> str:
        assert self.select.first is not None
        tables = (self.select.first.words, *(each.words for each in self.select.joins))
        return " ".join(self.script.slice(words) for words in tables)

    def _outer(self) -> list[str]:
        assert self.select.first is not None
        tables = (self.select.first, *(each.table for each in self.select.joins))
        return [each.alias.lower() for each in tables]

    def _mentioned(self) -> tuple[str, ...]:
        return tuple(sorted({word.text.lower() for word in self.script.words if word.is_name}))

    def _whole(self) -> tuple[str, ...]:
        numbered = {name for s in self.scalars for name in (s.alias, f"{s.alias} of")}
        return tuple(sorted({*whole_tables(self.select), *numbered}))


def check_values(select: Select, found: Collection[Scalar]) -> None:
    """BadPipeline at a value without a name, or beside aggregates; *select* has references."""
    for item in select.items:
        if item.alias is None and any(_is_reference(word, found) for word in item.words):
            raise select.script.bad(
                "a column with a query inside has no name", item.words[0], "Name it with AS"
            )


def values_of_groups(select: Select, found: Collection[Scalar]) -> Iterator[Word]:
    """The values that stand beside aggregates, not inside of them."""
    texts = [*(item.words for item in select.items), select.having]
    if select.keys or any(has_aggregate(words, select.own) for words in texts):
        for words in texts:
            for index, word in enumerate(words):
                if _is_reference(word, found) and not _is_inside(words, index, select.own):
                    yield word


def _is_inside(words: Words, at: int, own: Collection[str]) -> bool:
    """Whether a word is an argument of an aggregate, or in its FILTER."""
    for index, close in calls(words):
        name = words[index].text.lower()
        if (name in AGGREGATES or name in own) and not is_over(words, close):
            has_filter = sign(words, close + 1) == "FILTER"
            if index < at < (closing(words, close + 2) if has_filter else close):
                return True
    return False


def _is_reference(word: Word, found: Collection[Scalar]) -> bool:
    return word.is_quoted and any(word.text == each.alias for each in found)

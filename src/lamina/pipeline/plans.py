"""What a SELECT becomes: texts for Spark over one epoch's rows, and over the state.

All texts are pieces of the user's own, put together (pipeline/compile.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lamina.pipeline.aggregate_model import Own
from lamina.pipeline.select import quoted
from lamina.pipeline.variables import filled
from lamina.state.merge import Merge

RANKS_MAX = 1 << 16
"""More rows than a list of the state has."""


FLOOR = "_lamina_floor"
"""The column with the time before which windows have closed, in microseconds."""


@dataclass(frozen=True, slots=True)
class Stateless:
    """A stream that keeps nothing: its SELECT over one epoch's rows."""

    before: str = field(repr=False)  # the text up to the table, and after it
    after: str = field(repr=False)
    moves_rows: bool = False  # window functions bring the rows of each partition together

    def filled(self, variables: Mapping[str, str]) -> Stateless:
        """With the values of its variables, which may be secrets."""
        before, after = filled(self.before, variables), filled(self.after, variables)
        return replace(self, before=before, after=after)

    def sql(self, view: str) -> str:
        return f"{self.before}{view}{self.after}"


@dataclass(frozen=True, slots=True)
class FirstRow:
    """A stream with the first row of each key: what of each row goes to the owner of its key."""

    rows: Stateless
    keys: tuple[str, ...]  # columns of these rows
    time: str
    columns: tuple[str, ...]  # those that are the output
    outputs: tuple[str, ...]  # what they are called there
    meanings: tuple[str, ...]  # what each key holds, in one spelling
    placed: tuple[tuple[str, int], ...]
    """The text of each key, and where it stands: Spark is asked for its type."""


@dataclass(frozen=True, slots=True)
class DistinctPart:
    """What aggregates of DISTINCT values need: a block that has each value of a group once."""

    name: str
    values: Aggregation
    partial: str = field(repr=False)
    """Columns of the state, each with its expression over the rows of that block."""

    def filled(self, variables: Mapping[str, str]) -> DistinctPart:
        return DistinctPart(self.name, self.values.filled(variables), self.partial)


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A stream with keyed state."""

    keys: tuple[str, ...]  # columns of the state
    time: str | None  # the one that rows expire by: the end of a window, or event time itself
    merges: tuple[Merge, ...]
    outputs: tuple[str, ...]
    _partial: tuple[str, str, str, str] = field(repr=False)
    """Columns of the state, their expressions, what follows the input, the groups."""
    _final: tuple[tuple[str, ...], str, str] = field(repr=False)
    """The expressions of the outputs, the columns of the state, HAVING."""
    columns: tuple[str, ...] | None = None
    """The columns of the state that the outputs are, if they are nothing but that, and all rows."""
    meanings: tuple[str, ...] = ()
    """What each column of the state holds, keys first, in one spelling."""
    key_outputs: tuple[str, ...] | None = None
    """The outputs that tell every group from all others; None if the outputs do not."""
    key_choices: tuple[frozenset[str], ...] | None = None
    """For each key the outputs of which any one says it, where there may be several."""
    placed: tuple[tuple[str, int], ...] = ()
    """The text of each key but a window, and where it stands: Spark is asked for its type."""
    is_distinct: bool = False  # rows come out once, and never change
    has_lists: bool = False  # a row of the state is a list of rows
    of_rows: str | None = field(default=None, repr=False)
    """Expressions of the state's columns for a single row, with a FROM to come; None where partials
    of one row, merged, are not partials of all of them, or where a window is a key."""

    spread: tuple[str, str] = field(default=("", ""), repr=False)
    """What makes several rows of one, before they are grouped: expressions, and what follows."""
    distincts: tuple[DistinctPart, ...] = ()
    takes_back: bool = False  # it is over changes: rows may be taken back
    live: str | None = None  # the column that counts rows, if a group without any is gone
    session: tuple[str, str] | None = None
    """Of sessions: the columns of their start and end, which are not among the keys."""
    counts_where: str = ""
    """Which partials count the rows, if each row is in several: those of one set of keys."""

    own: tuple[tuple[str, Own], ...] = ()  # columns of the user's own aggregates
    late: Stateless | None = None
    """The rows of the input of which a window ends before `FLOOR`, a column that is added to it."""

    @property
    def ends(self) -> tuple[str, ...]:
        """The outputs that are the end of the window, as it is."""
        if self.time is None:
            return ()
        end = self.time.removesuffix("_end")
        pairs = zip(self._final[0], self.outputs, strict=True)
        return tuple(name for text, name in pairs if text.lower() == f"{end}.end")

    def filled(self, variables: Mapping[str, str]) -> Aggregation:
        """With the values of its variables, which may be secrets."""
        if not variables:
            return self
        columns, expressions, rest, groups = (filled(each, variables) for each in self._partial)
        finals, state, having = self._final
        return replace(
            self,
            _partial=(columns, expressions, rest, groups),
            _final=(
                tuple(filled(each, variables) for each in finals),
                state,
                filled(having, variables),
            ),
            of_rows=None if self.of_rows is None else filled(self.of_rows, variables),
            spread=(filled(self.spread[0], variables), filled(self.spread[1], variables)),
            distincts=tuple(each.filled(variables) for each in self.distincts),
            late=None if self.late is None else self.late.filled(variables),
        )

    def partial(self, view: str, rows: str = "") -> str:
        """Partials of the rows of *view*; if *rows* has a name, with a column that counts them."""
        columns, expressions, rest, groups = self._partial
        if self.spread[0]:
            view = f"(SELECT {self.spread[0]} FROM {view}{self.spread[1]})"
        if rows:
            where = self.counts_where
            counted = f"CASE WHEN {where} THEN {rows} ELSE 0L END AS {rows}" if where else rows
            columns, expressions = f"{columns}, {counted}", f"{expressions}, count(1) AS {rows}"
        return f"SELECT {columns} FROM (SELECT {expressions} FROM {view}{rest}{groups})"

    def partial_of_distinct(self, number: int, view: str, rows: str = "") -> str:
        """The partials of DISTINCT values, over the rows of their block."""
        counted = f", 0 AS {rows}" if rows else ""
        keys = ", ".join(key for key in self.keys)
        groups = f" GROUP BY {keys}" if keys else ""
        return f"SELECT {self.distincts[number].partial}{counted} FROM {view}{groups}"

    def rows(self, view: str) -> str:
        """The rows of *view*, each with the columns of the state, as if it were all there is."""
        assert self.of_rows is not None
        return f"SELECT {self.of_rows} FROM {view}{self._partial[2]}"

    def final(self, view: str, carry: str = "", number: str = "") -> str:
        """Rows of the state as people see them.

        A row of which the column *carry* is not null always comes through, and the column with it.
        It is no row of the state: nothing is computed of it, because that might fail. The column
        *number* tells rows apart, and complements of its values too: so it does afterwards.
        """
        expressions, columns, having = self._final
        numbers = [f"{self._numbered(number)} AS {number}"] if number else []
        if number:
            columns = f"{columns}, {number}"
        if carry:
            columns = f"{columns}, {carry}"
            expressions = tuple(f"CASE WHEN {carry} IS NULL THEN {e} END" for e in expressions)
            having = f"CASE WHEN {carry} IS NULL THEN {having} ELSE true END" if having else ""
        outputs = [f"{e} AS {quoted(n)}" for e, n in zip(expressions, self.outputs, strict=True)]
        listed = ", ".join([*outputs, *numbers, *([carry] if carry else [])])
        where = f" WHERE {having}" if having else ""
        return f"SELECT {listed} FROM (SELECT {columns} FROM {view}){where}"

    def _numbered(self, number: str) -> str:
        """Of several rows that were one, each has a number of its own."""
        if not self.has_lists:
            return number
        each = f"{{0}} * {RANKS_MAX} + rank"
        old = each.format(f"(~{number})")
        return f"CASE WHEN {number} < 0 THEN ~({old}) ELSE {each.format(number)} END"

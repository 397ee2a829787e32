"""Merge functions as data: which function merges which value columns, and the merge of a batch.

The values of a key are partial aggregates. In the epoch that changes a key, its old values and the
new ones are merged, once, element by element (R10). The rules are Spark's, not Arrow's.

function     columns            the merged value
replace      any...             the new value, null or not
sum          x [, is_empty]     the sum; see merge_numbers.py for overflow and decimals
count        n                  the sum of counts, never null
min, max     x                  the smaller, the greater; see merge_ordered.py for the order
first_by     value..., by       the row with the smallest `by`, the old one of two equal ones
last_by      value..., by       the row with the largest `by`, the new one of two equal ones
any, all     x                  bool_or, bool_and
bit_and, bit_or, bit_xor  i     the bits of both, of either, of one of them
moments      n, mean, m2 ...    what variances are made of; see merge_moments.py for more columns
comoments    n, x, y, c, ...    what correlations are made of; likewise
list_append  list               the old list and then the new one
list_sorted  list               the elements of both, in order
bag          list               values and how often each is there; see merge_bags.py
hll_union    sketch             the union of two sketches of Spark's hll_sketch_agg
kll_union    sketch             the union of two sketches of Spark's kll_sketch_agg_double
python       struct             what a user's own aggregate makes of two states; merge_python.py

An average is a sum and a count. A new function is a `Function` in one of the tables below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lamina.errors import Corrupt, Unsupported, UsageError
from lamina.format.canonical import Json
from lamina.format.fields import Fields
from lamina.state.merge_bags import BAGS
from lamina.state.merge_function import Columns, Combines, Function, Mask, Option, Step, only_found
from lamina.state.merge_lists import LISTS
from lamina.state.merge_moments import MOMENTS
from lamina.state.merge_numbers import NUMBERS
from lamina.state.merge_ordered import ORDERED
from lamina.state.merge_python import PYTHONS
from lamina.state.merge_sketches import SKETCHES

FUNCTIONS: Mapping[str, Function] = {
    **ORDERED,
    **NUMBERS,
    **MOMENTS,
    **LISTS,
    **BAGS,
    **SKETCHES,
    **PYTHONS,
}


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge function over one or several value columns."""

    function: str
    columns: tuple[str, ...]  # that it reads and writes, in the function's order
    options: Mapping[str, Option] = field(default_factory=dict, hash=False)
    code: Combines | None = field(default=None, compare=False, repr=False)
    """Of a user's own aggregate: what merges, and makes what people see. It is not written down."""

    def to_json(self) -> dict[str, Json]:
        return {
            "function": self.function,
            "columns": list(self.columns),
            "options": dict(self.options),
        }

    @classmethod
    def from_json(cls, value: Json, where: str = "merge") -> Merge:
        """Read what `to_json` wrote; *where* names it in errors."""
        fields = Fields(value, where, error=Corrupt)
        fields.require("function", "columns")
        merge = cls(fields.text("function"), fields.texts("columns"), _options(fields))
        if merge.function not in FUNCTIONS:
            raise Unsupported(f"there is no merge function {merge.function!r}", where=where)
        return merge


def _options(fields: Fields) -> dict[str, Option]:
    options = fields.raw("options", {})
    if not isinstance(options, Mapping):
        raise fields.bad("options is not an object")
    for name, option in options.items():
        if not isinstance(option, (bool, int, str)):
            raise fields.bad(f"option {name!r} is not a number, text, true or false: {option!r}")
    return dict(options)


def check_merges(merges: Sequence[Merge], schema: pa.Schema) -> None:
    """Every column of *schema* is merged exactly once, by a function that fits its type."""
    merged = [column for merge in merges for column in merge.columns]
    for column in merged:
        if column not in schema.names:
            known = ", ".join(schema.names) or "none"
            raise UsageError(f"there is no value column {column!r}; there are: {known}")
        if merged.count(column) > 1:
            raise UsageError(f"the value column {column!r} is merged more than once")
    for value in schema:
        if value.name not in merged:
            raise UsageError(
                f"no function merges the value column {value.name!r} of type {value.type}",
                advice="`replace` keeps the newest value as it is",
            )
    for merge in merges:
        _check_merge(merge, schema)


def _check_merge(merge: Merge, schema: pa.Schema) -> None:
    function = FUNCTIONS.get(merge.function)
    if function is None:
        known = ", ".join(sorted(FUNCTIONS))
        raise UsageError(f"there is no merge function {merge.function!r}; there are: {known}")
    for name, option in merge.options.items():
        wanted = function.options.get(name)
        if wanted is None:
            known = ", ".join(sorted(function.options)) or "none"
            raise UsageError(f"{merge.function} has no option {name!r}; it has: {known}")
        if type(option) is not wanted:  # True would pass for an int
            raise UsageError(f"{merge.function}: {name} is {option!r}, not {wanted.__name__}")
    fields = tuple(schema.field(column) for column in merge.columns)
    function.check(Columns(merge.function, fields, merge.options))


def merge_rows(
    merges: Sequence[Merge],
    old: pa.RecordBatch,
    new: pa.RecordBatch,
    found: Mask,
    *,
    called: Callable[[str], str] = str,
) -> pa.RecordBatch:
    """Merge row i of *old* with row i of *new*; where not found[i] there is no old row.

    The merges have passed `check_merges`. What *old* holds in a row that was not found does not
    matter; the new row is the result then, except that a null count is 0 and a list has its limit.
    *called* gives the names that errors have for columns.
    """
    assert old.schema.equals(new.schema), "both sides have the schema of the values"
    assert old.num_rows == new.num_rows == len(found)
    mask = pa.array(found, pa.bool_())
    results: dict[str, pa.Array] = {}
    for merge in merges:
        function = FUNCTIONS[merge.function]
        columns = tuple(old.column(column) for column in merge.columns)
        if function.reads_old and not found.all():
            columns = tuple(only_found(column, mask) for column in columns)
        step = Step(
            fields=tuple(new.schema.field(c).with_name(called(c)) for c in merge.columns),
            old=columns,
            new=tuple(new.column(column) for column in merge.columns),
            found=mask,
            options=merge.options,
            code=merge.code,
        )
        results.update(zip(merge.columns, function.apply(step), strict=True))
    return _batch(results, new)


def _batch(results: Mapping[str, pa.Array], new: pa.RecordBatch) -> pa.RecordBatch:
    if not results:
        return new  # no columns: all a batch has is its row count
    columns = [results[name] for name in new.schema.names]
    for value, column in zip(new.schema, columns, strict=True):
        assert column.type == value.type, f"{value.name}: {column.type} is not {value.type}"
    return pa.RecordBatch.from_arrays(columns, schema=new.schema)

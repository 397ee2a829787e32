"""A user's own aggregate: partial(rows), merge(old, new) and finish(state), over Arrow columns.

Each is called for many groups at once, and never with a group that has no rows: the state of such a
group is null, and so is what people see of it. What the code gives is checked before it counts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamina.engine.code import find_object, line_of_error
from lamina.engine.typed import as_planned
from lamina.engine.user_columns import Columns, Rows, columns_of
from lamina.errors import BadPipeline, LaminaError, Refused
from lamina.pipeline.model import DeclaredFunction
from lamina.pipeline.tokens import bad_at
from lamina.state.stored_types import stored_type

METHODS = {"partial": ("rows",), "merge": ("old", "new"), "finish": ("state",)}
_EXAMPLE = 'Write state = {"total": pa.float64(), "n": pa.int64()} in the class'
SHOWN_MAX = 200
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Given:
    """An object that is there already, where a class is expected to make one."""

    made: Any

    def __call__(self) -> Any:
        return self.made


@dataclass(frozen=True, slots=True)
class Found:
    """An aggregate's code: what makes the object with the methods, and the columns of its state."""

    found: Any  # as it stands in its module
    make: Callable[[], Any]
    state: pa.Schema


def aggregate_of(function: DeclaredFunction, *, file: str) -> Found:
    """The code of a declared aggregate; BadPipeline if it cannot be one."""
    what = f"the aggregate {function.name!r}"
    found = find_object(function.code, what, file=file, place=function.place)

    def bad(message: str, advice: str = "") -> BadPipeline:
        return bad_at(f"{what} is {function.code.name!r}, {message}", file, function.place, advice)

    if inspect.isroutine(found) or inspect.ismodule(found):
        raise bad(f"which is a {type(found).__name__}", f"It is a class with {_listed(METHODS)}")
    make = found if inspect.isclass(found) else Given(found)
    try:
        made = make()
    except Exception as error:
        said = f"which cannot be made without arguments: {type(error).__name__}: {error}"
        raise bad(said, "Give an object of it, or a class without arguments") from error
    for name, parameters in METHODS.items():
        if not callable(getattr(made, name, None)):
            raise bad(f"which has no method {name}()", f"It is a class with {_listed(METHODS)}")
        if not _takes(getattr(made, name), len(parameters)):
            wanted = f"{name}({', '.join(parameters)})"
            raise bad(f"whose method {name}() cannot be called as {wanted}")
    return Found(found, make, _state(getattr(made, "state", None), bad))


def _state(declared: Any, bad: Callable[[str, str], BadPipeline]) -> pa.Schema:
    """The columns of the state, each of a type that state keeps as it is."""
    if declared is None:
        raise bad("which does not say what its state is", _EXAMPLE)
    try:
        schema = pa.schema(declared)
    except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        raise bad(f"whose state is not names and Arrow types: {error}", _EXAMPLE) from error
    if not schema.names or len(set(schema.names)) < len(schema):
        raise bad("whose state has no column, or one name twice", _EXAMPLE)
    for field in schema:
        kept = stored_type(field.type)
        if kept != field.type or pa.types.is_dictionary(kept):
            advice = f"Write pa.{kept}()" if kept != field.type else "Keep the values themselves"
            raise bad(f"whose state has {field.name!r} of {field.type}", advice)
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _takes(method: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(method).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # of some functions that are not Python
        return True
    return True


def _listed(methods: dict[str, tuple[str, ...]]) -> str:
    return ", ".join(f"{name}({', '.join(given)})" for name, given in methods.items())


@dataclass(frozen=True, slots=True)
class UserAggregate:
    """An aggregate as tasks call it, over the column that a stream has for it."""

    name: str
    make: Callable[[], Any]  # of the object with the methods; it is sent to the tasks
    parameters: pa.Schema
    state: pa.Schema
    returns: pa.DataType
    of_bag: bool = False  # its column has the arguments of the rows, and how often each is there
    distinct: bool = False  # of which each counts once

    @property
    def stored(self) -> pa.DataType:
        return pa.struct(list(self.state))

    def partial(self, lists: pa.Array) -> pa.Array:
        """The state of each group, of the arguments of its rows."""
        elements = pc.list_flatten(lists)
        sizes = np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)
        if self.of_bag:
            counts = np.ones(len(elements), np.int64)
            if not self.distinct:
                counts = np.asarray(pc.struct_field(elements, 1), np.int64)
            group = np.repeat(np.arange(len(sizes)), sizes)
            sizes = np.bincount(np.repeat(group, counts), minlength=len(sizes)).astype(np.int64)
            taken = pa.array(np.repeat(np.arange(len(elements)), counts))
            elements = pc.struct_field(elements, 0).take(taken)
        return self._states(elements, sizes)

    def of_rows(self, rows: pa.Array, firsts: Numbers) -> pa.Array:
        """The state of groups of rows, which begin at *firsts*; a null is in none (FILTER)."""
        there = np.asarray(pc.is_valid(rows))
        sizes = np.add.reduceat(there, firsts, dtype=np.int64)
        return self._states(rows if there.all() else rows.filter(pa.array(there)), sizes)

    def _states(self, elements: pa.Array, sizes: Numbers) -> pa.Array:
        has_rows = sizes > 0
        call = _Rows(self._arguments(elements), sizes[has_rows])
        made = self._called("partial", call)
        return _spread(made, has_rows)

    def merge(self, old: pa.Array, new: pa.Array) -> pa.Array:
        """Two states of each group as one."""
        return self._called("merge", _States((old, new)))

    def shown(self, column: pa.Array) -> pa.Array:
        """What people see of the column of the state; null where a group has no rows."""
        states = self.partial(column) if self.of_bag else column
        there = np.asarray(pc.is_valid(states), np.bool_)
        made = self._called("finish", _States((states.filter(pa.array(there)),)))
        return _spread(made, there)

    def __str__(self) -> str:
        return f"the aggregate {self.name!r}"

    def _arguments(self, structs: pa.Array) -> pa.RecordBatch:
        """Columns under the names of the parameters."""
        pairs = zip(structs.flatten(), self.parameters, strict=True)
        columns = [as_planned(column, field.type) for column, field in pairs]
        return pa.RecordBatch.from_arrays(columns, schema=self.parameters)

    def _called(self, method: str, call: _Rows | _States) -> pa.Array:
        """What the code gives for these groups, checked; an error names what it fails with."""
        if not call.count:
            return pa.array([], self.returns if method == "finish" else self.stored)
        try:
            given = self._tried(method, call)
        except LaminaError:
            raise
        except Exception as error:
            first = call.part(self._first_bad(method, call), 1)
            cause = f"{type(error).__name__}: {error} ({line_of_error(error)})"
            message = f"{self} failed in {method}() with {first.said()[:SHOWN_MAX]}: {cause}"
            raise Refused(" ".join(message.split())) from error
        return self._checked(method, given, call.count)

    def _tried(self, method: str, call: _Rows | _States) -> Any:
        return getattr(self.make(), method)(*call.arguments())

    def _first_bad(self, method: str, call: _Rows | _States) -> int:
        """The last one of the fewest first groups that it fails with."""
        good, bad = 0, call.count
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                self._tried(method, call.part(0, middle))
                good = middle
            except Exception:  # noqa: BLE001  whatever it was
                bad = middle
        return good

    def _checked(self, method: str, given: Any, groups: int) -> pa.Array:
        what = f"{self}, what {method}() gives,"
        if method == "finish":
            schema = pa.schema([("the result", self.returns)])
            return columns_of({"the result": given}, schema, what, rows=groups).column(0)
        made = columns_of(given, self.state, what, rows=groups)
        return pa.StructArray.from_arrays(made.columns, fields=list(self.state))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of groups, which stand together, and how many each has: never none."""

    batch: pa.RecordBatch
    sizes: Numbers

    @property
    def count(self) -> int:
        return len(self.sizes)

    def arguments(self) -> tuple[Rows]:
        return (Rows(self.batch, np.repeat(np.arange(self.count), self.sizes), self.count),)

    def part(self, first: int, count: int) -> _Rows:
        begin, size = int(self.sizes[:first].sum()), int(self.sizes[first : first + count].sum())
        return _Rows(self.batch.slice(begin, size), self.sizes[first : first + count])

    def said(self) -> str:
        rows = self.batch.slice(0, SHOWN_MAX).to_pylist()
        return f"the rows {', '.join(map(str, rows))}"


@dataclass(frozen=True, slots=True)
class _States:
    """States of groups: one, or an old and a new one; none of them is null."""

    sides: tuple[pa.Array, ...]

    @property
    def count(self) -> int:
        return len(self.sides[0])

    def arguments(self) -> tuple[Columns, ...]:
        return tuple(
            Columns(pa.RecordBatch.from_arrays(side.flatten(), schema=pa.schema(list(side.type))))
            for side in self.sides
        )

    def part(self, first: int, count: int) -> _States:
        return _States(tuple(side.slice(first, count) for side in self.sides))

    def said(self) -> str:
        states = [side.to_pylist()[0] for side in self.sides]
        return f"the state {' and '.join(map(str, states))}"


def _spread(made: pa.Array, there: npt.NDArray[np.bool_]) -> pa.Array:
    """What there is of some, and null for the others."""
    if len(made) == len(there):
        return made
    place = np.cumsum(there) - 1
    return made.take(pa.array(place, mask=~there))

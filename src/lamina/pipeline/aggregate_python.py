"""The user's own aggregates in a SELECT: the arguments of a group's rows are what Spark gives.

Spark collects them beside its own partials, so that windows, FILTER, sessions and sets of keys are
its own to say. The task that owns a group makes the state of them, and what people see of that
(engine/user_aggregates.py). Over changes the arguments themselves are kept, as for every aggregate
that nothing can be taken out of.
"""

from __future__ import annotations

from lamina.pipeline.aggregate_lists import unsorted
from lamina.pipeline.aggregate_model import Aggregate, Asked, Own, Part, Refusal, Row
from lamina.pipeline.expressions import Words, calls, is_over
from lamina.pipeline.model import DeclaredFunction
from lamina.pipeline.select import Select

PYTHON = "python"
"""The merge function of their state (lamina.state.merge)."""


def row_of(function: DeclaredFunction) -> Row:
    """The row of the table of aggregates that a declared one is."""
    part = Part(
        PYTHON,
        (f"collect_list({_arguments(function)}){{where}}",),
        own=Own(function.name),
        of_row=_arguments(function),
        said=f"{_escaped(function.name.lower())}({{all}})",
    )
    aggregate = Aggregate((part,), "{0}")

    def made(asked: Asked) -> Aggregate:
        asked.type_of(part.columns[0])
        return aggregate

    return Row(made, len(function.parameters))


def own_over_changes(
    function: DeclaredFunction, asked: Asked, *, distinct: bool
) -> Aggregate | Refusal:
    """It keeps a bag of the arguments; each combination is there once in it, with a number."""
    value = _arguments(function)
    refusal = unsorted(f"{asked.type_of(value)}>")
    if refusal is not None:
        return refusal
    is_there = "({0}) IS NOT NULL" if distinct else "true"
    element = f"CASE WHEN {is_there} THEN named_struct('v', {value}, 'n', 1L) END"
    name = _escaped(function.name.lower())
    part = Part(
        "bag",
        (f"collect_list({element}){{where}}",),
        own=Own(function.name, of_bag=True, distinct=distinct),
        said=f"{name}(DISTINCT {{all}})" if distinct else f"{name}({{all}})",
    )
    return Aggregate((part,), "{0}")


def check_own_calls(select: Select) -> None:
    """BadPipeline at one of the user's aggregates where no aggregate can be, or over a window."""
    own = select.own
    if not own:
        return
    for words, where in ((select.where, "WHERE"), *((key, "GROUP BY") for key in select.keys)):
        for index, _ in calls(words):
            if words[index].text.lower() in own:
                said = f"the aggregate {words[index].text}() in {where}"
                raise select.script.bad(said, words[0], "Call it in the list, or in HAVING")
    for item in select.items:
        _check_over(select, item.words, own)


def _check_over(select: Select, words: Words, own: frozenset[str]) -> None:
    for index, close in calls(words):
        if words[index].text.lower() in own and is_over(words, close):
            raise select.script.bad(
                f"the aggregate {words[index].text}() OVER (...): it is for GROUP BY only",
                words[index],
                "Group by the window and the keys in a stream of its own",
            )


def _arguments(function: DeclaredFunction) -> str:
    """A struct of the arguments of one row, in the declared types; it is never null."""
    types = [each.type for each in function.parameters]
    fields = (f"'a{i}', CAST({{{i}}} AS {_escaped(kind)})" for i, kind in enumerate(types))
    return f"named_struct({', '.join(fields)})"


def _escaped(text: str) -> str:
    """As a part of a template."""
    return text.replace("{", "{{").replace("}", "}}")

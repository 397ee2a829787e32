"""The user's own Python, looked at before anything is claimed: is it there, can it be called so?"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lamina.engine.code import find_code
from lamina.pipeline.model import Pipeline
from lamina.pipeline.tokens import bad_at


def check_code(pipeline: Pipeline, *, file: str) -> None:
    """BadPipeline at the first function or aggregate of a pipeline that cannot work."""
    for function in pipeline.functions.values():
        if function.is_aggregate:
            # With Arrow and numpy, which a pipeline without aggregates need not wait for here.
            from lamina.engine.user_aggregates import aggregate_of  # noqa: PLC0415

            aggregate_of(function, file=file)
            continue
        what = f"the function {function.name!r}"
        found = find_code(function.code, what, file=file, place=function.place)
        if not _takes(found, len(function.parameters)):
            raise bad_at(
                f"{what} is declared with {len(function.parameters)} parameters, and "
                f"{function.code.name} takes {inspect.signature(found)}",
                file,
                function.place,
            )


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether it takes this many arguments; True if its signature cannot be read."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # of some functions that are not Python
        return True
    return True

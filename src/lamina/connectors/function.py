"""A Python function as a sink: it gets the rows of each epoch, at least once.

`fn(table, epoch)` may put the rows anywhere, and only it knows whether it has. So the position of
the sink is a note in the home, written when the function has returned: killed in between, the
function is called again, with the same rows and the same epoch. A function that takes the epoch as
a key, and replaces what it finds under it, is exactly once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from lamina.connectors.kinds import DeclaredOption, Given, SinkContext, SinkKind
from lamina.connectors.options import bad_option, option_of
from lamina.connectors.positions import NotedPosition, NotedSink
from lamina.engine.code import beside, line_of_error, look_in
from lamina.engine.ports import Change, Publication
from lamina.errors import Refused, StoreError
from lamina.pipeline.model import DeclaredSink

if TYPE_CHECKING:
    import pyarrow as pa

Function: TypeAlias = "Callable[[pa.Table, int], Any]"

FUNCTION = "function"
AGAIN = (
    "To have the epoch tried again by itself, raise lamina.errors.StoreUnavailable; correct "
    "anything else, and start again: the epoch is kept"
)


@dataclass(frozen=True, slots=True)
class FunctionSink(NotedSink):
    """Calls *function* with the rows of every epoch that has any."""

    function: Function
    called: str = ""  # what the pipeline calls the function

    @property
    def delivery(self) -> str:
        return KIND.delivery

    @property
    def takes(self) -> frozenset[Change]:
        """It gets the rows as they are, and with a stream of changes their column of changes."""
        return frozenset(Change)

    def deliver(self, publication: Publication) -> None:
        from lamina.connectors.staged import staged_rows  # noqa: PLC0415  slow to import

        table, epoch = staged_rows(publication), publication.point.epoch
        try:
            self.function(table, epoch)
        except StoreError:
            raise  # the one way to say: try again
        except Exception as error:
            message = f"the function of the sink {self.name!r} failed in epoch {epoch}"
            raise Refused(
                f"{message}: {type(error).__name__}: {error}",
                where=f"{self.called}, {line_of_error(error)}",
                advice=AGAIN,
            ) from error


def find_function(sink: DeclaredSink, given: Given) -> Function:
    """What the option names. BadPipeline if it cannot be imported, or is no function."""
    option = option_of(sink, FUNCTION)
    assert option is not None, "it is required"
    if option.made is not None:
        return option.made
    module, colon, name = option.value.partition(":")
    if not (module and colon and name):
        advice = "Write OPTIONS (function 'module:name')"
        raise bad_option(sink, f"has the function {option.written!r}", given.file, advice)
    found: Any = _imported(sink, given, module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        what = "is not there" if found is None else f"is a {type(found).__name__}, no function"
        advice = f"Define `def {name}(table, epoch): ...` in the module {module}"
        message = f"has the function {option.written!r}, which {what}"
        raise bad_option(sink, message, given.file, advice)
    return found  # type: ignore[no-any-return]


def _imported(sink: DeclaredSink, given: Given, module: str) -> Any:
    """A module of Python's path, or one beside the pipeline file, which never hides another."""
    folder = beside(given.file)
    look_in(folder)
    try:
        return importlib.import_module(module)
    except Exception as error:
        message = f"has a function in the module {module!r}, which cannot be imported"
        said = f"{type(error).__name__}: {error}"
        advice = f"Python finds modules in {folder}, and in what is installed or in PYTHONPATH"
        raise bad_option(sink, f"{message}: {said}", given.file, advice) from error


def _open(context: SinkContext) -> FunctionSink:
    sink, given = context.sink, context.given
    positions = NotedPosition(context.notes, sink.name)
    return FunctionSink(sink.name, positions, find_function(sink, given), given.text(FUNCTION))


KIND = SinkKind(
    "function",
    "Calls a Python function with the rows of each epoch, as an Arrow table",
    open=_open,
    check=find_function,
    delivery="at least once: after a kill the function may be called again with the same epoch",
    options=(
        DeclaredOption(
            FUNCTION,
            "`module:name` of a function that takes a `pyarrow.Table` and the number of the epoch",
            required=True,
        ),
    ),
)

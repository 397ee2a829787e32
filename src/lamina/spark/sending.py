"""The user's own Python on its way to tasks: it finds its modules there as it does here.

A function of a module is sent by its name, and its task imports it. Spark tells its workers nothing
of the folders that the driver's Python looks in, so the folder goes with the function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from pyspark import cloudpickle
from pyspark.serializers import CloudPickleSerializer

from lamina.engine.code import look_in
from lamina.errors import UsageError


@dataclass(frozen=True, slots=True)
class Sent:
    """A function that can be pickled, and called wherever it comes out."""

    function: Callable[..., Any]
    folder: str  # where its module is, if it is not known everywhere
    called: str

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def __reduce__(self) -> tuple[Callable[..., Sent], tuple[bytes, str, str]]:
        return _received, (_pickled(self), self.folder, self.called)


def _pickled(sent: Sent) -> bytes:
    return cast(bytes, cast(Any, CloudPickleSerializer)().dumps(sent.function))


def _received(data: bytes, folder: str, called: str) -> Sent:
    look_in(folder)
    try:
        return Sent(cloudpickle.loads(data), folder, called)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{called} cannot be imported where tasks run: {error}",
            advice=f"Executors must see {folder or 'its module'}, or get it with --py-files",
        ) from error

"""What a failed Spark job means: the line that a person needs, out of a hundred.

A task's error of ours comes back as text in a Python traceback, and becomes that error again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from lamina.errors import LaminaError, Refused, StoreError, all_errors

LENGTH_MAX = 600
_OURS = re.compile(r"^lamina\.errors\.(\w+): (?:\[LAM-\d+\] )?(.+)$", re.MULTILINE)
_SPARKS = re.compile(r"\[[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*\] .+")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_PYTHONS = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt): .+$", re.MULTILINE)
_KINDS = {kind.__name__: kind for kind in all_errors()}


@contextmanager
def spark_errors() -> Iterator[None]:
    """What Spark refuses, as an error of ours; nothing of the epoch is committed then."""
    try:
        yield
    except (ConnectionError, Py4JNetworkError) as error:
        raise StoreError(
            f"Spark's JVM has gone, or cannot be reached: {error}",
            advice="What it was doing is not committed. Find out what ended it, and start again",
        ) from error
    except (PySparkException, Py4JError) as error:
        raise meaning(str(error)) from error


def meaning(text: str) -> LaminaError:
    """The error that a failed job stands for."""
    ours = _OURS.findall(text)
    if ours and ours[-1][0] in _KINDS:
        name, message = ours[-1]
        return _KINDS[name](message[:LENGTH_MAX], advice="Nothing of this epoch is committed")
    return Refused(
        f"Spark gave up: {line_of(text)}",
        advice="Nothing of this epoch is committed. Put right what is wrong and start again",
    )


def line_of(text: str) -> str:
    """Spark's own message, with the cause at the bottom if it says more."""
    sparks, pythons = _SPARKS.search(text), _PYTHONS.findall(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = sparks[0] if sparks else pythons[-1] if pythons else lines[0] if lines else "no reason"
    causes = _CAUSE.findall(text)
    if causes and causes[-1] not in said and said not in causes[-1]:
        said = f"{said}: {causes[-1]}"
    return said[:LENGTH_MAX]

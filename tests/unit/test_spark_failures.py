"""A failed Spark job in one line: what a person needs of its stack."""

from __future__ import annotations

import pytest

from lamina.errors import Overflow, Refused

failures = pytest.importorskip("lamina.spark.failures")

WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "tasks.py", line 35, in __call__
    updated = update_state(task, batches)
lamina.errors.Overflow: [LAM-2103] sum of column 'p0' does not fit int64 any more in 1 of 1 rows
"""
UNREADABLE = """An error occurred while calling o345.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.Some.scala
Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error in 2.json.
\t... 21 more
Caused by: com.fasterxml.jackson.core.io.JsonEOFException: Unexpected end-of-input: expected close
"""


def test_an_error_of_ours_in_a_task_is_that_error_again() -> None:
    error = failures.meaning(WORKER)
    assert type(error) is Overflow
    assert error.message == "sum of column 'p0' does not fit int64 any more in 1 of 1 rows"
    assert "Nothing of this epoch is committed" in error.advice


def test_a_file_that_cannot_be_read_is_named_with_the_cause() -> None:
    error = failures.meaning(UNREADABLE)
    assert type(error) is Refused
    assert error.message == (
        "Spark gave up: [FAILED_READ_FILE.NO_HINT] Encountered error in 2.json.: "
        "Unexpected end-of-input: expected close"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Traceback\n  File x\nValueError: bad\nTypeError: worse", "TypeError: worse"),
        ("Py4J has gone away", "Py4J has gone away"),
        ("", "no reason"),
        ("[DIVIDE_BY_ZERO] Division by zero.\n== SQL ==", "[DIVIDE_BY_ZERO] Division by zero."),
    ],
)
def test_whatever_else_is_said_in_its_best_line(text: str, line: str) -> None:
    assert failures.line_of(text) == line

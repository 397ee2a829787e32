"""A failed Spark job in one line: what a person needs of its stack."""

from __future__ import annotations

import pytest

from lamina.errors import Overflow, Refused, SparkLost

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
        "Spark failed: [FAILED_READ_FILE.NO_HINT] Encountered error in 2.json.: "
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


OVERFLOW = """An error occurred while calling o3989.collectToPython.
: org.apache.spark.SparkArithmeticException: [ARITHMETIC_OVERFLOW] overflow. Use 'try_multiply' to \
tolerate overflow and return NULL instead. If necessary set "spark.sql.ansi.enabled" to "false" to \
bypass this error. SQLSTATE: 22003
== SQL (line 1, position 85) ==
... CASE WHEN _lamina IS NULL THEN (p0) * 4 END AS `a`, CASE WHEN _lamina I...
                                   ^^^^^^^^
"""
ZERO = """[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0 and \
return NULL instead. If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. \
SQLSTATE: 22012
== SQL (line 1, position 10) ==
SELECT k0, (p0) / (p1) AS q FROM x
           ^^^^^^^^^^^
"""
NULLS = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "pyarrow/table.pxi", line 1, in pyarrow.lib.RecordBatch.from_arrays
pyarrow.lib.ArrowInvalid: Column 'a' is declared non-nullable but contains nulls
"""


def test_an_overflow_was_said_of_p0_and_ansi_was_to_be_switched_off() -> None:
    error = failures.meaning(OVERFLOW, {"p0": "sum(a)"})
    assert type(error) is Overflow
    assert error.message == "(sum(a)) * 4 does not fit its type"
    assert "wider type" in error.advice
    assert "ansi" not in str(error)


def test_a_division_by_zero_names_the_users_expression() -> None:
    error = failures.meaning(ZERO, {"p0": "sum(a)", "p1": "sum(b)"})
    assert error.message.endswith("SQLSTATE: 22012 In (sum(a)) / (sum(b))")
    assert "ansi" not in str(error)


def test_nulls_in_a_column_that_is_not_null_were_no_reason() -> None:
    """Only classes called ...Error and ...Exception were taken for one."""
    error = failures.meaning(NULLS)
    assert error.message == "the column 'a' is NOT NULL, and a row has no value for it"
    assert "NOT NULL" in error.advice
    other = "Traceback\n  File x\npyarrow.lib.ArrowInvalid: so not"
    assert failures.line_of(other) == "pyarrow.lib.ArrowInvalid: so not"


def test_settings_of_kafkas_client_were_told_with_the_password() -> None:
    login = (
        r"sasl.jaas.config -> org.apache.kafka.common.security.plain.PlainLoginModule required "
        r'username="alice" password="hid\"den-1";'
    )
    key = "ssl.keystore.key -> -----BEGIN PRIVATE KEY-----\nhidden-2\n-----END PRIVATE KEY-----"
    text = (
        "java.lang.IllegalArgumentException: requirement failed: Kafka params for same cache key "
        f"should be equal. old parameters Map({login}, {key}, ssl.key.password -> hidden-3, "
        f"group.id -> g) new parameters Map(ssl.key.password=hidden-4, {login})"
    )
    for said in (failures.meaning(text).message, failures.line_of(text)):
        assert "hid" not in said
        assert "den-1" not in said
        assert 'username="alice" password=***' in said
    assert "group.id -> g) new parameters Map(ssl.key.password=***" in failures.without_secrets(
        text
    )
    assert "hid" not in failures.without_secrets(text)


def test_a_jvm_that_was_killed_in_the_middle_of_a_call_was_said_to_have_refused_it() -> None:
    assert type(failures.meaning("An error occurred while calling o345.sql")) is SparkLost
    assert type(failures.meaning("An error occurred while calling o1.f. Trace:\nno f")) is Refused

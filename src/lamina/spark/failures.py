"""What a failed Spark job means: the line that a person needs, out of a hundred.

A task's error of ours comes back as text in a Python traceback, and becomes that error again. A
file that cannot be read is named, with what is wrong with it and what can be done.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from lamina.connectors.json_text import SEVERAL
from lamina.connectors.kafka.values import UNKNOWN_SCHEMA, UNREADABLE, UNREADABLE_CHANGE
from lamina.connectors.text_rows import UNREADABLE_LINE
from lamina.errors import (
    AccessDenied,
    LaminaError,
    NotFound,
    Overflow,
    Refused,
    SparkLost,
    StoreFull,
    StoreUnavailable,
    all_errors,
)

LENGTH_MAX = 600
NOTHING = "Nothing of this epoch is committed"
_OURS = re.compile(r"^lamina\.errors\.(\w+): (?:\[LAM-\d+\] )?(.+)$", re.MULTILINE)
_SPARKS = re.compile(r"\[[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*\] .+")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_PYTHONS = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*: .+$", re.MULTILINE)
_OVERFLOWS = ("[ARITHMETIC_OVERFLOW", "[NUMERIC_VALUE_OUT_OF_RANGE")
_ANSI = re.compile(r" If necessary set \"?spark\.sql\.ansi\.enabled\"? .*?error\.")
"""Spark's advice, which cannot be taken here: the setting is pinned."""
_CONTEXT = re.compile(r"^== SQL.*==\n(.*)\n( *)(\^+)", re.MULTILINE)
_STATE_COLUMN = re.compile(r"\b[kp]\d+\b")
_NULLS = re.compile(r"Column '(.+)' is declared non-nullable but contains nulls")
_UNREAD = re.compile(
    r"\[FAILED_READ_FILE\.(\w+)\] Encountered error while reading file (\S+?)\.(?:\s|$)"
)
_NO_PATH = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (\S+?)\.(?:\s|$)")
_SEVERAL = re.compile(rf"{SEVERAL} (\S+) (.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_RECORD = re.compile(rf"{UNREADABLE} (\S+) (\d+) (\d+) ?(.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_CHANGED = re.compile(
    rf"{UNREADABLE_CHANGE} (\S+) (\d+) (\d+) ?(.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE
)
_SCHEMA = re.compile(rf"{UNKNOWN_SCHEMA} [0-9A-F]{{8}}")
_KAFKA = re.compile(
    r"org\.apache\.kafka\.common\.errors\.(?:\w*Timeout|Disconnect|Network|BrokerNotAvailable|"
    r"Retriable)\w*Exception: (.+)|TimeoutException: (Cannot fetch record .+)"
)
_DENIED = re.compile(r"org\.apache\.kafka\.common\.errors\.(?:Sasl|Ssl)?Auth\w+Exception: (.+)")
_LINE = re.compile(rf"{UNREADABLE_LINE} (\S+) (.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_MALFORMED = "[MALFORMED_RECORD_IN_PARSING"
_OTHER_TYPE = re.compile(
    r"Parquet column \[(.+?)\]\. Expected Spark type (.+?), actual Parquet type (\S+?)\."
)
_REPAIR = "Repair it, or keep such rows apart with OPTIONS (bad_rows_path 'a/folder')"
_SHUT_DOWN = "because SparkContext was shut down"
_UNANSWERED = re.compile(r"\s*An error occurred while calling \S+\s*")
"""All that Py4J says of a call if the JVM goes away before it answers."""
_FULL = "No space left on device"
_SECRETS = re.compile(
    r"""(\w*password\w*\s*=\s*)(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"|(\bssl\.key\.password\s*(?:->|=|:)\s*)[^\s,)]+"
    r"|(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
"""What Spark's Kafka reader may print with its settings."""
_KINDS = {kind.__name__: kind for kind in all_errors()}


@contextmanager
def spark_errors(meanings: Mapping[str, str] | None = None) -> Iterator[None]:
    """What Spark refuses, as an error of ours; nothing of the epoch is committed then.

    *meanings* are the user's expressions for columns of the state.
    """
    try:
        yield
    except (ConnectionError, Py4JNetworkError) as error:
        raise SparkLost(f"lost the connection to Spark's JVM: {error}") from error
    except (PySparkException, Py4JError) as error:
        raise meaning(str(error), meanings or {}) from error


def meaning(text: str, meanings: Mapping[str, str] = MappingProxyType({})) -> LaminaError:
    """The error that a failed job stands for; without the passwords that Spark may have told."""
    text = without_secrets(text)
    ours = _OURS.findall(text)
    if ours and ours[-1][0] in _KINDS:
        name, message = ours[-1]
        return _KINDS[name](message[:LENGTH_MAX], advice=NOTHING)
    if _SHUT_DOWN in text or _UNANSWERED.fullmatch(text):
        return SparkLost("Spark's JVM went away while it ran a job")
    if _FULL in text:
        message = f"the disk is full where Spark writes: {line_of(text)}"
        return StoreFull(message, advice=f"{NOTHING}. SPARK_LOCAL_DIRS says where that is")
    where = _expression(text, meanings)
    if any(code in text for code in _OVERFLOWS):
        said = f"{where or 'the result of an expression'} does not fit its type"
        return Overflow(said, advice=f"{Overflow.default_advice}. {NOTHING}")
    if nulls := _NULLS.search(text):
        advice = "Leave out NOT NULL in the columns of the source, or keep such rows out of it"
        return Refused(
            f"the column {nulls[1]!r} is NOT NULL, and a row has no value for it",
            advice=f"{advice}. {NOTHING}",
        )
    return (
        _of_kafka(text)
        or _unreadable(text)
        or Refused(
            f"Spark failed: {line_of(text)}" + (f" In {where}" if where else ""),
            advice=f"{NOTHING}. Fix the cause and start again",
        )
    )


def _of_kafka(text: str) -> LaminaError | None:
    """What executors could not read from Kafka; None if it is anything else."""
    if schema := _SCHEMA.search(text):
        return Refused(schema[0], advice=NOTHING)
    if change := _CHANGED.search(text):
        return Refused(
            f"a change cannot be read: {change[4]}"[:LENGTH_MAX],
            where=f"topic {change[1]}, partition {change[2]}, offset {change[3]}",
            advice=NOTHING,
        )
    if denied := _DENIED.search(text):
        message = f"executors may not read from Kafka: {denied[1]}"
        return AccessDenied(message, advice=f"Check user, password and rights. {NOTHING}")
    if away := _KAFKA.search(text):
        message = f"executors cannot read from Kafka: {away[1] or away[2]}"
        return StoreUnavailable(message[:LENGTH_MAX], advice=f"Check the brokers. {NOTHING}")
    return None


def _expression(text: str, meanings: Mapping[str, str]) -> str:
    """The part of a SELECT that Spark points at, in the user's words; empty if at none."""
    found = _CONTEXT.search(text)
    if found is None:
        return ""
    line, before, marked = found.groups()
    part = line[len(before) : len(before) + len(marked)]
    return _STATE_COLUMN.sub(lambda column: meanings.get(column[0], column[0]), part)


def _unreadable(text: str) -> LaminaError | None:
    """What is wrong with a file; None if no file is."""
    record, several = _RECORD.search(text), _SEVERAL.search(text)
    if record:
        return Refused(
            f"a record cannot be read: {record[4]}"[:LENGTH_MAX],
            where=f"topic {record[1]}, partition {record[2]}, offset {record[3]}",
            advice=f"{_REPAIR}. {NOTHING}",
        )
    if several:
        message = f"a line cannot be read: it is not one JSON value to its end: {several[2]}"
        return Refused(
            message[:LENGTH_MAX], where=_path(several[1]), advice=f"{_REPAIR}. {NOTHING}"
        )
    line = _LINE.search(text)
    if line:
        message, where = f"a row cannot be read: {line[2]}", line[1].replace("%20", " ")
        return Refused(message[:LENGTH_MAX], where=where, advice=f"{_REPAIR}. {NOTHING}")
    unread, no_path = _UNREAD.search(text), _NO_PATH.search(text)
    if no_path or (unread and unread[1] == "FILE_NOT_EXIST"):
        where = _path(no_path[1] if no_path else unread[2] if unread else "")
        message = "a file of a source disappeared while it was read"
        return NotFound(message, where=where, advice=f"Put it back. {NOTHING}")
    if unread is None:
        return None
    where, why, other = _path(unread[2]), _cause(text), _OTHER_TYPE.search(text)
    if other:
        message = f"the column {other[1]!r} is {other[3]} in a file, and {other[2]} in the pipeline"
        advice = "Give the column the type of the files, or write the file again"
    elif _MALFORMED in text:
        message = f"a row cannot be read: {why}"
        advice = _REPAIR
    else:
        message = f"a file cannot be read: {why}"
        advice = "Replace it with a complete file, or remove it"
    return Refused(message[:LENGTH_MAX], where=where, advice=f"{advice}. {NOTHING}")


def _path(url: str) -> str:
    return unquote(urlsplit(url).path)


def _cause(text: str) -> str:
    """What is at the bottom of it."""
    causes = _CAUSE.findall(text)
    return causes[-1].strip() if causes else line_of(text)


def without_secrets(text: str) -> str:
    """Settings of Kafka's clients without passwords and private keys."""
    return _SECRETS.sub(lambda found: f"{found[1] or found[2] or found[3]}***", text)


def line_of(text: str) -> str:
    """Spark's own message, with the cause at the bottom if it says more."""
    text = without_secrets(text)
    sparks, pythons = _SPARKS.search(text), _PYTHONS.findall(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = sparks[0] if sparks else pythons[-1] if pythons else lines[0] if lines else "no reason"
    causes = _CAUSE.findall(text)
    if causes and causes[-1] not in said and said not in causes[-1]:
        said = f"{said}: {causes[-1]}"
    return _ANSI.sub("", said)[:LENGTH_MAX]
